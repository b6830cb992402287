#include "harness/expectation.h"
#include "harness/input.h"

#include <cJSON.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *const ng_expected_names[NG_EXPECT_KINDS] = {"fail", "flake", "skip"};

/* What an entry covers that lists no status. */
static const unsigned default_verdicts[NG_EXPECT_KINDS] = {
    [NG_EXPECT_FAIL] = 1u << NG_FAIL | 1u << NG_MOVED,
    [NG_EXPECT_FLAKE] = 1u << NG_FAIL | 1u << NG_MOVED | 1u << NG_CRASH | 1u << NG_TIMEOUT,
};
static const unsigned coverable = 1u << NG_FAIL | 1u << NG_MOVED | 1u << NG_CRASH | 1u << NG_TIMEOUT | 1u << NG_VACUOUS;

/* ---- versions -----------------------------------------------------------------------------------------------------*/
int ng_version_compare(const char *a, const char *b) {
    while (*a || *b) {
        char *end_a, *end_b;
        unsigned long x = strtoul(a, &end_a, 10), y = strtoul(b, &end_b, 10);
        if (x != y) return x < y ? -1 : 1;
        if ((end_a == a && *a) || (end_b == b && *b)) return strcmp(a, b); /* no numbers: as texts */
        a = end_a + (*end_a == '.');
        b = end_b + (*end_b == '.');
    }
    return 0;
}

typedef struct comparison {
    bool less, equal, greater;
} comparison;

/* One comparison of a range, "<=13.2"; returns what follows it, or NULL if there is none. */
static const char *next_term(const char *at, comparison *accepts, char *version, size_t capacity) {
    *accepts = (comparison){0};
    at += strspn(at, " ");
    if (*at == '<') accepts->less = true, at++;
    else if (*at == '>') accepts->greater = true, at++;
    if (*at == '=') accepts->equal = true, at++;
    at += strspn(at, " ");
    size_t length = strspn(at, "0123456789.");
    if (!(accepts->less || accepts->equal || accepts->greater) || !length || length >= capacity || *at == '.') return NULL;
    snprintf(version, capacity, "%.*s", (int)length, at);
    at += length;
    return *at && *at != ' ' ? NULL : at + strspn(at, " ");
}

bool ng_range_is_sound(const char *range) {
    comparison accepts;
    char version[48];
    if (!*range) return false;
    while (range && *range)
        range = next_term(range, &accepts, version, sizeof version);
    return range != NULL;
}

bool ng_range_holds(const char *range, const char *version) {
    comparison accepts;
    char edge[48];
    if (!*version) return false;
    while (*range) {
        range = next_term(range, &accepts, edge, sizeof edge);
        if (!range) return false;
        int order = ng_version_compare(version, edge);
        if (!(order < 0 ? accepts.less : order > 0 ? accepts.greater : accepts.equal)) return false;
    }
    return true;
}

/* ---- reading ------------------------------------------------------------------------------------------------------*/
typedef struct place {
    const char *path;
    size_t entry;
    ng_error *error;
} place;

static ng_status wrong(const place *where, const char *what) {
    return ng_fail(where->error, NG_BAD_ARGUMENT, "%s: entry %zu: %s", where->path, where->entry, what);
}

static ng_status read_status(const cJSON *list, ng_expectation *e, const place *where) {
    const cJSON *word;
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list)) return wrong(where, "\"status\" is no list of statuses");
    e->verdicts = 0;
    cJSON_ArrayForEach(word, list) {
        int v = 0;
        while (v < NG_VERDICTS && !(cJSON_IsString(word) && !strcmp(word->valuestring, ng_verdict_names[v]) && coverable >> v & 1))
            v++;
        if (v == NG_VERDICTS) return wrong(where, "\"status\" takes fail, moved, crash, timeout, vacuous");
        e->verdicts |= 1u << v;
    }
    return NG_OK;
}

static ng_status check_ranges(const ng_expectation *e, const place *where) {
    const cJSON *library;
    if (e->driver && !ng_range_is_sound(e->driver)) return wrong(where, "\"driver\" is no range such as \">=575 <580\"");
    cJSON_ArrayForEach(library, e->libraries)
        if (!cJSON_IsString(library) || !ng_range_is_sound(library->valuestring))
            return wrong(where, "\"library\" is no object of ranges such as {\"cublaslt\": \">=13.1 <13.2\"}");
    return NG_OK;
}

static ng_status check_entry(const ng_expectation *e, const place *where) {
    if (!e->cases) return wrong(where, "\"cases\" is missing: a glob on ids");
    if (!e->reason || !*e->reason || strchr(e->reason, '\n')) return wrong(where, "\"reason\" is missing: one line");
    if (!e->link || (strncmp(e->link, "https://", 8) && strncmp(e->link, "http://", 7)))
        return wrong(where, "\"link\" is missing: where the matter is followed up");
    if (e->expected == NG_EXPECT_KINDS) return wrong(where, "\"expect\" is fail, flake or skip");
    return check_ranges(e, where);
}

static ng_status read_entry(const cJSON *entry, ng_expectation *e, const place *where) {
    const struct {
        const char *name;
        const char **text;
    } texts[] = {{"cases", &e->cases}, {"architecture", &e->architecture}, {"driver", &e->driver}, {"reason", &e->reason}, {"link", &e->link}};
    const cJSON *member, *status = NULL;
    char what[96];
    *e = (ng_expectation){.path = where->path, .expected = NG_EXPECT_KINDS};
    if (!cJSON_IsObject(entry)) return wrong(where, "is no object");
    cJSON_ArrayForEach(member, entry) {
        size_t t = 0;
        while (t < sizeof texts / sizeof *texts && strcmp(texts[t].name, member->string))
            t++;
        if (t < sizeof texts / sizeof *texts && cJSON_IsString(member)) *texts[t].text = member->valuestring;
        else if (!strcmp(member->string, "status")) status = member;
        else if (!strcmp(member->string, "library") && cJSON_IsObject(member)) e->libraries = member;
        else if (!strcmp(member->string, "expect") && cJSON_IsString(member)) {
            for (int k = 0; k < NG_EXPECT_KINDS; k++)
                if (!strcmp(member->valuestring, ng_expected_names[k])) e->expected = (ng_expected)k;
        } else {
            snprintf(what, sizeof what, "has a member \"%.40s\" that is unknown or of a wrong kind", member->string);
            return wrong(where, what);
        }
    }
    ng_status bad = check_entry(e, where);
    if (bad) return bad;
    e->verdicts = default_verdicts[e->expected];
    if (!status) return NG_OK;
    return e->expected == NG_EXPECT_SKIP ? wrong(where, "a skip has no \"status\"") : read_status(status, e, where);
}

static ng_status read_file(ng_expectations *all, size_t f, ng_error *error) {
    const char *path = all->paths[f];
    ng_status status = ng_read_document(path, "file of expectations", NG_EXPECTATIONS_SCHEMA, &all->documents[f], error);
    if (status) return status;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(all->documents[f], "expectations"), *entry;
    if (!cJSON_IsArray(list)) return ng_fail(error, NG_BAD_ARGUMENT, "%s: lacks the list \"expectations\"", path);
    ng_expectation *items = realloc(all->items, (all->count + (size_t)cJSON_GetArraySize(list) + 1) * sizeof *items);
    if (!items) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    all->items = items;
    place where = {path, 0, error};
    cJSON_ArrayForEach(entry, list) {
        where.entry++;
        status = read_entry(entry, &items[all->count], &where);
        if (status) return status;
        all->count++;
    }
    return NG_OK;
}

ng_status ng_expectations_open(const char *folder, const ng_fingerprint *fingerprint, ng_expectations *all, ng_error *error) {
    char **names;
    size_t count;
    *all = (ng_expectations){.fingerprint = fingerprint};
    if (!folder) return NG_OK;
    ng_status status = ng_list_folder(folder, ".json", &names, &count, error);
    if (status) return status;
    all->paths = calloc(count + 1, sizeof *all->paths);
    all->documents = calloc(count + 1, sizeof(struct cJSON *));
    if (!all->paths || !all->documents) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    XXH64_hash_t low = 0, high = 0;
    for (size_t f = 0; f < count && !status; f++) {
        char digest[NG_DIGEST_BYTES];
        if (asprintf(&all->paths[f], "%s/%s", folder, names[f]) < 0) {
            all->paths[f] = NULL;
            status = ng_fail(error, NG_NO_MEMORY, "out of memory");
            break;
        }
        all->file_count++;
        status = read_file(all, f, error);
        if (!status) status = ng_digest_file(all->paths[f], digest, error);
        if (status) break;
        high = XXH3_64bits_withSeed(digest, sizeof digest, high + 1);
        low = XXH3_64bits_withSeed(digest, sizeof digest, low ^ high);
        snprintf(all->digest, sizeof all->digest, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
    }
    ng_free_names(names, count);
    if (status) ng_expectations_close(all);
    return status;
}

void ng_expectations_close(ng_expectations *all) {
    for (size_t f = 0; f < all->file_count; f++) {
        cJSON_Delete(all->documents[f]);
        free(all->paths[f]);
    }
    free(all->paths);
    free(all->documents);
    free(all->items);
    *all = (ng_expectations){0};
}

/* ---- applying -----------------------------------------------------------------------------------------------------*/
static bool is_about(const ng_expectation *e, const ng_fingerprint *f, const ng_case *one) {
    char architecture[24];
    const char *machine = strrchr(f->os, ' ');
    const cJSON *library;
    if (fnmatch(e->cases, one->id, 0)) return false;
    if (one->kernel->backend == NG_BACKEND_CUDA) snprintf(architecture, sizeof architecture, "sm%d", f->gpu.present ? f->gpu.sm : 0);
    else snprintf(architecture, sizeof architecture, "%.20s", machine ? machine + 1 : "");
    if (e->architecture && fnmatch(e->architecture, architecture, 0)) return false;
    if (e->driver && !ng_range_holds(e->driver, f->gpu.driver)) return false;
    cJSON_ArrayForEach(library, e->libraries)
        if (!ng_range_holds(library->valuestring, ng_fingerprint_library(f, library->string))) return false;
    return true;
}

const ng_expectation *ng_expectation_of(const ng_expectations *all, const ng_case *one) {
    for (size_t i = 0; all && i < all->count; i++)
        if (is_about(&all->items[i], all->fingerprint, one)) return &all->items[i];
    return NULL;
}

static void rewrite(ng_result *result, ng_verdict verdict, const char *format, const ng_expectation *e) {
    char old[150];
    snprintf(old, sizeof old, "%.149s", result->reason);
    result->verdict = verdict;
    snprintf(result->reason, sizeof result->reason, format, e->reason, e->link, old);
}

void ng_expectation_apply(const ng_expectation *e, ng_result *result) {
    if (!e) return;
    bool covered = e->verdicts >> result->verdict & 1;
    if (e->expected == NG_EXPECT_FAIL && covered) rewrite(result, NG_XFAIL, "known: %.150s (%.120s); %s", e);
    else if (e->expected == NG_EXPECT_FLAKE && covered) rewrite(result, NG_FLAKE, "known flake: %.150s (%.120s); %s", e);
    else if (e->expected == NG_EXPECT_FAIL && result->verdict == NG_PASS)
        rewrite(result, NG_XPASS, "expected to fail: %.150s (%.120s); it passes now: remove the expectation%s", e);
}
