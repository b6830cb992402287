/* What the kernels of a Transformer's other operations promise: attention, rotary position, residual addition, transposition,
 * embedding; and what every kernel in binary64 promises. Part of the plug-in ABI (kernel.h).
 *
 * Shapes: T = batch * NG_SEQUENCE tokens, D = NG_HEADS * d; problem.m = T, problem.n = D. fl() is one rounding to `compute`, to nearest
 * even; a chain starts from +0 and ascends, each step s = fma(a, b, s) (or fl(s + a) of a sum). Results are cast to the output's
 * format by contract.cast.
 *
 * NG_OP_ATTENTION_FORWARD   IN [T][3 D] = queries, keys, values, each [heads][d]; OUT [T][D]. Per sequence and head, j <= i (causal):
 *   s_ij = fl(scale * chain over c of q_ic k_jc), scale = fl(1 / fl(sqrt(d))), m_i = max_j s_ij (NaN where one is NaN),
 *   e_ij = X(fl(s_ij - m_i)), l_i = chain over j of e_ij, o_ic = fl(chain over j of e_ij v_jc / l_i).
 * NG_OP_ATTENTION_BACKWARD  IN as above, GRADIENT g [T][D]; OUT [T][3 D] = dq, dk, dv. s, m, e, l as above, p_ij = fl(e_ij / l_i),
 *   a_ij = chain over c of g_ic v_jc, r_i = chain over j of p_ij a_ij, t_ij = fl(fl(p_ij fl(a_ij - r_i)) scale),
 *   dq_i = chain over j of t_ij k_j, dk_j = chain over i >= j of t_ij q_i, dv_j = chain over i >= j of p_ij g_i.
 *   With NG_ATTENTION_MMA, both: operands of the five products (q k, g v, e v, t k, t q, p g) are the bf16 inputs and e, p, t rounded to
 *   bf16; each product is a sum of tensor-core steps (ng_mma of the device: groups of k = 16 truncated at 24 or more fraction bits,
 *   see reference/attention.c), taken in any order. l sums e before it is rounded; l and r are sums
 *   in any order. Masked places are zeros that are multiplied all the same: within a group of NG_ATTENTION_GROUP tokens, a masked infinity or NaN
 *   may spoil a result.
 * NG_OP_ROPE                IN, OUT [T][3 D]; PARAMETER, PARAMETER_2 [sequence][d / 2] in `compute`: cosines c, sines s. Queries and keys
 *   (values are copied): with x = element i, y = element i + d / 2 of a head, i < d / 2, at the token's place in its sequence:
 *   x' = fl(fl(x c) - fl(y s)), y' = fl(fl(y c) + fl(x s)); inverse: s negated. (arXiv:2104.09864, in halves as GPT-NeoX.)
 * NG_OP_ADD                 IN, IN_2, OUT [m][n]: fl(in + in_2).
 * NG_OP_TRANSPOSE           IN [m][n] -> OUT_T [n][m]: the same codes.
 * NG_OP_EMBEDDING_FORWARD   TOKENS [T][1], PARAMETER [vocabulary = k][D] -> OUT [T][D]: the token's row, the same codes.
 * NG_OP_EMBEDDING_BACKWARD  TOKENS, GRADIENT [T][D] -> OUT [vocabulary = k][D] in `compute`: row r becomes the chain from what OUT holds over
 *   the ascending tokens that are r, each step fl(s + g).
 * A token must be in [0, k).
 *
 * X(a) = exp(a): relative error at most exp_error u (u = 2^-24, 2^-53), and 2^-149 or 2^-1074 absolute.
 *
 * Kernels whose IN (A, GRADIENT) is fp64 do their operation with every tensor fp64 (statistics, parameters, moments and numbers too, but for
 * LABELS, TOKENS, FOUND_INF, STEP_COUNT; a NaN is any NaN), every written operation rounded to binary64, sums in any order with or without fma: X as above,
 * the logarithm within 9 u of itself, 1 - b^t within 2 u, hyper-parameters and constants as binary64. */
#ifndef NG_CONTRACT_LAYER_H
#define NG_CONTRACT_LAYER_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ng_attention_products {
    NG_ATTENTION_CHAIN, /* fma, in the stated order */
    NG_ATTENTION_MMA,   /* bf16 tensor-core steps */
} ng_attention_products;

enum { NG_ATTENTION_GROUP = 64 };

typedef struct ng_layer {
    ng_format_id compute; /* NG_FP32 or NG_FP64 */
    bool causal;          /* attention: j <= i; else all j of the sequence */
    bool inverse;         /* rotary position: its backward */
    float exp_error;      /* attention */
    ng_attention_products products;
} ng_layer;

#ifdef __cplusplus
}
#endif
#endif
