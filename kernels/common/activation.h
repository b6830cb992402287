/* Activations and cross-entropy, the arithmetic that the CPU and CUDA kernels share (kernels/contract_activation.h). */
#ifndef NG_KERNELS_COMMON_ACTIVATION_H
#define NG_KERNELS_COMMON_ACTIVATION_H

#include "kernels/common/elementary.h"

#define NG_GELU_C1 0x1.988454p+0f /* 2 sqrt(2 / pi) */
#define NG_GELU_C2 0x1.2444f2p-4f /* 0.044715 of it */
#define NG_GELU_C3 0x1.b6676cp-3f /* three times the latter */
#define NG_DENSITY_K 0x1.988454p-2f /* 1 / sqrt(2 pi) */

NG_HD float ng_gelu_argument(float x) { return ng_mul(x, ng_norm_fma(ng_mul(x, x), NG_GELU_C2, NG_GELU_C1)); }

/* The distribution function from its tail: that, exactly, or 1 less it; one subtraction for both, which compilers vectorise. */
NG_HD float ng_normal(float x, float tail) { return ng_sub(x < 0 ? 0.0f : 1.0f, x < 0 ? -tail : tail); }

NG_HD float ng_activate(ng_activation_kind kind, float x, float u) {
    if (kind == NG_SWIGLU) return ng_mul(ng_mul(x, ng_logistic(x)), u);
    if (kind == NG_GELU_TANH) return ng_mul(x, ng_logistic(ng_gelu_argument(x)));
    const float a = ng_normal_argument(x);
    return ng_mul(x, ng_normal(x, ng_tail_of(a, ng_density(a))));
}

/* dx; SwiGLU: *du too. */
NG_HD float ng_activate_backward(ng_activation_kind kind, float x, float u, float d, float *du) {
    if (kind == NG_SWIGLU) {
        const float s = ng_logistic(x);
        *du = ng_mul(d, ng_mul(x, s));
        return ng_mul(ng_mul(d, u), ng_mul(s, ng_norm_fma(x, ng_sub(1.0f, s), 1.0f)));
    }
    if (kind == NG_GELU_TANH) {
        const float s = ng_logistic(ng_gelu_argument(x)), slope = ng_norm_fma(ng_mul(x, x), NG_GELU_C3, NG_GELU_C1);
        return ng_mul(d, ng_norm_fma(ng_mul(x, s), ng_mul(ng_sub(1.0f, s), slope), s));
    }
    const float a = ng_normal_argument(x), f = ng_density(a);
    return ng_mul(d, ng_norm_fma(x, ng_mul(NG_DENSITY_K, f), ng_normal(x, ng_tail_of(a, f))));
}

/* The larger of two; NaN if either is. */
NG_HD float ng_max_nan(float a, float b) { return a > b || a != a ? a : b; }

NG_HD float ng_loss_value(float max, float label, float sum) { return ng_add(ng_sub(max, label), (float)ng_log((double)sum)); }

/* r: fl(1 / S). */
NG_HD float ng_loss_gradient(float x, float max, float r, bool is_label, float d) {
    return ng_mul(d, ng_sub(ng_mul(ng_exp(ng_sub(x, max)), r), is_label ? 1.0f : 0.0f));
}

#endif
