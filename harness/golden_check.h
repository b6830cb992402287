/* A record against the goldens that apply to it. */
#ifndef NG_HARNESS_GOLDEN_CHECK_H
#define NG_HARNESS_GOLDEN_CHECK_H

#include "harness/golden.h"
#include "harness/record_read.h"

typedef enum ng_golden_kind {
    NG_GOLDEN_DIFFERS,
    NG_GOLDEN_LACKS, /* a case of the tables, of the golden's level, that it does not know */
    NG_GOLDEN_LOST,  /* a case that has a golden and did not run */
    NG_GOLDEN_GONE,  /* a golden of no case of its level */
    NG_GOLDEN_KINDS,
} ng_golden_kind;
extern const char *const ng_golden_words[NG_GOLDEN_KINDS]; /* "differs" ... */

typedef struct ng_golden_finding {
    ng_golden_kind kind;
    const char *id;
    const ng_golden_case *golden;    /* NULL: lacking */
    const ng_recorded_case *one;     /* NULL: gone */
    const ng_golden_set *set;
} ng_golden_finding;

typedef struct ng_golden_tally {
    size_t match, differ, lacking, lost, gone;
    size_t elsewhere; /* cases of no table, or of a higher level, without one */
    size_t unset;     /* cases for which there is no file */
} ng_golden_tally;

/* Adds to the tally and calls `found` with each finding; what it is given lives until it returns. */
ng_status ng_golden_check(const char *folder, const ng_record_file *record, bool any_version,
                          ng_status (*found)(void *context, const ng_golden_finding *finding, ng_error *error), void *context,
                          ng_golden_tally *tally, ng_error *error);

/* The key of the golden of a record's case. */
void ng_golden_key_of_record(const ng_record_file *record, const ng_recorded_case *one, ng_golden_key *key);

#endif
