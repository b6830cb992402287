/* The interval of results that a bound on the uncast sum leaves to a kernel. */
#include "reference/gemm.h"
#include "reference/round.h"

#include <math.h>

/* s + e = a + b exactly (Knuth; no condition on the magnitudes). */
static void two_sum(double a, double b, double *s, double *e) {
    *s = a + b;
    double t = *s - a;
    *e = (a - (*s - t)) + (b - t);
}

/* The pair of a value at most (direction -1) or at least (+1) c + direction * bound, c in [high + low -+ ulp(low)/2].
 * With s + e = high +- bound and f + g = e + low exact, s + f + g is the shifted pair. What lies below is covered by
 * 2^-51 (|f| + |low|): twice half an ulp of f + g, of low (the remainder of the product) and of the last subtraction. */
static void shifted(double high, double low, double bound, int direction, double *shifted_high, double *shifted_low) {
    double s, e, f, g;
    if (isinf(high + direction * bound)) {
        *shifted_high = direction * HUGE_VAL;
        *shifted_low = 0;
        return;
    }
    two_sum(high, direction * bound, &s, &e);
    two_sum(e, low, &f, &g);
    two_sum(s, f, &s, &f);
    f += g;
    f += direction * 0x1p-51 * (fabs(f) + fabs(low));
    two_sum(s, nextafter(f, direction * HUGE_VAL), shifted_high, shifted_low);
}

static double end(ng_format_id format, const ng_cast *cast, double high, double low, int direction) {
    ng_cast directed = *cast;
    if (cast->rounding == NG_R_STOCHASTIC) /* either neighbour may come out: the outer one */
        directed.rounding = (high < 0) == (direction < 0) ? NG_R_AWAY : NG_R_ZERO;
    double value = ng_decode(format, ng_round_pair(format, high, low, &directed));
    return isnan(value) ? copysign(INFINITY, high) : value;
}

ng_status ng_accepted_interval(ng_format_id format, const ng_cast *cast, double high, double low, double bound,
                               double *lowest, double *highest) {
    if (!cast || !lowest || !highest || format < 0 || format >= NG_FORMATS || !(bound >= 0)) return NG_BAD_ARGUMENT;
    if (isnan(high)) {
        *lowest = *highest = NAN;
    } else if (isinf(bound) && !isinf(high)) {
        *lowest = -INFINITY;
        *highest = INFINITY;
    } else if (bound == 0 || isinf(high)) {
        *lowest = end(format, cast, high, low, -1);
        *highest = end(format, cast, high, low, 1);
    } else {
        double shifted_high, shifted_low;
        shifted(high, low, bound, -1, &shifted_high, &shifted_low);
        *lowest = end(format, cast, shifted_high, shifted_low, -1);
        shifted(high, low, bound, 1, &shifted_high, &shifted_low);
        *highest = end(format, cast, shifted_high, shifted_low, 1);
    }
    return NG_OK;
}
