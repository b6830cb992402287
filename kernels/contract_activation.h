/* What the kernels beside products promise: gated and plain activations with or without fused quantization, and softmax
 * cross-entropy; forward and backward. Part of the plug-in ABI (kernel.h).
 *
 * fl() is one binary32 rounding to nearest even, each written operation rounded unless it stands in fma(). Functions are
 * approximations of stated error, for every binary32 argument:
 *     X(a) = exp(a): relative error at most NG_EXP_RELATIVE, plus 2^-149 absolute
 *     P(a), a >= 0: the normal distribution's upper tail erfc(a / sqrt 2) / 2 (NG_TAIL_RELATIVE, plus 2^-145 absolute)
 *     F(a) = exp(-a^2 / 2) (NG_DENSITY_RELATIVE, plus 2^-148 absolute)
 *     log: in binary64, relative error at most 2^-45 of max(|log|, 2^-45)
 * s(a), the logistic function: z = X(-|a|), s = fl(z / fl(1 + z)) for a < 0, else fl(1 / fl(1 + z)).
 *
 * Forward (NG_OP_ACTIVATION): IN x [R][C] (SwiGLU: the gate, and IN_2 u [R][C]) -> OUT [R][C]
 *     NG_SWIGLU:     y = fl(fl(x s(x)) u)
 *     NG_GELU_TANH:  y = fl(x s(w)), w = fl(x fma(fl(x x), c2, c1)), c1 = fl(2 sqrt(2 / pi)), c2 = fl(2 sqrt(2 / pi) 0.044715);
 *                    for x (1 + tanh(w / 2)) / 2 = x s(w)
 *     NG_GELU_ERF:   y = fl(x n(x)), n(x) = P(|x|) for x < 0, else fl(1 - P(|x|))
 * OUT = cast(y) by contract.cast; where contract.quantization is not NG_SCALE_ABSENT, y itself, unrounded, is quantized by it: OUT codes and
 * OUT_SCALES as NG_OP_QUANTIZE gives them for y; NG_SCALE_GIVEN_IN as contract_norm.h says.
 *
 * Backward (NG_OP_ACTIVATION_BACKWARD): IN x (IN_2 u), GRADIENT d [R][C] -> OUT = cast of dx, SwiGLU: OUT_2 = cast of du
 *     NG_SWIGLU:     s = s(x), t = fl(x s); du = fl(d t); dx = fl(fl(d u) fl(s fma(x, fl(1 - s), 1)))
 *     NG_GELU_TANH:  s = s(w); w' = fma(fl(x x), c3, c1), c3 = fl(3 c2 in real arithmetic); dx = fl(d fma(fl(x s), fl(fl(1 - s) w'), s))
 *     NG_GELU_ERF:   dx = fl(d fma(x, fl(k F(x)), n(x))), k = fl(1 / sqrt(2 pi))
 * Infinite x makes what these operations make of it (0 * Inf is NaN); so does overflow on the way.
 *
 * Softmax cross-entropy (NG_OP_LOSS): IN x [R][C], LABELS l [R][1] (int32 in fp32 storage), columns C classes
 *     ROW_MAX m = max over j of x_j (NaN where one is NaN; a zero is +0), ROW_SUM S = sum of X(fl(x_j - m)) in the order below; each [R][1] fp32, written where given
 *     OUT [R][1] fp32 = fl(fl(m - x_l) + fl(log S)); 0 where l is negative (ignored)
 * NG_OP_LOSS_BACKWARD: IN, LABELS, ROW_MAX, ROW_SUM, GRADIENT d [R][1] fp32 (of the row's loss) -> OUT [R][C]
 *     OUT_j = cast(fl(d fl(fl(X(fl(x_j - m)) fl(1 / S)) - [j = l]))); 0 where l is negative
 * The order of S: 2048 chains from +0, the k-th over the columns k, k + 2048 ..., halved (s_k + s_(k + n/2) until one is
 * left). A label must be less than C. */
#ifndef NG_CONTRACT_ACTIVATION_H
#define NG_CONTRACT_ACTIVATION_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ng_activation_kind {
    NG_SWIGLU,
    NG_GELU_TANH,
    NG_GELU_ERF,
} ng_activation_kind;

enum { NG_LOSS_CHAINS = 2048 };

/* Derived in kernels/common/elementary.h, met by every binary32 argument. */
#define NG_EXP_RELATIVE 0x1p-23
#define NG_DENSITY_RELATIVE 0x1p-22
#define NG_TAIL_RELATIVE 0x1p-21

typedef struct ng_activation {
    ng_activation_kind kind;
} ng_activation;

#ifdef __cplusplus
}
#endif
#endif
