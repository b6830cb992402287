/* Tensor-core steps for NG_LANES columns at once, with AVX2. Two schemes, both of predict_step.c's arithmetic:
 *
 * narrow: products of 8 bits aligned to at most 13 fraction bits (FP8 and below, F <= 13). A lane is a 16-bit word, two
 * words of K side by side. Shifting right by s is the high half of a product with 2^(15 - s), which a byte shuffle looks
 * up, the bytes of the index being the exponent sum t = 15 - s and t - 8: out of range, either gives 0.
 *
 * wide: products below 2^(F + 2), F <= 28. A lane is a 32-bit integer; as many terms as fit are added in 32 bits, the
 * rest, c and the result in binary64, whose 53 bits hold every such sum exactly.
 *
 * A scheme serves what its widths prove to be exact (fits_narrow, fits_wide); anything else goes the plain way. */
#include "reference/predict.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE static inline __attribute__((always_inline, target("avx2")))

/* Position in the step of element i of the step's groups laid end to end. */
static int64_t in_step(const ng_mma *mma, int64_t q)
{
    int64_t step = q / mma->k * mma->k, r = q % mma->k, g = r / mma->group, i = r % mma->group;
    if (!mma->interleave) return q;
    return step + i / mma->interleave * 2 * mma->interleave + g * mma->interleave + i % mma->interleave;
}

static ng_factor factor_at(const ng_mma *mma, const ng_operand_row *row, int64_t k0, int64_t count, int64_t q)
{
    static const ng_factor zero = {0};
    int64_t k = in_step(mma, q);
    if (k >= count || row->factors[k0 + k].kind != NG_FINITE) return zero;
    ng_factor f = row->factors[k0 + k];
    if (row->scale_factors) f.exponent = (int16_t)(f.exponent + row->scale_factors[k0 + k].exponent);
    return f;
}

/* Fraction bits and magnitude of the largest product of two formats. */
static int64_t largest_product(const ng_predictor *p)
{
    return (((int64_t)2 << ng_factor_fraction(p->a_format)) - 1) * (((int64_t)2 << ng_factor_fraction(p->b_format)) - 1);
}

/* ---- narrow -------------------------------------------------------------------------------------------------------*/
enum {
    NARROW_ZERO = -64, /* exponent of a zero: below every sum that counts */
    NARROW_BIG = 60,   /* the same in the index bytes, where a zero must not look like a term that loses bits */
};

/* One step of 32 elements: of a row of A, and of 8 rows of B. dup holds the exponent twice, B's second byte 8 lower. */
typedef struct narrow_a {
    int8_t exponent[32];
    int16_t magnitude[32], sign[32];
    int8_t dup[64];
} narrow_a;

typedef struct narrow_b {
    int8_t exponent[8][8][4];     /* [quad of K][column][K] */
    uint16_t magnitude[16][8][2]; /* [pair of K][column][K], shifted to its place */
    int16_t sign[16][8][2];
    int8_t dup[16][8][2][2];
} narrow_b;

static bool is_small(ng_format_id f)
{
    return ng_formats[f].storage_bits <= 8 && f != NG_E8M0;
}

static bool fits_narrow(const ng_predictor *p)
{
    const ng_mma *mma = &p->sum->mma;
    int shift = mma->fraction_bits + 1 - p->fraction;
    return is_small(p->a_format) && is_small(p->b_format) && !mma->scales_inside && shift >= 0 &&
           largest_product(p) << shift < 1 << 16 && (mma->group == 32 || mma->group == 16) && mma->k == 32 &&
           mma->min_exponent <= NARROW_ZERO && p->k <= 1 << 20;
}

static void narrow_pack_a(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded,
                          void *out)
{
    narrow_a *steps = out;
    for (int64_t q = 0; q < padded; q++) {
        ng_factor f = factor_at(&p->sum->mma, row, k0, count, q);
        narrow_a *step = &steps[q / 32];
        int64_t i = q % 32;
        step->exponent[i] = (int8_t)(f.significand ? f.exponent : NARROW_ZERO);
        step->magnitude[i] = (int16_t)abs(f.significand);
        step->sign[i] = f.significand < 0 ? -1 : 1;
        step->dup[2 * i] = step->dup[2 * i + 1] = (int8_t)(f.significand ? f.exponent : NARROW_BIG);
    }
}

static void narrow_pack_b(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded,
                          int lane, void *out)
{
    narrow_b *steps = out; /* [step][NG_LANES / 8] */
    int shift = p->sum->mma.fraction_bits + 1 - p->fraction;
    for (int64_t q = 0; q < padded; q++) {
        ng_factor f = factor_at(&p->sum->mma, row, k0, count, q);
        narrow_b *step = &steps[q / 32 * (NG_LANES / 8) + lane / 8];
        int64_t i = q % 32, column = lane % 8;
        step->exponent[i / 4][column][i % 4] = (int8_t)(f.significand ? f.exponent : NARROW_ZERO);
        step->magnitude[i / 2][column][i % 2] = (uint16_t)(abs(f.significand) << shift);
        step->sign[i / 2][column][i % 2] = f.significand < 0 ? -1 : 1;
        step->dup[i / 2][column][i % 2][0] = (int8_t)(f.significand ? f.exponent : NARROW_BIG);
        step->dup[i / 2][column][i % 2][1] = (int8_t)(f.significand ? f.exponent - 8 : NARROW_BIG);
    }
}

AVX2_INLINE __m256i pair_of(const void *two_words)
{
    int32_t both;
    memcpy(&both, two_words, sizeof both);
    return _mm256_set1_epi32(both);
}

/* The largest raw exponent of the group's products in each of 8 columns. */
AVX2_INLINE __m256i narrow_exponent(const narrow_a *a, const narrow_b *b, int from, int to)
{
    __m256i top = _mm256_set1_epi8(-128);
    for (int quad = from / 4; quad < to / 4; quad++) {
        __m256i e = _mm256_add_epi8(pair_of(&a->exponent[4 * quad]), _mm256_load_si256((const __m256i *)b->exponent[quad]));
        top = _mm256_max_epi8(top, e);
    }
    top = _mm256_max_epi8(top, _mm256_srli_epi32(top, 16));
    top = _mm256_max_epi8(top, _mm256_srli_epi16(top, 8));
    return _mm256_srai_epi32(_mm256_slli_epi32(top, 24), 24);
}

/* Raw exponent of each c; that of zero is -127, below every other. */
AVX2_INLINE __m256i exponent_of(__m256 c)
{
    __m256i bits = _mm256_and_si256(_mm256_castps_si256(c), _mm256_set1_epi32(0x7F800000));
    return _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127));
}

/* c truncated to multiples of 2^(E - F), in units of that; *lost counts where that changed it. */
AVX2_INLINE __m256i aligned_c(__m256 c, __m256i e, int fraction, bool bounds, __m256i *lost)
{
    __m256i bits = _mm256_castps_si256(c);
    __m256i magnitude = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF)), _mm256_set1_epi32(0x800000));
    __m256i zero = _mm256_cmpeq_epi32(_mm256_slli_epi32(bits, 1), _mm256_setzero_si256());
    magnitude = _mm256_andnot_si256(zero, magnitude);
    __m256i shift = _mm256_add_epi32(_mm256_sub_epi32(e, exponent_of(c)), _mm256_set1_epi32(23 - fraction));
    __m256i t = _mm256_srlv_epi32(magnitude, shift);
    if (bounds) {
        __m256i same = _mm256_cmpeq_epi32(_mm256_sllv_epi32(t, shift), magnitude);
        *lost = _mm256_add_epi32(*lost, _mm256_andnot_si256(same, _mm256_set1_epi32(1)));
    }
    return _mm256_sign_epi32(t, _mm256_or_si256(bits, _mm256_set1_epi32(1)));
}

AVX2_INLINE __m256 power_of_two(__m256i exponent)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
}

/* 16 truncated products, added in pairs of K. inexact: -1 in each word that kept all its bits. */
AVX2_INLINE __m256i narrow_terms(__m256i magnitude, __m256i dup, __m256i sign, const narrow_b *b, int pair, __m256i offset,
                                 __m256i powers, bool bounds, __m256i *kept)
{
    __m256i product = _mm256_mullo_epi16(magnitude, _mm256_load_si256((const __m256i *)b->magnitude[pair]));
    __m256i t = _mm256_adds_epi8(dup, _mm256_load_si256((const __m256i *)b->dup[pair]));
    __m256i multiplier = _mm256_shuffle_epi8(powers, _mm256_adds_epi8(t, offset));
    __m256i term = _mm256_mulhi_epu16(product, multiplier);
    if (bounds) {
        __m256i low = _mm256_mullo_epi16(product, multiplier);
        /* A multiplier of 0 stands for a shift beyond 15, which loses all of a product that is not 0. */
        __m256i gone = _mm256_cmpeq_epi16(multiplier, _mm256_setzero_si256());
        low = _mm256_or_si256(low, _mm256_and_si256(gone, product));
        *kept = _mm256_add_epi16(*kept, _mm256_cmpeq_epi16(low, _mm256_setzero_si256()));
    }
    term = _mm256_sign_epi16(term, _mm256_load_si256((const __m256i *)b->sign[pair]));
    return _mm256_madd_epi16(term, sign);
}

/* One group for two vectors of 8 columns: c[2] becomes d[2], error[2] grows. */
AVX2_INLINE void narrow_group(const narrow_a *a, const narrow_b *b, int from, int to, int fraction, int output,
                              bool bounds, __m256 *c, __m256 *error)
{
    const __m256i powers = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i ones = _mm256_set1_epi16(1), mask = _mm256_set1_epi32(-(1 << (23 - output)));
    __m256i e[2], offset[2], sum[2], kept[2], lost[2];
    for (int v = 0; v < 2; v++) {
        e[v] = _mm256_max_epi32(narrow_exponent(a, &b[v], from, to), exponent_of(c[v]));
        e[v] = _mm256_max_epi32(e[v], _mm256_set1_epi32(-100)); /* all zero: power_of_two needs a normal number */
        __m256i low = _mm256_and_si256(_mm256_sub_epi32(_mm256_set1_epi32(15), e[v]), _mm256_set1_epi32(0xFF));
        offset[v] = _mm256_shuffle_epi8(low, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
        lost[v] = kept[v] = _mm256_setzero_si256();
        sum[v] = aligned_c(c[v], e[v], fraction, bounds, &lost[v]);
    }
    for (int pair = from / 2; pair < to / 2; pair++) {
        __m256i magnitude = pair_of(&a->magnitude[2 * pair]), sign = pair_of(&a->sign[2 * pair]);
        __m256i dup = pair_of(&a->dup[4 * pair]);
        for (int v = 0; v < 2; v++)
            sum[v] = _mm256_add_epi32(sum[v], narrow_terms(magnitude, dup, sign, &b[v], pair, offset[v], powers, bounds, &kept[v]));
    }
    for (int v = 0; v < 2; v++) {
        __m256 whole = _mm256_cvtepi32_ps(sum[v]); /* below 2^24 */
        __m256 cut = _mm256_and_ps(whole, _mm256_castsi256_ps(mask));
        __m256i unit = _mm256_sub_epi32(e[v], _mm256_set1_epi32(fraction));
        c[v] = _mm256_mul_ps(cut, power_of_two(unit));
        if (!bounds) continue;
        __m256i inexact = _mm256_add_epi32(lost[v], _mm256_add_epi32(_mm256_set1_epi32(to - from), _mm256_madd_epi16(kept[v], ones)));
        __m256 aligning = _mm256_mul_ps(_mm256_cvtepi32_ps(inexact), power_of_two(unit));
        __m256 last = _mm256_mul_ps(_mm256_and_ps(c[v], _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000))),
                                    power_of_two(_mm256_set1_epi32(-output)));
        last = _mm256_and_ps(last, _mm256_cmp_ps(whole, cut, _CMP_NEQ_OQ));
        error[v] = _mm256_add_ps(error[v], _mm256_add_ps(aligning, last));
    }
}

AVX2_INLINE void narrow_columns(const ng_mma *mma, const narrow_a *a, const narrow_b *b, int64_t steps, int group,
                                bool bounds, double *acc, double *bound)
{
    __m256 c[2], error[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int fraction = mma->fraction_bits, output = mma->output_bits;
    for (int v = 0; v < 2; v++)
        c[v] = _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(acc + 8 * v + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(acc + 8 * v)));
    for (int64_t s = 0; s < steps; s++)
        for (int from = 0; from < 32; from += group)
            narrow_group(&a[s], &b[s * (NG_LANES / 8)], from, from + group, fraction, output, bounds, c, error);
    float values[16], errors[16];
    for (int v = 0; v < 2; v++) {
        _mm256_storeu_ps(values + 8 * v, c[v]);
        _mm256_storeu_ps(errors + 8 * v, error[v]);
    }
    for (int l = 0; l < 16; l++)
        acc[l] = (double)values[l];
    for (int l = 0; bounds && l < 16; l++) /* fewer than 2^5 roundings of 2^-24 in binary32 */
        bound[l] += (double)errors[l] * (1 + 0x1p-18);
}

#define NARROW(name, group, bounds) \
    static AVX2 void name(const ng_mma *mma, const narrow_a *a, const narrow_b *b, int64_t steps, double *acc, double *bound) \
    { \
        for (int v = 0; v < NG_LANES / 8; v += 2) \
            narrow_columns(mma, a, b + v, steps, group, bounds, acc + 8 * v, bound + (bounds ? 8 * v : 0)); \
    }
NARROW(narrow_32, 32, false)
NARROW(narrow_32_bounds, 32, true)
NARROW(narrow_16, 16, false)
NARROW(narrow_16_bounds, 16, true)

static void narrow_run(const ng_predictor *p, const void *a, const void *b, int64_t padded, double *acc, double *bound)
{
    const ng_mma *mma = &p->sum->mma;
    double none[1];
    if (mma->group == 32) (bound ? narrow_32_bounds : narrow_32)(mma, a, b, padded / 32, acc, bound ? bound : none);
    else (bound ? narrow_16_bounds : narrow_16)(mma, a, b, padded / 32, acc, bound ? bound : none);
}

/* ---- wide ---------------------------------------------------------------------------------------------------------*/
enum { WIDE_ZERO = -10000 };

typedef struct wide_a { /* one element of a row */
    int32_t significand; /* in the low 16 bits, the high ones zero */
    int32_t exponent;
} wide_a;

typedef struct wide_b { /* one element of K of NG_LANES rows */
    int32_t significand[NG_LANES], exponent[NG_LANES];
} wide_b;

/* Products are shifted to 2^(raw exponent - F) before they are aligned; the factors share the shift. */
static int wide_shift(const ng_predictor *p)
{
    return p->sum->mma.fraction_bits - p->fraction;
}

static int wide_shift_a(const ng_predictor *p)
{
    int room = 14 - ng_factor_fraction(p->a_format), shift = wide_shift(p) > 0 ? wide_shift(p) : 0;
    return shift < room ? shift : room;
}

static bool fits_wide(const ng_predictor *p)
{
    const ng_mma *mma = &p->sum->mma;
    bool exponents_only = !mma->scales_inside || p->scale_fraction == 0;
    int shift_b = (wide_shift(p) > 0 ? wide_shift(p) : 0) - wide_shift_a(p);
    int widest = mma->fraction_bits > p->fraction ? mma->fraction_bits : p->fraction;
    return !mma->dot && exponents_only && widest <= 28 && ng_factor_fraction(p->a_format) <= 10 &&
           ng_factor_fraction(p->b_format) <= 10 && ng_factor_fraction(p->b_format) + shift_b <= 14 && mma->output_bits >= 1 &&
           mma->min_exponent > -300;
}

static void wide_pack_a(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded, void *out)
{
    wide_a *to = out;
    for (int64_t q = 0; q < padded; q++) {
        ng_factor f = factor_at(&p->sum->mma, row, k0, count, q);
        to[q].significand = (f.significand * (1 << wide_shift_a(p))) & 0xFFFF;
        to[q].exponent = f.significand ? f.exponent : WIDE_ZERO;
    }
}

static void wide_pack_b(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded, int lane,
                        void *out)
{
    wide_b *to = out;
    int shift = (wide_shift(p) > 0 ? wide_shift(p) : 0) - wide_shift_a(p);
    for (int64_t q = 0; q < padded; q++) {
        ng_factor f = factor_at(&p->sum->mma, row, k0, count, q);
        to[q].significand[lane] = (f.significand * (1 << shift)) & 0xFFFF;
        to[q].exponent[lane] = f.significand ? f.exponent : WIDE_ZERO;
    }
}

/* Raw exponents of 4 binary64 c; zero's is WIDE_ZERO. */
AVX2_INLINE __m128i exponent_of_double(__m256d c)
{
    const __m256i odd = _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7);
    __m128i high = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(_mm256_castpd_si256(c), odd));
    __m128i field = _mm_and_si128(_mm_srli_epi32(high, 20), _mm_set1_epi32(0x7FF));
    __m128i e = _mm_max_epi32(_mm_sub_epi32(field, _mm_set1_epi32(1023)), _mm_set1_epi32(-126));
    return _mm_blendv_epi8(e, _mm_set1_epi32(WIDE_ZERO), _mm_cmpeq_epi32(field, _mm_setzero_si128()));
}

AVX2_INLINE __m256d power_of_two_double(__m128i exponent)
{
    __m256i wide = _mm256_cvtepi32_epi64(_mm_add_epi32(exponent, _mm_set1_epi32(1023)));
    return _mm256_castsi256_pd(_mm256_slli_epi64(wide, 52));
}

AVX2_INLINE __m256d magnitude_of(__m256d x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

/* One term in each of 8 columns, aligned to 2^(E - F); *kept counts down where all bits were kept. */
AVX2_INLINE __m256i wide_term(__m256i sa, __m256i ea, const wide_b *b, int v, __m256i shift_from, bool bounds, __m256i *kept)
{
    __m256i product = _mm256_madd_epi16(sa, _mm256_load_si256((const __m256i *)b->significand + v));
    __m256i e = _mm256_add_epi32(ea, _mm256_load_si256((const __m256i *)b->exponent + v));
    __m256i shift = _mm256_sub_epi32(shift_from, e), magnitude = _mm256_abs_epi32(product);
    __m256i term = _mm256_srlv_epi32(magnitude, shift);
    if (bounds) *kept = _mm256_add_epi32(*kept, _mm256_cmpeq_epi32(_mm256_sllv_epi32(term, shift), magnitude));
    return _mm256_sign_epi32(term, product);
}

/* sum * 2^(E - F) truncated to p bits in binary32's range, for 4 columns. */
AVX2_INLINE __m256d wide_result(__m256d sum, __m128i unit, int output, bool bounds, __m256d *error)
{
    const __m256d least = _mm256_set1_pd(0x1p-126), infinity = _mm256_set1_pd(INFINITY);
    __m256d whole = _mm256_mul_pd(sum, power_of_two_double(unit));
    __m256d d = _mm256_and_pd(whole, _mm256_castsi256_pd(_mm256_set1_epi64x(-((int64_t)1 << (52 - output)))));
    __m256d quantum = _mm256_and_pd(d, infinity);
    __m256d small = _mm256_cmp_pd(magnitude_of(whole), least, _CMP_LT_OQ);
    if (_mm256_movemask_pd(small)) {
        __m256d scale = _mm256_castsi256_pd(_mm256_set1_epi64x((int64_t)(1023 + 126 + output) << 52));
        __m256d back = _mm256_castsi256_pd(_mm256_set1_epi64x((int64_t)(1023 - 126 - output) << 52));
        __m256d cut = _mm256_round_pd(_mm256_mul_pd(whole, scale), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        cut = _mm256_add_pd(_mm256_mul_pd(cut, back), _mm256_setzero_pd()); /* no -0 */
        d = _mm256_blendv_pd(d, cut, small);
        quantum = _mm256_blendv_pd(quantum, least, small);
    }
    if (bounds) {
        __m256d last = _mm256_mul_pd(quantum, _mm256_castsi256_pd(_mm256_set1_epi64x((int64_t)(1023 - output) << 52)));
        *error = _mm256_add_pd(*error, _mm256_and_pd(last, _mm256_cmp_pd(d, whole, _CMP_NEQ_OQ)));
    }
    __m256d over = _mm256_cmp_pd(magnitude_of(d), _mm256_set1_pd(0x1p128), _CMP_GE_OQ);
    __m256d signed_infinity = _mm256_or_pd(infinity, _mm256_and_pd(d, _mm256_set1_pd(-0.0)));
    return _mm256_blendv_pd(d, signed_infinity, over);
}

typedef struct wide_scheme {
    int group, flush; /* terms that 32 bits hold: flush * 2^(max(F, fraction) + 2) <= 2^31 */
    int fraction, extra, output, least;
} wide_scheme;

/* One group for 8 columns: c[2] becomes d[2]. */
AVX2_INLINE void wide_group(const wide_scheme *w, const wide_a *a, const wide_b *b, int v, bool bounds, __m256d *c, __m256d *error)
{
    __m256i e = _mm256_set_m128i(exponent_of_double(c[1]), exponent_of_double(c[0]));
    e = _mm256_max_epi32(e, _mm256_set1_epi32(w->least));
    for (int i = 0; i < w->group; i++)
        e = _mm256_max_epi32(e, _mm256_add_epi32(_mm256_set1_epi32(a[i].exponent), _mm256_load_si256((const __m256i *)b[i].exponent + v)));
    __m256i shift_from = _mm256_add_epi32(e, _mm256_set1_epi32(w->extra)), kept = _mm256_setzero_si256();
    __m128i half[2] = {_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1)};
    __m256d sum[2];
    for (int h = 0; h < 2; h++) { /* c, aligned */
        __m256d scaled = _mm256_mul_pd(c[h], power_of_two_double(_mm_sub_epi32(_mm_set1_epi32(w->fraction), half[h])));
        sum[h] = _mm256_round_pd(scaled, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        if (!bounds) continue;
        __m256d lost = _mm256_cmp_pd(sum[h], scaled, _CMP_NEQ_OQ);
        __m256d unit = power_of_two_double(_mm_sub_epi32(half[h], _mm_set1_epi32(w->fraction)));
        error[h] = _mm256_add_pd(error[h], _mm256_and_pd(lost, unit));
    }
    for (int i = 0; i < w->group; i += w->flush) {
        __m256i part = _mm256_setzero_si256();
        for (int t = i; t < i + w->flush && t < w->group; t++)
            part = _mm256_add_epi32(part, wide_term(_mm256_set1_epi32(a[t].significand), _mm256_set1_epi32(a[t].exponent), &b[t], v,
                                                    shift_from, bounds, &kept));
        sum[0] = _mm256_add_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(part)), sum[0]);
        sum[1] = _mm256_add_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(part, 1)), sum[1]);
    }
    __m256i inexact = _mm256_add_epi32(kept, _mm256_set1_epi32(w->group));
    __m128i counts[2] = {_mm256_castsi256_si128(inexact), _mm256_extracti128_si256(inexact, 1)};
    for (int h = 0; h < 2; h++) {
        __m128i unit = _mm_sub_epi32(half[h], _mm_set1_epi32(w->fraction));
        if (bounds) error[h] = _mm256_add_pd(error[h], _mm256_mul_pd(_mm256_cvtepi32_pd(counts[h]), power_of_two_double(unit)));
        c[h] = wide_result(sum[h], unit, w->output, bounds, &error[h]);
    }
}

AVX2_INLINE void wide_all(const wide_scheme *w, const wide_a *a, const wide_b *b, int64_t padded, bool bounds, double *acc, double *bound)
{
    for (int v = 0; v < NG_LANES / 8; v++) {
        __m256d c[2] = {_mm256_loadu_pd(acc + 8 * v), _mm256_loadu_pd(acc + 8 * v + 4)};
        __m256d error[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
        for (int64_t q = 0; q < padded; q += w->group)
            wide_group(w, a + q, b + q, v, bounds, c, error);
        for (int h = 0; h < 2; h++) {
            double *to = acc + 8 * v + 4 * h;
            _mm256_storeu_pd(to, c[h]);
            if (!bounds) continue;
            double *grown = bound + 8 * v + 4 * h;
            _mm256_storeu_pd(grown, _mm256_add_pd(_mm256_loadu_pd(grown), error[h]));
        }
    }
}

static AVX2 void wide_plain(const wide_scheme *w, const wide_a *a, const wide_b *b, int64_t padded, double *acc)
{
    wide_all(w, a, b, padded, false, acc, NULL);
}

static AVX2 void wide_bounds(const wide_scheme *w, const wide_a *a, const wide_b *b, int64_t padded, double *acc, double *bound)
{
    wide_all(w, a, b, padded, true, acc, bound);
}

static void wide_run(const ng_predictor *p, const void *a, const void *b, int64_t padded, double *acc, double *bound)
{
    const ng_mma *mma = &p->sum->mma;
    int shift = wide_shift(p), widest = shift < 0 ? p->fraction : mma->fraction_bits;
    wide_scheme w = {.group = mma->group, .flush = 1 << (29 - widest), .fraction = mma->fraction_bits,
                     .extra = shift < 0 ? -shift : 0, .output = mma->output_bits, .least = mma->min_exponent};
    if (bound) wide_bounds(&w, a, b, padded, acc, bound);
    else wide_plain(&w, a, b, padded, acc);
}

const ng_engine *ng_mma_engine(const ng_predictor *p)
{
    static const ng_engine narrow = {"mma-narrow", 32, sizeof(narrow_a) / 32, sizeof(narrow_b) * (NG_LANES / 8) / 32,
                                     narrow_pack_a, narrow_pack_b, narrow_run, false};
    static const ng_engine wide[] = { /* unit is the step */
        {"mma-wide", 4, sizeof(wide_a), sizeof(wide_b), wide_pack_a, wide_pack_b, wide_run, false},
        {"mma-wide", 8, sizeof(wide_a), sizeof(wide_b), wide_pack_a, wide_pack_b, wide_run, false},
        {"mma-wide", 16, sizeof(wide_a), sizeof(wide_b), wide_pack_a, wide_pack_b, wide_run, false},
        {"mma-wide", 32, sizeof(wide_a), sizeof(wide_b), wide_pack_a, wide_pack_b, wide_run, false},
        {"mma-wide", 64, sizeof(wide_a), sizeof(wide_b), wide_pack_a, wide_pack_b, wide_run, false},
    };
    if (!__builtin_cpu_supports("avx2")) return NULL;
    if (fits_narrow(p)) return &narrow;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (wide[i].unit == p->sum->mma.k && fits_wide(p)) return &wide[i];
    return NULL;
}

#else
const ng_engine *ng_mma_engine(const ng_predictor *p)
{
    (void)p;
    return NULL;
}
#endif
