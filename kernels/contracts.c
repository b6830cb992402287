#include "contracts.h"

#include <string.h>

/* Widths, groups and the floor of the exponent: MMA-Sim (arXiv:2511.10909) and Khattak and Mikaitis (arXiv:2510.15884,
 * arXiv:2512.07004), checked against the hardware vectors that the latter publish for V100, A100, Ada, H100, H200, B200.
 * Order of K, promotion, scales and split of K: cuBLASLt 13.1 measured on an H200. */

#define MODEL "arXiv:2511.10909, arXiv:2512.07004"
#define SCALED_MODEL "arXiv:2511.10909"
#define FORMATS(...) {__VA_ARGS__, NG_NO_FORMAT}
#define ONE(format) FORMATS(format)
#define FP8 FORMATS(NG_E4M3, NG_E5M2)
#define F8F6F4 FORMATS(NG_E4M3, NG_E5M2, NG_E3M2, NG_E2M3, NG_E2M1)

/* One instruction, chained along K. */
#define STEP(name, formats, step) {name, formats, {.order = NG_SUM_MMA, .mma = step}, MODEL}
#define SCALED(name, formats, step) {name, formats, {.order = NG_SUM_MMA, .scales = NG_SCALES_IN_MMA, .mma = step}, SCALED_MODEL}

/* A whole product of cuBLASLt: steps between promotions, place of the scales, K elements in a tile where K is split. */
#define PRODUCT(name, formats, step, promotion, place, tile, settings)                                         \
    {name, formats,                                                                                            \
     {.order = NG_SUM_MMA, .mma = step, .promote_every = (promotion), .scales = (place), .split_tile = (tile)}, \
     "cuBLASLt 13.1 measured on an H200" settings}

const ng_named_contract ng_named_contracts[] = {
    STEP("hopper-wgmma-fp8", FP8, NG_STEP_HOPPER_FP8),
    STEP("hopper-fp16", ONE(NG_FP16), NG_STEP_HOPPER_FP16),
    STEP("hopper-bf16", ONE(NG_BF16), NG_STEP_HOPPER_BF16),
    STEP("hopper-tf32", ONE(NG_TF32), NG_STEP_HOPPER_TF32),
    {"hopper-mma-sync-fp8", FP8, {.order = NG_SUM_MMA, .mma = NG_STEP_HOPPER_MMA_SYNC_FP8},
     "NVIDIA/cutlass issue 1986: two fp16 steps in place of one"},
    STEP("ada-fp8", FP8, NG_STEP_ADA_FP8),
    STEP("ada-fp16", ONE(NG_FP16), NG_STEP_ADA_FP16),
    STEP("ada-bf16", ONE(NG_BF16), NG_STEP_ADA_BF16),
    STEP("ada-tf32", ONE(NG_TF32), NG_STEP_ADA_TF32),
    STEP("ampere-fp16", ONE(NG_FP16), NG_STEP_AMPERE_FP16),
    STEP("ampere-bf16", ONE(NG_BF16), NG_STEP_AMPERE_BF16),
    STEP("ampere-tf32", ONE(NG_TF32), NG_STEP_AMPERE_TF32),
    STEP("volta-fp16", ONE(NG_FP16), NG_STEP_VOLTA_FP16),
    STEP("blackwell-fp8", F8F6F4, NG_STEP_BLACKWELL_FP8),
    STEP("blackwell-fp16", ONE(NG_FP16), NG_STEP_BLACKWELL_FP16),
    STEP("blackwell-bf16", ONE(NG_BF16), NG_STEP_BLACKWELL_BF16),
    STEP("blackwell-tf32", ONE(NG_TF32), NG_STEP_BLACKWELL_TF32),
    SCALED("blackwell-mxf8f6f4", F8F6F4, NG_STEP_BLACKWELL_MXF8F6F4),
    SCALED("blackwell-mxf4nvf4", ONE(NG_E2M1), NG_STEP_BLACKWELL_NVF4),
    SCALED("blackwell-mxf4nvf4-mxf4", ONE(NG_E2M1), NG_STEP_BLACKWELL_MXF4), /* e8m0 scales, one for 32 elements */

    PRODUCT("cublaslt-hopper-fp8-fast", FP8, NG_STEP_HOPPER_FP8, 0, NG_SCALES_AFTER, 64, ": FAST_ACCUM=1"),
    PRODUCT("cublaslt-hopper-fp8-promoted", FP8, NG_STEP_HOPPER_FP8, 4, NG_SCALES_AFTER, 64, ": FAST_ACCUM=0"),
    PRODUCT("cublaslt-hopper-fp8-outer-vector-fast", FP8, NG_STEP_HOPPER_FP8, 0, NG_SCALES_AFTER, 64,
            ": OUTER_VEC_32F, FAST_ACCUM=1"),
    PRODUCT("cublaslt-hopper-fp8-outer-vector", FP8, NG_STEP_HOPPER_FP8, 4, NG_SCALES_AFTER, 64,
            ": OUTER_VEC_32F, FAST_ACCUM=0"),
    PRODUCT("cublaslt-hopper-fp8-1x128-128x128", FP8, NG_STEP_HOPPER_FP8, 4, NG_SCALES_BLOCK_FMA_PRODUCT, 0,
            ": VEC128_32F by BLK128x128_32F, either way round"),
    PRODUCT("cublaslt-hopper-fp8-1x128-1x128", FP8, NG_STEP_HOPPER_FP8, 4, NG_SCALES_BLOCK_FMA_SECOND, 0,
            ": VEC128_32F by VEC128_32F"),
    PRODUCT("cublaslt-hopper-fp16", ONE(NG_FP16), NG_STEP_HOPPER_FP16, 0, NG_SCALES_NONE, 64, ""),
    PRODUCT("cublaslt-hopper-bf16", ONE(NG_BF16), NG_STEP_HOPPER_BF16, 0, NG_SCALES_NONE, 64, ""),
    PRODUCT("cublaslt-hopper-tf32", ONE(NG_TF32), NG_STEP_HOPPER_TF32, 0, NG_SCALES_NONE, 16, ""),
};

const size_t ng_named_contract_count = sizeof ng_named_contracts / sizeof *ng_named_contracts;

const ng_named_contract *ng_contract_by_name(const char *name) {
    for (size_t i = 0; i < ng_named_contract_count; i++)
        if (!strcmp(ng_named_contracts[i].name, name)) return &ng_named_contracts[i];
    return NULL;
}
