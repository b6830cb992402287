/* What a normalisation kernel promises: LayerNorm and RMSNorm over the rows of [R][C], forward and backward. Part of the
 * plug-in ABI (kernel.h).
 *
 * Forward (NG_OP_NORM_FORWARD). fl() is one binary32 rounding to nearest even, w_j = gamma_j, or fl(1 + gamma_j) with
 * zero_centered, e = fl(NG_EPSILON).
 *     with residual: x = cast(fl(IN + IN_2)), the sum as OUT_2 stores it (in's format, ties to even); else x = IN
 *     LayerNorm: mean = fl(S(x_j) / C), d_j = fl(x_j - mean), y_j = fma(fl(d_j * rstd), w_j, beta_j)
 *     RMSNorm:   mean = 0,              d_j = x_j,            y_j = fl(fl(d_j * rstd) * w_j)
 *     rstd = fl(1 / fl(sqrt(fl(fl(Q(d_j) / C) + e))))
 * S is a sum, Q one of squares whose every step is fma(d, d, sum): two passes over the row, never E[x^2] - mean^2. Nothing
 * is scaled away: a sum or square beyond binary32 is an infinity, and what follows from it follows (rstd 0, NaN).
 * OUT = cast(y) by contract.cast; where contract.quantization is not NG_SCALE_ABSENT, y itself, unrounded, goes through it: OUT codes and
 * OUT_SCALES as NG_OP_QUANTIZE gives them for y. What spans the tensor is not known before its last row, so it comes in as
 * NG_SCALE_GIVEN_IN: the encoding scale of NG_SCALE_GIVEN, or the amax that nvfp4's S is computed from.
 * MEAN (LayerNorm) and RSTD: [R][1] fp32, each written where it is given.
 *
 * Backward (NG_OP_NORM_BACKWARD), from MEAN, RSTD and GRADIENT dy (in's format):
 *     h_j = fl(fl(IN_j - mean) * rstd); with from_output, IN is y: h_j = fl(fl(IN_j - beta_j) / c_j), c_j = w_j with its
 *     magnitude raised to at least e (as Apex does; RMSNorm: beta is 0; w_j = -0: -e)
 *     g_j = fl(dy_j * w_j), c1 = fl(S(g_j) / C) (RMSNorm: 0), c2 = fl(Q(g_j h_j) / C), every step of Q fma(g, h, sum)
 *     OUT = cast(fl(rstd * fma(-h_j, c2, fl(g_j - c1)))) [R][C]
 *     OUT_2 dgamma_j = cast(sum over rows of dy h), by fma; OUT_3 dbeta_j = cast(sum over rows of dy) (LayerNorm); [1][C],
 *     of the parameters' format. */
#ifndef NG_CONTRACT_NORM_H
#define NG_CONTRACT_NORM_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ng_norm_kind {
    NG_LAYER_NORM,
    NG_RMS_NORM,
} ng_norm_kind;

/* The order of S, Q and the sums over rows. Every chain starts from +0 and ascends.
 * NG_NORM_LANES: L = 32, 64 ... 1024 lanes, the smallest with C <= 32 L, else 1024. S and Q: 8 L chains, the k-th over the
 * elements k, k + 8L, k + 16L ... Their results are halved (s_k + s_(k + n/2) until one is left) first among each 8
 * neighbours, then among each 32 of those results, then among the L / 32 that remain.
 * Sums over rows: T = max(1, 256 / L) groups in each of B = 264 (L <= 256), 132 (512) or 64 (1024) blocks; group (b, t), number
 * g = b T + t, is a chain over the rows g, g + B T, g + 2 B T ... A block is ((group 0 + group 1) + group 2) + ...; the blocks
 * are 16 chains, the q-th over the blocks q, q + 16 ..., and these are halved. */
typedef enum ng_norm_order {
    NG_NORM_ANY, /* binary32 or better in any order: only the a-priori bound holds */
    NG_NORM_LANES,
} ng_norm_order;

typedef struct ng_norm {
    ng_norm_kind kind;
    ng_norm_order order;
    ng_format_id parameters; /* of gamma and beta, dgamma and dbeta */
    bool zero_centered;      /* gamma is stored less 1 */
    bool residual;           /* forward: IN_2 is added first */
    bool from_output;        /* backward: IN is the forward result, not its input */
} ng_norm;

#ifdef __cplusplus
}
#endif
#endif
