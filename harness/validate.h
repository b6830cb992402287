/* Whether a driver, a library or a GPU may be accepted, from the records of runs on it. */
#ifndef NG_HARNESS_VALIDATE_H
#define NG_HARNESS_VALIDATE_H

#include "harness/compare.h"
#include "harness/golden_check.h"

typedef enum ng_acceptance { NG_ACCEPT, NG_REVIEW, NG_REJECT, NG_NO_VERDICT, NG_ACCEPTANCES } ng_acceptance;
extern const char *const ng_acceptance_names[NG_ACCEPTANCES];

typedef struct ng_validation {
    ng_comparison comparison;   /* with the baseline; without one only findings, and side B */
    bool has_baseline;
    ng_golden_tally goldens;
    size_t executed, uncompared; /* cases; those whose bits nothing could be compared with */
    char other_versions[400];   /* goldens of other versions of a library that stood in */
    char clocks[200];           /* what the GPU's clock was; "" without a GPU */
    char missing[600];          /* NG_NO_VERDICT: what there would have to be */
    ng_acceptance acceptance;
    char **texts;               /* that findings point to */
    size_t text_count;
} ng_validation;

/* Looks at the records of side b: what they say themselves, the goldens in the folder (NULL: none), the baseline a (NULL: none). */
ng_status ng_validate(const ng_side *b, const ng_side *a, const char *goldens, const ng_compare_options *options,
                      ng_validation *validation, ng_error *error);
void ng_validation_free(ng_validation *validation);

/* The last line: "REJECT: 2 bounds broken, 1 case lost". */
void ng_validation_line(const ng_validation *validation, const ng_compare_options *options, char *line, size_t capacity);

void ng_validation_print(FILE *out, const ng_validation *validation, const ng_compare_options *options, size_t most);
void ng_validation_json(FILE *out, const ng_validation *validation, const ng_compare_options *options);

#endif
