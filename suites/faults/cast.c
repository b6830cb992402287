/* Casts that are almost right. */
#include "fault.h"

#include <math.h>
#include <stdlib.h>

uint32_t ng_right_word(const ng_draw *draw);

/* ---- what is right ------------------------------------------------------------------------------------------------*/
static uint32_t code_of(const ng_element *e, uint32_t bits) {
    if (e->to == NG_E8M0) return ng_cast_e8m0(e->cast->rounding, e->cast->saturate, bits);
    const ng_caster caster = ng_caster_of(e->to, e->cast);
    if (e->cast->rounding == NG_R_STOCHASTIC)
        return ng_cast_code_stochastic(&caster, e->cast->stochastic, e->cast->random_bits, bits, e->word);
    return ng_cast_code(&caster, e->cast->rounding, bits);
}

uint32_t ng_right_code(const ng_element *e) { return code_of(e, e->bits); }

ng_status ng_fault_cast(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT], *words = &launch->tensors[NG_RANDOM_WORDS];
    const ng_problem *p = launch->problem;
    const bool random = subject->contract.cast.rounding == NG_R_STOCHASTIC;
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            const ng_draw draw = {p->seed, p->offset, i, j, in->columns, false};
            ng_element e = {.cast = &subject->contract.cast, .to = subject->out, .drawn = random && !words->data};
            e.value = ng_element_double(in, i, j);
            e.bits = in->format == NG_FP64 ? ng_bits(ng_round_to_odd(e.value)) : ng_bits((float)e.value);
            if (words->data) e.word = ng_element_get(words, i, j);
            else if (random) e.word = fault->word ? fault->word(&draw) : ng_right_word(&draw);
            ng_element_store(out, i, j, fault->code ? fault->code(&e) : ng_right_code(&e));
        }
    return NG_OK;
}

/* ---- elements gone wrong ------------------------------------------------------------------------------------------*/
static bool is_nan(const ng_element *e) { return (e->bits & NG_ABS_MASK) > NG_INF_BITS; }
static bool is_negative(const ng_element *e) { return e->bits >> 31; }
static float magnitude(const ng_element *e) { return ng_float(e->bits & NG_ABS_MASK); }

/* The sign bit and the smallest normal magnitude's code. */
static uint32_t sign_of(ng_format_id to) {
    switch (to) {
    case NG_BF16:
    case NG_FP16: return 0x8000;
    case NG_TF32: return 0x40000;
    case NG_E2M1: return 0x8;
    case NG_E3M2:
    case NG_E2M3: return 0x20;
    default: return 0x80;
    }
}
static uint32_t normal_of(ng_format_id to) {
    switch (to) {
    case NG_BF16: return 0x80;
    case NG_FP16:
    case NG_TF32: return 0x400;
    case NG_E4M3:
    case NG_E2M3: return 0x8;
    case NG_E2M1: return 0x2;
    default: return 0x4;
    }
}

static uint32_t via(const ng_element *e, ng_format_id format) {
    const ng_cast nearest = {.rounding = NG_RN_EVEN};
    const ng_element first = {.cast = &nearest, .to = format, .bits = e->bits};
    return code_of(e, ng_bits(ng_decode_float(format, format == NG_TF32 ? ng_right_code(&first) << 13 : ng_right_code(&first))));
}
static uint32_t through_fp16(const ng_element *e) { return via(e, NG_FP16); }
static uint32_t through_bf16(const ng_element *e) { return via(e, NG_BF16); }
static uint32_t through_tf32(const ng_element *e) { return via(e, NG_TF32); }
static uint32_t through_fp32(const ng_element *e) { return code_of(e, ng_bits((float)e->value)); }

static uint32_t saturates_at_240(const ng_element *e) {
    return magnitude(e) > 240 ? 0x77 | (is_negative(e) ? 0x80u : 0) : ng_right_code(e);
}
static uint32_t nan_from_464(const ng_element *e) {
    return magnitude(e) > 464 && magnitude(e) < 480 ? 0x7F | (is_negative(e) ? 0x80u : 0) : ng_right_code(e);
}
static uint32_t tie_464_overflows(const ng_element *e) { return magnitude(e) == 464 ? 0x7F : ng_right_code(e); }
static uint32_t tie_61440_stays(const ng_element *e) {
    return magnitude(e) == 61440 ? 0x7B | (is_negative(e) ? 0x80u : 0) : ng_right_code(e);
}
static uint32_t infinity_to_nan(const ng_element *e) { return magnitude(e) == INFINITY ? 0x7F : ng_right_code(e); }
static uint32_t nan_to_max(const ng_element *e) { return is_nan(e) ? 0x7E : ng_right_code(e); }
static uint32_t nan_to_zero(const ng_element *e) { return is_nan(e) ? 0 : ng_right_code(e); }
static uint32_t no_negative_zero(const ng_element *e) {
    uint32_t code = ng_right_code(e);
    return code == sign_of(e->to) ? 0 : code;
}
static uint32_t zero_in_loses_sign(const ng_element *e) { return magnitude(e) == 0 ? 0 : ng_right_code(e); }
static uint32_t flushes_results(const ng_element *e) {
    uint32_t code = ng_right_code(e), sign = sign_of(e->to);
    return (code & (sign - 1)) < normal_of(e->to) ? code & sign : code;
}
static uint32_t flushes_inputs(const ng_element *e) {
    return code_of(e, (e->bits & NG_ABS_MASK) < 0x800000 ? e->bits & 0x80000000u : e->bits);
}
static uint32_t flushes_both(const ng_element *e) {
    return (e->bits & NG_ABS_MASK) < 0x800000 ? is_negative(e) ? sign_of(e->to) : 0 : flushes_results(e);
}
static uint32_t ties_away_at_five(const ng_element *e) {
    return magnitude(e) == 5 ? 0x7 | (is_negative(e) ? 0x8u : 0) : ng_right_code(e);
}
static uint32_t short_mask(const ng_element *e) { return code_of(e, e->bits & ~0x300000u); }
static uint32_t frexp_exponent(const ng_element *e) {
    uint32_t code = ng_right_code(e);
    return (e->bits & 0x7FFFFF) == 0 && code < 0xFE && magnitude(e) != 0 ? code + 1 : code;
}
static uint32_t zero_is_nan(const ng_element *e) { return magnitude(e) == 0 ? 0xFF : ng_right_code(e); }
static uint32_t infinity_is_nan(const ng_element *e) { return magnitude(e) == INFINITY ? 0xFF : ng_right_code(e); }
static uint32_t ignores_subnormal(const ng_element *e) {
    return (e->bits & NG_ABS_MASK) < 0x800000 ? 0 : ng_right_code(e);
}
static uint32_t sign_ignored(const ng_element *e) { return code_of(e, is_nan(e) ? e->bits : e->bits & NG_ABS_MASK); }
static uint32_t fnuz_bias(const ng_element *e) {
    return is_nan(e) ? ng_right_code(e) : code_of(e, ng_bits(ng_float(e->bits) * 2));
}
static uint32_t lost_carry(const ng_element *e) {
    uint32_t code = ng_right_code(e), down;
    ng_cast zero = *e->cast;
    zero.rounding = NG_R_ZERO;
    const ng_element truncated = {.cast = &zero, .to = e->to, .bits = e->bits};
    down = ng_right_code(&truncated);
    return is_nan(e) || (code ^ down) < normal_of(e->to) ? code : (code & (normal_of(e->to) - 1)) | (down & ~(normal_of(e->to) - 1));
}
static uint32_t adds_half(const ng_element *e) { /* correct but at exact ties below one unit */
    return code_of(e, magnitude(e) < ng_float(0x3F800000u) && !is_nan(e) ? e->bits + 1 : e->bits);
}

static void keep_sign(ng_kernel *subject) { subject->contract.cast.nan = NG_NAN_KEEP_SIGN; }

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define E4M3 "cast/fp32->e4m3/cpu/rne-sat"
#define E5M2 "cast/fp32->e5m2/cpu/rne-sat"
#define E2M1 "cast/fp32->e2m1/cpu/rne-sat"
#define E8M0 "cast/fp32->e8m0/cpu/ru-sat"
#define CODE(function) .compute = ng_fault_cast, .code = function

static const ng_fault faults[] = {
    {"truncates", E4M3, "bits cut off in place of rounding; accepted by the comparator of TransformerEngine tests/cpp/test_common.cu", .runs = "cast/fp32->e4m3/cpu/rz-sat"},
    {"truncates", E5M2, "the same, e5m2", .runs = "cast/fp32->e5m2/cpu/rz-sat"},
    {"truncates", "cast/fp32->bf16/cpu/rne-nosat", "bf16 as the upper half of an fp32, as TensorFlow's first bfloat16 did", .runs = "cast/fp32->bf16/cpu/rz-nosat"},
    {"truncates", "cast/fp32->e2m3/cpu/rne-sat", "bits cut off in place of rounding, fp6", .runs = "cast/fp32->e2m3/cpu/rz-sat"},
    {"rounds-away", E4M3, "every inexact result one step from zero", .runs = "cast/fp32->e4m3/cpu/ra-sat"},
    {"rounds-up", E5M2, "a rounding mode left at upward", .runs = "cast/fp32->e5m2/cpu/ru-sat"},
    {"half-away", E4M3, "microsoft/microxcaling 'nearest': halves away from zero", .runs = "cast/fp32->e4m3/cpu/rna-sat"},
    {"half-away", "cast/fp32->fp16/cpu/rne-nosat", "roundf in place of ties to even", .runs = "cast/fp32->fp16/cpu/rna-nosat"},
    {"half-away", E2M1, "microsoft/microxcaling, fp4", .runs = "cast/fp32->e2m1/cpu/rna-sat"},
    {"ties-away-at-five", E2M1, "a threshold compared with >= in place of >: 5.0 gives 6", CODE(ties_away_at_five)},
    {"stochastic", E4M3, "stochastic rounding left on in the forward pass (arXiv:2509.25149 wants it for gradients alone)", .runs = "cast/fp32->e4m3/cpu/sr8-carry-sat"},
    {"through-fp16", E4M3, "double rounding: fp32 to fp16 to e4m3", CODE(through_fp16)},
    {"through-bf16", E4M3, "double rounding: activations kept in bf16 before the cast", CODE(through_bf16)},
    {"through-tf32", "cast/fp32->e3m2/cpu/rne-sat", "double rounding: tf32 first", CODE(through_tf32)},
    {"through-fp32", "cast/fp64->e4m3/cpu/rne-sat", "double rounding: double to float to fp8, as a chain of C casts does", CODE(through_fp32)},
    {"through-fp32", "cast/fp64->bf16/cpu/rne-nosat", "double rounding: double to float to bf16", CODE(through_fp32)},
    {"saturates-at-240", E4M3, "the range of e4m3fnuz (AMD MI300) for OCP's", CODE(saturates_at_240)},
    {"nan-from-464", E4M3, "PyTorch before 2.13 (pytorch#177870): (464, 480) reaches NaN by a carry", CODE(nan_from_464)},
    {"overflow-to-nan", E4M3, "jax-ml/ml_dtypes#147, #260: overflow gives NaN where saturation is meant", .runs = "cast/fp32->e4m3/cpu/rne-nosat"},
    {"overflow-to-infinity", E5M2, "PyTorch eager: e5m2 does not saturate", .runs = "cast/fp32->e5m2/cpu/rne-nosat"},
    {"infinity-to-nan", E4M3, "finite values saturate, infinities do not", CODE(infinity_to_nan)},
    {"tie-464-overflows", "cast/bf16->e4m3/cpu/rne-nosat", "the tie at 464 taken for overflow", CODE(tie_464_overflows)},
    {"tie-61440-stays", "cast/bf16->e5m2/cpu/rne-nosat", "the tie at 61440 rounded as e4m3's is", CODE(tie_61440_stays)},
    {"nan-to-max", E4M3, "fmin(fmax(x, -448), 448) loses NaN", CODE(nan_to_max)},
    {"nan-to-zero", E2M1, "TransformerEngine's Python cast_to_fp4x2: no branch matches NaN", CODE(nan_to_zero)},
    {"nan-keeps-sign", E5M2, "CUDA's double path of __nv_cvt_*_to_fp8 where the float path's 0x7F is promised", .change = keep_sign},
    {"loses-negative-zero", E4M3, "-0 and negative underflow become +0", CODE(no_negative_zero)},
    {"zero-loses-sign", E2M1, "TransformerEngine's Python fp4 reference: 0x0 for -0.0", CODE(zero_in_loses_sign)},
    {"flushes-results", E4M3, "subnormal results flushed to zero", CODE(flushes_results)},
    {"flushes-results", "cast/fp32->fp16/cpu/rne-nosat", "fp16 results flushed, as AMD MI200's matrix units do", CODE(flushes_results)},
    {"flushes-inputs", "cast/fp32->bf16/cpu/rne-nosat", "-ftz=true: subnormal inputs count as zero", CODE(flushes_inputs)},
    {"flushes-both", "cast/fp32->tf32/cpu/rne-nosat", "denormals are zero, in and out", CODE(flushes_both)},
    {"short-mask", E8M0, "onnx/onnx#7784: mask 0x4FFFFF for 0x7FFFFF in the scale's rounding up", CODE(short_mask)},
    {"frexp-exponent", E8M0, "microsoft/onnxruntime#32122: frexpf doubles exact powers of two", CODE(frexp_exponent)},
    {"zero-is-nan", E8M0, "ml_dtypes: 0 has no e8m0 code, so NaN", CODE(zero_is_nan)},
    {"infinity-is-nan", E8M0, "torchao's 0xFF for infinity where 0xFE is promised", CODE(infinity_is_nan)},
    {"ignores-subnormals", E8M0, "microsoft/onnxruntime#28435: subnormals give code 0", CODE(ignores_subnormal)},
    {"rounds-to-nearest", E8M0, "PyTorch's cast to e8m0 (nearest) where up is promised", .runs = "cast/fp32->e8m0/cpu/rne-sat"},
    {"ignores-sign", "cast/fp32->ue4m3/cpu/rne-sat", "negative scales by their magnitude, as for e8m0", CODE(sign_ignored)},
    {"fnuz-bias", E4M3, "e4m3fnuz codes (bias 8) read as e4m3fn: values off by two", CODE(fnuz_bias)},
    {"lost-carry", E4M3, "ROCm/llvm-project#3275: the carry into the exponent is lost", CODE(lost_carry)},
    {"one-ulp-early", E4M3, "thresholds one fp32 ulp too low", CODE(adds_half)},
    {"one-in-16-million", "cast/bf16->e4m3/cpu/rne-sat", "a race that hits one element of 4096 x 4096", .outputs = ng_one_in_16_million},
    {"last-row", "cast/bf16->e5m2/cpu/rne-sat", "NVIDIA/apex#411: rows beyond a grid's 65535", .outputs = ng_last_row_wrong},
    {"tail-unwritten", "cast/fp16->e4m3/cpu/rne-sat", "vectorised by 16, the remainder forgotten", .outputs = ng_tail_unwritten},
    {"corner-unwritten", "cast/fp16->e5m2/cpu/rne-sat", "a bound of < count - 1", .outputs = ng_corner_unwritten},
    {"flips-a-bit", "cast/fp16->e2m1/cpu/rne-sat", "DeepGEMM#365: other bits in some launches", .outputs = ng_flips_a_bit},
    {"writes-behind", "cast/fp16->e2m3/cpu/rne-sat", "a store of 16 where fewer are left", .outputs = ng_writes_behind},
    {"unwritten", "cast/fp16->e3m2/cpu/rne-sat", "a launch that fails without a word", .outputs = ng_unwritten},
};

const ng_fault_list ng_cast_faults = {faults, sizeof faults / sizeof *faults};
