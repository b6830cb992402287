/* The slow tier: every value an MPFR number, every fl() and cast one ng_round_mpfr of an exact intermediate.
 *
 * 320 bits hold sums of two binary32 numbers, products of three, and of an element with two scales exactly (exponents
 * -149 to 127 each). A quotient of two binary32 numbers is not exact, but at 320 bits it is never so near to a tie of a
 * 24-bit result that it rounds to the wrong side: a / b - t = (a - t b) / b, where a - t b is 0 or at least one unit of
 * a product of 24 and 25 bits. */
#include "reference/quantize_core.h"
#include "reference/round.h"

#include <omp.h>

enum { PRECISION = 320 };

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_KEEP_SIGN};

static void fl(mpfr_ptr x) {
    mpfr_set_d(x, ng_decode(NG_FP32, ng_round_mpfr(NG_FP32, x, &nearest, 0)), MPFR_RNDN);
}

static void at_most_max(mpfr_ptr x) {
    if (mpfr_cmp_d(x, (double)FLT_MAX) > 0) /* false for NaN */
        mpfr_set_d(x, (double)FLT_MAX, MPFR_RNDN);
}

/* ---- scales -------------------------------------------------------------------------------------------------------*/
typedef struct block {
    mpfr_t amax, t, u;
    uint64_t code; /* of the scale */
    mpfr_t factor; /* x * factor or x / factor, rounded to binary32 where `rounded` */
    mpfr_t scale;  /* the decoded block scale */
    bool divide, rounded;
} block;

static void block_init(block *b) {
    mpfr_inits2(PRECISION, b->amax, b->t, b->u, b->factor, b->scale, (mpfr_ptr)0);
}

static void block_clear(block *b) {
    mpfr_clears(b->amax, b->t, b->u, b->factor, b->scale, (mpfr_ptr)0);
}

/* floor or ceiling of log2 of a positive number. */
static long log2_floor(mpfr_srcptr x) {
    return mpfr_get_exp(x) - 1;
}

static long log2_ceil(mpfr_ptr scratch, mpfr_srcptr x) {
    mpfr_set_ui_2exp(scratch, 1, mpfr_get_exp(x) - 1, MPFR_RNDN);
    return log2_floor(x) + (mpfr_cmp(scratch, x) != 0);
}

static uint64_t clamp_e8m0(long exponent) {
    return (uint64_t)(exponent < -127 ? 0 : exponent > 127 ? 254 : exponent + 127);
}

static uint64_t mx_code(const ng_quantization *q, block *b) {
    const ng_format *f = &ng_formats[q->element];
    if (mpfr_nan_p(b->amax)) return 0xFF;
    if (mpfr_inf_p(b->amax)) return q->rule == NG_SCALE_MX_ROUND_UP ? 0xFE : 0xFF;
    if (mpfr_zero_p(b->amax)) return 0;
    switch (q->rule) {
    case NG_SCALE_MX_ROUND_UP:
        mpfr_set_ui(b->t, 1, MPFR_RNDN);
        mpfr_div_d(b->t, b->t, f->largest, MPFR_RNDN);
        fl(b->t);
        mpfr_mul(b->t, b->t, b->amax, MPFR_RNDN);
        fl(b->t);
        return mpfr_zero_p(b->t) ? 0 : clamp_e8m0(log2_ceil(b->u, b->t));
    case NG_SCALE_MX_CEIL:
        return clamp_e8m0(log2_ceil(b->u, b->amax) - f->emax);
    case NG_SCALE_MX_EVEN: /* to the element's mantissa bits, ties away from zero */
        mpfr_mul_2si(b->t, b->amax, f->mantissa_bits - log2_floor(b->amax), MPFR_RNDN);
        mpfr_round(b->t, b->t);
        mpfr_mul_2si(b->t, b->t, log2_floor(b->amax) - f->mantissa_bits, MPFR_RNDN);
        return clamp_e8m0(log2_floor(b->t) - f->emax);
    default:
        return clamp_e8m0(log2_floor(b->amax) - f->emax);
    }
}

static void mx_scale(const ng_quantization *q, block *b) {
    b->code = mx_code(q, b);
    mpfr_set_d(b->scale, ng_decode(NG_E8M0, b->code), MPFR_RNDN);
    mpfr_set(b->factor, b->scale, MPFR_RNDN);
    b->divide = true;
    b->rounded = false;
}

/* The decoding scale as the tensor stores it, and the encoding factor. */
static void fp32_scale(const ng_quantization *q, block *b, float given) {
    double largest = ng_formats[q->element].largest;
    bool plain = !mpfr_regular_p(b->amax);
    b->divide = q->rule == NG_SCALE_AMAX_OVER_MAX;
    b->rounded = true;
    if (q->rule == NG_SCALE_GIVEN) {
        mpfr_set_flt(b->factor, given, MPFR_RNDN);
    } else if (plain) {
        mpfr_set_ui(b->factor, 1, MPFR_RNDN);
    } else if (b->divide) {
        mpfr_div_d(b->factor, b->amax, largest, MPFR_RNDN);
        fl(b->factor);
        if (mpfr_cmp_d(b->factor, (double)FLT_MIN) < 0) mpfr_set_d(b->factor, (double)FLT_MIN, MPFR_RNDN);
    } else {
        mpfr_d_div(b->factor, largest, b->amax, MPFR_RNDN);
        fl(b->factor);
        at_most_max(b->factor);
    }
    if (q->rule == NG_SCALE_POW2) mpfr_set_ui_2exp(b->factor, 1, log2_floor(b->factor), MPFR_RNDN);
    if (b->divide) {
        mpfr_set(b->scale, b->factor, MPFR_RNDN);
    } else {
        mpfr_ui_div(b->scale, 1, b->factor, MPFR_RNDN);
        fl(b->scale);
    }
    b->code = ng_round_mpfr(NG_FP32, b->scale, &nearest, 0);
}

/* S and D of a tensor. amax may be any value. */
static void tensor_scales(const ng_quantization *q, double amax, mpfr_ptr S, mpfr_ptr D) {
    mpfr_set_ui(S, 1, MPFR_RNDN);
    if (q->tensor_scale && isfinite(amax) && amax > 0) {
        mpfr_set_d(S, amax, MPFR_RNDN);
        mpfr_d_div(S, ng_nvfp4_span(q), S, MPFR_RNDN);
        fl(S);
        at_most_max(S);
        if (mpfr_zero_p(S)) mpfr_set_ui(S, 1, MPFR_RNDN);
    }
    mpfr_ui_div(D, 1, S, MPFR_RNDN);
    fl(D);
}

/* b->t = the value that becomes the block's ue4m3 scale. */
static void nvfp4_target(const ng_quantization *q, block *b, mpfr_srcptr S) {
    if (q->rule == NG_SCALE_NVFP4_PAPER) {
        mpfr_div_ui(b->t, b->amax, 6, MPFR_RNDN);
        fl(b->t);
        mpfr_mul(b->t, b->t, S, MPFR_RNDN);
        fl(b->t);
        return;
    }
    mpfr_set_ui(b->t, 1, MPFR_RNDN);
    mpfr_div_ui(b->t, b->t, 6, MPFR_RNDN);
    fl(b->t);
    mpfr_mul(b->t, b->t, S, MPFR_RNDN);
    fl(b->t);
    mpfr_mul(b->t, b->t, b->amax, MPFR_RNDN);
    fl(b->t);
    at_most_max(b->t);
}

/* The scale of target b->t; b->u = fl(s * D). */
static void nvfp4_scale(block *b, mpfr_srcptr D) {
    const ng_cast saturating = {.rounding = NG_RN_EVEN, .saturate = true};
    b->code = ng_round_mpfr(NG_UE4M3, b->t, &saturating, 0);
    mpfr_set_d(b->scale, ng_decode(NG_UE4M3, b->code), MPFR_RNDN);
    mpfr_mul(b->u, b->scale, D, MPFR_RNDN);
    fl(b->u);
    b->divide = false;
    b->rounded = true;
    mpfr_ui_div(b->factor, 1, b->u, MPFR_RNDN);
    fl(b->factor);
    at_most_max(b->factor);
    if (mpfr_zero_p(b->scale)) mpfr_set_zero(b->factor, 1);
}

static void block_scale(const ng_quantization *q, block *b, float given, mpfr_srcptr S, mpfr_srcptr D) {
    if (q->rule == NG_SCALE_ABSENT) {
        b->code = 0;
        b->divide = b->rounded = false;
        mpfr_set_ui(b->factor, 1, MPFR_RNDN);
        mpfr_set_ui(b->scale, 1, MPFR_RNDN);
    } else if (ng_rule_is_mx(q->rule)) {
        mx_scale(q, b);
    } else if (ng_rule_is_nvfp4(q->rule)) {
        nvfp4_target(q, b, S);
        nvfp4_scale(b, D);
    } else {
        fp32_scale(q, b, given);
    }
}

uint64_t ng_scale_mpfr(const ng_quantization *q, double amax, double tensor_amax, double *decode,
                       double *tensor_scale) {
    mpfr_t S, D;
    block b;
    mpfr_inits2(PRECISION, S, D, (mpfr_ptr)0);
    block_init(&b);
    tensor_scales(q, tensor_amax, S, D);
    mpfr_set_d(b.amax, amax, MPFR_RNDN);
    block_scale(q, &b, 1, S, D);
    uint64_t code = b.code;
    *decode = mpfr_get_d(b.scale, MPFR_RNDN);
    *tensor_scale = mpfr_get_d(D, MPFR_RNDN);
    block_clear(&b);
    mpfr_clears(S, D, (mpfr_ptr)0);
    return code;
}

/* ---- elements -----------------------------------------------------------------------------------------------------*/
/* The rectangle of a block. */
typedef struct area {
    int64_t top, bottom, left, right;
} area;

static area area_of(const ng_quantize_job *job, int64_t block_row, int64_t block_column) {
    area a = {.top = block_row * job->height, .left = block_column * job->width};
    a.bottom = a.top + job->height < job->in->rows ? a.top + job->height : job->in->rows;
    a.right = a.left + job->width < job->in->columns ? a.left + job->width : job->in->columns;
    return a;
}

static double amax_of(const ng_tensor *in, area a) {
    double most = 0;
    for (int64_t i = a.top; i < a.bottom; i++)
        for (int64_t j = a.left; j < a.right; j++) {
            double x = fabs(ng_get_value(in, i, j));
            if (isnan(x) || x > most) most = x;
            if (isnan(most)) return most;
        }
    return most;
}

static uint64_t element_code(const ng_quantize_job *job, const block *b, mpfr_ptr v, int64_t i, int64_t j) {
    double x = ng_get_value(job->in, i, j);
    uint32_t word = job->random ? (uint32_t)ng_get_code(job->random, i, j) : 0;
    mpfr_set_d(v, x, MPFR_RNDN);
    if (b->divide)
        mpfr_div(v, v, b->factor, MPFR_RNDN);
    else
        mpfr_mul(v, v, b->factor, MPFR_RNDN);
    if (b->rounded) fl(v);
    if (mpfr_nan_p(v)) /* MPFR drops the signs of NaN: an input's is kept, one made here is positive */
        mpfr_setsign(v, v, isnan(x) && signbit(x), MPFR_RNDN);
    return ng_round_mpfr(job->quantization->element, v, &job->quantization->cast, word);
}

/* sum = the contract's error of the scale in b, whose fl(s * D) is in b->u. */
static void candidate_error(const ng_quantize_job *job, const block *b, area a, mpfr_ptr v, mpfr_ptr sum) {
    mpfr_set_zero(sum, 1);
    for (int64_t i = a.top; i < a.bottom; i++)
        for (int64_t j = a.left; j < a.right; j++) {
            mpfr_set_d(v, ng_decode(job->quantization->element, element_code(job, b, v, i, j)), MPFR_RNDN);
            mpfr_mul(v, v, b->u, MPFR_RNDN);
            fl(v);
            mpfr_sub_d(v, v, ng_get_value(job->in, i, j), MPFR_RNDN);
            fl(v);
            if (job->quantization->four_over_six == NG_4OVER6_MSE)
                mpfr_sqr(v, v, MPFR_RNDN);
            else
                mpfr_abs(v, v, MPFR_RNDN);
            fl(v);
            mpfr_add(sum, sum, v, MPFR_RNDN);
            fl(sum);
        }
}

/* Leaves the better of the two candidates in b. */
static void four_or_six(const ng_quantize_job *job, block *b, area a, mpfr_srcptr S, mpfr_srcptr D) {
    mpfr_t target, v, six, four;
    mpfr_inits2(PRECISION, target, v, six, four, (mpfr_ptr)0);
    nvfp4_target(job->quantization, b, S);
    mpfr_set(target, b->t, MPFR_RNDN);
    nvfp4_scale(b, D);
    candidate_error(job, b, a, v, six);
    mpfr_mul_d(b->t, target, 1.5, MPFR_RNDN);
    fl(b->t);
    at_most_max(b->t);
    nvfp4_scale(b, D);
    candidate_error(job, b, a, v, four);
    if (!mpfr_less_p(four, six)) {
        mpfr_set(b->t, target, MPFR_RNDN);
        nvfp4_scale(b, D);
    }
    mpfr_clears(target, v, six, four, (mpfr_ptr)0);
}

static void quantize_block(const ng_quantize_job *job, int64_t block_row, int64_t block_column, mpfr_srcptr S,
                           mpfr_srcptr D) {
    area a = area_of(job, block_row, block_column);
    block b;
    mpfr_t v;
    block_init(&b);
    mpfr_init2(v, PRECISION);
    mpfr_set_d(b.amax,
               ng_block_is_tensor(job->quantization) && job->tensor_amax ? *job->tensor_amax : amax_of(job->in, a),
               MPFR_RNDN);
    if (job->quantization->four_over_six)
        four_or_six(job, &b, a, S, D);
    else
        block_scale(job->quantization, &b, job->given, S, D);
    if (job->scales) ng_set_code(job->scales, block_row, block_column, b.code);
    for (int64_t i = a.top; i < a.bottom; i++)
        for (int64_t j = a.left; j < a.right; j++)
            ng_set_code(job->codes, i, j, element_code(job, &b, v, i, j));
    mpfr_clear(v);
    block_clear(&b);
}

ng_status ng_quantize_mpfr(const ng_quantize_job *job, float *tensor_scale) {
    area whole = {.bottom = job->in->rows, .right = job->in->columns};
    mpfr_t S, D;
    mpfr_inits2(PRECISION, S, D, (mpfr_ptr)0);
    tensor_scales(job->quantization, job->tensor_amax ? *job->tensor_amax : amax_of(job->in, whole), S, D);
    *tensor_scale = mpfr_get_flt(D, MPFR_RNDN);
#pragma omp parallel for schedule(dynamic) /* rows of blocks: no two share a byte */
    for (int64_t r = 0; r < job->block_rows; r++)
        for (int64_t c = 0; c < job->block_columns; c++)
            quantize_block(job, r, c, S, D);
    mpfr_clears(S, D, (mpfr_ptr)0);
    return NG_OK;
}

ng_status ng_dequantize_mpfr(const ng_operand *in, const ng_cast *cast, ng_tensor *out) {
    int64_t rows = in->codes.rows, columns = in->codes.columns;
    int64_t height = ng_block_extent(in->blocks.rows, rows), width = ng_block_extent(in->blocks.columns, columns);
#pragma omp parallel for
    for (int64_t i = 0; i < rows; i++) {
        mpfr_t v;
        mpfr_init2(v, PRECISION);
        for (int64_t j = 0; j < columns; j++) {
            double x = ng_get_value(&in->codes, i, j);
            mpfr_set_d(v, x, MPFR_RNDN);
            if (in->scales.data) mpfr_mul_d(v, v, ng_get_value(&in->scales, i / height, j / width), MPFR_RNDN);
            mpfr_mul_d(v, v, (double)in->tensor_scale, MPFR_RNDN);
            if (mpfr_nan_p(v)) mpfr_setsign(v, v, isnan(x) && signbit(x), MPFR_RNDN);
            ng_set_code(out, i, j, ng_round_mpfr(out->format, v, cast, 0));
        }
        mpfr_clear(v);
    }
    return NG_OK;
}
