/* All 2^32 binary32 inputs of a cast, against thresholds proved with MPFR. In the order of bit patterns the inputs fall
 * into runs of equal codes (some 500 for an 8-bit format); checking a kernel's output is then comparing memory with
 * constants. */
#ifndef NG_REFERENCE_SWEEP_H
#define NG_REFERENCE_SWEEP_H

#include "reference/format.h"

/* The inputs from bit pattern `first` up to the next run's first all round to `code`. */
typedef struct ng_run {
    uint32_t first;
    uint32_t code;
} ng_run;

typedef struct ng_sweep {
    ng_format_id to;
    size_t count;
    ng_run *runs; /* [count], ascending; runs[0].first is 0, the last one ends at 2^32 */
} ng_sweep;

/* Finds and proves the runs of a cast from binary32: NaN inputs included, whose payloads never matter. NG_UNSUPPORTED:
 * fp32 and fp64, which have no runs; NG_BAD_ARGUMENT: stochastic rounding; NG_INTERNAL: MPFR contradicts the integer
 * tier. */
ng_status ng_sweep_new(ng_format_id to, const ng_cast *cast, ng_sweep *sweep);
void ng_sweep_free(ng_sweep *sweep);

/* The code of the binary32 with these bits. */
uint32_t ng_sweep_code(const ng_sweep *sweep, uint32_t bits);

/* Compares codes with what they should be: codes[i], stored as the format is (e2m1: two to a byte, the first in the low
 * nibble), came from the binary32 with bits start + i; start + count is at most 2^32.
 * Returns how many differ; *first_different (may be NULL) is the input bits of the first of them. Pure: threads may
 * check parts of one sweep at the same time. */
uint64_t ng_sweep_check(const ng_sweep *sweep, uint32_t start, uint64_t count, const void *codes,
                        uint32_t *first_different);

#endif
