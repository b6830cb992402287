/* What a kernel promises about its arithmetic: pure data, no code, shared by the kernels that promise and the reference
 * that holds them to it. Everything that the harness says of a kernel (bounds, predicted bits, what a golden may
 * demand) is derived from these structures. Part of the plug-in ABI (kernel.h): plain C, usable from CUDA C++. */
#ifndef NG_CONTRACT_H
#define NG_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ng_status {
    NG_OK = 0,
    NG_BAD_ARGUMENT,  /* the caller's fault: a shape, a name, a null pointer */
    NG_UNSUPPORTED,   /* well formed, but not on this device or in this build */
    NG_NO_MEMORY,
    NG_IO,            /* a file or stream could not be read or written */
    NG_DEVICE,        /* the device reported an error; its context may be lost */
    NG_INTERNAL,      /* a broken invariant of the program itself */
} ng_status;

/* ---- numbers ------------------------------------------------------------------------------------------------------
 * Storage, everywhere: fp64 8 bytes; fp32 and tf32 4 (tf32: a binary32 whose low 13 bits are zero); bf16, fp16 2;
 * the 8-bit formats 1; e3m2 and e2m3 1 (low six bits); e2m1 two to a byte, the even column in the low nibble, each row
 * beginning on a byte. Little-endian. */
typedef enum ng_format_id {
    NG_FP64,
    NG_FP32,
    NG_TF32,
    NG_BF16,
    NG_FP16,
    NG_E4M3,  /* OCP OFP8: no infinity, NaN S.1111.111, largest 448 */
    NG_E5M2,  /* OCP OFP8: IEEE-like, largest 57344 */
    NG_E3M2,  /* OCP MX FP6, finite only, largest 28 */
    NG_E2M3,  /* OCP MX FP6, finite only, largest 7.5 */
    NG_E2M1,  /* OCP MX FP4, finite only, largest 6 */
    NG_E8M0,  /* OCP MX scale: 2^(code - 127), NaN 0xFF, no zero, no sign */
    NG_UE4M3, /* NVFP4 scale: e4m3 without its sign; code 0x7F is NaN, the top bit is 0 */
    NG_FORMATS,
    NG_NO_FORMAT = NG_FORMATS,
} ng_format_id;

typedef enum ng_rounding {
    NG_RN_EVEN,      /* nearest, ties to even */
    NG_RN_AWAY,      /* nearest, ties away from zero */
    NG_R_ZERO,       /* toward zero */
    NG_R_UP,         /* toward +infinity */
    NG_R_AWAY,       /* away from zero */
    NG_R_STOCHASTIC, /* up in magnitude with a probability; see ng_stochastic */
    NG_ROUNDINGS,
} ng_rounding;

/* How r random bits R (an integer in [0, 2^r)) round a magnitude k + d ulps, 0 <= d < 1, to k or k + 1. */
typedef enum ng_stochastic {
    NG_SR_CARRY,    /* up iff floor(2^r d) + R >= 2^r: P(up) = floor(2^r d) / 2^r (PTX cvt.rs) */
    NG_SR_HALF,     /* up iff 2 * 2^r d + 2 R + 1 >= 2 * 2^r: half a unit of the random number is added */
    NG_SR_UNBIASED, /* d is first rounded to r bits, ties to even, then as NG_SR_CARRY (R = 2^r - 1 never wraps) */
    NG_STOCHASTICS,
} ng_stochastic;

typedef enum ng_nan_rule {
    NG_NAN_CANONICAL, /* the format's positive quiet NaN, all ones below the sign (0x7F, 0x7FFF, 0x7FFFFFFF; tf32 0x7FFFE000);
                         without one: NG_NAN_MAX */
    NG_NAN_KEEP_SIGN, /* the same with the input's sign; a NaN that scaling made (0 * Inf, a NaN scale) counts as positive */
    NG_NAN_MAX,       /* the largest positive value (CUDA's rule for the finite-only formats) */
} ng_nan_rule;

/* How one number becomes a number of a narrower format: exactly one rounding, subnormals kept, -0 kept.
 * Overflow (a magnitude that rounds beyond the largest finite): saturate: the largest finite of that sign, infinities
 * included. Otherwise infinity, or NaN in a format without one (its sign by the NaN rule); finite-only formats always
 * saturate; rounding toward zero (and up, for negative values) stops at the largest finite as IEEE 754 says, infinities
 * stay infinite.
 * Into e8m0: the magnitude counts (CUDA), 0 and everything below 2^-127 become 2^-127 except that upward modes follow
 * their direction between representable values; ties to even go up, as one digit has no even neighbour (IEEE 754-2019
 * 4.3.1). Into ue4m3: negative values, -0 and -infinity included, become 0; NaN stays NaN. */
typedef struct ng_cast {
    ng_rounding rounding;
    ng_stochastic stochastic; /* only with NG_R_STOCHASTIC */
    uint8_t random_bits;      /* r, 1..32, only with NG_R_STOCHASTIC */
    bool saturate;
    ng_nan_rule nan;
} ng_cast;

/* ---- block scaling ------------------------------------------------------------------------------------------------
 * A quantized tensor is element codes, one scale a block, and perhaps one fp32 scale for the whole tensor; the value
 * that it stands for is element * block scale * tensor scale (decoding scales, exact in real arithmetic).
 * fl() is one binary32 rounding to nearest even; max is the element format's largest finite value; amax the largest
 * magnitude of a block, NaN if it holds one. Blocks at the edge of a tensor are cut, never padded with data. */
typedef enum ng_scale_rule {
    NG_SCALE_ABSENT,
    /* fp32 scales. amax 0: the scale is 1. amax infinite or NaN: the scale is 1 too, and the element cast decides. */
    NG_SCALE_MAX_OVER_AMAX, /* e = min(fl(max / amax), FLT_MAX); q = cast(fl(x * e)); decode fl(1 / e) (TransformerEngine) */
    NG_SCALE_AMAX_OVER_MAX, /* decode d = fl(amax / max), at least 2^-126; q = cast(fl(x / d)) (DeepSeek-V3) */
    NG_SCALE_POW2,          /* as MAX_OVER_AMAX with the mantissa bits of e cleared */
    NG_SCALE_GIVEN,         /* e comes in (delayed scaling): q = cast(fl(x * e)); decode fl(1 / e) */
    /* e8m0 scales X. q = cast(x / X), one rounding. amax 0: code 0. amax NaN: code 0xFF. X NaN: every element is NaN. */
    NG_SCALE_MX_FLOOR,    /* 2^(floor(log2 amax) - emax), clamped to codes 0..254; amax infinite: 0xFF (OCP MX 1.0 6.3) */
    NG_SCALE_MX_ROUND_UP, /* fl(amax * fl(1/max)) rounded up to a power of two; infinite: 0xFE (TransformerEngine) */
    NG_SCALE_MX_EVEN,     /* amax's mantissa rounded to the element's bits, ties up (half an ulp added), then floor; infinite: 0xFF */
    NG_SCALE_MX_CEIL,     /* ceil(log2 amax) - emax, clamped; infinite: 0xFF */
    /* nvfp4: ue4m3 scales under an fp32 tensor scale. S = fl(2688 / tensor amax), at most FLT_MAX; 1 if the amax is 0,
     * infinite or NaN or S is 0. tensor scale (decode) D = fl(1 / S). Saturating casts to ue4m3, ties to even. */
    NG_SCALE_NVFP4_PAPER, /* s = ue4m3(fl(fl(amax/6) * S)); q = cast(fl(x * min(fl(1 / fl(s * D)), FLT_MAX))) (arXiv:2509.25149 B) */
    NG_SCALE_NVFP4_TE,    /* s = ue4m3(min(fl(amax * fl(S * fl(1/6))), FLT_MAX)); q as PAPER; s = 0: q = cast(0 * x) */
    NG_SCALE_RULES,
} ng_scale_rule;
/* Both nvfp4 rules: where s is 0 the encoding factor is 0, so finite elements become signed zeros (NaN, Inf: NaN -> cast).
 * A minimum with NaN is NaN: where s is NaN every element is cast(NaN). */

typedef enum ng_four_over_six {
    NG_4OVER6_OFF,
    NG_4OVER6_MAE, /* per block: scale to 6 or to 4, whichever has the smaller sum of |error|; ties to 6 */
    NG_4OVER6_MSE, /* the same with squared errors (arXiv:2512.02010) */
} ng_four_over_six;
/* 4over6 (as TransformerEngine does it): the 2688 of S becomes 1536 = 6 * 256, so that 1.5 times a block scale still fits.
 * With t the value that the rule casts to the block scale, s6 = ue4m3(t), s4 = ue4m3(min(fl(1.5 * t), FLT_MAX)), each with
 * its own elements q. Error of a candidate, all in binary32: with g = fl(s * D), the chain over the block's elements in
 * row-major order from +0 of |fl(fl(q * g) - x)|, or of fl(e * e) for e = fl(fl(q * g) - x), each addition rounded.
 * s4 is taken if its error is less than s6's (so not with NaN); stochastic rounding uses the element's word for both. */

/* How a tensor of scales lies in memory. Padding is zero. */
typedef enum ng_scale_layout {
    NG_LAYOUT_PLAIN,      /* [block rows][block columns] */
    NG_LAYOUT_TRANSPOSED, /* [block columns][block rows] (cuBLASLt VEC128_32F) */
    NG_LAYOUT_PADDED,     /* [block rows][block columns, rounded up to 4] (cuBLASLt BLK128x128_32F) */
    NG_LAYOUT_SWIZZLED,   /* [1][bytes]: tiles of 128 block rows by 4 block columns, 512 bytes each, tiles row by row; in a tile the scale
                             of (r, c) is at (r mod 32) * 16 + r / 32 * 4 + c (cuBLASLt VEC32_UE8M0 and VEC16_UE4M3) */
    NG_LAYOUTS,
} ng_scale_layout;

typedef struct ng_blocks { /* 0 means the whole extent of the tensor */
    uint32_t rows, columns;
} ng_blocks;

typedef struct ng_quantization {
    ng_format_id element, scale;
    ng_blocks blocks;
    ng_scale_rule rule;
    bool tensor_scale; /* nvfp4's second level */
    ng_four_over_six four_over_six;
    ng_cast cast;
    ng_scale_layout layout;
} ng_quantization;

/* ---- sums ---------------------------------------------------------------------------------------------------------*/
typedef enum ng_sum_order {
    NG_SUM_ANY,      /* binary32 or better, order unknown: only the a-priori bound holds */
    NG_SUM_CHAIN,    /* s = fl(s + a*b) for k ascending, products exact or fused (fma), starting from +0 */
    NG_SUM_PAIRWISE, /* chains over `leaf` consecutive terms, then neighbours added in a balanced tree, an odd one passing up */
    NG_SUM_MMA,      /* tensor-core steps, see ng_mma */
    NG_SUM_FP64,     /* a chain in binary64 */
} ng_sum_order;

/* One tensor-core step d = c + sum a*b. Products are exact; a product's raw exponent is the sum of its factors'
 * exponents, each floored at its format's smallest normal one and not renormalised; c's is floored at -126. Terms are
 * truncated toward zero to 2^(E - fraction_bits), E the largest raw exponent among non-zero terms of the group (never
 * below min_exponent), added exactly, and the sum is truncated toward zero to output_bits fraction bits (binary32 exponent range).
 * A zero result is +0, a negative sum truncated to zero and a sum of negative zeros included; a sum that truncates to 2^128
 * or more is an infinity (mma.sync bf16 measured on an H200). Infinite terms: of one sign, that infinity; else NaN.
 * NaN results are 0x7FFFFFFF. Model: arXiv:2511.10909 and arXiv:2512.07004. */
typedef struct ng_mma {
    const char *name;       /* "hopper-wgmma-fp8" */
    uint16_t k;             /* products in one step */
    uint16_t group;         /* of these aligned and added at once; k / group groups one after the other, c entering the first */
    uint8_t interleave;     /* 0: groups are consecutive; 2: group g holds the k with (k mod 4) / 2 == g, of operands converted
                               to fp16 first, so that their exponents are floored at -14 (fp8 mma.sync on Hopper) */
    uint8_t fraction_bits;  /* F */
    uint8_t output_bits;    /* p: 23, or 13 for e8m13 */
    int16_t min_exponent;   /* floor of E */
    uint8_t dot;            /* nvf4: this many products form one exact dot product, one term, whose raw exponent is the sum
                               of its two scales' alone (ue4m3: floored at -6); else 0 */
    bool scales_inside;     /* block scales enter the step: e8m0 exponents added to the raw exponents, ue4m3 multiplied exactly */
    uint16_t scale_block;   /* K elements under one scale when scales_inside (32 or 16) */
} ng_mma;

typedef enum ng_scale_place {
    NG_SCALES_NONE,
    NG_SCALES_AFTER,            /* fl(fl(sum * sa) * sb) at the end (a = first operand) */
    NG_SCALES_BLOCK_SEQUENTIAL, /* each scale block of K, its sum (chain) in the given order from +0: main = fl(main + fl(fl(chain * sa) * sb)) */
    NG_SCALES_BLOCK_FMA_PRODUCT,/* main = fma(chain, fl(sa * sb), main) */
    NG_SCALES_BLOCK_FMA_SECOND, /* main = fma(fl(chain * sb), sa, main) */
    NG_SCALES_IN_MMA,           /* ng_mma.scales_inside */
    NG_SCALES_DEQUANTIZED,      /* operands are fl(element * scale), or rounded to bf16 where that is exact, before the product */
    NG_SCALES_AFTER_AT_ONCE,    /* fl(sum * fl(sa * sb)) at the end */
} ng_scale_place;

/* Which k share a step: position ng_k_position(order, k) of the sum is that of element k. */
typedef enum ng_k_order {
    NG_K_ASCENDING,
    NG_K_QUADS, /* in each chunk of 128 (K is a multiple), of threads t = 0..3 with 32 consecutive k each, and of words w = 0..3 of 8 in
                   those: step 2 w of 16 takes the word's elements 0, 1, 4, 5 of all four threads, step 2 w + 1 its elements 2, 3, 6, 7 */
} ng_k_order;

/* out = cast(result), result = sum (+ beta-term). A tensor scale D on either operand multiplies the sum last:
 * sum = fl(sum * fl(Da * Db)). accumulate: result = fl(sum + fp32 value already in the output). */
typedef struct ng_accumulation {
    ng_sum_order order;
    ng_mma mma;               /* NG_SUM_MMA */
    uint16_t promote_every;   /* MMA steps after which the chain is added (RN) to an fp32 main sum and restarts at 0; 0: never */
    uint16_t leaf;            /* NG_SUM_PAIRWISE */
    ng_scale_place scales;
    uint16_t split_k;         /* parts (split_unknown: at most so many, cut anywhere); 0 or 1: none. Part p holds ceil(tiles / split_k) tiles of split_tile along K, the last the rest */
    uint16_t split_tile;      /* K elements in one tile */
    bool fused;               /* NG_SUM_CHAIN of operands whose products are not exact in binary32: true means fma */
    bool split_unknown;       /* where K is cut, or the order of a step's groups, is not known: no bits are fixed */
    ng_format_id rounds_to;   /* not NG_FP64: the sum is rounded to this format before the bias or OUT's value is added to it */
    bool scales_swapped;      /* where ng_scale_place says sa, B's scale enters, and A's where it says sb */
    ng_k_order k_order;       /* NG_SUM_MMA of NG_SCALES_DEQUANTIZED */
} ng_accumulation;

typedef enum ng_determinism {
    NG_DETERMINISTIC,    /* the same bits on every run */
    NG_GIVEN_SEED,       /* the same bits for the same seed and offset */
    NG_NONDETERMINISTIC, /* no promise */
} ng_determinism;

/* ---- tensors ------------------------------------------------------------------------------------------------------*/
typedef enum ng_space { NG_HOST, NG_GPU } ng_space;

typedef struct ng_tensor {
    void *data;
    ng_format_id format;
    ng_space space;
    int64_t rows, columns;
    int64_t row_bytes; /* distance between rows, at least the bytes of one row */
} ng_tensor;

/* A GEMM operand, K along its columns: value[i][k] = codes[i][k] * scales[i / blocks.rows][k / blocks.columns] * tensor_scale. */
typedef struct ng_operand {
    ng_tensor codes;    /* [m or n][k] */
    ng_tensor scales;   /* data NULL: none */
    ng_blocks blocks;   /* as in the quantization; 0: the whole extent */
    float tensor_scale; /* 1 where there is none */
} ng_operand;

#ifdef __cplusplus
}
#endif

/* Families of operations with a contract of their own. */
#include "contract_norm.h"
#include "contract_optimizer.h"
#include "contract_activation.h"
#include "contract_hadamard.h"
#include "contract_scale_update.h"
#include "contract_layer.h"

#endif
