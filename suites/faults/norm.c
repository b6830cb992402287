/* Norms that are almost right. A naive kernel, in the contract's order, with a twist at the places where kernels and libraries
 * have gone wrong. */
#include "fault.h"

#include "kernels/cpu/norm.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef enum twist {
    NONE,
    /* statistics */
    ONE_PASS, BESSEL, PADDED_WIDTH, WITHOUT_TAIL, NARROW_SUM, RSQRT, FAST_DIVISION, EPSILON_OUTSIDE, EPSILON_SMALLER, EPSILON_FORGOTTEN, EPSILON_AS_MAXIMUM,
    OTHER_KIND, SCALED_AWAY, MEAN_OF_ROW_BEFORE, STATISTICS_SWAPPED,
    /* elements */
    GAMMA_AFTER_ROUNDING, GAMMA_NOT_CENTERED, BETA_FIRST, BETA_FORGOTTEN, SERIAL_SUMS,
    /* residual */
    RESIDUAL_FORGOTTEN, SUM_NOT_ROUNDED, SUM_NOT_STORED,
    /* quantization */
    QUANTIZES_ROUNDED, SCALE_OF_BLOCK_BEFORE, MX_FLOOR, GIVEN_INVERTED, AMAX_WITHOUT_SIGN,
    /* backward */
    NO_CLAMP, CLAMP_POSITIVE, CLAMP_TO_ONE, NO_C1, NO_C2, LAST_ROW_LOST, ROWS_BEYOND_65535, DGAMMA_WEIGHTED, DBETA_IS_DGAMMA, DGAMMA_NARROW, SUMS_NOT_CLEARED,
    ANY_ORDER_OF_BLOCKS, RSTD_SQUARED,
} twist;

typedef struct naive {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm *norm;
    twist twist;
    int64_t rows, n;
    int32_t lanes;
    float epsilon;
    float *w, *beta, *x, *y, *g, *dy, *chains;
} naive;

static const ng_norm_loops *loops(void) { return &ng_norm_loops_of[0]; }
static bool centered(const naive *k) { return (k->norm->kind == NG_LAYER_NORM) != (k->twist == OTHER_KIND); }

static float through(ng_format_id format, float x) {
    const ng_cast cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL};
    const ng_element e = {.cast = &cast, .to = format, .bits = ng_bits(x), .value = (double)x};
    return format == NG_FP32 ? x : ng_decode_float(format, ng_right_code(&e));
}

static void put(const ng_tensor *t, int64_t i, int64_t j, float x) {
    const ng_cast cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL};
    const ng_element e = {.cast = &cast, .to = t->format, .bits = ng_bits(x), .value = (double)x};
    if (t->data) ng_element_store(t, i, j, t->format == NG_FP32 ? (x != x ? (uint32_t)NG_NAN_BITS : ng_bits(x)) : ng_right_code(&e));
}

static bool begin(naive *k, const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    *k = (naive){.kernel = subject, .launch = launch, .norm = &subject->contract.norm, .twist = (twist)fault->twist, .rows = launch->problem->m,
                 .n = launch->problem->n, .lanes = ng_norm_shape_of(launch->problem->n).lanes, .epsilon = (float)launch->problem->scalars[NG_EPSILON]};
    size_t n = (size_t)k->n;
    k->w = calloc(6 * n + NG_NORM_MOST_CHAINS, sizeof *k->w);
    if (!k->w) return false;
    k->beta = k->w + n, k->x = k->w + 2 * n, k->y = k->w + 3 * n, k->g = k->w + 4 * n, k->dy = k->w + 5 * n, k->chains = k->w + 6 * n;
    ng_kernel weights = *subject;
    weights.contract.norm.zero_centered &= k->twist != GAMMA_NOT_CENTERED;
    ng_cpu_norm_parameters(&weights, launch, subject->op == NG_OP_NORM_FORWARD ? -0.0f : 0.0f, k->w, k->beta);
    for (size_t j = 0; j < n && k->twist == BETA_FORGOTTEN; j++)
        k->beta[j] = -0.0f;
    return true;
}

/* ---- statistics ---------------------------------------------------------------------------------------------------*/
static float sum(const naive *k, const float *x) {
    float s = 0;
    if (k->twist != SERIAL_SUMS && k->twist != NARROW_SUM) return loops()->sum(x, k->twist == WITHOUT_TAIL ? k->n / 8 * 8 : k->n, k->lanes, k->chains);
    for (int64_t j = 0; j < k->n; j++)
        s = k->twist == NARROW_SUM ? through(NG_BF16, s + x[j]) : s + x[j];
    return s;
}

static float count_of(const naive *k) {
    if (k->twist == BESSEL && k->n > 1) return (float)(k->n - 1);
    return (float)(k->twist == PADDED_WIDTH ? (k->n + 7) / 8 * 8 : k->n);
}

static float squares(const naive *k, const float *x, float mean) {
    if (k->twist == ONE_PASS) return loops()->squares(x, 0, k->n, k->lanes, k->chains) - mean * mean * (float)k->n;
    if (k->twist == SERIAL_SUMS) {
        float s = 0;
        for (int64_t j = 0; j < k->n; j++)
            s = fmaf(x[j] - mean, x[j] - mean, s);
        return s;
    }
    return loops()->squares(x, mean, k->twist == WITHOUT_TAIL ? k->n / 8 * 8 : k->n, k->lanes, k->chains);
}

static float rstd_of(const naive *k, float squared) {
    float v = squared / count_of(k), e = k->epsilon;
    switch (k->twist) {
    case RSQRT: return ng_float(ng_bits(1 / sqrtf(v + e)) + (ng_bits(v) & 1u)); /* within one unit in the last place */
    case FAST_DIVISION: return 1 / sqrtf(squared * (1 / count_of(k)) + e);
    case EPSILON_OUTSIDE: return 1 / (sqrtf(v) + e);
    case EPSILON_SMALLER: return 1 / sqrtf(v + 0.1f * e);
    case EPSILON_FORGOTTEN: return 1 / sqrtf(v);
    case EPSILON_AS_MAXIMUM: return 1 / sqrtf(v > e ? v : e);
    default: return 1 / sqrtf(v + e);
    }
}

/* x scaled so that no square overflows, as hypot does. */
static float scaled_rstd(const naive *k, const float *x, float mean) {
    float largest = 0;
    for (int64_t j = 0; j < k->n; j++)
        largest = fmaxf(largest, fabsf(x[j] - mean));
    int power = largest > 0x1p60f ? ilogbf(largest) : 0;
    for (int64_t j = 0; j < k->n; j++)
        k->y[j] = ldexpf(x[j] - mean, -power);
    return ldexpf(1 / sqrtf(loops()->squares(k->y, 0, k->n, k->lanes, k->chains) / (float)k->n + ldexpf(k->epsilon, -2 * power)), -power);
}

/* ---- forward ------------------------------------------------------------------------------------------------------*/
static void load_row(const naive *k, int64_t row) {
    const ng_tensor *t = k->launch->tensors;
    for (int64_t j = 0; j < k->n; j++) {
        float x = ng_element_value(&t[NG_IN], row, j);
        if (k->norm->residual && k->twist != RESIDUAL_FORGOTTEN) {
            float added = x + ng_element_value(&t[NG_IN_2], row, j);
            if (k->twist == SUM_NOT_STORED) put(&t[NG_OUT_2], row, j, x);
            else put(&t[NG_OUT_2], row, j, added);
            x = k->twist == SUM_NOT_ROUNDED ? added : through(k->kernel->in, added);
        } else if (k->norm->residual) put(&t[NG_OUT_2], row, j, x);
        k->x[j] = x;
    }
}

static void quantize_row(const naive *k, int64_t row) {
    const ng_quantization *q = &k->kernel->contract.quantization;
    const ng_tensor *t = k->launch->tensors;
    int64_t width = q->blocks.columns ? q->blocks.columns : k->n;
    float given = t[NG_SCALE_GIVEN_IN].data ? ng_element_value(&t[NG_SCALE_GIVEN_IN], 0, 0) : 1;
    ng_tensor_level level = ng_tensor_scale(q, ng_bits(given) & NG_ABS_MASK);
    ng_block_scale scale = ng_scale_encoding(given), before = {0, 1, 1};
    if (k->twist == GIVEN_INVERTED) scale = ng_scale_encoding(1 / given), scale.code = ng_bits(1 / given);
    if (q->rule == NG_SCALE_GIVEN) ng_element_set(&t[NG_OUT_SCALES], 0, 0, scale.code);
    if (q->tensor_scale) ng_element_set(&t[NG_OUT_TENSOR_SCALE], 0, 0, ng_bits(level.decode));
    for (int64_t from = 0; from < k->n; from += width) {
        int64_t end = from + width < k->n ? from + width : k->n;
        uint32_t amax = 0;
        for (int64_t j = from; j < end; j++) {
            if (k->twist == QUANTIZES_ROUNDED) k->y[j] = through(NG_BF16, k->y[j]);
            uint32_t magnitude = k->twist == AMAX_WITHOUT_SIGN && k->y[j] < 0 ? 0 : ng_bits(k->y[j]) & NG_ABS_MASK;
            if (magnitude > amax) amax = magnitude;
        }
        if (q->rule != NG_SCALE_GIVEN) {
            ng_quantization rule = *q;
            if (k->twist == MX_FLOOR) rule.rule = NG_SCALE_MX_FLOOR;
            scale = ng_scale_block(&rule, amax, level);
            ng_element_set(&t[NG_OUT_SCALES], row, from / width, scale.code);
        }
        ng_block_scale used = k->twist == SCALE_OF_BLOCK_BEFORE && from ? before : scale;
        before = scale;
        for (int64_t j = from; j < end; j++) {
            const ng_element e = {.cast = &q->cast, .to = q->element, .bits = ng_bits(k->y[j] * used.encode), .value = (double)(k->y[j] * used.encode)};
            ng_element_set(&t[NG_OUT], row, j, ng_right_code(&e));
        }
    }
}

static ng_status forward(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    naive k;
    float before = 0;
    const ng_tensor *t = launch->tensors;
    if (!begin(&k, fault, subject, launch)) return NG_NO_MEMORY;
    for (int64_t row = 0; row < k.rows; row++) {
        load_row(&k, row);
        float mean = centered(&k) ? sum(&k, k.x) / count_of(&k) : 0, used = k.twist == MEAN_OF_ROW_BEFORE ? before : mean;
        before = mean;
        float rstd = k.twist == SCALED_AWAY ? scaled_rstd(&k, k.x, used) : rstd_of(&k, squares(&k, k.x, used));
        bool swapped = k.twist == STATISTICS_SWAPPED;
        if (t[NG_MEAN].data) put(&t[NG_MEAN], row, 0, swapped ? rstd : used);
        put(&t[NG_RSTD], row, 0, swapped ? used : rstd);
        for (int64_t j = 0; j < k.n; j++) {
            float hat = (k.x[j] - used) * rstd;
            if (k.twist == GAMMA_AFTER_ROUNDING) hat = through(subject->in, hat);
            k.y[j] = k.twist == BETA_FIRST ? (hat + k.beta[j]) * k.w[j] : fmaf(hat, k.w[j], k.beta[j]);
        }
        if (subject->contract.quantization.rule != NG_SCALE_ABSENT) quantize_row(&k, row);
        else
            for (int64_t j = 0; j < k.n; j++)
                put(&t[NG_OUT], row, j, k.y[j]);
    }
    free(k.w);
    return NG_OK;
}

/* ---- backward -----------------------------------------------------------------------------------------------------*/
static float hat_of(const naive *k, int64_t row, int64_t j) {
    const ng_tensor *t = k->launch->tensors;
    float x = ng_element_value(&t[NG_IN], row, j), w = k->w[j];
    if (!k->norm->from_output) return (centered(k) && t[NG_MEAN].data ? x - ng_element_value(&t[NG_MEAN], row, 0) : x) * ng_element_value(&t[NG_RSTD], row, 0);
    float divisor = ng_norm_divisor(w, k->epsilon);
    if (k->twist == NO_CLAMP) divisor = w;
    if (k->twist == CLAMP_POSITIVE) divisor = fabsf(w) < k->epsilon ? k->epsilon : fabsf(w);
    if (k->twist == CLAMP_TO_ONE) divisor = fabsf(w) < k->epsilon ? 1 : w;
    return (x - k->beta[j]) / divisor;
}

static void dx_row(const naive *k, int64_t row) {
    const ng_tensor *t = k->launch->tensors;
    float rstd = ng_element_value(&t[NG_RSTD], row, 0), c1 = 0;
    for (int64_t j = 0; j < k->n; j++) {
        k->x[j] = hat_of(k, row, j);
        k->g[j] = ng_element_value(&t[NG_GRADIENT], row, j) * k->w[j];
    }
    if (centered(k) && k->twist != NO_C1) c1 = sum(k, k->g) / count_of(k);
    float c2 = k->twist == NO_C2 ? 0 : loops()->products(k->g, k->x, k->n, k->lanes, k->chains) / count_of(k);
    for (int64_t j = 0; j < k->n; j++)
        put(&t[NG_OUT], row, j, ng_norm_dx(k->x[j], k->g[j], c1, c2, k->twist == RSTD_SQUARED ? rstd * rstd : rstd));
}

static float term(const naive *k, int which, int64_t row, int64_t j, float chain) {
    const ng_tensor *dy = &k->launch->tensors[NG_GRADIENT];
    if (k->twist == LAST_ROW_LOST && row + 1 == k->rows) return chain;
    if (k->twist == ROWS_BEYOND_65535 && row > 65535) return chain;
    float g = ng_element_value(dy, row, j);
    if (which && k->twist != DBETA_IS_DGAMMA) return chain + g;
    if (k->twist == DGAMMA_WEIGHTED) g *= k->w[j];
    float next = fmaf(g, hat_of(k, row, j), chain);
    return k->twist == DGAMMA_NARROW ? through(NG_BF16, next) : next;
}

static void sum_column(const naive *k, int which, int64_t j, int64_t first) {
    const ng_norm_shape shape = ng_norm_shape_of(k->n);
    float chains[NG_NORM_LAST_CHAINS] = {0};
    int32_t blocks = ng_norm_blocks(shape, k->rows);
    if (k->twist == SUMS_NOT_CLEARED) chains[0] = 1;
    for (int32_t b = 0; b < blocks; b++) {
        int32_t block = (int32_t)((b + first) % blocks), q = k->twist == ANY_ORDER_OF_BLOCKS ? 0 : block % NG_NORM_LAST_CHAINS;
        float total = 0;
        for (int32_t group = 0; group < shape.groups; group++) {
            float chain = 0;
            for (int64_t row = (int64_t)block * shape.groups + group; row < k->rows; row += (int64_t)shape.blocks * shape.groups)
                chain = term(k, which, row, j, chain);
            total = group ? total + chain : chain;
        }
        chains[q] += total;
    }
    for (int h = NG_NORM_LAST_CHAINS / 2; h; h /= 2)
        for (int q = 0; q < h; q++)
            chains[q] += chains[q + h];
    put(&k->launch->tensors[which ? NG_OUT_3 : NG_OUT_2], 0, j, chains[0]);
}

static ng_status backward(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    static atomic_uint launches; /* sums by atomics come in another order every time */
    naive k;
    if (!begin(&k, fault, subject, launch)) return NG_NO_MEMORY;
    int64_t first = k.twist == ANY_ORDER_OF_BLOCKS ? atomic_fetch_add(&launches, 1) : 0;
    for (int64_t row = 0; row < k.rows; row++)
        dx_row(&k, row);
    for (int64_t j = 0; j < k.n; j++)
        for (int which = 0; which < (subject->contract.norm.kind == NG_LAYER_NORM ? 2 : 1); which++)
            sum_column(&k, which, j, first);
    free(k.w);
    return NG_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define LN "layernorm/fp32->fp32/cpu/fp32-params"
#define LN16 "layernorm/bf16->bf16/cpu/fp32-params"
#define RMS "rmsnorm/fp32->fp32/cpu/fp32-params"
#define RMS16 "rmsnorm/bf16->bf16/cpu/bf16-params"
#define LN_BACK "layernorm-backward/fp32/cpu/fp32-params"
#define LN_BACK16 "layernorm-backward/bf16/cpu/fp32-params"
#define RMS_BACK "rmsnorm-backward/bf16/cpu/fp32-params"
#define FORWARD(t) .compute = forward, .twist = t
#define BACKWARD(t) .compute = backward, .twist = t

static const ng_fault faults[] = {
    {"one-pass-variance", LN, "E[x^2] - mean^2 in binary32 (Chan, Golub, LeVeque 1983): lost where the mean is large", FORWARD(ONE_PASS)},
    {"one-pass-variance", LN16, "the same, bf16", FORWARD(ONE_PASS)},
    {"bessel", LN, "variance over n - 1, torch.var's default", FORWARD(BESSEL)},
    {"padded-width", LN16, "mean over a width rounded up to a vector", FORWARD(PADDED_WIDTH)},
    {"without-tail", RMS16, "vectorised by 8, the remainder left out of the sums", FORWARD(WITHOUT_TAIL)},
    {"narrow-sum", LN16, "mean accumulated in bf16", FORWARD(NARROW_SUM)},
    {"rsqrt", RMS, "rsqrtf under --use_fast_math, as NVIDIA/apex builds its norms", FORWARD(RSQRT)},
    {"rsqrt", LN16, "the same, bf16 out", FORWARD(RSQRT)},
    {"fast-division", RMS, "multiplied by 1/n in place of divided", FORWARD(FAST_DIVISION)},
    {"eps-outside", LN, "1 / (sqrt(v) + eps)", FORWARD(EPSILON_OUTSIDE)},
    {"eps-outside", RMS16, "the same, RMSNorm", FORWARD(EPSILON_OUTSIDE)},
    {"eps-1e-6", RMS16, "1e-6 of LLaMA's configuration for the 1e-5 that was passed", FORWARD(EPSILON_SMALLER)},
    {"eps-1e-6", LN, "the same, LayerNorm", FORWARD(EPSILON_SMALLER)},
    {"eps-forgotten", LN16, "no eps: constant rows divide by 0", FORWARD(EPSILON_FORGOTTEN)},
    {"eps-maximum", RMS, "max(v, eps) in place of v + eps", FORWARD(EPSILON_AS_MAXIMUM)},
    {"other-kind", LN16, "RMSNorm in LayerNorm's place", FORWARD(OTHER_KIND)},
    {"other-kind", RMS, "mean subtracted from what RMSNorm takes as it is", FORWARD(OTHER_KIND)},
    {"scaled-away", RMS, "overflow avoided where the contract says that squares are infinite", FORWARD(SCALED_AWAY)},
    {"mean-of-row-before", LN, "a slot of shared memory read before all warps have written it", FORWARD(MEAN_OF_ROW_BEFORE)},
    {"statistics-swapped", LN16, "mean and rstd written to each other's place", FORWARD(STATISTICS_SWAPPED)},
    {"gamma-after-rounding", RMS16, "huggingface/transformers LlamaRMSNorm: cast first, gamma after (TransformerEngine#1132, transformers#33133)", FORWARD(GAMMA_AFTER_ROUNDING)},
    {"gamma-after-rounding", "rmsnorm/fp16->fp16/cpu/fp32-params", "the same, fp16", FORWARD(GAMMA_AFTER_ROUNDING)},
    {"not-centered", "rmsnorm/bf16->bf16/cpu/fp32-params-zero-centered", "gamma used as it is stored, less 1", FORWARD(GAMMA_NOT_CENTERED)},
    {"beta-first", LN, "(x + beta) gamma", FORWARD(BETA_FIRST)},
    {"beta-forgotten", LN16, "bias=False", FORWARD(BETA_FORGOTTEN)},
    {"serial-sums", LN, "sums in another order than the contract's", FORWARD(SERIAL_SUMS)},
    {"residual-forgotten", "layernorm/bf16->bf16/cpu/fp32-params-residual", "norm of x alone", FORWARD(RESIDUAL_FORGOTTEN)},
    {"sum-not-rounded", "rmsnorm/bf16->bf16/cpu/fp32-params-residual", "norm of the binary32 sum, where the sum that is kept is rounded", FORWARD(SUM_NOT_ROUNDED)},
    {"sum-not-stored", "layernorm/fp32->fp32/cpu/fp32-params-residual", "the residual stream goes on without the sum", FORWARD(SUM_NOT_STORED)},
    {"quantizes-rounded", "layernorm/bf16->mxfp8/cpu/fp32-params", "result rounded to bf16 before it is quantized", FORWARD(QUANTIZES_ROUNDED)},
    {"quantizes-rounded", "rmsnorm/bf16->e4m3/cpu/fp32-params", "the same under a given scale", FORWARD(QUANTIZES_ROUNDED)},
    {"scale-of-block-before", "rmsnorm/bf16->mxfp8/cpu/fp32-params", "elements under their left neighbour's scale", FORWARD(SCALE_OF_BLOCK_BEFORE)},
    {"scale-of-block-before", "layernorm/bf16->nvfp4/cpu/fp32-params", "the same, nvfp4", FORWARD(SCALE_OF_BLOCK_BEFORE)},
    {"mx-floor", "rmsnorm/bf16->mxfp8/cpu/fp32-params-residual", "OCP's floor where the scale rounds up", FORWARD(MX_FLOOR)},
    {"given-inverted", "layernorm/bf16->e4m3/cpu/fp32-params", "scale and its inverse confused", FORWARD(GIVEN_INVERTED)},
    {"amax-without-sign", "layernorm/bf16->nvfp4/cpu/fp32-params-residual", "max(x) for max(|x|)", FORWARD(AMAX_WITHOUT_SIGN)},
    {"last-row", LN16, "NVIDIA/apex#411: rows beyond a grid's 65535", .outputs = ng_last_row_wrong},
    {"tail-unwritten", "layernorm/fp16->fp16/cpu/fp32-params", "vectorised by 16, the remainder forgotten", .outputs = ng_tail_unwritten},
    {"flips-a-bit", "rmsnorm/bf16->bf16/cpu/fp32-params", "other bits in some launches", .outputs = ng_flips_a_bit},

    {"no-clamp", "layernorm-backward/bf16/cpu/fp32-params-from-output", "memory-efficient: divides by gamma 0 (Fast-LLM#220)", BACKWARD(NO_CLAMP)},
    {"clamp-positive", "layernorm-backward/fp32/cpu/fp32-params-from-output", "|gamma| clamped, its sign lost", BACKWARD(CLAMP_POSITIVE)},
    {"clamp-to-one", "rmsnorm-backward/bf16/cpu/fp32-params-from-output", "tiny gamma taken for 1", BACKWARD(CLAMP_TO_ONE)},
    {"no-c1", LN_BACK, "RMSNorm's dx in LayerNorm's place", BACKWARD(NO_C1)},
    {"no-c2", RMS_BACK, "dx as if rstd did not depend on x", BACKWARD(NO_C2)},
    {"other-kind", RMS_BACK, "mean of the gradients subtracted", BACKWARD(OTHER_KIND)},
    {"bessel", LN_BACK16, "means over n - 1", BACKWARD(BESSEL)},
    {"rstd-squared", LN_BACK, "rstd multiplied in twice", BACKWARD(RSTD_SQUARED)},
    {"last-row-lost", LN_BACK16, "dgamma and dbeta without the last row", BACKWARD(LAST_ROW_LOST)},
    {"rows-beyond-65535", LN_BACK16, "dgamma and dbeta of a grid's first 65536 rows", BACKWARD(ROWS_BEYOND_65535)},
    {"dgamma-weighted", RMS_BACK, "dgamma from dy gamma", BACKWARD(DGAMMA_WEIGHTED)},
    {"dbeta-is-dgamma", LN_BACK, "one buffer for both", BACKWARD(DBETA_IS_DGAMMA)},
    {"dgamma-narrow", "layernorm-backward/bf16/cpu/bf16-params", "dgamma accumulated in the parameters' bf16", BACKWARD(DGAMMA_NARROW)},
    {"sums-not-cleared", "rmsnorm-backward/fp32/cpu/fp32-params", "partial sums that begin at what the workspace held", BACKWARD(SUMS_NOT_CLEARED)},
    {"any-order", LN_BACK, "dgamma by atomics: other bits in every launch", BACKWARD(ANY_ORDER_OF_BLOCKS)},
    {"not-centered", "layernorm-backward/bf16/cpu/fp32-params-zero-centered", "dx from gamma as it is stored, less 1", BACKWARD(GAMMA_NOT_CENTERED)},
};

const ng_fault_list ng_norm_faults = {faults, sizeof faults / sizeof *faults};
