/* Records read back: what compare, golden and validate look at. */
#ifndef NG_HARNESS_RECORD_READ_H
#define NG_HARNESS_RECORD_READ_H

#include "harness/record.h"

typedef struct ng_recorded_case {
    const char *id, *kernel, *backend, *suite, *repro; /* texts belong to the record; "" where it has none */
    ng_result result;
} ng_recorded_case;

typedef struct ng_record_file {
    char *path;
    struct cJSON *json;
    const struct cJSON *fingerprint;
    const char *run, *started, *machine; /* machine: "x86_64" */
    ng_level level;
    uint64_t seed;
    int sm;                      /* of the GPU; 0 without one */
    ng_recorded_case *cases;     /* sorted by id */
    size_t count;
} ng_record_file;

/* NG_IO: cannot be read; NG_BAD_ARGUMENT: no record, a newer one, cut off: one line says which. */
ng_status ng_record_read(const char *path, ng_record_file *record, ng_error *error);
void ng_record_free(ng_record_file *record);
const ng_recorded_case *ng_record_find(const ng_record_file *record, const char *id); /* NULL: not there */

/* Whether the run was given the option, by its long name. */
bool ng_record_given(const ng_record_file *record, const char *option);
/* An option that makes cases of something other than the case tables, such as "model", or adds to their kernels; NULL: none. */
const char *ng_record_strange_option(const ng_record_file *record);
/* Whether it is of some of its cases only. */
bool ng_record_is_filtered(const ng_record_file *record);
/* Its command line as one line, quoted for a shell, without the options that say where results went. */
void ng_record_command(const ng_record_file *record, char *line, size_t capacity);

/* Text of a member of the fingerprint, "driver" or "digests.kernels"; "" where it is null or absent. */
const char *ng_record_fact(const ng_record_file *record, const char *path);

/* Version of a library by the name that ng_fingerprint_library knows; "" unknown. */
const char *ng_record_library(const ng_record_file *record, const char *name);

/* Writes a parsed JSON value; members named in `without` (NULL-terminated) are left out, however deep. */
void ng_json_value(ng_json *json, const char *name, const struct cJSON *value, const char *const *without);

#endif
