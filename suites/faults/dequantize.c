/* Dequantization that is almost right. */
#include "fault.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static double right_product(float element, float scale, float tensor_scale) {
    return (double)element * (double)scale * (double)tensor_scale;
}

static uint32_t finish(const ng_fault *fault, const ng_kernel *subject, double y) {
    const ng_element e = {.cast = &subject->contract.cast, .to = subject->out, .value = y, .bits = ng_bits(ng_round_to_odd(y))};
    if (isnan(y)) return subject->out == NG_FP32 ? NG_NAN_BITS : 0x7FFF;
    if (fault->code) return fault->code(&e);
    return subject->out == NG_FP32 ? ng_bits((float)y) : ng_right_code(&e);
}

ng_status ng_fault_dequantize(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    static const ng_block_hooks none;
    const ng_block_hooks *hooks = fault->blocks ? fault->blocks : &none;
    const ng_quantization *q = &subject->contract.quantization;
    const ng_tensor *in = &launch->tensors[NG_IN], *scales = &launch->tensors[NG_IN_SCALES];
    const int64_t height = q->blocks.rows ? q->blocks.rows : in->rows, width = q->blocks.columns ? q->blocks.columns : in->columns;
    float tensor_scale = q->tensor_scale ? ng_element_value(&launch->tensors[NG_IN_TENSOR_SCALE], 0, 0) : 1.0f;
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            int64_t down = i / height, across = j / width;
            uint32_t code = ng_element_get(in, i, j);
            if (hooks->which) hooks->which(scales->rows, scales->columns, &down, &across);
            uint32_t scale_code = ng_element_get(scales, down, across);
            float element = hooks->element ? hooks->element(in->format, code) : ng_decode_float(in->format, code);
            float scale = hooks->decode ? hooks->decode(scales->format, scale_code) : ng_decode_float(scales->format, scale_code);
            double y = hooks->product ? hooks->product(element, scale, tensor_scale) : right_product(element, scale, tensor_scale);
            ng_element_set(&launch->tensors[NG_OUT], i, j, finish(fault, subject, y));
        }
    return NG_OK;
}

/* ---- deviations ---------------------------------------------------------------------------------------------------*/
static float zero_is_zero(ng_format_id format, uint32_t code) { return code ? ng_decode_float(format, code) : 0.0f; }
static float all_ones_is_infinite(ng_format_id format, uint32_t code) { return code == 0xFF ? INFINITY : ng_decode_float(format, code); }
static float as_e4m3(ng_format_id format, uint32_t code) { (void)format; return ng_decode_e4m3(code); }
static float nan_is_480(ng_format_id format, uint32_t code) {
    return (code & 0x7F) == 0x7F ? code & 0x80 ? -480.0f : 480.0f : ng_decode_float(format, code);
}
static float flushed(ng_format_id format, uint32_t code) {
    uint32_t normal = format == NG_E5M2 ? 4 : 8;
    return (code & 0x7F) < normal ? 0.0f : ng_decode_float(format, code);
}
static float without_sign_of_zero(ng_format_id format, uint32_t code) { return ng_decode_float(format, code) + 0.0f; }
static float other_table(ng_format_id format, uint32_t code) { return (code & 7) == 7 ? code & 8 ? -8.0f : 8.0f : ng_decode_float(format, code); }
static double without_tensor_scale(float element, float scale, float tensor_scale) { (void)tensor_scale; return (double)element * (double)scale; }
static double twice_rounded(float element, float scale, float tensor_scale) { return (double)(element * scale * tensor_scale); }
static double scale_in_bf16(float element, float scale, float tensor_scale) {
    uint32_t bits = ng_bits(scale * tensor_scale);
    float rounded = isfinite(ng_float(bits)) ? ng_float((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u) : ng_float(bits);
    return (double)element * (double)rounded;
}
static double saturated(float element, float scale, float tensor_scale) {
    double y = right_product(element, scale, tensor_scale);
    return isinf(y) ? copysign((double)FLT_MAX, y) : y;
}
static double results_flushed(float element, float scale, float tensor_scale) {
    double y = right_product(element, scale, tensor_scale);
    return fabs(y) < 0x1p-126 ? copysign(0, y) : y;
}
static void neighbour(int64_t down, int64_t across, int64_t *i, int64_t *j) { (void)down, (void)i; *j = (*j + 1) % across; }
static void row_above(int64_t down, int64_t across, int64_t *i, int64_t *j) { (void)down, (void)across, (void)j; if (*i) --*i; }
static void turned(int64_t down, int64_t across, int64_t *i, int64_t *j) {
    int64_t row = *i;
    if (*j < down && row < across) *i = *j, *j = row;
}
static void truncates(ng_kernel *subject) { subject->contract.cast.rounding = NG_R_ZERO; }

static void swaps_nibbles(const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j + 1 < in->columns; j += 2) {
            uint32_t low = ng_element_get(in, i, j);
            ng_element_set(in, i, j, ng_element_get(in, i, j + 1));
            ng_element_set(in, i, j + 1, low);
        }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define BLOCKS(...) .compute = ng_fault_dequantize, .blocks = &(const ng_block_hooks){__VA_ARGS__}

static const ng_fault faults[] = {
    {"code-0-as-0", "dequantize/mxfp8->fp32/cpu/rne", "TransformerEngine#3262, pytorch/ao#4725: e8m0 code 0 is 2^-127, not 0", BLOCKS(.decode = zero_is_zero)},
    {"code-255-as-infinity", "dequantize/mxfp8->bf16/cpu/rne", "TransformerEngine#3262: e8m0 code 255 is NaN, not infinity", BLOCKS(.decode = all_ones_is_infinite)},
    {"e5m2-as-e4m3", "dequantize/mxfp8-e5m2->bf16/cpu/rne", "TransformerEngine#3342: e5m2 bytes read as e4m3", BLOCKS(.element = as_e4m3)},
    {"nan-is-480", "dequantize/e4m3->fp32/cpu/rne", "a shift for a decoder: e4m3's NaN becomes 480", BLOCKS(.element = nan_is_480)},
    {"elements-flushed", "dequantize/e4m3-row->bf16/cpu/rne", "subnormal elements flushed", BLOCKS(.element = flushed)},
    {"sign-of-zero-lost", "dequantize/mxfp8->fp32/cpu/rne", "-0 becomes +0", BLOCKS(.element = without_sign_of_zero)},
    {"six-is-eight", "dequantize/mxfp4->bf16/cpu/rne", "a table of e2m1 continued as powers of two", BLOCKS(.element = other_table)},
    {"nibbles-swapped", "dequantize/mxfp4->fp32/cpu/rne", "the even element from the high nibble", .inputs = swaps_nibbles},
    {"without-tensor-scale", "dequantize/nvfp4->bf16/cpu/rne", "the second level forgotten", BLOCKS(.product = without_tensor_scale)},
    {"scales-flushed", "dequantize/nvfp4->fp32/cpu/rne", "subnormal ue4m3 scales count as zero", BLOCKS(.decode = flushed)},
    {"neighbours-scale", "dequantize/e4m3-1x128->bf16/cpu/rne", "the next block's scale", BLOCKS(.which = neighbour)},
    {"row-above", "dequantize/e4m3-row->fp32/cpu/rne", "the previous row's scale", BLOCKS(.which = row_above)},
    {"scale-transposed", "dequantize/e4m3-128x128->bf16/cpu/rne", "scales indexed [column block][row block]", BLOCKS(.which = turned)},
    {"twice-rounded", "dequantize/e4m3-row->bf16/cpu/rne", "the product rounded to fp32 first", BLOCKS(.product = twice_rounded)},
    {"scale-in-bf16", "dequantize/nvfp4-16x16->bf16/cpu/rne", "scales multiplied in bf16", BLOCKS(.product = scale_in_bf16)},
    {"truncates", "dequantize/e5m2->bf16/cpu/rne", "the upper half of the fp32 product", .compute = ng_fault_dequantize, .change = truncates},
    {"infinity-saturates", "dequantize/e5m2->fp32/cpu/rne", "infinities become the largest number", BLOCKS(.product = saturated)},
    {"results-flushed", "dequantize/mxfp6-e2m3->fp32/cpu/rne", "-ftz=true: results below 2^-126", BLOCKS(.product = results_flushed)},
    {"tail-unwritten", "dequantize/mxfp6-e3m2->fp32/cpu/rne", "vectorised by 16, the remainder forgotten", .outputs = ng_tail_unwritten},
    {"last-row", "dequantize/e5m2-row->bf16/cpu/rne", "rows beyond a grid's 65535", .outputs = ng_last_row_wrong},
};

const ng_fault_list ng_dequantize_faults = {faults, sizeof faults / sizeof *faults};
