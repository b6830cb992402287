/* The CUDA kernels' descriptors, from the rows that the CPU's are made from. */
#include "kernels/catalogue.h"
#include "kernels/common/rows.h"
#include "kernels/contracts.h"
#include "kernels/cuda/cuda.h"

#define CAST(in_name, in_format, out_name, out_format, mode, how, form, r, sat, does, nan_rule, repeatable)    \
    {.name = "cast/" in_name "->" out_name "/cuda/" mode "-" sat, .op = NG_OP_CAST, .backend = NG_BACKEND_CUDA, \
     .in = in_format, .in_b = NG_NO_FORMAT, .out = out_format,                                                 \
     .contract = {.cast = {how, form, r, does, nan_rule}, .determinism = repeatable},                          \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_cast}

static const ng_kernel casts[] = {NG_CAST_ROWS(CAST)};

#define NG_QUANTIZE_ROW(in_name, in_format, form, variant, element, scale, rows, columns, rule, over, how, sr, r, repeatable) \
    {.name = "quantize/" in_name "->" form "/cuda/" variant, .op = NG_OP_QUANTIZE, .backend = NG_BACKEND_CUDA,               \
     .in = in_format, .in_b = NG_NO_FORMAT, .out = element,                                                                  \
     .contract = {.cast = NG_ELEMENT_CAST(element, how, sr, r),                                                              \
                  .quantization = NG_QUANTIZATION(element, scale, rows, columns, rule, over, how, sr, r),                    \
                  .determinism = repeatable},                                                                                \
     .supports = ng_cuda_supports, .workspace = ng_cuda_quantize_workspace, .launch = ng_cuda_launch_quantize},

/* With scales as cuBLASLt's block-scaled modes want them. */
#define NG_QUANTIZE_LAID_OUT(form, variant, element, scale, rows, columns, rule, layout_)                                    \
    {.name = "quantize/bf16->" form "/cuda/" variant, .op = NG_OP_QUANTIZE, .backend = NG_BACKEND_CUDA,                      \
     .in = NG_BF16, .in_b = NG_NO_FORMAT, .out = element,                                                                    \
     .contract = {.cast = NG_ELEMENT_CAST(element, NG_RN_EVEN, NG_SR_CARRY, 0),                                              \
                  .quantization = {element, scale, {rows, columns}, rule, (scale) == NG_UE4M3, NG_4OVER6_OFF,                \
                                   NG_ELEMENT_CAST(element, NG_RN_EVEN, NG_SR_CARRY, 0), layout_},                           \
                  .determinism = NG_DETERMINISTIC},                                                                          \
     .supports = ng_cuda_supports, .workspace = ng_cuda_quantize_workspace, .launch = ng_cuda_launch_quantize},

static const ng_kernel quantizers[] = {
    NG_QUANTIZE_ROWS
    NG_QUANTIZE_LAID_OUT("e4m3-row", "max-over-amax-transposed", NG_E4M3, NG_FP32, 1, 0, NG_SCALE_MAX_OVER_AMAX, NG_LAYOUT_TRANSPOSED)
    NG_QUANTIZE_LAID_OUT("e4m3-1x128", "amax-over-max-transposed", NG_E4M3, NG_FP32, 1, 128, NG_SCALE_AMAX_OVER_MAX, NG_LAYOUT_TRANSPOSED)
    NG_QUANTIZE_LAID_OUT("e4m3-128x128", "amax-over-max-padded", NG_E4M3, NG_FP32, 128, 128, NG_SCALE_AMAX_OVER_MAX, NG_LAYOUT_PADDED)
    NG_QUANTIZE_LAID_OUT("mxfp8", "round-up-swizzled", NG_E4M3, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_LAYOUT_SWIZZLED)
    NG_QUANTIZE_LAID_OUT("nvfp4", "te-swizzled", NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE, NG_LAYOUT_SWIZZLED)
};

#define DEQUANTIZE(form, element, scale, rows, columns, rule, out_name, out_format)                               \
    {.name = "dequantize/" form "->" out_name "/cuda/rne", .op = NG_OP_DEQUANTIZE, .backend = NG_BACKEND_CUDA,    \
     .in = element, .in_b = NG_NO_FORMAT, .out = out_format,                                                      \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL},                                  \
                  .quantization = NG_QUANTIZATION(element, scale, rows, columns, rule, NG_4OVER6_OFF, NG_RN_EVEN, \
                                                  NG_SR_CARRY, 0),                                                \
                  .determinism = NG_DETERMINISTIC},                                                               \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_dequantize}

static const ng_kernel dequantizers[] = {NG_DEQUANTIZE_ROWS(DEQUANTIZE)};

#define NG_GEMM_CHAIN(form, out_name, suffix, in_a, in_b_, out_, qa, qb, place, fused_, into)                           \
    {.name = "gemm/" form "/cuda/fp32-chain/" out_name "-out" suffix, .op = NG_OP_GEMM, .backend = NG_BACKEND_CUDA,     \
     .in = in_a, .in_b = in_b_, .out = out_,                                                                            \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .a = qa(in_a), .b = qb(in_b_),         \
                  .sum = {.order = NG_SUM_CHAIN, .scales = place, .fused = fused_},                                     \
                  .accumulate_into = into, .determinism = NG_DETERMINISTIC},                                            \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_gemm},
#define NG_GEMM_PAIRWISE(...)

/* NVFP4 with few rows: eight parts of whole chunks of 128. */
#define NV_PLAIN NG_QUANTIZATION(NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0)
#define SMALL(out_name, out_)                                                                                           \
    {.name = "gemm/nvfp4/cuda/few-rows/" out_name "-out", .op = NG_OP_GEMM, .backend = NG_BACKEND_CUDA,                 \
     .in = NG_E2M1, .in_b = NG_E2M1, .out = out_,                                                                       \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .a = NV_PLAIN, .b = NV_PLAIN,          \
                  .sum = {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_BF16, .scales = NG_SCALES_DEQUANTIZED,             \
                          .split_k = 8, .split_tile = 128, .k_order = NG_K_QUADS},                                                             \
                  .determinism = NG_DETERMINISTIC},                                                                     \
     .supports = ng_cuda_few_rows_supports, .launch = ng_cuda_launch_few_rows}

static const ng_kernel gemms[] = {NG_GEMM_ROWS SMALL("bf16", NG_BF16), SMALL("fp32", NG_FP32)};

const ng_kernel_list ng_cuda_casts = {casts, sizeof casts / sizeof *casts};
const ng_kernel_list ng_cuda_quantizers = {quantizers, sizeof quantizers / sizeof *quantizers};
const ng_kernel_list ng_cuda_dequantizers = {dequantizers, sizeof dequantizers / sizeof *dequantizers};
const ng_kernel_list ng_cuda_gemms = {gemms, sizeof gemms / sizeof *gemms};
