/* Criterion programs, table-driven: a test is a row with a stable name. test.c registers the rows with Criterion at start,
 * runs them and prints numbered TAP, so that `meson test` sees every case by its own name. */
#ifndef NG_SUITES_TEST_H
#define NG_SUITES_TEST_H

#include <criterion/criterion.h>
#include <stddef.h>

typedef struct ng_test {
    const char *suite, *name; /* "formats", "decode every code": printed as formats/decode every code */
    void (*run)(void);        /* asserts with cr_assert, cr_expect; skips with cr_skip_test("reason") */
    double timeout_s;         /* 0: 60 */
} ng_test;

/* Each program defines these two. Rows are never reordered or renamed; new ones go to the end. */
extern const ng_test ng_tests[];
extern const size_t ng_test_count;

#endif
