/* Inside the predictor. predict_step.c: one tensor-core step in integers. predict_element.c: one element of a product,
 * term by term, the reference of the fast path. predict.c: the fast path's plan, tiles and composition. predict_mma.c and
 * predict_chain.c: its inner sums, over NG_LANES columns at once. */
#ifndef NG_REFERENCE_PREDICT_H
#define NG_REFERENCE_PREDICT_H

#include "reference/gemm.h"

#include <math.h>
#include <string.h>

typedef enum ng_number_kind { NG_FINITE, NG_INFINITE, NG_NOT_A_NUMBER } ng_number_kind;

/* value = significand * 2^(exponent - fraction bits of its format): the raw exponent, floored at the format's smallest. */
typedef struct ng_factor {
    int32_t significand; /* signed; of an infinity only the sign counts */
    int16_t exponent;
    uint8_t kind; /* ng_number_kind */
} ng_factor;

/* The factor of a code; *fraction_bits (may be NULL) is its format's. Not for fp32 and fp64. */
ng_factor ng_factor_of(ng_format_id format, uint64_t code);
/* The same for an operand of the step: interleaved fp8 is converted to fp16 first, where its subnormals are normal. */
ng_factor ng_operand_factor(const ng_mma *mma, ng_format_id format, uint64_t code);
int ng_factor_fraction(ng_format_id format);

/* One term of a fused sum: significand * 2^(exponent - fraction). */
typedef struct ng_term {
    int64_t significand;
    int32_t exponent;
    int32_t fraction;
    ng_number_kind kind;
} ng_term;

/* Aligns, truncates, adds and truncates `count` terms as ng_mma says; returns the binary32 result. *bound (may be NULL)
 * grows by a strict bound of |result - exact sum| (infinite where the result is). */
float ng_fused_sum(const ng_mma *mma, const ng_term *terms, int count, double *bound);

enum { NG_MAX_STEP = 256 }; /* products in one step at most */

/* One whole step d = c + sum of a*b over mma->k codes, groups one after the other; c as binary32. For scales_inside,
 * a_scales and b_scales hold one code a scale block; otherwise NULL. NG_UNSUPPORTED: a step that the model does not define. */
ng_status ng_mma_step(const ng_mma *mma, ng_format_id a_format, const uint64_t *a, ng_format_id b_format,
                      const uint64_t *b, ng_format_id scale_format, const uint64_t *a_scales, const uint64_t *b_scales,
                      float c, float *d);

/* The same on factors [mma->k]. fraction: of a and b together; sa, sb: the scale of each element, or NULL. bound as above. */
float ng_factor_step(const ng_mma *mma, int fraction, int scale_fraction, const ng_factor *a, const ng_factor *b,
                     const ng_factor *sa, const ng_factor *sb, float c, double *bound);

bool ng_mma_is_defined(const ng_mma *mma);

/* ---- a product ----------------------------------------------------------------------------------------------------*/
/* What dequantization to binary32 may have cost a row: nothing, or a rounding of each element. */
typedef struct ng_row_rounding {
    double norm; /* Euclidean norm of the rounded row */
    bool inexact;
} ng_row_rounding;

/* K values of one row of an operand, ready to be multiplied. */
typedef struct ng_operand_row {
    ng_factor *factors;       /* NG_SUM_MMA */
    ng_factor *scale_factors; /* scales inside: one per element */
    double *values;           /* other orders */
    bool has_nan, has_infinity;
    ng_row_rounding rounding;
} ng_operand_row;

typedef struct ng_predictor {
    const ng_accumulation *sum;
    const ng_cast *cast;
    const ng_operand *a, *b;
    const ng_tensor *initial;
    int64_t m, n, k;
    ng_format_id a_format, b_format; /* as the sum sees them: bf16 for dequantized operands of tensor cores */
    int fraction, scale_fraction;    /* of a product, of a product of scales (NG_SUM_MMA) */
    int64_t part;                    /* K elements in a part of split-K */
    int64_t block;                   /* K elements under one pair of scales (NG_SCALES_BLOCK_*), else 0 */
    bool promoted;
    float tensor_scale;              /* fl(Da * Db) */
    double tensor_scale_error;       /* |Da * Db - tensor_scale| */
} ng_predictor;

/* A computed value and a bound of its distance from the exact one. */
typedef struct ng_running {
    double value, bound;
} ng_running;

ng_status ng_operand_row_create(const ng_predictor *p, ng_operand_row *row);
void ng_operand_row_free(ng_operand_row *row);
/* NG_UNSUPPORTED: an element that the contract's dequantization cannot hold exactly. */
ng_status ng_operand_row_load(const ng_predictor *p, const ng_operand *operand, int64_t row, ng_operand_row *out);

/* The sum of element (i, j) before the cast, one term after the other. */
ng_running ng_predict_element(const ng_predictor *p, const ng_operand_row *a, const ng_operand_row *b, int64_t i,
                              int64_t j);

/* As ng_predict_gemm, every element by ng_predict_element. */
ng_status ng_predict_gemm_plain(const ng_accumulation *sum, const ng_cast *cast, const ng_operand *a,
                                const ng_operand *b, const ng_tensor *initial, int threads, ng_tensor *out,
                                double *bound);

/* A scale of row i at column k; 1 where there is none. */
double ng_scale_at(const ng_operand *operand, int64_t row, int64_t k);

/* ---- binary32 roundings of exact results ---------------------------------------------------------------------------
 * A binary64 rounded to odd keeps a sticky bit: rounding it again to binary32 is one rounding, since 53 >= 24 + 2
 * (S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums, IEEE TC 57, 2008). */
static inline double ng_to_odd(double rounded, double residual)
{
    int64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bool inexact = residual < 0 || residual > 0;
    bool outward = (rounded < 0) == (residual < 0);
    bits += inexact && !(bits & 1) ? (outward ? 1 : -1) : 0;
    memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

/* The residual of rounded = x + y (Knuth); NaN where that is not finite. */
static inline double ng_sum_residual(double x, double y, double rounded)
{
    double z = rounded - x;
    return (x - (rounded - z)) + (y - z);
}

/* What rounding to nearest binary32 can have cost: nothing if nothing was lost. */
static inline double ng_rounding_bound(bool exact, double result)
{
    return exact ? 0.0 : 0x1p-24 * fabs(result) + 0x1p-150;
}

/* fl(x + y) for any finite binary64 x, y. */
static inline ng_running ng_fl_sum(double x, double y)
{
    double t = x + y, residual = ng_sum_residual(x, y, t);
    double f = (double)(float)ng_to_odd(t, residual);
    return (ng_running){f, ng_rounding_bound(f == t && residual == 0, f)};
}

/* fl(x * y). */
static inline ng_running ng_fl_product(double x, double y)
{
    double t = x * y, residual = fma(x, y, -t);
    double f = (double)(float)ng_to_odd(t, residual);
    return (ng_running){f, ng_rounding_bound(f == t && residual == 0, f)};
}

/* ---- the fast path's inner sums ------------------------------------------------------------------------------------*/
enum { NG_LANES = 32 };

/* An inner sum over NG_LANES columns: packs rows of operands its own way and runs pieces of K. A piece holds `padded`
 * elements, a multiple of unit; those beyond its count are zero. */
typedef struct ng_engine {
    const char *name;
    int64_t unit;
    size_t a_bytes; /* packed bytes per element of K of one row of A */
    size_t b_bytes; /* packed bytes per element of K of NG_LANES rows of B */
    /* Packs `padded` elements from k0 (`count` of them real). B: row `lane` of a panel. */
    void (*pack_a)(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded, void *out);
    void (*pack_b)(const ng_predictor *p, const ng_operand_row *row, int64_t k0, int64_t count, int64_t padded, int lane,
                   void *out);
    /* Goes on with the chains acc [NG_LANES] and, unless NULL, their bounds. */
    void (*run)(const ng_predictor *p, const void *a, const void *b, int64_t padded, double *acc, double *bound);
    bool native_specials; /* NaN and infinities need no other path */
} ng_engine;

/* The engine for this product on this machine, or NULL: none, every element goes the plain way. */
const ng_engine *ng_engine_choose(const ng_predictor *p);
const ng_engine *ng_mma_engine(const ng_predictor *p);
const ng_engine *ng_chain_engine(const ng_predictor *p);

ng_status ng_predictor_create(const ng_accumulation *sum, const ng_cast *cast, const ng_operand *a, const ng_operand *b,
                              const ng_tensor *initial, const ng_tensor *out, ng_predictor *p);
/* Scales, split-K, tensor scale, accumulation: shared by both paths. */
ng_running ng_apply_scales(const ng_predictor *p, ng_running sum, int64_t i, int64_t j, int64_t k, ng_running main);
ng_running ng_finish(const ng_predictor *p, ng_running sum, ng_row_rounding a, ng_row_rounding b, int64_t i, int64_t j);
/* The cast into `out`, and the bound (may be NULL) made outward. */
void ng_store(const ng_predictor *p, ng_running result, int64_t i, int64_t j, ng_tensor *out, double *bound);

#endif
