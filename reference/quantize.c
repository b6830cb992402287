/* Block quantization: checks, and the choice of the tier. quantize_integer.c and quantize_mpfr.c compute. */
#include "reference/quantize_core.h"

const char *const ng_tier_names[NG_TIERS] = {
    [NG_TIER_NONE] = "none",   [NG_TIER_INTEGER] = "integer",
    [NG_TIER_SPLIT] = "split", [NG_TIER_DOUBLE_DOUBLE] = "double-double",
    [NG_TIER_CERTIFIED] = "certified", [NG_TIER_MPFR] = "mpfr",
};

static bool same_shape(const ng_tensor *t, int64_t rows, int64_t columns) {
    return t->data && t->space == NG_HOST && t->rows == rows && t->columns == columns;
}

static bool cast_is_valid(const ng_cast *cast) {
    if ((unsigned)cast->rounding >= NG_ROUNDINGS || (unsigned)cast->nan > NG_NAN_MAX) return false;
    return cast->rounding != NG_R_STOCHASTIC ||
           ((unsigned)cast->stochastic < NG_STOCHASTICS && cast->random_bits >= 1 && cast->random_bits <= 32);
}

/* An input's amax, and every fl() of the contract, are binary32: a wider input would need roundings that it does not
 * name. */
static bool is_binary32(double x) {
    return isnan(x) || (double)(float)x == x;
}

static ng_status check_quantization(const ng_quantization *q) {
    if ((unsigned)q->rule >= NG_SCALE_RULES || (unsigned)q->element >= NG_FORMATS || !cast_is_valid(&q->cast))
        return NG_BAD_ARGUMENT;
    if (q->rule == NG_SCALE_ABSENT) return NG_OK;
    if (q->scale != ng_rule_scale_format(q->rule)) return NG_BAD_ARGUMENT;
    if (!ng_formats[q->element].is_signed || ng_formats[q->element].storage_bits > 16)
        return NG_UNSUPPORTED; /* a scale's format, or one as wide as the scale itself */
    if (ng_rule_is_nvfp4(q->rule) && q->element != NG_E2M1) return NG_BAD_ARGUMENT;
    return (q->tensor_scale || q->four_over_six) && !ng_rule_is_nvfp4(q->rule) ? NG_BAD_ARGUMENT : NG_OK;
}

static ng_status check_inputs(const ng_quantization *q, const ng_tensor *in, const ng_quantize_inputs *inputs) {
    if (q->cast.rounding == NG_R_STOCHASTIC &&
        (!inputs || !inputs->random || !same_shape(inputs->random, in->rows, in->columns) ||
         ng_formats[inputs->random->format].storage_bits != 32))
        return NG_BAD_ARGUMENT;
    if (q->rule == NG_SCALE_GIVEN && (!inputs || !inputs->given_scale)) return NG_BAD_ARGUMENT;
    return inputs && inputs->tensor_amax && !is_binary32(*inputs->tensor_amax) ? NG_BAD_ARGUMENT : NG_OK;
}

ng_status ng_reference_quantize(const ng_quantization *quantization, const ng_tensor *in,
                                const ng_quantize_inputs *inputs, ng_tier tier, ng_tensor *codes, ng_tensor *scales,
                                float *tensor_scale) {
    if (!quantization || !in || !codes || !same_shape(in, in->rows, in->columns) ||
        !same_shape(codes, in->rows, in->columns) || codes->format != quantization->element)
        return NG_BAD_ARGUMENT;
    if (in->format == NG_FP64) return NG_UNSUPPORTED;
    ng_status status = check_quantization(quantization);
    if (!status) status = check_inputs(quantization, in, inputs);
    if (status) return status;
    bool scaled = quantization->rule != NG_SCALE_ABSENT;
    ng_quantize_job job = {
        .quantization = quantization,
        .in = in,
        .random = quantization->cast.rounding == NG_R_STOCHASTIC ? inputs->random : NULL,
        .codes = codes,
        .scales = scaled ? scales : NULL,
        .given = inputs && inputs->given_scale ? *inputs->given_scale : 1,
        .tensor_amax = inputs ? inputs->tensor_amax : NULL,
        .height = ng_block_extent(quantization->blocks.rows, in->rows),
        .width = ng_block_extent(quantization->blocks.columns, in->columns),
        .block_rows = ng_block_count(quantization->blocks.rows, in->rows),
        .block_columns = ng_block_count(quantization->blocks.columns, in->columns),
    };
    if (scaled &&
        (!scales || !same_shape(scales, job.block_rows, job.block_columns) || scales->format != quantization->scale))
        return NG_BAD_ARGUMENT;
    float unused;
    if (!tensor_scale) tensor_scale = &unused;
    *tensor_scale = 1;
    return tier == NG_TIER_MPFR ? ng_quantize_mpfr(&job, tensor_scale) : ng_quantize_integer(&job, tensor_scale);
}

ng_status ng_reference_dequantize(const ng_operand *in, const ng_cast *cast, ng_tier tier, ng_tensor *out) {
    const ng_tensor *codes = &in->codes, *scales = &in->scales;
    if (!same_shape(codes, codes->rows, codes->columns) || !same_shape(out, codes->rows, codes->columns) ||
        !cast_is_valid(cast) || cast->rounding == NG_R_STOCHASTIC)
        return NG_BAD_ARGUMENT;
    if (codes->format == NG_FP64 || (scales->data && scales->format == NG_FP64)) return NG_UNSUPPORTED;
    if (scales->data && !same_shape(scales, ng_block_count(in->blocks.rows, codes->rows),
                                    ng_block_count(in->blocks.columns, codes->columns)))
        return NG_BAD_ARGUMENT;
    return tier == NG_TIER_MPFR ? ng_dequantize_mpfr(in, cast, out) : ng_dequantize_integer(in, cast, out);
}

uint64_t ng_reference_scale(const ng_quantization *quantization, double amax, double tensor_amax, ng_tier tier,
                            double *decode, double *tensor_scale) {
    return tier == NG_TIER_MPFR ? ng_scale_mpfr(quantization, amax, tensor_amax, decode, tensor_scale)
                                : ng_scale_integer(quantization, amax, tensor_amax, decode, tensor_scale);
}
