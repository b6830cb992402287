/* The record of a run, narrowgauge.report/1 (schema: reports/report.schema.json), and results as JSON both ways. */
#ifndef NG_HARNESS_RECORD_H
#define NG_HARNESS_RECORD_H

#include "harness/args.h"
#include "harness/expand.h"
#include "harness/fingerprint.h"
#include "harness/json.h"

struct cJSON;

#define NG_REPORT_SCHEMA "narrowgauge.report/1"

extern const char *const ng_op_names[NG_OPS];
extern const char *const ng_phase_names[NG_PHASES];     /* "" for none */
extern const char *const ng_backend_names[NG_BACKENDS];
extern const char *const ng_mode_names[NG_MODES];
extern const char *const ng_level_names[NG_LEVELS + 1]; /* ends with NULL */

/* What a whole run came to; results[i] belongs to list->cases[i]. */
typedef struct ng_run_record {
    char id[33];                   /* random, hexadecimal */
    char started[32], finished[32]; /* RFC 3339, UTC */
    int argc;
    char *const *argv;
    ng_level level;
    uint64_t seed;
    int device;
    const ng_texts *tags;          /* "key=value" */
    const ng_fingerprint *fingerprint;
    const ng_case_list *list;
    const ng_result *results;
    const ng_given *given;         /* the options that select cases, for the lines that reproduce them */
    size_t given_count;
    void (*write_more)(ng_json *json, const void *more); /* further members of the record; NULL: none */
    const void *more;
} ng_run_record;

/* A run's id: random, hexadecimal. */
void ng_record_id(char id[33]);

/* The command that runs case i again, alone, quoted for a shell: "narrowgauge run --filter '...' --seed 1". */
ng_status ng_repro(const ng_run_record *run, size_t i, char *line, size_t capacity);
enum { NG_REPRO_BYTES = 4096 };

void ng_record_write(FILE *out, const ng_run_record *run);

/* The members of a result alone; reading takes what writing in exact mode gives, bit for bit. */
void ng_result_write(ng_json *json, const ng_result *result);
ng_status ng_result_read(const struct cJSON *object, ng_result *result, ng_error *error);
/* The same of a record that an older program may have written: figures that it did not know are NaN or 0. */
ng_status ng_result_read_older(const struct cJSON *object, ng_result *result, ng_error *error);

/* Seconds since the epoch as RFC 3339 in UTC, "2026-03-01T12:00:00Z"; and now. */
void ng_timestamp(char text[32]);

/* Format or recipe of a kernel: the second word of its name. */
void ng_kernel_format(const ng_kernel *kernel, char *text, size_t capacity);

#endif
