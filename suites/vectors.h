/* Recorded tensor-core steps: files of rows, and their replay through a model. */
#ifndef NG_SUITES_VECTORS_H
#define NG_SUITES_VECTORS_H

#include "harness/error.h"

/* One vector file in memory. */
typedef struct ng_vectors {
    ng_format_id format;
    int k;                 /* products in a row */
    enum { NG_C_IS_ADDEND, NG_C_IS_ABSENT, NG_C_IS_ADDED_AFTER } accumulator;
    size_t count, capacity;
    uint64_t *codes;       /* [count][2][k]: a, then b */
    uint32_t *c, *d;       /* [count] binary32 bits */
    size_t *lines;         /* [count] where in the file a row stands */
} ng_vectors;

/* Reads a file of rows "a[0..K-1] b[0..K-1] c d", hexadecimal codes (tf32: 19 bits) and binary32 bits. Its comments say the
 * inputs' format ("e4m3 inputs"), "K=32", and after "accumulator:" whether c is an addend of the step ("c"), did not enter
 * d ("none") or was added afterwards in binary32 ("after"). Errors name the line. */
ng_status ng_vectors_read(const char *path, ng_vectors *vectors, ng_error *error);
void ng_vectors_free(ng_vectors *vectors);

/* Rows whose d the model does not give; the places of the first `capacity` of them and what was computed. */
ng_status ng_vectors_replay(const ng_vectors *vectors, const ng_mma *mma, size_t capacity, size_t *places,
                            uint32_t *computed, size_t *differ);

#endif
