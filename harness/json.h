/* Writes JSON to a stream as it goes: no tree in memory, 17 digits for a double, whole 64-bit integers, strings made
 * valid UTF-8. NaN and infinities, which JSON lacks, are null; in exact mode they are the strings "nan", "inf", "-inf". */
#ifndef NG_HARNESS_JSON_H
#define NG_HARNESS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ng_json {
    FILE *out;
    bool exact;     /* non-finite numbers as strings */
    int break_depth; /* values at this depth and above begin a line; 0: everything on one line */
    int depth;
    bool follows;   /* a value precedes in the same object or array: a comma is due */
} ng_json;

/* name: the member's name inside an object, NULL inside an array and at the top. */
void ng_json_object(ng_json *json, const char *name);
void ng_json_end_object(ng_json *json);
void ng_json_array(ng_json *json, const char *name);
void ng_json_end_array(ng_json *json);
void ng_json_text(ng_json *json, const char *name, const char *value); /* value NULL: null */
void ng_json_double(ng_json *json, const char *name, double value);
void ng_json_integer(ng_json *json, const char *name, int64_t value);
void ng_json_unsigned(ng_json *json, const char *name, uint64_t value);
void ng_json_bool(ng_json *json, const char *name, bool value);
void ng_json_null(ng_json *json, const char *name);

/* A string alone, quoted and escaped: what YAML's double-quoted scalars need too. */
void ng_json_quote(FILE *out, const char *value);

#endif
