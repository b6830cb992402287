#include "harness/record.h"
#include "harness/text.h"

#include <cJSON.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

const char *const ng_op_names[NG_OPS] = {
    [NG_OP_CAST] = "cast",         [NG_OP_QUANTIZE] = "quantize",         [NG_OP_DEQUANTIZE] = "dequantize",
    [NG_OP_GEMM] = "gemm",         [NG_OP_HADAMARD] = "hadamard",         [NG_OP_NORM_FORWARD] = "norm-forward",
    [NG_OP_NORM_BACKWARD] = "norm-backward", [NG_OP_OPTIMIZER] = "optimizer", [NG_OP_ACTIVATION] = "activation",
    [NG_OP_LOSS] = "loss", [NG_OP_ACTIVATION_BACKWARD] = "activation-backward", [NG_OP_LOSS_BACKWARD] = "loss-backward",
    [NG_OP_SCALE_UPDATE] = "scale-update",
    [NG_OP_ATTENTION_FORWARD] = "attention-forward", [NG_OP_ATTENTION_BACKWARD] = "attention-backward", [NG_OP_ROPE] = "rope",
    [NG_OP_ADD] = "add", [NG_OP_TRANSPOSE] = "transpose", [NG_OP_EMBEDDING_FORWARD] = "embedding-forward",
    [NG_OP_EMBEDDING_BACKWARD] = "embedding-backward",
};
const char *const ng_phase_names[NG_PHASES] = {"", "fprop", "dgrad", "wgrad"};
const char *const ng_backend_names[NG_BACKENDS] = {"cpu", "cuda"};
const char *const ng_mode_names[NG_MODES] = {"prequantized", "autocast"};
const char *const ng_level_names[NG_LEVELS + 1] = {"smoke", "ci", "nightly", NULL};

/* ---- members, for writing and reading alike -----------------------------------------------------------------------*/
typedef enum member_kind { DOUBLE, INT64, INT, PAIR, TEXT, BOOL } member_kind;

typedef struct member {
    const char *name;
    member_kind kind;
    size_t offset, bytes; /* bytes: of a TEXT */
} member;

#define MEMBER(type, name, kind) {#name, kind, offsetof(type, name), sizeof(((type *)0)->name)}

static const member error_members[] = {
    MEMBER(ng_error_figures, max_abs, DOUBLE),
    MEMBER(ng_error_figures, max_rel, DOUBLE),
    MEMBER(ng_error_figures, max_ulp, DOUBLE),
    MEMBER(ng_error_figures, rms_rel, DOUBLE),
    MEMBER(ng_error_figures, bias, DOUBLE),
    MEMBER(ng_error_figures, sqnr_db, DOUBLE),
    MEMBER(ng_error_figures, bound_ratio, DOUBLE),
    MEMBER(ng_error_figures, worst, PAIR),
    MEMBER(ng_error_figures, worst_computed, DOUBLE),
    MEMBER(ng_error_figures, worst_exact, DOUBLE),
    MEMBER(ng_error_figures, worst_bound, DOUBLE),
    MEMBER(ng_error_figures, expected_ratio, DOUBLE),
    MEMBER(ng_error_figures, nonfinite_mismatch, INT64),
    MEMBER(ng_error_figures, beyond_bound, INT64),
    MEMBER(ng_error_figures, checked, INT64),
    MEMBER(ng_error_figures, elements, INT64),
};

static const member prediction_members[] = {
    MEMBER(ng_prediction, elements, INT64),
    MEMBER(ng_prediction, differ, INT64),
    MEMBER(ng_prediction, first, PAIR),
    MEMBER(ng_prediction, model, TEXT),
};

static const member speed_members[] = {
    MEMBER(ng_speed, median_s, DOUBLE), MEMBER(ng_speed, q1_s, DOUBLE),     MEMBER(ng_speed, q3_s, DOUBLE),
    MEMBER(ng_speed, samples, INT),     MEMBER(ng_speed, flop, DOUBLE),     MEMBER(ng_speed, bytes, DOUBLE),
    MEMBER(ng_speed, rate, DOUBLE),     MEMBER(ng_speed, roofline, DOUBLE), MEMBER(ng_speed, algorithm, TEXT),
    MEMBER(ng_speed, method, TEXT),     MEMBER(ng_speed, sm_mhz_before, DOUBLE), MEMBER(ng_speed, sm_mhz_after, DOUBLE),
    MEMBER(ng_speed, throttle, TEXT),
};

static const member draw_members[] = {
    MEMBER(ng_draw_figures, draws, INT64),             MEMBER(ng_draw_figures, analytic_bias_ulp, DOUBLE),
    MEMBER(ng_draw_figures, measured_bias_ulp, DOUBLE), MEMBER(ng_draw_figures, shift, DOUBLE),
    MEMBER(ng_draw_figures, alarm, DOUBLE),            MEMBER(ng_draw_figures, false_alarm, DOUBLE),
    MEMBER(ng_draw_figures, detectable, DOUBLE),
};

static const member result_members[] = {
    MEMBER(ng_result, digest, TEXT),      MEMBER(ng_result, golden, TEXT),
    MEMBER(ng_result, nondeterministic, BOOL), MEMBER(ng_result, saturated, DOUBLE),
    MEMBER(ng_result, flushed, DOUBLE),   MEMBER(ng_result, verify_s, DOUBLE),
};

static const member variant_members[] = {
    MEMBER(ng_variant_result, algorithm, TEXT),     MEMBER(ng_variant_result, differ, INT64),
    MEMBER(ng_variant_result, bound_ratio, DOUBLE), MEMBER(ng_variant_result, median_s, DOUBLE),
    MEMBER(ng_variant_result, digest, TEXT),
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void write_members(ng_json *json, const member *members, size_t count, const void *from) {
    for (size_t i = 0; i < count; i++) {
        const member *m = &members[i];
        const void *at = (const char *)from + m->offset;
        switch (m->kind) {
        case DOUBLE: ng_json_double(json, m->name, *(const double *)at); break;
        case INT64: ng_json_integer(json, m->name, *(const int64_t *)at); break;
        case INT: ng_json_integer(json, m->name, *(const int *)at); break;
        case TEXT: ng_json_text(json, m->name, *(const char *)at ? at : NULL); break;
        case BOOL: ng_json_bool(json, m->name, *(const bool *)at); break;
        case PAIR:
            ng_json_array(json, m->name);
            ng_json_integer(json, NULL, ((const int64_t *)at)[0]);
            ng_json_integer(json, NULL, ((const int64_t *)at)[1]);
            ng_json_end_array(json);
            break;
        }
    }
}

/* ---- results to JSON ----------------------------------------------------------------------------------------------*/
static void write_tiers(ng_json *json, const int64_t by_tier[NG_TIERS]) {
    ng_json_object(json, "tier");
    for (int t = NG_TIER_NONE + 1; t < NG_TIERS; t++)
        if (by_tier[t]) ng_json_integer(json, ng_tier_names[t], by_tier[t]);
    ng_json_end_object(json);
}

static void write_error(ng_json *json, const char *name, const ng_error_figures *error) {
    if (!error->present) {
        ng_json_null(json, name);
        return;
    }
    ng_json_object(json, name);
    write_members(json, error_members, COUNT(error_members), error);
    write_tiers(json, error->by_tier);
    ng_json_end_object(json);
}

static void write_draws(ng_json *json, const ng_draw_figures *figures) {
    if (!figures->present) {
        ng_json_null(json, "stochastic");
        return;
    }
    ng_json_object(json, "stochastic");
    write_members(json, draw_members, COUNT(draw_members), figures);
    ng_json_end_object(json);
}

static void write_prediction(ng_json *json, const ng_prediction *prediction) {
    if (!prediction->present) {
        ng_json_null(json, "prediction");
        return;
    }
    ng_json_object(json, "prediction");
    write_members(json, prediction_members, COUNT(prediction_members), prediction);
    ng_json_end_object(json);
}

static void write_speed(ng_json *json, const ng_speed *speed) {
    if (!speed->present) {
        ng_json_null(json, "speed");
        return;
    }
    ng_json_object(json, "speed");
    write_members(json, speed_members, COUNT(speed_members), speed);
    ng_json_object(json, "parts");
    for (int i = 0; i < speed->part_count; i++)
        ng_json_double(json, speed->parts[i].name, speed->parts[i].median_s);
    ng_json_end_object(json);
    ng_json_end_object(json);
}

void ng_result_write(ng_json *json, const ng_result *result) {
    ng_json_text(json, "status", ng_verdict_names[result->verdict]);
    ng_json_text(json, "reason", result->reason);
    write_error(json, "error", &result->error);
    write_prediction(json, &result->prediction);
    write_error(json, "recipe_error", &result->recipe_error);
    write_members(json, result_members, COUNT(result_members), result);
    write_draws(json, &result->stochastic);
    write_speed(json, &result->speed);
    ng_json_array(json, "variants");
    for (int i = 0; i < result->variant_count; i++) {
        ng_json_object(json, NULL);
        write_members(json, variant_members, COUNT(variant_members), &result->variants[i]);
        ng_json_end_object(json);
    }
    ng_json_end_array(json);
}

/* ---- results from JSON --------------------------------------------------------------------------------------------*/
static bool read_double(const cJSON *item, double *value) {
    if (cJSON_IsNumber(item)) *value = item->valuedouble;
    else if (cJSON_IsNull(item) || (cJSON_IsString(item) && !strcmp(item->valuestring, "nan"))) *value = NAN;
    else if (cJSON_IsString(item) && !strcmp(item->valuestring, "inf")) *value = INFINITY;
    else if (cJSON_IsString(item) && !strcmp(item->valuestring, "-inf")) *value = -INFINITY;
    else return false;
    return true;
}

/* Whole numbers up to 2^53 in magnitude: what survives cJSON's doubles; counts and places are below it. */
static bool read_whole(const cJSON *item, int64_t *value) {
    if (!cJSON_IsNumber(item) || fabs(item->valuedouble) > 0x1p53 || item->valuedouble != floor(item->valuedouble))
        return false;
    *value = (int64_t)item->valuedouble;
    return true;
}

static bool read_text(const cJSON *item, char *text, size_t bytes) {
    if (cJSON_IsNull(item)) {
        text[0] = 0;
        return true;
    }
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= bytes) return false;
    memcpy(text, item->valuestring, strlen(item->valuestring) + 1);
    return true;
}

static bool read_member(const cJSON *item, const member *m, void *at) {
    int64_t whole, *pair = at;
    switch (m->kind) {
    case DOUBLE: return read_double(item, at);
    case INT64: return read_whole(item, at);
    case TEXT: return read_text(item, at, m->bytes);
    case INT:
        if (!read_whole(item, &whole) || whole < INT32_MIN || whole > INT32_MAX) return false;
        *(int *)at = (int)whole;
        return true;
    case BOOL:
        if (!cJSON_IsBool(item)) return false;
        *(bool *)at = cJSON_IsTrue(item);
        return true;
    case PAIR:
        return cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2 && read_whole(cJSON_GetArrayItem(item, 0), &pair[0]) &&
               read_whole(cJSON_GetArrayItem(item, 1), &pair[1]);
    }
    return false;
}

/* How strict a reader is: a journal's lines come from this very program, a record may come from an older one. */
typedef enum strictness { EXACT, OLDER } strictness;

static ng_status read_members(const cJSON *object, const member *members, size_t count, strictness how, void *into,
                              ng_error *error) {
    for (size_t i = 0; i < count; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, members[i].name);
        if (!item && how == OLDER) {
            if (members[i].kind == DOUBLE) *(double *)(void *)((char *)into + members[i].offset) = NAN;
            continue;
        }
        if (!item || !read_member(item, &members[i], (char *)into + members[i].offset))
            return ng_fail(error, NG_IO, "member \"%s\" is %s", members[i].name, item ? "not what it should be" : "missing");
    }
    return NG_OK;
}

/* The named member as an object; NULL with *absent set where it is null. */
static const cJSON *find_object(const cJSON *object, const char *name, bool *absent) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    *absent = cJSON_IsNull(item);
    return cJSON_IsObject(item) ? item : NULL;
}

static ng_status read_tiers(const cJSON *object, int64_t by_tier[NG_TIERS], ng_error *error) {
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(object, "tier"), *item;
    if (!cJSON_IsObject(tiers)) return ng_fail(error, NG_IO, "member \"tier\" is missing");
    cJSON_ArrayForEach(item, tiers) {
        int t = NG_TIER_NONE + 1;
        while (t < NG_TIERS && strcmp(ng_tier_names[t], item->string))
            t++;
        if (t == NG_TIERS || !read_whole(item, &by_tier[t]))
            return ng_fail(error, NG_IO, "member \"tier\" names no tier '%s'", item->string);
    }
    return NG_OK;
}

static ng_status read_error(const cJSON *object, const char *name, strictness how, ng_error_figures *figures, ng_error *error) {
    bool absent;
    const cJSON *item = find_object(object, name, &absent);
    if (absent) return NG_OK;
    if (!item) return ng_fail(error, NG_IO, "member \"%s\" is missing", name);
    figures->present = true;
    ng_status status = read_members(item, error_members, COUNT(error_members), how, figures, error);
    return status ? status : read_tiers(item, figures->by_tier, error);
}

static ng_status read_speed(const cJSON *object, strictness how, ng_speed *speed, ng_error *error) {
    bool absent;
    const cJSON *item = find_object(object, "speed", &absent), *part;
    if (absent) return NG_OK;
    if (!item) return ng_fail(error, NG_IO, "member \"speed\" is missing");
    speed->present = true;
    ng_status status = read_members(item, speed_members, COUNT(speed_members), how, speed, error);
    if (status) return status;
    cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(item, "parts")) {
        int n = speed->part_count;
        if (n == NG_SPEED_PARTS || strlen(part->string) >= sizeof speed->parts[n].name ||
            !read_double(part, &speed->parts[n].median_s))
            return ng_fail(error, NG_IO, "member \"parts\" is not what it should be");
        memcpy(speed->parts[n].name, part->string, strlen(part->string) + 1);
        speed->part_count++;
    }
    return NG_OK;
}

static ng_status read_prediction(const cJSON *object, strictness how, ng_prediction *prediction, ng_error *error) {
    bool absent;
    const cJSON *item = find_object(object, "prediction", &absent);
    if (absent) return NG_OK;
    if (!item) return ng_fail(error, NG_IO, "member \"prediction\" is missing");
    prediction->present = true;
    return read_members(item, prediction_members, COUNT(prediction_members), how, prediction, error);
}

static ng_status read_draws(const cJSON *object, strictness how, ng_draw_figures *figures, ng_error *error) {
    bool absent;
    const cJSON *item = find_object(object, "stochastic", &absent);
    if (absent || (!item && how == OLDER)) return NG_OK;
    if (!item) return ng_fail(error, NG_IO, "member \"stochastic\" is missing");
    figures->present = true;
    return read_members(item, draw_members, COUNT(draw_members), how, figures, error);
}

static ng_status read_variants(const cJSON *object, strictness how, ng_result *result, ng_error *error) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "variants"), *item;
    if (!list && how == OLDER) return NG_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > NG_VARIANTS)
        return ng_fail(error, NG_IO, "member \"variants\" is not what it should be");
    cJSON_ArrayForEach(item, list) {
        ng_status status = read_members(item, variant_members, COUNT(variant_members), how, &result->variants[result->variant_count++], error);
        if (status) return status;
    }
    return NG_OK;
}

static ng_status read_status(const cJSON *object, ng_result *result, ng_error *error) {
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(object, "status");
    int v = 0;
    while (cJSON_IsString(status) && v < NG_VERDICTS && strcmp(ng_verdict_names[v], status->valuestring))
        v++;
    if (!cJSON_IsString(status) || v == NG_VERDICTS) return ng_fail(error, NG_IO, "member \"status\" names no status");
    result->verdict = (ng_verdict)v;
    if (!read_text(cJSON_GetObjectItemCaseSensitive(object, "reason"), result->reason, sizeof result->reason))
        return ng_fail(error, NG_IO, "member \"reason\" is not what it should be");
    return NG_OK;
}

static ng_status read_result(const cJSON *object, strictness how, ng_result *result, ng_error *error) {
    *result = (ng_result){0};
    ng_status status = read_status(object, result, error);
    if (!status) status = read_error(object, "error", how, &result->error, error);
    if (!status) status = read_prediction(object, how, &result->prediction, error);
    if (!status) status = read_error(object, "recipe_error", how, &result->recipe_error, error);
    if (!status) status = read_members(object, result_members, COUNT(result_members), how, result, error);
    if (!status) status = read_draws(object, how, &result->stochastic, error);
    if (!status) status = read_speed(object, how, &result->speed, error);
    if (!status) status = read_variants(object, how, result, error);
    return status;
}

ng_status ng_result_read(const cJSON *object, ng_result *result, ng_error *error) {
    return read_result(object, EXACT, result, error);
}

ng_status ng_result_read_older(const cJSON *object, ng_result *result, ng_error *error) {
    return read_result(object, OLDER, result, error);
}

/* ---- the line that reproduces a case ------------------------------------------------------------------------------*/
typedef struct line {
    char *text;
    size_t used, capacity;
} line;

static void add_text(line *l, const char *text) {
    size_t left = l->used < l->capacity ? l->capacity - l->used : 0;
    l->used += (size_t)snprintf(l->text + (left ? l->used : 0), left, "%s", text);
}

static void add_quoted(line *l, const char *word) {
    size_t left = l->used < l->capacity ? l->capacity - l->used : 0;
    l->used += ng_shell_quote(word, left ? l->text + l->used : NULL, left);
}

ng_status ng_repro(const ng_run_record *run, size_t i, char *text, size_t capacity) {
    const ng_case *one = &run->list->cases[i];
    char pattern[2 * NG_ID_BYTES], number[64];
    line l = {text, 0, capacity};
    ng_glob_quote(one->id, pattern, sizeof pattern);
    add_text(&l, "narrowgauge run");
    for (size_t g = 0; g < run->given_count; g++) {
        if (!run->given[g].option->selects) continue;
        add_text(&l, " --");
        add_text(&l, run->given[g].option->name);
        if (!run->given[g].value) continue;
        add_text(&l, " ");
        add_quoted(&l, run->given[g].value);
    }
    if (run->level != NG_SMOKE) {
        add_text(&l, " --level ");
        add_text(&l, ng_level_names[run->level]);
    }
    /* Always in single quotes, for a reader's eye: an id is one word. */
    add_text(&l, strchr(pattern, '\'') ? " --filter " : " --filter '");
    if (strchr(pattern, '\'')) add_quoted(&l, pattern);
    else {
        add_text(&l, pattern);
        add_text(&l, "'");
    }
    snprintf(number, sizeof number, " --seed %llu", (unsigned long long)run->seed);
    add_text(&l, number);
    return l.used < capacity ? NG_OK : NG_NO_MEMORY;
}

/* ---- the record ---------------------------------------------------------------------------------------------------*/
void ng_timestamp(char text[32]) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

void ng_kernel_format(const ng_kernel *kernel, char *text, size_t capacity) {
    const char *second = strchr(kernel->name, '/');
    second = second ? second + 1 : kernel->name;
    snprintf(text, capacity, "%.*s", (int)strcspn(second, "/"), second);
}

/* Who quantized: null for an operand that stays as it is. */
static void write_recipe(ng_json *json, const ng_case *one) {
    if (!one->recipe) {
        ng_json_null(json, "recipe");
        return;
    }
    ng_json_object(json, "recipe");
    ng_json_text(json, "name", one->recipe->name);
    ng_json_text(json, "a", one->quantizers[0] ? one->quantizers[0]->name : NULL);
    ng_json_text(json, "b", one->quantizers[1] ? one->quantizers[1]->name : NULL);
    ng_json_end_object(json);
}

static void write_case(ng_json *json, const ng_run_record *run, size_t i) {
    const ng_case *one = &run->list->cases[i];
    char format[64], repro[NG_REPRO_BYTES];
    ng_kernel_format(one->kernel, format, sizeof format);
    ng_repro(run, i, repro, sizeof repro);
    ng_json_object(json, NULL);
    ng_json_text(json, "id", one->id);
    ng_json_text(json, "op", ng_op_names[one->kernel->op]);
    ng_json_text(json, "format", format);
    ng_json_text(json, "backend", ng_backend_names[one->kernel->backend]);
    ng_json_text(json, "kernel", one->kernel->name);
    ng_json_text(json, "problem", one->problem_name);
    ng_json_text(json, "data", ng_distribution_names[one->data.distribution]);
    ng_json_text(json, "phase", one->problem.phase ? ng_phase_names[one->problem.phase] : NULL);
    ng_json_array(json, "extents");
    ng_json_integer(json, NULL, one->problem.m);
    ng_json_integer(json, NULL, one->problem.n);
    ng_json_integer(json, NULL, one->problem.k);
    ng_json_end_array(json);
    ng_json_text(json, "mode", ng_mode_names[one->mode]);
    write_recipe(json, one);
    ng_json_text(json, "model", *one->model ? one->model : NULL);
    ng_json_text(json, "layer", *one->layer ? one->layer : NULL);
    ng_json_text(json, "suite", one->suite);
    ng_json_unsigned(json, "seed", run->seed);
    if (one->kernel->backend == NG_BACKEND_CUDA) ng_json_integer(json, "device", run->device);
    else ng_json_null(json, "device");
    ng_result_write(json, &run->results[i]);
    ng_json_text(json, "repro", repro);
    ng_json_end_object(json);
}

static void write_tags(ng_json *json, const ng_texts *tags) {
    ng_json_object(json, "tags");
    for (size_t i = 0; tags && i < tags->count; i++) {
        char key[256];
        size_t length = strcspn(tags->items[i], "=");
        snprintf(key, sizeof key, "%.*s", (int)length, tags->items[i]);
        ng_json_text(json, key, tags->items[i] + length + (tags->items[i][length] == '='));
    }
    ng_json_end_object(json);
}

static void write_run(ng_json *json, const ng_run_record *run) {
    ng_json_object(json, "run");
    ng_json_text(json, "id", run->id);
    ng_json_text(json, "started", run->started);
    ng_json_text(json, "finished", run->finished);
    ng_json_array(json, "argv");
    for (int i = 0; i < run->argc; i++)
        ng_json_text(json, NULL, run->argv[i]);
    ng_json_end_array(json);
    ng_json_text(json, "level", ng_level_names[run->level]);
    ng_json_unsigned(json, "seed", run->seed);
    write_tags(json, run->tags);
    ng_json_end_object(json);
}

void ng_record_write(FILE *out, const ng_run_record *run) {
    ng_json json = {.out = out, .break_depth = 2};
    ng_json_object(&json, NULL);
    ng_json_text(&json, "schema", NG_REPORT_SCHEMA);
    write_run(&json, run);
    ng_fingerprint_write(&json, "fingerprint", run->fingerprint);
    ng_json_array(&json, "cases");
    for (size_t i = 0; i < run->list->count; i++)
        write_case(&json, run, i);
    ng_json_end_array(&json);
    if (run->write_more) run->write_more(&json, run->more);
    ng_json_end_object(&json);
    fputc('\n', out);
}

void ng_record_id(char id[33]) {
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) snprintf((char *)bytes, sizeof bytes, "%d", getpid());
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}
