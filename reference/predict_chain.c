/* Chains in binary32 and binary64 for NG_LANES columns at once.
 *
 * binary32: s = fl(s + x), x the product. A product of binary32 numbers has 48 bits: exact in binary64. Where x is itself
 * a binary32 number, s + x rounded to binary64 and then to binary32 was rounded once (Figueroa 1995: 53 >= 2 * 24 + 2).
 * Where it is not (fma), the binary64 sum is rounded to odd by its residual first (Boldo, Melquiond 2008). */
#include "reference/predict.h"

static void pack_a(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded, void *out)
{
    (void)p, (void)padded;
    memcpy(out, row->values + k0, (size_t)count * sizeof(double));
}

static void pack_b(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded, int lane, void *out)
{
    (void)p, (void)padded;
    double *to = out; /* [K][NG_LANES] */
    for (int64_t q = 0; q < count; q++)
        to[q * NG_LANES + lane] = row->values[k0 + q];
}

enum { QUARTER = NG_LANES / 4 };

#define INLINE static inline __attribute__((always_inline))

/* Products that are binary32 numbers as they stand. */
INLINE void chain_exact(const double *a, const double *b, int64_t count, double *acc)
{
    for (int l0 = 0; l0 < NG_LANES; l0 += QUARTER) {
        double s[QUARTER];
        for (int l = 0; l < QUARTER; l++) s[l] = acc[l0 + l];
        for (int64_t q = 0; q < count; q++)
            for (int l = 0; l < QUARTER; l++) s[l] = (double)(float)(s[l] + a[q] * b[q * NG_LANES + l0 + l]);
        for (int l = 0; l < QUARTER; l++) acc[l0 + l] = s[l];
    }
}

/* Products rounded to binary32 first. */
INLINE void chain_rounded(const double *a, const double *b, int64_t count, double *acc)
{
    for (int64_t q = 0; q < count; q++)
        for (int l = 0; l < NG_LANES; l++)
            acc[l] = (double)(float)(acc[l] + (double)(float)(a[q] * b[q * NG_LANES + l]));
}

INLINE void chain_fused(const double *a, const double *b, int64_t count, double *acc)
{
    for (int64_t q = 0; q < count; q++)
        for (int l = 0; l < NG_LANES; l++) {
            double x = a[q] * b[q * NG_LANES + l], t = acc[l] + x;
            acc[l] = (double)(float)ng_to_odd(t, ng_sum_residual(acc[l], x, t));
        }
}

/* The same with bounds. A sum that kept every bit costs nothing. */
INLINE void chain_bounds(const double *a, const double *b, int64_t count, bool rounded, double *acc, double *bound)
{
    for (int64_t q = 0; q < count; q++)
        for (int l = 0; l < NG_LANES; l++) {
            double x = a[q] * b[q * NG_LANES + l], y = rounded ? (double)(float)x : x, t = acc[l] + y;
            double residual = ng_sum_residual(acc[l], y, t), f = (double)(float)ng_to_odd(t, residual);
            double lost = ng_rounding_bound(f == t && residual == 0, f);
            acc[l] = f;
            bound[l] += lost + (rounded ? ng_rounding_bound(x == y, y) : 0.0);
        }
}

INLINE void chain_fp64(const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    for (int64_t q = 0; q < count; q++)
        for (int l = 0; l < NG_LANES; l++) {
            double x = a[q] * b[q * NG_LANES + l], t = acc[l] + x; /* x is exact: operands of at most 24 bits */
            if (bound) bound[l] += ng_sum_residual(acc[l], x, t) == 0 ? 0.0 : 0x1p-53 * fabs(t) + 0x1p-1074;
            acc[l] = t;
        }
}

typedef enum chain_kind { EXACT, ROUNDED, FUSED, FP64 } chain_kind;

INLINE void run(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    if (kind == FP64) {
        if (bound) chain_fp64(a, b, count, acc, bound);
        else chain_fp64(a, b, count, acc, NULL);
    } else if (bound) {
        if (kind == ROUNDED) chain_bounds(a, b, count, true, acc, bound);
        else chain_bounds(a, b, count, false, acc, bound);
    } else if (kind == EXACT) chain_exact(a, b, count, acc);
    else if (kind == ROUNDED) chain_rounded(a, b, count, acc);
    else chain_fused(a, b, count, acc);
}

#if defined(__x86_64__)
static __attribute__((target("avx2"))) void run_avx2(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    run(kind, a, b, count, acc, bound);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
static void run_avx2(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    run(kind, a, b, count, acc, bound);
}

static bool has_avx2(void)
{
    return false;
}
#endif

static void run_portable(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    run(kind, a, b, count, acc, bound);
}

/* Is every product of two numbers of these formats a binary32 number? */
static bool products_are_narrow(const ng_predictor *p)
{
    const ng_format *a = &ng_formats[p->a_format], *b = &ng_formats[p->b_format];
    if (p->sum->scales == NG_SCALES_DEQUANTIZED) return false;
    int least = a->emin - a->mantissa_bits + b->emin - b->mantissa_bits;
    return a->mantissa_bits + b->mantissa_bits + 2 <= 24 && least >= -149 && a->emax + b->emax + 2 <= 127;
}

static chain_kind kind_of(const ng_predictor *p)
{
    if (p->sum->order == NG_SUM_FP64) return FP64;
    if (products_are_narrow(p)) return EXACT;
    return p->sum->fused ? FUSED : ROUNDED;
}

static void chain_run(const ng_predictor *p, const void *a, const void *b, int64_t padded, double *acc, double *bound)
{
    (has_avx2() ? run_avx2 : run_portable)(kind_of(p), a, b, padded, acc, bound);
}

const ng_engine *ng_chain_engine(const ng_predictor *p)
{
    static const ng_engine chain = {"chain", 1, sizeof(double), NG_LANES * sizeof(double), pack_a, pack_b, chain_run, true};
    return p->a_format == NG_FP64 || p->b_format == NG_FP64 ? NULL : &chain;
}
