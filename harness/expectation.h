/* What is known to go wrong: failures, flakes and skips by case, architecture, driver and library, each with a reason and a
 * link. Files of a folder, *.json:
 *
 *   {"schema": "narrowgauge.expectations/1",
 *    "expectations": [
 *     {"cases": "gemm/e4m3/cublaslt/<glob>", "expect": "fail", "status": ["moved"], "architecture": "sm90",
 *      "driver": ">=575 <580", "library": {"cublaslt": ">=13.1 <13.2"},
 *      "reason": "one line", "link": "https://..."}]}
 *
 *   expect fail    the case runs; a listed status (default: fail, moved) becomes xfail. A pass becomes xpass, which fails the run
 *                  until the entry is removed; any other failure stays what it is.
 *   expect flake   the case runs; a listed status (default: fail, moved, crash, timeout) becomes flake.
 *   expect skip    the case does not run: it would hang, or take the machine with it.
 *
 * cases is a glob (fnmatch) on ids. architecture is a glob on sm90 (of the case's GPU) or x86_64 (CPU cases). A range is one or
 * more of = < <= > >= with a version, all of which must hold; versions compare number by number; an unknown version is in no
 * range. Members that this program does not know are errors: a misspelt one would widen an entry. */
#ifndef NG_HARNESS_EXPECTATION_H
#define NG_HARNESS_EXPECTATION_H

#include "harness/fingerprint.h"
#include "harness/expand.h"

#define NG_EXPECTATIONS_SCHEMA "narrowgauge.expectations/1"

typedef enum ng_expected { NG_EXPECT_FAIL, NG_EXPECT_FLAKE, NG_EXPECT_SKIP, NG_EXPECT_KINDS } ng_expected;
extern const char *const ng_expected_names[NG_EXPECT_KINDS];

typedef struct ng_expectation {
    const char *cases, *architecture, *driver, *reason, *link; /* NULL: any */
    const struct cJSON *libraries;                             /* name: range; or NULL */
    ng_expected expected;
    unsigned verdicts;                                         /* bit per ng_verdict that it covers */
    const char *path;                                          /* of its file */
} ng_expectation;

typedef struct ng_expectations {
    const ng_fingerprint *fingerprint;
    ng_expectation *items;
    size_t count;
    char **paths;
    struct cJSON **documents;
    size_t file_count;
    char digest[NG_DIGEST_BYTES]; /* of all files; "" none */
} ng_expectations;

/* folder NULL: none. Every mistake in a file is one line with the file and the entry. */
ng_status ng_expectations_open(const char *folder, const ng_fingerprint *fingerprint, ng_expectations *expectations,
                               ng_error *error);
void ng_expectations_close(ng_expectations *expectations);

/* The first entry that is about this case on this machine, or NULL. */
const ng_expectation *ng_expectation_of(const ng_expectations *expectations, const ng_case *one);

/* Turns a verdict into what the entry makes of it. */
void ng_expectation_apply(const ng_expectation *expectation, ng_result *result);

/* "13.1.0" >= "13.1": versions as numbers, missing ones 0. Negative, 0, positive. */
int ng_version_compare(const char *a, const char *b);
/* Whether a range is well formed, and whether a version is in it. */
bool ng_range_is_sound(const char *range);
bool ng_range_holds(const char *range, const char *version);

#endif
