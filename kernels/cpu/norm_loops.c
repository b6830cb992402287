/* The inner loops of norms: chains over a row, and its elements. */
#include "kernels/cpu/norm.h"

#include <stdlib.h>

/* What remains of 8 L chains, added as the contract's halving says. */
NG_ALWAYS_INLINE float halve(float *s, int32_t lanes) {
    for (int32_t l = 0; l < lanes; l++) {
        const float *p = s + NG_NORM_VECTOR * l;
        s[l] = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
    }
    for (int32_t warp = 0; warp < lanes / 32; warp++) {
        float *p = s + 32 * warp;
        for (int h = 16; h; h /= 2)
            for (int l = 0; l < h; l++)
                p[l] += p[l + h];
        s[warp] = p[0];
    }
    for (int32_t h = lanes / 64; h; h /= 2)
        for (int32_t l = 0; l < h; l++)
            s[l] += s[l + h];
    return s[0];
}

/* Chains in turn; `term` adds element i to chain k. */
#define CHAINS(term)                                                                       \
    const int64_t chains = (int64_t)NG_NORM_VECTOR * lanes;                                \
    memset(s, 0, (size_t)chains * sizeof *s);                                              \
    for (int64_t from = 0; from < n; from += chains) {                                     \
        const int64_t count = ng_cpu_min(chains, n - from);                                \
        for (int64_t k = 0; k < count; k++)                                                \
            s[k] = term;                                                                   \
    }                                                                                      \
    return halve(s, lanes)

NG_ALWAYS_INLINE float sum_of(const float *x, int64_t n, int32_t lanes, float *restrict s) { CHAINS(ng_add(s[k], x[from + k])); }
NG_ALWAYS_INLINE float squares_of(const float *x, float mean, int64_t n, int32_t lanes, float *restrict s) {
    CHAINS(ng_norm_fma(ng_sub(x[from + k], mean), ng_sub(x[from + k], mean), s[k]));
}
NG_ALWAYS_INLINE float products_of(const float *a, const float *b, int64_t n, int32_t lanes, float *restrict s) {
    CHAINS(ng_norm_fma(a[from + k], b[from + k], s[k]));
}

NG_ALWAYS_INLINE void load_row(ng_format_id format, const void *row, int64_t n, float *restrict values) {
    switch (format) {
    case NG_BF16:
        for (int64_t i = 0; i < n; i++)
            values[i] = ng_decode_bf16(((const ng_u16 *)row)[i]);
        break;
    case NG_FP16:
        for (int64_t i = 0; i < n; i++)
            values[i] = ng_decode_fp16(((const ng_u16 *)row)[i]);
        break;
    default: memcpy(values, row, (size_t)n * sizeof *values);
    }
}

NG_ALWAYS_INLINE void store_row(ng_format_id to, const ng_caster *caster, const float *y, int64_t n, void *row) {
    const ng_caster c = *caster;
    if (to == NG_FP32)
        for (int64_t i = 0; i < n; i++)
            ((ng_u32 *)row)[i] = ng_norm_code(&c, NG_FP32, y[i]);
    else
        for (int64_t i = 0; i < n; i++)
            ((ng_u16 *)row)[i] = (uint16_t)ng_norm_code(&c, NG_BF16, y[i]);
}

NG_ALWAYS_INLINE void add_rows(const float *a, const float *b, ng_format_id to, int64_t n, float *restrict sum, void *row) {
    static const ng_cast cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL};
    const ng_caster caster = ng_caster_of(to, &cast);
    for (int64_t i = 0; i < n; i++)
        sum[i] = ng_add(a[i], b[i]);
    store_row(to, &caster, sum, n, row);
    load_row(to, row, n, sum);
}

#define LOOPS(suffix, target)                                                                                             \
    target static void load##suffix(ng_format_id f, const void *row, int64_t n, float *v) { load_row(f, row, n, v); }     \
    target static void add##suffix(const float *a, const float *b, ng_format_id to, int64_t n, float *sum, void *row) {   \
        add_rows(a, b, to, n, sum, row);                                                                                  \
    }                                                                                                                     \
    target static float sum##suffix(const float *x, int64_t n, int32_t lanes, float *s) { return sum_of(x, n, lanes, s); } \
    target static float squares##suffix(const float *x, float mean, int64_t n, int32_t lanes, float *s) {                 \
        return squares_of(x, mean, n, lanes, s);                                                                          \
    }                                                                                                                     \
    target static float products##suffix(const float *a, const float *b, int64_t n, int32_t lanes, float *s) {            \
        return products_of(a, b, n, lanes, s);                                                                            \
    }                                                                                                                     \
    target static void normalize##suffix(const float *x, float mean, float rstd, const float *w, const float *beta,       \
                                         int64_t n, float *restrict y) {                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            y[i] = ng_norm_element(x[i], mean, rstd, w[i], beta[i]);                                                      \
    }                                                                                                                     \
    target static void store##suffix(ng_format_id to, const ng_caster *c, const float *y, int64_t n, void *row) {         \
        store_row(to, c, y, n, row);                                                                                      \
    }                                                                                                                     \
    target static void hat##suffix(const float *x, float mean, float rstd, int64_t n, float *restrict h) {                \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            h[i] = ng_norm_hat(x[i], mean, rstd);                                                                         \
    }                                                                                                                     \
    target static void hat_of_output##suffix(const float *y, const float *beta, const float *divisor, int64_t n, float *restrict h) { \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            h[i] = ng_norm_hat_of_output(y[i], beta[i], divisor[i]);                                                      \
    }                                                                                                                     \
    target static void scale##suffix(const float *dy, const float *w, int64_t n, float *restrict g) {                     \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            g[i] = ng_mul(dy[i], w[i]);                                                                                   \
    }                                                                                                                     \
    target static void dx##suffix(const float *h, const float *g, float c1, float c2, float rstd, int64_t n, float *restrict dx) { \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            dx[i] = ng_norm_dx(h[i], g[i], c1, c2, rstd);                                                                 \
    }                                                                                                                     \
    target static void accumulate##suffix(const float *dy, const float *h, int64_t n, float *restrict dgamma, float *restrict dbeta) { \
        for (int64_t i = 0; i < n; i++) {                                                                                 \
            dgamma[i] = ng_norm_fma(dy[i], h[i], dgamma[i]);                                                              \
            dbeta[i] = ng_add(dbeta[i], dy[i]);                                                                           \
        }                                                                                                                 \
    }
#define LOOPS_ROW(suffix)                                                                                                \
    {load##suffix, add##suffix, sum##suffix, squares##suffix, products##suffix, normalize##suffix, store##suffix,         \
     hat##suffix, hat_of_output##suffix, scale##suffix, dx##suffix, accumulate##suffix}
LOOPS(_c, )
LOOPS(_avx2, NG_AVX2)

const ng_norm_loops ng_norm_loops_of[2] = {LOOPS_ROW(_c), LOOPS_ROW(_avx2)};

/* ---- parameters ---------------------------------------------------------------------------------------------------*/
ng_status ng_cpu_norm_check_parameters(const ng_kernel *kernel, const ng_launch *launch, bool needs_beta) {
    const ng_norm *norm = &kernel->contract.norm;
    const double epsilon = launch->problem->scalars[NG_EPSILON];
    ng_status status = ng_cpu_check(launch, NG_PARAMETER, norm->parameters, 1, launch->problem->n);
    if (!status && needs_beta) status = ng_cpu_check(launch, NG_PARAMETER_2, norm->parameters, 1, launch->problem->n);
    if (!status && !(epsilon >= 0 && epsilon <= 1)) status = ng_cpu_fail(launch, NG_BAD_ARGUMENT, "epsilon is %g, expected 0 to 1", epsilon);
    return status;
}

void ng_cpu_norm_parameters(const ng_kernel *kernel, const ng_launch *launch, float absent, float *w, float *beta) {
    const ng_norm *norm = &kernel->contract.norm;
    const int64_t n = launch->problem->n;
    load_row(norm->parameters, launch->tensors[NG_PARAMETER].data, n, w);
    for (int64_t i = 0; i < n; i++)
        w[i] = ng_norm_weight(w[i], norm->zero_centered);
    if (norm->kind == NG_LAYER_NORM && launch->tensors[NG_PARAMETER_2].data)
        load_row(norm->parameters, launch->tensors[NG_PARAMETER_2].data, n, beta);
    else
        for (int64_t i = 0; i < n; i++)
            beta[i] = absent;
}
