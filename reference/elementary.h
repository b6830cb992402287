/* exp, the normal distribution and log in binary64, for the fast tiers: relative error at most NG_ELEMENTARY_ERROR. Other methods than the
 * kernels', and tested against MPFR. Results below 2^-900 may be 0. */
#ifndef NG_REFERENCE_ELEMENTARY_H
#define NG_REFERENCE_ELEMENTARY_H

#include "kernels/contract.h"

#define NG_ELEMENTARY_ERROR 0x1p-44

double ng_reference_exp(double x);
/* erfc(a / sqrt 2) / 2, a >= 0. */
double ng_reference_tail(double a);
/* x >= 2^-1022; near 1 the error is absolute. */
double ng_reference_log(double x);

#endif
