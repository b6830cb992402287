/* The emulated tensor cores as kernels: what each recipe's products give on a Hopper, Ada, Ampere, Volta or Blackwell GPU.
 * Names: gemm/<form>/cpu/<model>/<result>-out; the steps of the models are in kernels/contracts.h. */
#include "kernels/common/forms.h"
#include "mma_gemm.h"

#include "kernels/catalogue.h"
#include "kernels/contracts.h"

/* How operands are quantized, of an element format. */
#define QUANTIZED_PLAIN(format) {.element = (format), .scale = NG_NO_FORMAT, .rule = NG_SCALE_ABSENT}
#define QUANTIZED_FP8(element, rows, columns) \
    NG_QUANTIZATION(element, NG_FP32, rows, columns, NG_SCALE_MAX_OVER_AMAX, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0)
#define QUANTIZED_TENSOR(element) QUANTIZED_FP8(element, 0, 0)
#define QUANTIZED_ROW(element) QUANTIZED_FP8(element, 1, 0)
#define QUANTIZED_1X128(element) QUANTIZED_FP8(element, 1, 128)
#define QUANTIZED_128X128(element) QUANTIZED_FP8(element, 128, 128)
#define QUANTIZED_MX(element) \
    NG_QUANTIZATION(element, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0)
#define QUANTIZED_NV(element) \
    NG_QUANTIZATION(element, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_PAPER, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0)

/* One kernel: formats and quantizations of A and B, NG_STEP_..., steps between promotions, place of scales, parts of K. */
#define GEMM(form, model, result, RESULT, A, QA, B, QB, STEP, promotion, place, parts)                                 \
    {.name = "gemm/" form "/cpu/" model "/" result "-out", .op = NG_OP_GEMM, .backend = NG_BACKEND_CPU,               \
     .in = NG_##A, .in_b = NG_##B, .out = NG_##RESULT,                                                                \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL},                                      \
                  .a = QUANTIZED_##QA(NG_##A), .b = QUANTIZED_##QB(NG_##B),                                           \
                  .sum = {.order = NG_SUM_MMA, .mma = NG_STEP_##STEP, .promote_every = promotion,                     \
                          .scales = NG_SCALES_##place, .split_k = parts, .split_tile = (parts) ? 64 : 0},             \
                  .determinism = NG_DETERMINISTIC},                                                                   \
     .supports = ng_mma_supports, .launch = ng_mma_launch},

#define BOTH(form, model, A, QA, B, QB, STEP, promotion, place, parts)                     \
    GEMM(form, model, "fp32", FP32, A, QA, B, QB, STEP, promotion, place, parts)           \
    GEMM(form, model, "bf16", BF16, A, QA, B, QB, STEP, promotion, place, parts)

/* fp8 with one scale a tensor: the sum is scaled once, at the end */
#define FP8_MODELS(form, A, B)                                                                      \
    BOTH(form, "hopper-fast", A, TENSOR, B, TENSOR, HOPPER_FP8, 0, AFTER, 0)                        \
    BOTH(form, "hopper-promoted", A, TENSOR, B, TENSOR, HOPPER_FP8, 4, AFTER, 0)                    \
    BOTH(form, "hopper-mma-sync", A, TENSOR, B, TENSOR, HOPPER_MMA_SYNC_FP8, 0, AFTER, 0)           \
    BOTH(form, "ada", A, TENSOR, B, TENSOR, ADA_FP8, 0, AFTER, 0)                                   \
    BOTH(form, "blackwell", A, TENSOR, B, TENSOR, BLACKWELL_FP8, 0, AFTER, 0)

#define BF16_MODEL(model, STEP, parts) BOTH("bf16", model, BF16, PLAIN, BF16, PLAIN, STEP, 0, NONE, parts)
#define TF32_MODEL(model, STEP) BOTH("tf32", model, TF32, PLAIN, TF32, PLAIN, STEP, 0, NONE, 0)
#define FP16_MODEL(model, STEP)                                                     \
    GEMM("fp16", model, "fp32", FP32, FP16, PLAIN, FP16, PLAIN, STEP, 0, NONE, 0)   \
    GEMM("fp16", model, "fp16", FP16, FP16, PLAIN, FP16, PLAIN, STEP, 0, NONE, 0)
#define BLACKWELL_SCALED(form, ELEMENT, Q, STEP) BOTH(form, "blackwell", ELEMENT, Q, ELEMENT, Q, STEP, 0, IN_MMA, 0)

static const ng_kernel kernels[] = {
    FP8_MODELS("e4m3", E4M3, E4M3)
    FP8_MODELS("e5m2", E5M2, E5M2)
    FP8_MODELS("fp8-hybrid", E5M2, E4M3) /* dgrad: gradients in e5m2, weights in e4m3 */

    BOTH("e4m3-row", "hopper-fast", E4M3, ROW, E4M3, ROW, HOPPER_FP8, 0, AFTER, 0)
    BOTH("e4m3-row", "hopper", E4M3, ROW, E4M3, ROW, HOPPER_FP8, 4, AFTER, 0)
    BOTH("e4m3-128", "hopper", E4M3, 1X128, E4M3, 128X128, HOPPER_FP8, 4, BLOCK_FMA_PRODUCT, 0)
    BOTH("e4m3-1x128", "hopper", E4M3, 1X128, E4M3, 1X128, HOPPER_FP8, 4, BLOCK_FMA_SECOND, 0)

    BF16_MODEL("hopper", HOPPER_BF16, 0)
    BF16_MODEL("hopper-split2", HOPPER_BF16, 2)
    BF16_MODEL("hopper-split4", HOPPER_BF16, 4)
    BF16_MODEL("ampere", AMPERE_BF16, 0)
    BF16_MODEL("ada", ADA_BF16, 0)
    BF16_MODEL("blackwell", BLACKWELL_BF16, 0)
    FP16_MODEL("hopper", HOPPER_FP16)
    FP16_MODEL("ampere", AMPERE_FP16)
    FP16_MODEL("ada", ADA_FP16)
    FP16_MODEL("volta", VOLTA_FP16)
    FP16_MODEL("blackwell", BLACKWELL_FP16)
    TF32_MODEL("hopper", HOPPER_TF32)
    TF32_MODEL("ampere", AMPERE_TF32)
    TF32_MODEL("ada", ADA_TF32)
    TF32_MODEL("blackwell", BLACKWELL_TF32)

    BLACKWELL_SCALED("mxfp8", E4M3, MX, BLACKWELL_MXF8F6F4)
    BLACKWELL_SCALED("mxfp8-e5m2", E5M2, MX, BLACKWELL_MXF8F6F4)
    BLACKWELL_SCALED("mxfp6-e3m2", E3M2, MX, BLACKWELL_MXF8F6F4)
    BLACKWELL_SCALED("mxfp6-e2m3", E2M3, MX, BLACKWELL_MXF8F6F4)
    BLACKWELL_SCALED("mxfp4", E2M1, MX, BLACKWELL_MXF4)
    BLACKWELL_SCALED("nvfp4", E2M1, NV, BLACKWELL_NVF4)
};

const ng_kernel_list ng_cpu_mma_gemms = {kernels, sizeof kernels / sizeof *kernels};
