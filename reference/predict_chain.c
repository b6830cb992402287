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

typedef enum chain_kind { EXACT, ROUNDED, FUSED, FP64 } chain_kind;

/* One term in one lane. */
static void add_term(chain_kind kind, double a, double b, double *s, double *bound)
{
    double x = a * b, y = kind == ROUNDED ? (double)(float)x : x, t = *s + y, residual = ng_sum_residual(*s, y, t);
    double f = kind == FP64 ? t : (double)(float)ng_to_odd(t, residual);
    *s = f;
    if (!bound) return;
    if (kind == FP64) *bound += residual == 0 ? 0.0 : 0x1p-53 * fabs(t) + 0x1p-1074;
    else *bound += ng_rounding_bound(f == t && residual == 0, f) + (kind == ROUNDED ? ng_rounding_bound(x == y, y) : 0.0);
}

static void run_portable(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    for (int64_t q = 0; q < count; q++)
        for (int l = 0; l < NG_LANES; l++)
            add_term(kind, a[q], b[q * NG_LANES + l], &acc[l], bound ? &bound[l] : NULL);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline, target("avx2")))
enum { VECTORS = 4 }; /* of 4 lanes: as many chains as hide an addition's latency */

INLINE __m256d as_binary32(__m256d x)
{
    return _mm256_cvtps_pd(_mm256_cvtpd_ps(x));
}

INLINE __m256d residual_of(__m256d x, __m256d y, __m256d sum)
{
    __m256d z = _mm256_sub_pd(sum, x);
    return _mm256_add_pd(_mm256_sub_pd(x, _mm256_sub_pd(sum, z)), _mm256_sub_pd(y, z));
}

/* ng_to_odd: one unit outward where the signs agree, inward where they do not, if the sum is inexact and even. */
INLINE __m256d to_odd(__m256d sum, __m256d residual)
{
    const __m256i one = _mm256_set1_epi64x(1);
    __m256i bits = _mm256_castpd_si256(sum);
    __m256i inexact = _mm256_castpd_si256(_mm256_cmp_pd(residual, _mm256_setzero_pd(), _CMP_NEQ_OQ));
    __m256i differ = _mm256_srli_epi64(_mm256_xor_si256(bits, _mm256_castpd_si256(residual)), 63);
    __m256i step = _mm256_sub_epi64(one, _mm256_slli_epi64(differ, 1));
    __m256i even = _mm256_cmpeq_epi64(_mm256_and_si256(bits, one), _mm256_setzero_si256());
    return _mm256_castsi256_pd(_mm256_add_epi64(bits, _mm256_and_si256(step, _mm256_and_si256(inexact, even))));
}

/* unit |result| + least where something was lost. */
INLINE __m256d rounding_bound(__m256d lost, __m256d result, double unit, double least)
{
    __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), result);
    return _mm256_and_pd(lost, _mm256_add_pd(_mm256_mul_pd(size, _mm256_set1_pd(unit)), _mm256_set1_pd(least)));
}

INLINE __m256d lost_in(__m256d sum, __m256d rounded, __m256d residual)
{
    __m256d cut = _mm256_cmp_pd(sum, rounded, _CMP_NEQ_UQ), tail = _mm256_cmp_pd(residual, _mm256_setzero_pd(), _CMP_NEQ_UQ);
    return _mm256_or_pd(cut, tail);
}

INLINE void term(chain_kind kind, bool bounds, __m256d a, __m256d b, __m256d *s, __m256d *bound)
{
    __m256d x = _mm256_mul_pd(a, b), y = kind == ROUNDED ? as_binary32(x) : x, t = _mm256_add_pd(*s, y), residual = t;
    if (bounds || kind == FUSED) residual = residual_of(*s, y, t);
    __m256d f = kind == FP64 ? t : as_binary32(kind == FUSED ? to_odd(t, residual) : t);
    *s = f;
    if (!bounds) return;
    if (kind == FP64) *bound = _mm256_add_pd(*bound, rounding_bound(lost_in(t, t, residual), t, 0x1p-53, 0x1p-1074));
    else *bound = _mm256_add_pd(*bound, rounding_bound(lost_in(t, f, residual), f, 0x1p-24, 0x1p-150));
    if (kind == ROUNDED) *bound = _mm256_add_pd(*bound, rounding_bound(lost_in(x, y, _mm256_setzero_pd()), y, 0x1p-24, 0x1p-150));
}

INLINE void chains(chain_kind kind, bool bounds, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    for (int l0 = 0; l0 < NG_LANES; l0 += 4 * VECTORS) {
        __m256d s[VECTORS], e[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            s[v] = _mm256_loadu_pd(acc + l0 + 4 * v);
            e[v] = _mm256_setzero_pd();
        }
        for (int64_t q = 0; q < count; q++)
            for (int v = 0; v < VECTORS; v++)
                term(kind, bounds, _mm256_set1_pd(a[q]), _mm256_loadu_pd(b + q * NG_LANES + l0 + 4 * v), &s[v], &e[v]);
        for (int v = 0; v < VECTORS; v++) {
            _mm256_storeu_pd(acc + l0 + 4 * v, s[v]);
            if (bounds) _mm256_storeu_pd(bound + l0 + 4 * v, _mm256_add_pd(_mm256_loadu_pd(bound + l0 + 4 * v), e[v]));
        }
    }
}

static __attribute__((target("avx2"))) void run_avx2(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    switch (kind) { /* constants, so that each case is a loop of its own */
    case EXACT: (void)(bound ? chains(EXACT, true, a, b, count, acc, bound) : chains(EXACT, false, a, b, count, acc, NULL)); break;
    case ROUNDED: (void)(bound ? chains(ROUNDED, true, a, b, count, acc, bound) : chains(ROUNDED, false, a, b, count, acc, NULL)); break;
    case FUSED: (void)(bound ? chains(FUSED, true, a, b, count, acc, bound) : chains(FUSED, false, a, b, count, acc, NULL)); break;
    case FP64: (void)(bound ? chains(FP64, true, a, b, count, acc, bound) : chains(FP64, false, a, b, count, acc, NULL)); break;
    }
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
static void run_avx2(chain_kind kind, const double *a, const double *b, int64_t count, double *acc, double *bound)
{
    run_portable(kind, a, b, count, acc, bound);
}

static bool has_avx2(void)
{
    return false;
}
#endif

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
