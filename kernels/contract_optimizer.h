/* What an optimizer kernel promises: Adam and AdamW, and the steps around them (gradient unscaling, loss scaler, gradient
 * norm, clipping). Part of the plug-in ABI (kernel.h).
 *
 * Operations are element by element over [R][C], or over every tensor of ng_launch.lists. fl() is one binary32 rounding to
 * nearest even, each written operation of an expression rounded in the order of its parentheses; nothing is fused.
 * Hyper-parameters are NG_LEARNING_RATE (a), NG_BETA1, NG_BETA2 (b1, b2), NG_EPSILON (e), NG_WEIGHT_DECAY (w), NG_STEP (t >= 1) of
 * ng_problem.scalars, exactly as the user passed them: binary64. What the elements meet of them is computed in binary64 (every
 * operation rounded) and rounded to binary32 once:
 *     B1 = fl(b1), A1 = fl(1 - b1), B2 = fl(b2), A2 = fl(1 - b2), E = fl(e), W = fl(w), L = fl(a)
 *     with bias_correction: c1 = 1 - b1^t, c2 = 1 - b2^t, the binary64 nearest to the exact difference (relative error at
 *     most 2^-52), K1 = fl(1 / c1), S2 = fl(1 / sqrt(c2)), L1 = fl(a / c1); without: K1 = S2 = 1, L1 = L
 *     D = fl(1 - a * w)
 * Gradient: g = GRADIENT, or fl(GRADIENT * G), G = fl(1 / NG_GRADIENT_SCALE), where that scalar is not 0.
 *     NG_ADAM_L2:      g = fl(g + W p), then as below with p' = fl(p - L1 q)
 *     NG_ADAMW_TORCH:  p' = fl(fl(D p) - fl(L1 q))             (decay first: PyTorch)
 *     NG_ADAMW_APEX:   p' = fl(p - fl(L fl(fl(K1 q) + fl(W p))))  (decay within the update: Apex, TransformerEngine)
 *     m' = fl(fl(B1 m) + fl(A1 g)), v' = fl(fl(B2 v) + fl(fl(A2 g) g)), q = fl(m' / fl(fl(sqrt(v') S2) + E))
 * p, m, v are PARAMETER, MOMENT_1, MOMENT_2, decoded, and changed in place: p is the master weight where there is one. m' and v' enter q
 * before they are rounded for storage. NG_FOUND_INF [1][1] fp32, where given and not 0: nothing changes (skip).
 * capturable: t comes from NG_STEP_COUNT [1][1] fp32 in the device's memory instead, and all of the above is computed there.
 *
 * Storage. Parameters: fp32; bf16 or fp16, rounded to nearest even; those with PARAMETER_2, an fp32 master, whose rounding
 * PARAMETER becomes; or NG_MASTER_REMAINDER: bf16 PARAMETER and the low 16 bits of the fp32 in PARAMETER_2 (in bf16 storage):
 * the fp32's bits are (PARAMETER - (remainder >> 15)) << 16 | remainder, so that PARAMETER is it rounded to nearest, ties away.
 * Moments: fp32, bf16, fp16, each rounded to nearest even (fp8: saturating), or e4m3, e5m2 with MOMENT_1_SCALES, MOMENT_2_SCALES
 * [R][ceil(C / 128)] fp32, the decoding scales d = max(fl(amax / max), 2^-126) of 1 x 128 blocks (NG_SCALE_AMAX_OVER_MAX; 1 where amax is 0,
 * infinite or NaN): m = fl(code * d), code = cast(fl(m' / d')). In lists a row ends where its tensor's row ends.
 * NaN results are the format's canonical NaN.
 *
 * The steps around:
 *     NG_UNSCALE:  GRADIENT = cast(fl(GRADIENT * G)), G = fl(1 / LOSS_SCALE) or of NG_GRADIENT_SCALE where there is no LOSS_SCALE;
 *                  FOUND_INF = 1 where a GRADIENT, scaled or not, is infinite or NaN, else as it was
 *     NG_SCALER:   s = LOSS_SCALE, n = GROWTH_COUNT, f = FOUND_INF, all [1][1] fp32. f not 0: s = fl(s * fl(NG_BACKOFF)), n = 0. Else n = n + 1,
 *                  and if that is NG_GROWTH_INTERVAL: n = 0, s = fl(s * fl(NG_GROWTH)) if that is finite. STEP_COUNT, where given,
 *                  gains 1 if f is 0. FOUND_INF becomes 0.
 *     NG_NORM2:    OUT [1][1] fp32 = fl(sqrt(sum of GRADIENT^2)), in binary64, in the order of NG_NORM2_CHUNK below
 *     NG_CLIP:     GRADIENT = cast(fl(GRADIENT * k)), k = fl(NG_MAX_NORM / fl(OUT + 1e-6)) where that is less than 1, else nothing changes;
 *                  OUT [1][1] fp32, the norm, comes in (as PyTorch's clip_grad_norm_); a NaN norm makes k NaN */
#ifndef NG_CONTRACT_OPTIMIZER_H
#define NG_CONTRACT_OPTIMIZER_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ng_optimizer_kind {
    NG_ADAM_L2,
    NG_ADAMW_TORCH,
    NG_ADAMW_APEX,
    NG_UNSCALE,
    NG_SCALER,
    NG_NORM2,
    NG_CLIP,
} ng_optimizer_kind;

typedef enum ng_master {
    NG_MASTER_NONE,
    NG_MASTER_FP32,
    NG_MASTER_REMAINDER,
} ng_master;

/* The order of NG_NORM2. Each tensor's row is cut into chunks of 8192; a chunk is 1024 chains from +0, the k-th over its
 * elements k, k + 1024 ... (the square is exact), halved (s_k + s_(k + n/2) until one is left). The chunks, in order of tensor,
 * row and place, are 1024 chains again, the k-th over the chunks k, k + 1024 ..., halved. */
enum { NG_NORM2_CHUNK = 8192, NG_NORM2_CHAINS = 1024 };

enum { NG_MOMENT_BLOCK = 128 };

typedef struct ng_optimizer {
    ng_optimizer_kind kind;
    ng_master master;
    ng_format_id moment_1, moment_2;
    bool bias_correction;
    bool capturable;
} ng_optimizer;

#ifdef __cplusplus
}
#endif
#endif
