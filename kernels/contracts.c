#include "contracts.h"

#include <string.h>

/* Widths, groups and the floor of the exponent: MMA-Sim (arXiv:2511.10909) and Khattak and Mikaitis (arXiv:2510.15884,
 * arXiv:2512.07004), checked against the hardware vectors that the latter publish for V100, A100, Ada, H100, H200, B200.
 * Order of K, promotion, scales and split of K: cuBLASLt 13.1 measured on an H200. */

#define MODEL "arXiv:2511.10909, arXiv:2512.07004"
#define SCALED_MODEL "arXiv:2511.10909"
#define FP8 {NG_E4M3, NG_E5M2, NG_NO_FORMAT}
#define F8F6F4 {NG_E4M3, NG_E5M2, NG_E3M2, NG_E2M3, NG_E2M1, NG_NO_FORMAT}
#define ONE(format) {format, NG_NO_FORMAT}

/* One step:  name of the MMA, k, group, fraction bits, output bits. */
#define STEP(label, K, G, F, P)                                                                                         \
    .order = NG_SUM_MMA,                                                                                               \
    .mma = {.name = label, .k = (K), .group = (G), .fraction_bits = (F), .output_bits = (P), .min_exponent = -133}

#define HOPPER_FP8 STEP("hopper-wgmma-fp8", 32, 32, 13, 13)

const ng_named_contract ng_named_contracts[] = {
    /* single tensor-core steps, chained along K */
    {"hopper-wgmma-fp8", FP8, {HOPPER_FP8}, MODEL},
    {"hopper-fp16", ONE(NG_FP16), {STEP("hopper-fp16", 16, 16, 25, 23)}, MODEL},
    {"hopper-bf16", ONE(NG_BF16), {STEP("hopper-bf16", 16, 16, 25, 23)}, MODEL},
    {"hopper-tf32", ONE(NG_TF32), {STEP("hopper-tf32", 8, 8, 25, 23)}, MODEL},
    {"hopper-mma-sync-fp8",
     FP8,
     {.order = NG_SUM_MMA,
      .mma = {.name = "hopper-mma-sync-fp8", .k = 32, .group = 16, .interleave = 2, .fraction_bits = 25,
              .output_bits = 23, .min_exponent = -133}},
     "NVIDIA/cutlass issue 1986: two fp16 steps in place of one"},
    {"ada-fp8", FP8, {STEP("ada-fp8", 32, 16, 13, 13)}, MODEL},
    {"ada-fp16", ONE(NG_FP16), {STEP("ada-fp16", 16, 8, 24, 23)}, MODEL},
    {"ada-bf16", ONE(NG_BF16), {STEP("ada-bf16", 16, 8, 24, 23)}, MODEL},
    {"ada-tf32", ONE(NG_TF32), {STEP("ada-tf32", 8, 4, 24, 23)}, MODEL},
    {"ampere-fp16", ONE(NG_FP16), {STEP("ampere-fp16", 16, 8, 24, 23)}, MODEL},
    {"ampere-bf16", ONE(NG_BF16), {STEP("ampere-bf16", 16, 8, 24, 23)}, MODEL},
    {"ampere-tf32", ONE(NG_TF32), {STEP("ampere-tf32", 8, 4, 24, 23)}, MODEL},
    {"volta-fp16", ONE(NG_FP16), {STEP("volta-fp16", 4, 4, 23, 23)}, MODEL},
    {"blackwell-fp8", F8F6F4, {STEP("blackwell-fp8", 32, 32, 25, 23)}, MODEL},
    {"blackwell-fp16", ONE(NG_FP16), {STEP("blackwell-fp16", 16, 16, 25, 23)}, MODEL},
    {"blackwell-bf16", ONE(NG_BF16), {STEP("blackwell-bf16", 16, 16, 25, 23)}, MODEL},
    {"blackwell-tf32", ONE(NG_TF32), {STEP("blackwell-tf32", 8, 8, 25, 23)}, MODEL},
    {"blackwell-mxf8f6f4",
     F8F6F4,
     {.order = NG_SUM_MMA,
      .scales = NG_SCALES_IN_MMA,
      .mma = {.name = "blackwell-mxf8f6f4", .k = 32, .group = 32, .fraction_bits = 25, .output_bits = 23,
              .min_exponent = -126, .scales_inside = true, .scale_block = 32}},
     SCALED_MODEL},
    {"blackwell-mxf4nvf4",
     ONE(NG_E2M1),
     {.order = NG_SUM_MMA,
      .scales = NG_SCALES_IN_MMA,
      .mma = {.name = "blackwell-mxf4nvf4", .k = 64, .group = 64, .fraction_bits = 35, .output_bits = 23,
              .min_exponent = -126, .dot = 16, .scales_inside = true, .scale_block = 16}},
     SCALED_MODEL},
    {"blackwell-mxf4nvf4-mxf4", /* the same unit with e8m0 scales, one for 32 elements */
     ONE(NG_E2M1),
     {.order = NG_SUM_MMA,
      .scales = NG_SCALES_IN_MMA,
      .mma = {.name = "blackwell-mxf4nvf4-mxf4", .k = 64, .group = 64, .fraction_bits = 35, .output_bits = 23,
              .min_exponent = -126, .dot = 16, .scales_inside = true, .scale_block = 32}},
     SCALED_MODEL},

    /* whole products of cuBLASLt on Hopper; kernels that split K set split_k */
    {"cublaslt-hopper-fp8-fast", FP8, {HOPPER_FP8, .scales = NG_SCALES_AFTER, .split_tile = 64},
     "cuBLASLt 13.1 measured on an H200: FAST_ACCUM=1"},
    {"cublaslt-hopper-fp8-promoted", FP8, {HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_AFTER, .split_tile = 64},
     "cuBLASLt 13.1 measured on an H200: FAST_ACCUM=0"},
    {"cublaslt-hopper-fp8-outer-vector-fast", FP8, {HOPPER_FP8, .scales = NG_SCALES_AFTER, .split_tile = 64},
     "cuBLASLt 13.1 measured on an H200: OUTER_VEC_32F, FAST_ACCUM=1"},
    {"cublaslt-hopper-fp8-outer-vector", FP8,
     {HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_AFTER, .split_tile = 64},
     "cuBLASLt 13.1 measured on an H200: OUTER_VEC_32F, FAST_ACCUM=0"},
    {"cublaslt-hopper-fp8-1x128-128x128", FP8, {HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_PRODUCT},
     "cuBLASLt 13.1 measured on an H200: VEC128_32F by BLK128x128_32F, either way round"},
    {"cublaslt-hopper-fp8-1x128-1x128", FP8, {HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_SECOND},
     "cuBLASLt 13.1 measured on an H200: VEC128_32F by VEC128_32F"},
    {"cublaslt-hopper-fp16", ONE(NG_FP16), {STEP("hopper-fp16", 16, 16, 25, 23), .split_tile = 64},
     "cuBLASLt 13.1 measured on an H200"},
    {"cublaslt-hopper-bf16", ONE(NG_BF16), {STEP("hopper-bf16", 16, 16, 25, 23), .split_tile = 64},
     "cuBLASLt 13.1 measured on an H200"},
    {"cublaslt-hopper-tf32", ONE(NG_TF32), {STEP("hopper-tf32", 8, 8, 25, 23), .split_tile = 16},
     "cuBLASLt 13.1 measured on an H200"},
};

const size_t ng_named_contract_count = sizeof ng_named_contracts / sizeof *ng_named_contracts;

const ng_named_contract *ng_contract_by_name(const char *name) {
    for (size_t i = 0; i < ng_named_contract_count; i++)
        if (!strcmp(ng_named_contracts[i].name, name))
            return &ng_named_contracts[i];
    return NULL;
}
