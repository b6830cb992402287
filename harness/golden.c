#include "harness/golden.h"
#include "harness/input.h"
#include "harness/record_read.h"

#include <cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const ng_golden_figure_names[NG_GOLDEN_FIGURES] = {"bound_ratio", "max_ulp", "rms_rel", "bias"};

/* ---- keys ---------------------------------------------------------------------------------------------------------*/
void ng_golden_key_of(const char *kernel, bool on_gpu, int sm, const char *version, uint64_t seed, ng_golden_key *key) {
    const char *word = kernel;
    for (int slash = 0; slash < 2 && strchr(word, '/'); slash++)
        word = strchr(word, '/') + 1;
    *key = (ng_golden_key){.seed = seed};
    snprintf(key->backend, sizeof key->backend, "%.*s", (int)strcspn(word, "/"), word);
    if (on_gpu) snprintf(key->architecture, sizeof key->architecture, "sm%d", sm);
    else snprintf(key->architecture, sizeof key->architecture, "any");
    snprintf(key->library, sizeof key->library, "%s", version);
}

bool ng_golden_key_equal(const ng_golden_key *a, const ng_golden_key *b) {
    return !strcmp(a->backend, b->backend) && !strcmp(a->architecture, b->architecture) && !strcmp(a->library, b->library) &&
           a->seed == b->seed;
}

void ng_golden_file_name(const ng_golden_key *key, char *name, size_t capacity) {
    bool any = !strcmp(key->architecture, "any");
    snprintf(name, capacity, "%s%s%s%s%s-seed%" PRIu64 ".json", key->backend, *key->library ? "-" : "", key->library,
             any ? "" : "-", any ? "" : key->architecture, key->seed);
}

/* ---- finding files ------------------------------------------------------------------------------------------------*/
/* The name with the version cut out, to find a file of any version: "cublaslt-" and "-sm90-seed1.json". */
static bool is_other_version(const char *file, const ng_golden_key *key) {
    ng_golden_key bare = *key;
    char name[256];
    bare.library[0] = 0;
    ng_golden_file_name(&bare, name, sizeof name);
    size_t head = strlen(bare.backend) + 1, tail = strlen(name) - head + 1, length = strlen(file);
    if (length < head + tail || strncmp(file, name, head) || strcmp(file + length - tail, name + head - 1)) return false;
    return strcspn(file + head, "-") == length - head - tail; /* a version holds no hyphen */
}

/* The latest of the other versions, as numbers compare: 13.10 after 13.9. */
static ng_status find_other_version(const char *folder, const ng_golden_key *key, char **path, ng_error *error) {
    char **names, *best = NULL;
    size_t count;
    *path = NULL;
    ng_status status = ng_list_folder(folder, ".json", &names, &count, error);
    if (status) return status;
    for (size_t i = 0; i < count; i++)
        if (is_other_version(names[i], key) && (!best || strverscmp(names[i], best) > 0)) best = names[i];
    if (best && asprintf(path, "%s/%s", folder, best) < 0) {
        *path = NULL;
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    ng_free_names(names, count);
    return status;
}

ng_status ng_golden_path(const char *folder, const ng_golden_key *key, bool any_version, char **path, ng_error *error) {
    char name[256];
    ng_golden_file_name(key, name, sizeof name);
    if (asprintf(path, "%s/%s", folder, name) < 0) {
        *path = NULL;
        return ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    if (!access(*path, F_OK)) return NG_OK;
    free(*path);
    *path = NULL;
    return any_version && *key->library ? find_other_version(folder, key, path, error) : NG_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------*/
static int by_id(const void *a, const void *b) {
    return strcmp(((const ng_golden_case *)a)->id, ((const ng_golden_case *)b)->id);
}

static bool read_word(const cJSON *object, const char *name, char *word, size_t capacity) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsNull(item)) *word = 0;
    else if (!cJSON_IsString(item) || strlen(item->valuestring) >= capacity) return false;
    else strcpy(word, item->valuestring);
    return true;
}

/* The seed is a string: 64 bits do not fit into every reader's numbers. */
static ng_status read_key(ng_golden_set *set, ng_error *error) {
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(set->json, "key");
    const char *seed = ng_text_member(key, "seed"), *level = ng_text_member(set->json, "level");
    char name[256], *end = NULL;
    int l = 0;
    if (!read_word(key, "backend", set->key.backend, NG_GOLDEN_WORD) || !*set->key.backend || !seed || *seed < '0' || *seed > '9' ||
        !read_word(key, "architecture", set->key.architecture, NG_GOLDEN_WORD) || !*set->key.architecture ||
        !read_word(key, "library", set->key.library, NG_GOLDEN_WORD))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: its key lacks backend, architecture, library or seed", set->path);
    set->key.seed = strtoull(seed, &end, 10);
    while (level && l < NG_LEVELS && strcmp(ng_level_names[l], level))
        l++;
    if (*end || !level || l == NG_LEVELS) return ng_fail(error, NG_BAD_ARGUMENT, "%s: its key's seed or its level is wrong", set->path);
    set->level = (ng_level)l;
    const char *slash = strrchr(set->path, '/');
    ng_golden_file_name(&set->key, name, sizeof name);
    if (strcmp(slash ? slash + 1 : set->path, name))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: holds the golden of %s; a file's name says its key", set->path, name);
    return NG_OK;
}

/* "id": [digest, bound_ratio, max_ulp, rms_rel, bias] */
static ng_status read_case(const ng_golden_set *set, const cJSON *item, ng_golden_case *one, ng_error *error) {
    const cJSON *digest = cJSON_GetArrayItem(item, 0);
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 1 + NG_GOLDEN_FIGURES || !cJSON_IsString(digest) ||
        strlen(digest->valuestring) != 32 || strspn(digest->valuestring, "0123456789abcdef") != 32)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: %.200s is no digest with %d figures", set->path, item->string, NG_GOLDEN_FIGURES);
    *one = (ng_golden_case){.id = item->string, .digest = digest->valuestring};
    const cJSON *figure = digest->next;
    for (int f = 0; f < NG_GOLDEN_FIGURES; f++, figure = figure->next)
        one->figures[f] = cJSON_IsNumber(figure) ? figure->valuedouble : NAN;
    return NG_OK;
}

ng_status ng_golden_read(const char *path, ng_golden_set *set, ng_error *error) {
    *set = (ng_golden_set){.path = strdup(path)};
    const cJSON *cases, *item, *provenance;
    ng_status status = set->path ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!status) status = ng_read_document(path, "golden", NG_GOLDEN_SCHEMA, &set->json, error);
    if (!status) status = ng_digest_file(path, set->digest, error);
    if (!status) status = read_key(set, error);
    if (status) goto done;
    provenance = cJSON_GetObjectItemCaseSensitive(set->json, "provenance");
    read_word(provenance, "recorded", set->recorded, sizeof set->recorded);
    read_word(provenance, "command", set->command, sizeof set->command);
    cases = cJSON_GetObjectItemCaseSensitive(set->json, "cases");
    if (!cJSON_IsObject(cases)) status = ng_fail(error, NG_BAD_ARGUMENT, "%s: holds no cases", path);
    if (!status && !(set->cases = calloc((size_t)cJSON_GetArraySize(cases) + 1, sizeof *set->cases)))
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (status) goto done;
    cJSON_ArrayForEach(item, cases) {
        status = read_case(set, item, &set->cases[set->count], error);
        if (status) goto done;
        set->count++;
    }
    qsort(set->cases, set->count, sizeof *set->cases, by_id);
    for (size_t i = 1; i < set->count && !status; i++)
        if (!strcmp(set->cases[i].id, set->cases[i - 1].id))
            status = ng_fail(error, NG_BAD_ARGUMENT, "%s: holds %.200s twice", path, set->cases[i].id);
done:
    if (status) ng_golden_free(set);
    return status;
}

void ng_golden_free(ng_golden_set *set) {
    cJSON_Delete(set->json);
    free(set->cases);
    free(set->path);
    *set = (ng_golden_set){0};
}

const ng_golden_case *ng_golden_find(const ng_golden_set *set, const char *id) {
    const ng_golden_case key = {.id = id};
    return set->count ? bsearch(&key, set->cases, set->count, sizeof key, by_id) : NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------------------*/
static void write_case(FILE *out, const ng_golden_case *one, bool last) {
    fputs("  ", out);
    ng_json_quote(out, one->id);
    fprintf(out, ": [\"%s\"", one->digest);
    for (int f = 0; f < NG_GOLDEN_FIGURES; f++)
        if (isfinite(one->figures[f])) fprintf(out, ", %.4g", one->figures[f]);
        else fputs(", null", out);
    fputs(last ? "]\n" : "],\n", out);
}

void ng_golden_write(FILE *out, ng_golden_set *set, const cJSON *fingerprint) {
    static const char *const private_members[] = {"host", "uuid", NULL};
    ng_json json = {.out = out, .break_depth = 1};
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, set->key.seed);
    qsort(set->cases, set->count, sizeof *set->cases, by_id);
    ng_json_object(&json, NULL);
    ng_json_text(&json, "schema", NG_GOLDEN_SCHEMA);
    ng_json_object(&json, "key");
    ng_json_text(&json, "backend", set->key.backend);
    ng_json_text(&json, "architecture", set->key.architecture);
    ng_json_text(&json, "library", *set->key.library ? set->key.library : NULL);
    ng_json_text(&json, "seed", seed);
    ng_json_end_object(&json);
    ng_json_text(&json, "level", ng_level_names[set->level]);
    ng_json_object(&json, "provenance");
    ng_json_text(&json, "recorded", set->recorded);
    ng_json_text(&json, "command", set->command);
    ng_json_value(&json, "fingerprint", fingerprint, private_members);
    ng_json_end_object(&json);
    ng_json_array(&json, "figures"); /* after each digest */
    for (int f = 0; f < NG_GOLDEN_FIGURES; f++)
        ng_json_text(&json, NULL, ng_golden_figure_names[f]);
    ng_json_end_array(&json);
    fputs(",\n \"cases\": {\n", out);
    for (size_t i = 0; i < set->count; i++)
        write_case(out, &set->cases[i], i + 1 == set->count);
    fputs(" }\n}\n", out);
}
