/* Which bits moved between two goldens, or two records, or one of each. */
#ifndef NG_HARNESS_GOLDEN_DIFF_H
#define NG_HARNESS_GOLDEN_DIFF_H

#include "harness/command.h"

/* Prints a line for each case whose digests differ, with the error figures of both. saved_a, saved_b: folders of
 * `run --save always`; then also, for each result, how many elements differ, by how many units in the last place, and the
 * first place. Digests alone cannot say that. *exit_status: 0 no case differs, 1 some do. */
ng_status ng_golden_diff(const ng_program *program, const char *a, const char *b, const char *saved_a, const char *saved_b,
                         int *exit_status, ng_error *error);

#endif
