/* Criterion programs, table-driven: a test is a row with a stable name. test.c registers the rows with Criterion at start,
 * runs them and prints numbered TAP, so that `meson test` sees every case by its own name. */
#ifndef NG_SUITES_TEST_H
#define NG_SUITES_TEST_H

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ng_test {
    const char *suite, *name; /* "formats", "decode every code": printed as formats/decode every code */
    void (*run)(void);        /* asserts with cr_assert, cr_expect; skips with cr_skip_test("reason") */
    double timeout_s;         /* 0: 60 */
} ng_test;

/* Each program defines these two. Rows are never reordered or renamed; new ones go to the end. */
extern const ng_test ng_tests[];
extern const size_t ng_test_count;

/* A number for a place, the same on every machine. */
static inline uint32_t ng_test_hash(uint64_t seed, uint64_t index) {
    uint64_t z = seed * 0x9E3779B97F4A7C15u + index * 0xD1342543DE82EF95u + 0x2545F4914F6CDD1Du;
    z = (z ^ z >> 32) * 0xD6E8FEB86659FD93u;
    z = (z ^ z >> 29) * 0xC2B2AE3D27D4EB4Fu;
    return (uint32_t)(z >> 32);
}

#endif
