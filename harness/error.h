/* An error that travels up: what, where and what to do, in one line. */
#ifndef NG_HARNESS_ERROR_H
#define NG_HARNESS_ERROR_H

#include "kernels/contract.h"

typedef struct ng_error {
    ng_status status;
    char text[1024];
} ng_error;

/* Fills *error (may be NULL) and returns status, so that a function can `return ng_fail(error, NG_IO, "%s: ...", path)`. */
ng_status ng_fail(ng_error *error, ng_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
