#include "harness/record_read.h"
#include "harness/input.h"
#include "harness/text.h"

#include <cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_or_empty(const cJSON *object, const char *name) {
    const char *text = ng_text_member(object, name);
    return text ? text : "";
}

/* A seed may need 64 bits, which a double does not have. Every case's repro line says it in decimal; so does argv's --seed. */
static uint64_t read_seed(const cJSON *run, const cJSON *first_case) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(run, "seed");
    const char *repro = text_or_empty(first_case, "repro"), *word = strstr(repro, "--seed ");
    for (const char *next; word && (next = strstr(word + 1, "--seed "));)
        word = next;
    if (word) return strtoull(word + strlen("--seed "), NULL, 10);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 0x1p64 ? (uint64_t)item->valuedouble : 0;
}

static ng_status read_run(ng_record_file *r, ng_error *error) {
    const cJSON *run = cJSON_GetObjectItemCaseSensitive(r->json, "run");
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(r->json, "cases");
    const char *level = ng_text_member(run, "level");
    int l = 0;
    r->fingerprint = cJSON_GetObjectItemCaseSensitive(r->json, "fingerprint");
    if (!cJSON_IsObject(run) || !cJSON_IsObject(r->fingerprint) || !cJSON_IsArray(cases))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is no record: it lacks \"run\", \"fingerprint\" or \"cases\"", r->path);
    while (level && l < NG_LEVELS && strcmp(ng_level_names[l], level))
        l++;
    if (!level || l == NG_LEVELS) return ng_fail(error, NG_BAD_ARGUMENT, "%s: its run names no level", r->path);
    r->level = (ng_level)l;
    r->run = text_or_empty(run, "id");
    r->started = text_or_empty(run, "started");
    r->seed = read_seed(run, cJSON_GetArrayItem(cases, 0));
    const char *os = text_or_empty(r->fingerprint, "os"), *machine = strrchr(os, ' ');
    r->machine = machine ? machine + 1 : os;
    const cJSON *sm = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(r->fingerprint, "gpu"), "sm");
    r->sm = cJSON_IsNumber(sm) && sm->valuedouble > 0 && sm->valuedouble < 10000 ? (int)sm->valuedouble : 0;
    return NG_OK;
}

static int by_id(const void *a, const void *b) {
    return strcmp(((const ng_recorded_case *)a)->id, ((const ng_recorded_case *)b)->id);
}

static ng_status read_cases(ng_record_file *r, ng_error *error) {
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(r->json, "cases"), *item;
    ng_error inner;
    r->cases = calloc((size_t)cJSON_GetArraySize(cases) + 1, sizeof *r->cases);
    if (!r->cases) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    cJSON_ArrayForEach(item, cases) {
        ng_recorded_case *one = &r->cases[r->count];
        one->id = ng_text_member(item, "id");
        one->kernel = ng_text_member(item, "kernel");
        if (!one->id || !one->kernel || strlen(one->id) >= NG_ID_BYTES)
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: its case %zu has no id or no kernel", r->path, r->count);
        one->backend = text_or_empty(item, "backend");
        one->suite = text_or_empty(item, "suite");
        one->repro = text_or_empty(item, "repro");
        if (ng_result_read_older(item, &one->result, &inner))
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: %.200s: %.300s", r->path, one->id, inner.text);
        r->count++;
    }
    qsort(r->cases, r->count, sizeof *r->cases, by_id);
    for (size_t i = 1; i < r->count; i++)
        if (!strcmp(r->cases[i].id, r->cases[i - 1].id))
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: holds %.200s twice", r->path, r->cases[i].id);
    return NG_OK;
}

ng_status ng_record_read(const char *path, ng_record_file *record, ng_error *error) {
    *record = (ng_record_file){.path = strdup(path)};
    ng_status status = record->path ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!status) status = ng_read_document(path, "record of a run", NG_REPORT_SCHEMA, &record->json, error);
    if (!status) status = read_run(record, error);
    if (!status) status = read_cases(record, error);
    if (status) ng_record_free(record);
    return status;
}

void ng_record_free(ng_record_file *record) {
    cJSON_Delete(record->json);
    free(record->cases);
    free(record->path);
    *record = (ng_record_file){0};
}

const ng_recorded_case *ng_record_find(const ng_record_file *record, const char *id) {
    const ng_recorded_case key = {.id = id};
    return record->count ? bsearch(&key, record->cases, record->count, sizeof key, by_id) : NULL;
}

static const cJSON *argv_of(const ng_record_file *record) {
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(record->json, "run"), "argv");
}

/* Long options may be cut short on a command line. */
bool ng_record_given(const ng_record_file *record, const char *option) {
    const cJSON *word;
    cJSON_ArrayForEach(word, argv_of(record)) {
        const char *text = cJSON_IsString(word) ? word->valuestring : "";
        size_t length = strcspn(text, "=");
        if (length > 4 && !strncmp(text, "--", 2) && !strncmp(text + 2, option, length - 2)) return true;
        if (length > 2 && !strncmp(text, "--", 2) && strlen(option) == length - 2 && !strncmp(text + 2, option, length - 2)) return true;
    }
    return false;
}

const char *ng_record_strange_option(const ng_record_file *record) {
    static const char *const options[] = {"model", "shape", "tensors", "x", "w", "dy", "data", "mode", "plugin", "full"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (ng_record_given(record, options[i])) return options[i];
    return NULL;
}

bool ng_record_is_filtered(const ng_record_file *record) {
    const cJSON *word;
    cJSON_ArrayForEach(word, argv_of(record))
        if (cJSON_IsString(word) && !strncmp(word->valuestring, "-f", 2)) return true;
    return ng_record_given(record, "filter");
}

/* Options that say where results went, which is of no matter to what they are: 0 another word, 1 with its value, 2 before it. */
static int names_output(const char *word) {
    static const char *const names[] = {"--json", "--junit", "--tap", "--journal", "--quiet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (!strncmp(word, names[i], length) && (word[length] == '=' || !word[length])) return word[length] || i == 4 ? 1 : 2;
    }
    if (!strcmp(word, "-q")) return 1;
    return !strncmp(word, "-o", 2) || !strncmp(word, "-J", 2) ? (word[2] ? 1 : 2) : 0;
}

void ng_record_command(const ng_record_file *record, char *line, size_t capacity) {
    size_t used = 0;
    *line = 0;
    for (const cJSON *word = argv_of(record) ? argv_of(record)->child : NULL; word; word = word->next) {
        const char *text = cJSON_IsString(word) ? word->valuestring : "";
        int output = names_output(text);
        if (output == 2 && word->next) word = word->next;
        if (output) continue;
        if (!used && strrchr(text, '/')) text = strrchr(text, '/') + 1; /* the program's folder is of this machine alone */
        if (used && used + 1 < capacity) line[used++] = ' ';
        if (used < capacity) used += ng_shell_quote(text, line + used, capacity - used);
    }
}

const char *ng_record_fact(const ng_record_file *record, const char *path) {
    const cJSON *at = record->fingerprint;
    char name[64];
    for (size_t length; at && *path; path += length + (path[length] == '.')) {
        length = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        at = cJSON_GetObjectItemCaseSensitive(at, name);
    }
    return cJSON_IsString(at) ? at->valuestring : "";
}

const char *ng_record_library(const ng_record_file *record, const char *name) {
    static const char *const libraries[][2] = {
        {"cublaslt", "cublaslt"}, {"cuda-runtime", "cuda_runtime"}, {"openblas", "libraries.openblas"}, {"mpfr", "libraries.mpfr"},
    };
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (!strcmp(libraries[i][0], name)) return ng_record_fact(record, libraries[i][1]);
    return "";
}

void ng_json_value(ng_json *json, const char *name, const cJSON *value, const char *const *without) {
    const cJSON *item;
    for (size_t i = 0; name && without && without[i]; i++)
        if (!strcmp(name, without[i])) return;
    if (cJSON_IsObject(value)) {
        ng_json_object(json, name);
        cJSON_ArrayForEach(item, value) ng_json_value(json, item->string, item, without);
        ng_json_end_object(json);
    } else if (cJSON_IsArray(value)) {
        ng_json_array(json, name);
        cJSON_ArrayForEach(item, value) ng_json_value(json, NULL, item, without);
        ng_json_end_array(json);
    } else if (cJSON_IsString(value)) ng_json_text(json, name, value->valuestring);
    else if (cJSON_IsBool(value)) ng_json_bool(json, name, cJSON_IsTrue(value));
    else if (cJSON_IsNumber(value) && value->valuedouble == floor(value->valuedouble) && fabs(value->valuedouble) < 0x1p53)
        ng_json_integer(json, name, (int64_t)value->valuedouble);
    else if (cJSON_IsNumber(value)) ng_json_double(json, name, value->valuedouble);
    else ng_json_null(json, name);
}
