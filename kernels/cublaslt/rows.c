/* cuBLASLt's modes, one row each. Contracts: anything not said here is of reference/predict.h's model; what was measured,
 * and which combinations were not predicted, is in the README. Blackwell's block-scaled modes are compiled everywhere; where
 * the library refuses them, its reason stands in the record. */
#include "kernels/catalogue.h"
#include "kernels/common/forms.h"
#include "kernels/contracts.h"
#include "kernels/cublaslt/cublaslt.h"

#include <cublasLt.h>

#define SCALAR CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
#define OUTER CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
#define LINE CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
#define SQUARE CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
#define MX32 CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0
#define NV16 CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3

/* One state for each mode that a row names. */
static const ng_cublaslt_mode mode_fp32 = {CUBLAS_COMPUTE_32F, -1, -1, false, false},
    mode_tf32 = {CUBLAS_COMPUTE_32F_FAST_TF32, -1, -1, false, false}, mode_pedantic = {CUBLAS_COMPUTE_32F_PEDANTIC, -1, -1, false, false},
    mode_tensor = {CUBLAS_COMPUTE_32F, SCALAR, SCALAR, false, false}, mode_tensor_fast = {CUBLAS_COMPUTE_32F, SCALAR, SCALAR, true, false},
    mode_row = {CUBLAS_COMPUTE_32F, OUTER, OUTER, false, false}, mode_row_fast = {CUBLAS_COMPUTE_32F, OUTER, OUTER, true, false},
    mode_square = {CUBLAS_COMPUTE_32F, LINE, SQUARE, false, false}, mode_line = {CUBLAS_COMPUTE_32F, LINE, LINE, false, false},
    mode_mx = {CUBLAS_COMPUTE_32F, MX32, MX32, false, false}, mode_nv = {CUBLAS_COMPUTE_32F, NV16, NV16, false, false},
    mode_dequantized = {CUBLAS_COMPUTE_32F, -1, -1, false, true};

/* How operands are quantized, and how their scales lie. */
#define Q(e, scale, rows, columns, rule, layout) \
    {e, scale, {rows, columns}, rule, (scale) == NG_UE4M3, NG_4OVER6_OFF, NG_ELEMENT_CAST(e, NG_RN_EVEN, NG_SR_CARRY, 0), layout}
#define Q_PLAIN(e) {.element = e, .scale = NG_NO_FORMAT}
#define Q_TENSOR(e) Q(e, NG_FP32, 0, 0, NG_SCALE_MAX_OVER_AMAX, NG_LAYOUT_PLAIN)
#define Q_ROW(e) Q(e, NG_FP32, 1, 0, NG_SCALE_MAX_OVER_AMAX, NG_LAYOUT_TRANSPOSED)
#define Q_LINE(e) Q(e, NG_FP32, 1, 128, NG_SCALE_AMAX_OVER_MAX, NG_LAYOUT_TRANSPOSED)
#define Q_SQUARE(e) Q(e, NG_FP32, 128, 128, NG_SCALE_AMAX_OVER_MAX, NG_LAYOUT_PADDED)
#define Q_MX(e) Q(e, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_LAYOUT_SWIZZLED)
#define Q_NV(e) Q(e, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE, NG_LAYOUT_SWIZZLED)
#define Q_MX_PLAIN(e) Q(e, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_LAYOUT_PLAIN)
#define Q_NV_PLAIN(e) Q(e, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE, NG_LAYOUT_PLAIN)

/* Sums: function-like, so that they are expanded last. Steps between promotions: 4, or none with fast accumulation. */
#define SUM_BF16() {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_BF16, .split_tile = 64}
#define SUM_FP16() {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_FP16, .split_tile = 64}
#define SUM_TF32() {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_TF32, .split_tile = 16}
#define SUM_FP8(promotion, place) \
    {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_FP8, .promote_every = promotion, .scales = place, .split_tile = 128, .scales_swapped = true}
#define SUM_PROMOTED() SUM_FP8(4, NG_SCALES_AFTER_AT_ONCE)
#define SUM_FAST() SUM_FP8(0, NG_SCALES_AFTER_AT_ONCE)
#define SUM_ROW_PROMOTED() SUM_FP8(4, NG_SCALES_AFTER)
#define SUM_ROW_FAST() SUM_FP8(0, NG_SCALES_AFTER)
#define SUM_SQUARE() SUM_FP8(4, NG_SCALES_BLOCK_FMA_PRODUCT)
#define SUM_LINE() SUM_FP8(4, NG_SCALES_BLOCK_FMA_SECOND)
#define SUM_BF16_OF_BLOCKS() {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_BF16, .scales = NG_SCALES_DEQUANTIZED, .split_tile = 64}
#define SUM_MX() {.order = NG_SUM_MMA, .mma = NG_STEP_BLACKWELL_MXF8F6F4, .scales = NG_SCALES_IN_MMA}
#define SUM_NV() {.order = NG_SUM_MMA, .mma = NG_STEP_BLACKWELL_NVF4, .scales = NG_SCALES_IN_MMA}
#define SUM_ANY() {.order = NG_SUM_ANY}

#define ROW(form, variant, out_name, suffix, in_a, in_b_, out_, qa, qb, accumulation, mode, ...)                         \
    {.name = "gemm/" form "/cublaslt/" variant out_name "-out" suffix, .op = NG_OP_GEMM, .backend = NG_BACKEND_CUDA,     \
     .in = in_a, .in_b = in_b_, .out = out_,                                                                             \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .a = qa(in_a), .b = qb(in_b_),          \
                  .sum = accumulation(), .determinism = NG_DETERMINISTIC, __VA_ARGS__},                                    \
     .supports = ng_cublaslt_supports, .workspace = ng_cublaslt_workspace, .launch = ng_cublaslt_launch,                 \
     .variants = ng_cublaslt_variants, .describe = ng_cublaslt_describe, .state = &mode}

/* 16-bit formats: in every place of a training step. */
#define PLAIN_16(name, f, accumulation)                                                                                            \
    ROW(name, "", name, "", f, f, f, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .accumulate_into = false),               \
        ROW(name, "", "fp32", "", f, f, NG_FP32, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .accumulate_into = false),   \
        ROW(name, "", "fp32", "-acc", f, f, NG_FP32, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .accumulate_into = true), \
        ROW(name, "", name, "-bias", f, f, f, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .bias = true),                  \
        ROW(name, "nn/", name, "", f, f, f, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .b_transposed = true),            \
        ROW(name, "nt/", name, "", f, f, f, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .a_transposed = true, .b_transposed = true), \
        ROW(name, "nt/", "fp32", "-acc", f, f, NG_FP32, Q_PLAIN, Q_PLAIN, accumulation, mode_fp32, .a_transposed = true,  \
            .b_transposed = true, .accumulate_into = true)

#define PAIR_OUT(form, variant, a, b, qa, qb, accumulation, mode)                                                          \
    ROW(form, variant, "bf16", "", a, b, NG_BF16, qa, qb, accumulation, mode, .bias = false),                              \
        ROW(form, variant, "fp32", "", a, b, NG_FP32, qa, qb, accumulation, mode, .bias = false)

/* One scale a tensor. */
#define TENSOR_SCALED(form, variant, a, b, accumulation, mode)                                                                \
    PAIR_OUT(form, variant, a, b, Q_TENSOR, Q_TENSOR, accumulation, mode),                        \
        ROW(form, variant, "fp16", "", a, b, NG_FP16, Q_TENSOR, Q_TENSOR, accumulation, mode, .bias = false), \
        ROW(form, variant, "bf16", "-bias", a, b, NG_BF16, Q_TENSOR, Q_TENSOR, accumulation, mode, .bias = true), \
        ROW(form, variant, "fp32", "-acc", a, b, NG_FP32, Q_TENSOR, Q_TENSOR, accumulation, mode, .accumulate_into = true)

static const ng_kernel gemms[] = {
    PLAIN_16("bf16", NG_BF16, SUM_BF16),
    PLAIN_16("fp16", NG_FP16, SUM_FP16),
    ROW("tf32", "", "fp32", "", NG_TF32, NG_TF32, NG_FP32, Q_PLAIN, Q_PLAIN, SUM_TF32, mode_tf32, .bias = false),
    ROW("fp32", "", "fp32", "", NG_FP32, NG_FP32, NG_FP32, Q_PLAIN, Q_PLAIN, SUM_ANY, mode_pedantic, .bias = false),
    TENSOR_SCALED("e4m3", "promoted/", NG_E4M3, NG_E4M3, SUM_PROMOTED, mode_tensor),
    TENSOR_SCALED("e4m3", "fast-accum/", NG_E4M3, NG_E4M3, SUM_FAST, mode_tensor_fast),
    TENSOR_SCALED("e5m2-e4m3", "promoted/", NG_E5M2, NG_E4M3, SUM_PROMOTED, mode_tensor),
    TENSOR_SCALED("e5m2-e4m3", "fast-accum/", NG_E5M2, NG_E4M3, SUM_FAST, mode_tensor_fast),
    TENSOR_SCALED("e4m3-e5m2", "promoted/", NG_E4M3, NG_E5M2, SUM_PROMOTED, mode_tensor),
    TENSOR_SCALED("e4m3-e5m2", "fast-accum/", NG_E4M3, NG_E5M2, SUM_FAST, mode_tensor_fast),
    PAIR_OUT("e5m2", "promoted/", NG_E5M2, NG_E5M2, Q_TENSOR, Q_TENSOR, SUM_PROMOTED, mode_tensor),
    PAIR_OUT("e4m3-row", "promoted/", NG_E4M3, NG_E4M3, Q_ROW, Q_ROW, SUM_ROW_PROMOTED, mode_row),
    PAIR_OUT("e4m3-row", "fast-accum/", NG_E4M3, NG_E4M3, Q_ROW, Q_ROW, SUM_ROW_FAST, mode_row_fast),
    PAIR_OUT("e4m3-128", "", NG_E4M3, NG_E4M3, Q_LINE, Q_SQUARE, SUM_SQUARE, mode_square),
    PAIR_OUT("e4m3-1x128", "", NG_E4M3, NG_E4M3, Q_LINE, Q_LINE, SUM_LINE, mode_line),
    PAIR_OUT("mxfp8", "", NG_E4M3, NG_E4M3, Q_MX, Q_MX, SUM_MX, mode_mx),
    PAIR_OUT("nvfp4", "", NG_E2M1, NG_E2M1, Q_NV, Q_NV, SUM_NV, mode_nv),
    PAIR_OUT("mxfp8", "dequantized/", NG_E4M3, NG_E4M3, Q_MX_PLAIN, Q_MX_PLAIN, SUM_BF16_OF_BLOCKS, mode_dequantized),
    PAIR_OUT("nvfp4", "dequantized/", NG_E2M1, NG_E2M1, Q_NV_PLAIN, Q_NV_PLAIN, SUM_BF16_OF_BLOCKS, mode_dequantized),
};

const ng_kernel_list ng_cublaslt_gemms = {gemms, sizeof gemms / sizeof *gemms};
