/* Quantization that is almost right. The naive quantizer here has a hook wherever a kernel takes a decision. */
#include "fault.h"

#include <math.h>
#include <stdlib.h>

/* ---- the naive quantizer ------------------------------------------------------------------------------------------*/
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t extent(uint32_t block, int64_t whole) { return block ? block : whole; }
static int64_t count(int64_t whole, int64_t block) { return (whole + block - 1) / block; }

static uint32_t raise(uint32_t amax, float x) {
    uint32_t bits = ng_bits(x) & NG_ABS_MASK;
    return bits > amax ? bits : amax;
}

uint32_t ng_right_amax(const ng_fault_block *b) {
    uint32_t amax = 0;
    for (int64_t i = b->row; i < b->row + b->rows; i++)
        for (int64_t j = b->column; j < b->column + b->columns; j++)
            amax = raise(amax, ng_element_value(b->in, i, j));
    return amax;
}

static ng_fault_block block_at(const ng_quantization *q, const ng_tensor *in, int64_t i, int64_t j) {
    int64_t height = extent(q->blocks.rows, in->rows), width = extent(q->blocks.columns, in->columns);
    return (ng_fault_block){.q = q, .in = in, .row = i * height, .rows = least(height, in->rows - i * height), .column = j * width,
                            .columns = least(width, in->columns - j * width), .index_down = i, .index_across = j,
                            .down = count(in->rows, height), .across = count(in->columns, width)};
}

static ng_block_scale scale_of(const ng_block_hooks *hooks, const ng_launch *launch, const ng_fault_block *b) {
    if (b->q->rule == NG_SCALE_GIVEN && !hooks->scale) return ng_scale_encoding(ng_element_value(&launch->tensors[NG_SCALE_GIVEN_IN], 0, 0));
    uint32_t amax = hooks->amax ? hooks->amax(b) : ng_right_amax(b);
    return hooks->scale ? hooks->scale(b, amax) : ng_scale_block(b->q, amax, b->level);
}

static void encode_block(const ng_fault *fault, const ng_launch *launch, const ng_fault_block *b, ng_block_scale scale) {
    const ng_tensor *words = &launch->tensors[NG_RANDOM_WORDS], *out = &launch->tensors[NG_OUT];
    const bool random = b->q->cast.rounding == NG_R_STOCHASTIC, divides = b->q->rule == NG_SCALE_AMAX_OVER_MAX;
    const ng_problem *p = launch->problem;
    for (int64_t i = b->row; i < b->row + b->rows; i++)
        for (int64_t j = b->column; j < b->column + b->columns; j++) {
            const ng_draw draw = {p->seed, p->offset, i, j, b->in->columns, false};
            float x = ng_element_value(b->in, i, j);
            float y = fault->blocks && fault->blocks->scaled ? fault->blocks->scaled(b->q, x, scale) : ng_scale_apply(x, scale, divides);
            ng_element e = {.cast = &b->q->cast, .to = b->q->element, .value = (double)y, .bits = ng_bits(y), .drawn = random && !words->data};
            if (words->data) e.word = ng_element_get(words, i, j);
            else if (random) e.word = fault->word ? fault->word(&draw) : ng_right_word(&draw);
            ng_element_set(out, i, j, fault->code ? fault->code(&e) : ng_right_code(&e));
        }
}

static bool is_skipped(const ng_block_hooks *hooks, const ng_fault_block *b) {
    return hooks->skips_tail && b->index_across + 1 == b->across && b->columns < b->q->blocks.columns;
}

ng_status ng_fault_quantize(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    static const ng_block_hooks none;
    const ng_block_hooks *hooks = fault->blocks ? fault->blocks : &none;
    const ng_quantization *q = &subject->contract.quantization;
    const ng_tensor *in = &launch->tensors[NG_IN];
    if (launch->tensors[NG_OUT_T].data) return NG_UNSUPPORTED;
    ng_fault_block whole = {.q = q, .in = in, .rows = in->rows, .columns = in->columns};
    uint32_t amax = hooks->amax && q->tensor_scale ? hooks->amax(&whole) : ng_right_amax(&whole);
    ng_tensor_level level = hooks->level ? hooks->level(q, amax) : ng_tensor_scale(q, amax);
    ng_fault_block first = block_at(q, in, 0, 0);
    ng_block_scale *scales = calloc((size_t)(first.down * first.across) + 1, sizeof *scales);
    if (!scales) return NG_NO_MEMORY;
    for (int64_t at = 0; at < first.down * first.across; at++) {
        ng_fault_block b = block_at(q, in, at / first.across, at % first.across);
        b.level = level;
        scales[at] = scale_of(hooks, launch, &b);
        ng_block_scale stored = scales[at];
        if (hooks->stored) hooks->stored(&b, &stored);
        if (!is_skipped(hooks, &b)) ng_element_set(&launch->tensors[NG_OUT_SCALES], b.index_down, b.index_across, stored.code);
    }
    for (int64_t at = 0; at < first.down * first.across; at++) {
        ng_fault_block b = block_at(q, in, at / first.across, at % first.across);
        int64_t i = b.index_down, j = b.index_across;
        if (hooks->which) hooks->which(b.down, b.across, &i, &j);
        if (!is_skipped(hooks, &b)) encode_block(fault, launch, &b, scales[i * b.across + j]);
    }
    if (q->tensor_scale) ng_element_set(&launch->tensors[NG_OUT_TENSOR_SCALE], 0, 0, ng_bits(level.decode));
    free(scales);
    return NG_OK;
}

/* ---- maxima -------------------------------------------------------------------------------------------------------*/
static uint32_t ignores_negatives(const ng_fault_block *b) {
    uint32_t amax = 0;
    for (int64_t i = b->row; i < b->row + b->rows; i++)
        for (int64_t j = b->column; j < b->column + b->columns; j++)
            if (!(ng_bits(ng_element_value(b->in, i, j)) >> 31)) amax = raise(amax, ng_element_value(b->in, i, j));
    return amax;
}

static uint32_t ignores_nan(const ng_fault_block *b) {
    uint32_t amax = 0;
    for (int64_t i = b->row; i < b->row + b->rows; i++)
        for (int64_t j = b->column; j < b->column + b->columns; j++)
            if (!isnan(ng_element_value(b->in, i, j))) amax = raise(amax, ng_element_value(b->in, i, j));
    return amax;
}

static uint32_t without_last(const ng_fault_block *b) {
    ng_fault_block shorter = *b;
    if (shorter.columns > 1) shorter.columns--;
    return ng_right_amax(&shorter);
}

/* Of the column through the block's first element, as long as the block is wide. */
static uint32_t wrong_axis(const ng_fault_block *b) {
    ng_fault_block turned = *b;
    turned.rows = least(b->columns, b->in->rows - b->row);
    turned.columns = least(b->rows, b->in->columns - b->column);
    return ng_right_amax(&turned);
}

static uint32_t first_half(const ng_fault_block *b) {
    ng_fault_block half = *b;
    half.rows = (b->rows + 1) / 2;
    return ng_right_amax(&half);
}

static uint32_t at_least_1e_4(const ng_fault_block *b) {
    uint32_t amax = ng_right_amax(b);
    return amax < ng_bits(1e-4f) ? ng_bits(1e-4f) : amax;
}

/* ---- scales -------------------------------------------------------------------------------------------------------*/
static ng_block_scale right_scale(const ng_fault_block *b, uint32_t amax) { return ng_scale_block(b->q, amax, b->level); }

static ng_block_scale e8m0_scale(uint32_t code) { return (ng_block_scale){code, ng_scale_e8m0_inverse(code), 1.0f}; }

static ng_block_scale step_low(const ng_fault_block *b, uint32_t amax) {
    uint32_t code = ng_scale_e8m0_code(b->q, amax);
    return e8m0_scale(code && code < 0xFF ? code - 1 : code);
}
static ng_block_scale step_high(const ng_fault_block *b, uint32_t amax) {
    uint32_t code = ng_scale_e8m0_code(b->q, amax);
    return e8m0_scale(code < 0xFE && amax ? code + 1 : code);
}

/* floorf(log2f(amax)): the logarithm rounds up to an integer e + 1 where 1 - amax / 2^(e+1) < ln 2 / 2 ulps of it. */
static ng_block_scale float_logarithm(const ng_fault_block *b, uint32_t amax) {
    int32_t next = (int32_t)(amax >> 23) + 1 - 127;
    double ulp = next > 1 || next < -1 ? ldexp(1, ilogb((double)next) - 23) : 0x1p-24;
    double below = 1 - ldexp((double)ng_float(amax), -next);
    bool up = amax >= 0x800000 && amax < NG_INF_BITS && below > 0 && below < 0.6931471805599453 * ulp / 2;
    return right_scale(b, up ? ((amax >> 23) + 1) << 23 : amax);
}

/* Zero and what is too small for a scale: 1 / (2^-127 flushed to 0) is infinite, and 0 * infinity NaN. */
static ng_block_scale flushed_scale(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    if (b->q->scale == NG_E8M0 && scale.code == 0) scale.encode = INFINITY;
    return scale;
}
static ng_block_scale zero_over_zero(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    if (amax == 0) scale.encode = INFINITY;
    return scale;
}
static ng_block_scale zero_max_over_amax(const ng_fault_block *b, uint32_t amax) {
    if (amax) return right_scale(b, amax);
    return (ng_block_scale){0, INFINITY, 1.0f};
}

static ng_block_scale unclamped(const ng_fault_block *b, uint32_t amax) {
    if (amax == 0 || amax >= NG_INF_BITS) return right_scale(b, amax);
    return ng_scale_encoding(ng_element_max(b->q->element) / ng_float(amax));
}

/* vllm-project/vllm#43557: the exponent of amax / 6 in place of amax's exponent less 2. */
static ng_block_scale exponent_of_sixth(const ng_fault_block *b, uint32_t amax) {
    if (amax == 0 || amax >= NG_INF_BITS) return right_scale(b, amax);
    return e8m0_scale(ng_bits(ng_float(amax) / 6.0f) >> 23);
}
static ng_block_scale infinity_by_other_rule(const ng_fault_block *b, uint32_t amax) {
    return amax == NG_INF_BITS ? e8m0_scale(0xFE) : right_scale(b, amax);
}
static ng_block_scale inverted(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    scale.code = ng_bits(scale.encode);
    return scale;
}
static ng_block_scale reciprocal(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    scale.encode = 1.0f / scale.divisor;
    return scale;
}
static float multiplied(const ng_quantization *q, float x, ng_block_scale scale) { (void)q; return x * scale.encode; }
static float in_bf16(const ng_quantization *q, float x, ng_block_scale scale) {
    (void)q;
    uint32_t bits = ng_bits(scale.encode);
    if (!isfinite(scale.encode)) return x * scale.encode;
    return x * ng_float((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u);
}
static ng_block_scale power_above(const ng_fault_block *b, uint32_t amax) {
    if (amax == 0 || amax >= NG_INF_BITS) return right_scale(b, amax);
    uint32_t e = ng_bits(ng_at_most_max(ng_element_max(b->q->element) / ng_float(amax)));
    uint32_t up = (e + 0x7FFFFF) & 0x7F800000;
    return ng_scale_encoding(ng_float(up < NG_INF_BITS ? up : 0x7F000000));
}
static ng_block_scale given_inverted(const ng_fault_block *b, uint32_t amax) { (void)amax; (void)b; return ng_scale_encoding(1.0f); }

/* ---- nvfp4's two levels -------------------------------------------------------------------------------------------*/
static ng_tensor_level level_without_six(const ng_quantization *q, uint32_t amax) {
    ng_tensor_level level = ng_tensor_scale(q, amax);
    if (amax && amax < NG_INF_BITS) level.encode = ng_at_most_max(level.encode / 6.0f), level.decode = 1.0f / level.encode;
    return level;
}
static ng_block_scale nvfp4_of_code(const ng_fault_block *b, uint32_t code) {
    float decode = ng_decode_ue4m3(code) * b->level.decode;
    return (ng_block_scale){code, code ? ng_at_most_max(1.0f / decode) : 0.0f, 1.0f};
}
static uint32_t ue4m3(ng_rounding rounding, float x) {
    const ng_cast cast = {.rounding = rounding, .saturate = true};
    const ng_caster caster = ng_caster_of(NG_UE4M3, &cast);
    return ng_cast_code(&caster, rounding, ng_bits(x));
}
static ng_block_scale nvfp4_rounded_up(const ng_fault_block *b, uint32_t amax) {
    return nvfp4_of_code(b, ue4m3(NG_R_UP, ng_scale_nvfp4_wanted(b->q, amax, b->level)));
}
static ng_block_scale nvfp4_truncated(const ng_fault_block *b, uint32_t amax) {
    return nvfp4_of_code(b, ue4m3(NG_R_ZERO, ng_scale_nvfp4_wanted(b->q, amax, b->level)));
}
static ng_block_scale nvfp4_not_below(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    return scale.code ? scale : nvfp4_of_code(b, 1);
}
static ng_block_scale nvfp4_normal(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    return scale.code >= 8 ? scale : nvfp4_of_code(b, 8);
}
static ng_block_scale nvfp4_unrounded(const ng_fault_block *b, uint32_t amax) {
    ng_block_scale scale = right_scale(b, amax);
    float wanted = ng_scale_nvfp4_wanted(b->q, amax, b->level) * b->level.decode;
    if (scale.code && amax < NG_INF_BITS) scale.encode = ng_at_most_max(1.0f / wanted);
    return scale;
}
static void te_order(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_NVFP4_TE; }
static void paper_order(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_NVFP4_PAPER; }
static void always_six(ng_kernel *subject) { subject->contract.quantization.four_over_six = NG_4OVER6_OFF; }
static void squared(ng_kernel *subject) { subject->contract.quantization.four_over_six = NG_4OVER6_MSE; }
static void floor_rule(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_MX_FLOOR; }
static void round_up_rule(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_MX_ROUND_UP; }
static void ceil_rule(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_MX_CEIL; }
static void even_rule(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_MX_EVEN; }
static void encoding_rule(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_MAX_OVER_AMAX; }
static void decoding_rule(ng_kernel *subject) { subject->contract.quantization.rule = NG_SCALE_AMAX_OVER_MAX; }

/* ---- places and elements ------------------------------------------------------------------------------------------*/
static void neighbour(int64_t down, int64_t across, int64_t *i, int64_t *j) {
    (void)down, (void)i;
    if (*j + 1 < across) ++*j;
}
static void turned(int64_t down, int64_t across, int64_t *i, int64_t *j) {
    int64_t row = *i;
    if (*j < down && row < across) *i = *j, *j = row;
}
static uint32_t with_rounding(const ng_element *e, ng_rounding rounding) {
    ng_cast cast = *e->cast;
    ng_element changed = *e;
    cast.rounding = rounding;
    changed.cast = &cast;
    return ng_right_code(&changed);
}
static uint32_t truncated(const ng_element *e) { return with_rounding(e, NG_R_ZERO); }
static uint32_t half_away(const ng_element *e) { return with_rounding(e, NG_RN_AWAY); }
static uint32_t as_stochastic(const ng_element *e) {
    ng_cast cast = {NG_R_STOCHASTIC, NG_SR_CARRY, 8, e->cast->saturate, e->cast->nan};
    ng_element changed = *e;
    changed.cast = &cast;
    changed.word = e->bits * 2654435761u >> 24;
    return ng_right_code(&changed);
}
static uint32_t no_subnormals(const ng_element *e) {
    uint32_t code = ng_right_code(e);
    return (code & 0x7F) < 8 ? code & 0x80 : code;
}

static void swaps_nibbles(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    for (int64_t i = 0; out->data && i < out->rows; i++)
        for (int64_t j = 0; j + 1 < out->columns; j += 2) {
            uint32_t low = ng_element_get(out, i, j);
            ng_element_set(out, i, j, ng_element_get(out, i, j + 1));
            ng_element_set(out, i, j + 1, low);
        }
}

static void last_scale_unwritten(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *scales = &launch->tensors[NG_OUT_SCALES];
    (void)before;
    if (scales->data) ng_element_set(scales, scales->rows - 1, scales->columns - 1, 0);
}

/* The column-wise copy made from the row-wise one, already rounded, in place of the tensor itself. */
static ng_status twice_quantized(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_launch mine = *launch;
    ng_status status = subject->launch(subject, launch);
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT], *scales = &launch->tensors[NG_OUT_SCALES];
    if (status || !launch->tensors[NG_OUT_T].data || !out->data) return status;
    mine.tensors[NG_IN] = ng_tensor_twin(in);
    if (!mine.tensors[NG_IN].data) return NG_NO_MEMORY;
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            float x = ng_element_value(out, i, j) * ng_element_value(scales, i, j / subject->contract.quantization.blocks.columns);
            ng_element_set(&mine.tensors[NG_IN], i, j, ng_bits(x) >> 16);
        }
    mine.tensors[NG_OUT].data = mine.tensors[NG_OUT_SCALES].data = NULL;
    status = subject->launch(subject, &mine);
    free(mine.tensors[NG_IN].data);
    return status;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define MXFP8 "quantize/bf16->mxfp8/cpu/round-up"
#define MXFP4 "quantize/bf16->mxfp4/cpu/floor"
#define PAPER "quantize/bf16->nvfp4/cpu/paper"
#define TE "quantize/bf16->nvfp4/cpu/te"
#define LINE "quantize/bf16->e4m3-1x128/cpu/amax-over-max"
#define SQUARE "quantize/bf16->e4m3-128x128/cpu/max-over-amax"
#define TENSOR "quantize/bf16->e4m3/cpu/max-over-amax"
#define BLOCKS(...) .compute = ng_fault_quantize, .blocks = &(const ng_block_hooks){__VA_ARGS__}
#define CODE(function) .compute = ng_fault_quantize, .code = function

static const ng_fault faults[] = {
    {"scale-step-low", MXFP8, "FlyDSL#590: e8m0 one step low", BLOCKS(.scale = step_low)},
    {"scale-step-high", "quantize/bf16->mxfp6-e2m3/cpu/round-up", "e8m0 one step high", BLOCKS(.scale = step_high)},
    {"floor-for-round-up", MXFP8, "OCP MX 1.0's floor where TransformerEngine's round-up is promised (arXiv:2506.08027)", .change = floor_rule},
    {"round-up-for-floor", MXFP4, "the reverse: torchao's RCEIL for FLOOR", .change = round_up_rule},
    {"ceil-for-round-up", "quantize/bf16->mxfp8-e5m2/cpu/round-up", "pytorch/ao#2035: CEIL for RCEIL", .change = ceil_rule},
    {"even-for-floor", "quantize/bf16->mxfp6-e3m2/cpu/floor", "torchao's EVEN for FLOOR", .change = even_rule},
    {"float-logarithm", "quantize/fp32->mxfp8/cpu/floor", "microsoft/microxcaling: floor(log2(amax)) in binary32 for the exponent bits", BLOCKS(.scale = float_logarithm)},
    {"exponent-of-sixth", MXFP4, "vllm-project/vllm#43557: the exponent of amax / 6", BLOCKS(.scale = exponent_of_sixth)},
    {"flushed-scale", MXFP8, "flashinfer-ai/flashinfer#2440: NaN for inputs below 1e-36", BLOCKS(.scale = flushed_scale)},
    {"zero-block-nan", "quantize/bf16->mxfp4/cpu/round-up", "huggingface/kernels#680: a block of zeros gives 0 / 0", BLOCKS(.scale = zero_over_zero)},
    {"zero-block-nan", LINE, "0 / 0 with fp32 scales", BLOCKS(.scale = zero_max_over_amax, .scaled = multiplied)},
    {"infinity-saturates", MXFP4, "TransformerEngine's 0xFE for an infinite amax where OCP's NaN is promised", BLOCKS(.scale = infinity_by_other_rule)},
    {"tiny-overflows", TENSOR, "flashinfer-ai/flashinfer#5024: 448 / amax overflows below 1.3e-36", BLOCKS(.scale = unclamped)},
    {"tiny-clamped", LINE, "DeepGEMM: amax at least 1e-4", BLOCKS(.amax = at_least_1e_4)},
    {"reciprocal", LINE, "TransformerEngine#2639: x * (1 / d) for x / d", BLOCKS(.scale = reciprocal, .scaled = multiplied)},
    {"encoding-for-decoding", LINE, "fl(max / amax) and a product where the quotient by fl(amax / max) is promised", .change = encoding_rule},
    {"decoding-for-encoding", "quantize/bf16->e5m2-row/cpu/max-over-amax", "the reverse", .change = decoding_rule},
    {"scale-in-bf16", "quantize/bf16->e4m3-row/cpu/max-over-amax", "NVTE_USE_FAST_MATH: the factor rounded to bf16", BLOCKS(.scaled = in_bf16)},
    {"scale-inverted", TENSOR, "scale and scale_inv exchanged", BLOCKS(.scale = inverted)},
    {"power-above", "quantize/bf16->e4m3-1x128/cpu/pow2", "the mantissa rounded up in place of cleared", BLOCKS(.scale = power_above)},
    {"given-ignored", "quantize/bf16->e4m3/cpu/given", "delayed scaling without the scale", BLOCKS(.scale = given_inverted)},
    {"scale-transposed", SQUARE, "scales indexed [column block][row block]", BLOCKS(.which = turned)},
    {"neighbours-scale", MXFP8, "elements take the next block's scale", BLOCKS(.which = neighbour)},
    {"tail-block-skipped", "quantize/bf16->mxfp6-e3m2/cpu/round-up", "a grid of floor(n / 32) blocks", BLOCKS(.skips_tail = true)},
    {"last-scale-zero", "quantize/bf16->mxfp8-e5m2/cpu/floor", "padding of swizzled scales written over the last one", .outputs = last_scale_unwritten},
    {"amax-wrong-axis", MXFP8, "the maximum down the column", BLOCKS(.amax = wrong_axis)},
    {"amax-ignores-negatives", TE, "max in place of max |x|", BLOCKS(.amax = ignores_negatives)},
    {"amax-ignores-nan", MXFP8, "fmaxf drops NaN", BLOCKS(.amax = ignores_nan)},
    {"amax-without-last", MXFP4, "a reduction over 31 of 32", BLOCKS(.amax = without_last)},
    {"amax-of-half", SQUARE, "a warp's partial maximum for the block's", BLOCKS(.amax = first_half)},
    {"te-order", PAPER, "TransformerEngine's order of operations where the paper's is promised (arXiv:2509.25149 B)", .change = te_order},
    {"paper-order", TE, "the reverse", .change = paper_order},
    {"without-six", PAPER, "the tensor scale 448 / amax for 2688 / amax", BLOCKS(.level = level_without_six)},
    {"scale-rounded-up", PAPER, "cuDNN's block_scale_quantize: nvfp4 scales rounded up", BLOCKS(.scale = nvfp4_rounded_up)},
    {"scale-truncated", TE, "scales truncated", BLOCKS(.scale = nvfp4_truncated)},
    {"scale-not-below", PAPER, "NVIDIA ModelOpt: scales at least 2^-9", BLOCKS(.scale = nvfp4_not_below)},
    {"scale-normal", TE, "torchao: scales at least 2^-6", BLOCKS(.scale = nvfp4_normal)},
    {"unrounded-scale", TE, "huggingface/transformers#47030: encoded with the scale before its rounding", BLOCKS(.scale = nvfp4_unrounded)},
    {"always-six", "quantize/bf16->nvfp4-4over6-mae/cpu/te", "4over6 that never takes 4", .change = always_six},
    {"squared-error", "quantize/bf16->nvfp4-4over6-mae/cpu/te", "4over6 by squared errors where absolute ones are promised", .change = squared},
    {"nibbles-swapped", PAPER, "the even element in the high nibble", .outputs = swaps_nibbles},
    {"elements-truncated", MXFP8, "bits cut off in place of rounding", CODE(truncated)},
    {"elements-half-away", MXFP4, "microsoft/microxcaling 'nearest'", CODE(half_away)},
    {"elements-stochastic", TE, "stochastic rounding left on for activations", CODE(as_stochastic)},
    {"elements-flushed", MXFP8, "subnormal elements flushed", CODE(no_subnormals)},
    {"twice-quantized", MXFP8, "the column-wise copy made from the row-wise one", .compute = twice_quantized},
    {"last-row", "quantize/bf16->e4m3-row/cpu/max-over-amax", "rows beyond a grid's 65535", .outputs = ng_last_row_wrong},
    {"flips-a-bit", "quantize/bf16->mxfp6-e2m3/cpu/floor", "a race between two writers", .outputs = ng_flips_a_bit},
};

const ng_fault_list ng_quantize_faults = {faults, sizeof faults / sizeof *faults};
