/* Optimizers, the arithmetic that the CPU and CUDA kernels share (kernels/contract_optimizer.h). */
#ifndef NG_KERNELS_COMMON_OPTIMIZER_H
#define NG_KERNELS_COMMON_OPTIMIZER_H

#include "kernels/common/elementary.h"
#include "kernels/common/scale.h"

/* What the elements meet of the hyper-parameters: the contract's names. */
typedef struct ng_adam_factors {
    float b1, a1, b2, a2, epsilon, w, l, k1, s2, l1, d, g;
    bool scaled; /* by g */
} ng_adam_factors;

NG_HD ng_adam_factors ng_adam_factors_of(const double *scalars, bool bias_correction, int64_t t) {
    const double a = scalars[NG_LEARNING_RATE], b1 = scalars[NG_BETA1], b2 = scalars[NG_BETA2], w = scalars[NG_WEIGHT_DECAY];
    const double scale = scalars[NG_GRADIENT_SCALE];
    ng_adam_factors f;
    f.b1 = (float)b1;
    f.a1 = (float)(1 - b1);
    f.b2 = (float)b2;
    f.a2 = (float)(1 - b2);
    f.epsilon = (float)scalars[NG_EPSILON];
    f.w = (float)w;
    f.l = f.l1 = (float)a;
    f.k1 = f.s2 = 1;
    f.d = (float)(1 - a * w);
    f.scaled = scale != 0;
    f.g = f.scaled ? (float)(1 / scale) : 1;
    if (bias_correction) {
        const double c1 = ng_one_minus_power(b1, t), c2 = ng_one_minus_power(b2, t);
        f.k1 = (float)(1 / c1);
        f.s2 = (float)(1 / ng_sqrt64(c2));
        f.l1 = (float)(a / c1);
    }
    return f;
}

/* One element: p, m and v in and out. */
NG_HD void ng_adam(ng_optimizer_kind kind, const ng_adam_factors *f, float g, float *p, float *m, float *v) {
    if (f->scaled) g = ng_mul(g, f->g);
    if (kind == NG_ADAM_L2) g = ng_add(g, ng_mul(f->w, *p));
    *m = ng_add(ng_mul(f->b1, *m), ng_mul(f->a1, g));
    *v = ng_add(ng_mul(f->b2, *v), ng_mul(ng_mul(f->a2, g), g));
    const float q = ng_div(*m, ng_add(ng_mul(ng_norm_sqrt(*v), f->s2), f->epsilon));
    if (kind == NG_ADAMW_APEX) *p = ng_sub(*p, ng_mul(f->l, ng_add(ng_mul(f->k1, q), ng_mul(f->w, *p))));
    else *p = ng_sub(kind == NG_ADAM_L2 ? *p : ng_mul(f->d, *p), ng_mul(f->l1, q));
}

/* An fp32 master from a bf16 parameter and the remainder, and back. */
NG_HD float ng_master_join(uint32_t parameter, uint32_t remainder) {
    return ng_float((parameter - (remainder >> 15)) << 16 | remainder);
}
NG_HD uint32_t ng_master_parameter(uint32_t bits) { return (bits + 0x8000u) >> 16; }

/* Scales of fp8 moments: 1 x 128, as NG_SCALE_AMAX_OVER_MAX. */
NG_HD ng_block_scale ng_moment_scale(ng_format_id format, uint32_t amax_bits) {
    ng_quantization q = {format, NG_FP32, {1, NG_MOMENT_BLOCK}, NG_SCALE_AMAX_OVER_MAX, false, NG_4OVER6_OFF, {NG_RN_EVEN, NG_SR_CARRY, 0, true, NG_NAN_CANONICAL}, NG_LAYOUT_PLAIN};
    return ng_scale_fp32(&q, amax_bits);
}

/* What NG_CLIP multiplies by; 1: nothing changes. */
NG_HD float ng_clip_factor(float most, float norm) {
    const float k = ng_div(most, ng_add(norm, 1e-6f));
    return k >= 1.0f ? 1.0f : k;
}

typedef struct ng_scaler {
    float scale, count, step;
} ng_scaler;

NG_HD void ng_scaler_update(const double *scalars, bool found, ng_scaler *s) {
    s->count = ng_add(s->count, 1.0f);
    if (found) {
        s->scale = ng_mul(s->scale, (float)scalars[NG_BACKOFF]);
        s->count = 0;
    } else if ((double)s->count >= scalars[NG_GROWTH_INTERVAL]) {
        const float grown = ng_mul(s->scale, (float)scalars[NG_GROWTH]);
        s->scale = grown <= FLT_MAX ? grown : s->scale;
        s->count = 0;
    }
    if (!found) s->step = ng_add(s->step, 1.0f);
}

#endif
