/* One rounding of a real number into any format, in every mode of ng_cast. Two derivations: through MPFR, and in integer
 * arithmetic on the binary64 (the fast tier); tests hold one against the other exhaustively where the domain allows. */
#ifndef NG_REFERENCE_ROUND_H
#define NG_REFERENCE_ROUND_H

#include "reference/format.h"

#include <mpfr.h>

/* The code of x rounded once. x is any MPFR number, NaN (of mpfr_signbit's sign) and infinities included; `random` is the
 * random integer of stochastic rounding (its low cast->random_bits bits count). */
uint64_t ng_round_mpfr(ng_format_id to, mpfr_srcptr x, const ng_cast *cast, uint32_t random);

/* The same for a binary64 x. */
uint64_t ng_round(ng_format_id to, double x, const ng_cast *cast, uint32_t random);

/* The code of high + low, rounded once (not via a rounded sum): |low| <= ulp(high)/2. Exact where the pair is. Stochastic
 * rounding gets the random integer 0. */
uint64_t ng_round_pair(ng_format_id to, double high, double low, const ng_cast *cast);

/* Of the 2^r random integers, how many give a result of greater magnitude than x (0 if x is representable, not finite or
 * saturates). The exact probability is the count over 2^r. x is a binary64. */
uint64_t ng_round_up_count(ng_format_id to, double x, const ng_cast *cast);

/* The codes of the neighbours of x: the largest finite value <= x and the smallest >= x; at either end of the format both
 * are the last value. A zero has x's sign. */
void ng_neighbours(ng_format_id to, double x, uint64_t *below, uint64_t *above);

/* Distance in units of the last place of `format` between two finite values of it (codes counted along the number line,
 * the two zeros are one). */
uint64_t ng_ulp_distance(ng_format_id format, uint64_t code_a, uint64_t code_b);

#endif
