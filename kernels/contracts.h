/* The named contracts of tensor cores and of library products: rows of data, no code. Kernels point at them, and
 * `narrowgauge replay --contract NAME` finds them by name. */
#ifndef NG_KERNELS_CONTRACTS_H
#define NG_KERNELS_CONTRACTS_H

#include "contract.h"

/* The steps themselves, as initialisers of an ng_mma, for static descriptors of kernels. */
#define NG_STEP(label, K, G, F, P) \
    {.name = label, .k = (K), .group = (G), .fraction_bits = (F), .output_bits = (P), .min_exponent = -133}
#define NG_STEP_HOPPER_FP8 NG_STEP("hopper-wgmma-fp8", 32, 32, 13, 13)
#define NG_STEP_HOPPER_FP16 NG_STEP("hopper-fp16", 16, 16, 25, 23)
#define NG_STEP_HOPPER_BF16 NG_STEP("hopper-bf16", 16, 16, 25, 23)
#define NG_STEP_HOPPER_TF32 NG_STEP("hopper-tf32", 8, 8, 25, 23)
#define NG_STEP_HOPPER_MMA_SYNC_FP8                                                                                    \
    {.name = "hopper-mma-sync-fp8", .k = 32, .group = 16, .interleave = 2, .fraction_bits = 25, .output_bits = 23,     \
     .min_exponent = -133}
#define NG_STEP_ADA_FP8 NG_STEP("ada-fp8", 32, 16, 13, 13)
#define NG_STEP_ADA_FP16 NG_STEP("ada-fp16", 16, 8, 24, 23)
#define NG_STEP_ADA_BF16 NG_STEP("ada-bf16", 16, 8, 24, 23)
#define NG_STEP_ADA_TF32 NG_STEP("ada-tf32", 8, 4, 24, 23)
#define NG_STEP_AMPERE_FP16 NG_STEP("ampere-fp16", 16, 8, 24, 23)
#define NG_STEP_AMPERE_BF16 NG_STEP("ampere-bf16", 16, 8, 24, 23)
#define NG_STEP_AMPERE_TF32 NG_STEP("ampere-tf32", 8, 4, 24, 23)
#define NG_STEP_VOLTA_FP16 NG_STEP("volta-fp16", 4, 4, 23, 23)
#define NG_STEP_BLACKWELL_FP8 NG_STEP("blackwell-fp8", 32, 32, 25, 23)
#define NG_STEP_BLACKWELL_FP16 NG_STEP("blackwell-fp16", 16, 16, 25, 23)
#define NG_STEP_BLACKWELL_BF16 NG_STEP("blackwell-bf16", 16, 16, 25, 23)
#define NG_STEP_BLACKWELL_TF32 NG_STEP("blackwell-tf32", 8, 8, 25, 23)
#define NG_STEP_BLACKWELL_MXF8F6F4                                                                                     \
    {.name = "blackwell-mxf8f6f4", .k = 32, .group = 32, .fraction_bits = 25, .output_bits = 23, .min_exponent = -126, \
     .scales_inside = true, .scale_block = 32}
#define NG_STEP_BLACKWELL_MXF4NVF4(label, block)                                                                       \
    {.name = label, .k = 64, .group = 64, .fraction_bits = 35, .output_bits = 23, .min_exponent = -126, .dot = 16,     \
     .scales_inside = true, .scale_block = (block)}
#define NG_STEP_BLACKWELL_NVF4 NG_STEP_BLACKWELL_MXF4NVF4("blackwell-mxf4nvf4", 16)
#define NG_STEP_BLACKWELL_MXF4 NG_STEP_BLACKWELL_MXF4NVF4("blackwell-mxf4nvf4-mxf4", 32)

typedef struct ng_named_contract {
    const char *name;      /* "hopper-wgmma-fp8", "hopper-fp8-promoted", "cublaslt-hopper-fp8-1x128-128x128" ... */
    ng_format_id in[6];    /* formats that it is defined for, ended by NG_NO_FORMAT */
    ng_accumulation sum;
    const char *source;    /* what the model rests on */
} ng_named_contract;

extern const ng_named_contract ng_named_contracts[];
extern const size_t ng_named_contract_count;
const ng_named_contract *ng_contract_by_name(const char *name); /* NULL: none */

#endif
