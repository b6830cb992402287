/* Activations and cross-entropy that are almost right. */
#include "fault.h"

#include "kernels/common/activation.h"

#include <stdlib.h>

/* ---- other contracts and operands ---------------------------------------------------------------------------------*/
static void tanh_for_erf(ng_kernel *subject) { subject->contract.activation.kind = NG_GELU_TANH; }
static void erf_for_tanh(ng_kernel *subject) { subject->contract.activation.kind = NG_GELU_ERF; }

static ng_status exchanged(const ng_kernel *subject, const ng_launch *launch, ng_role a, ng_role b) {
    ng_launch mine = *launch;
    mine.tensors[a] = launch->tensors[b];
    mine.tensors[b] = launch->tensors[a];
    return subject->launch(subject, &mine);
}
static ng_status gate_and_up_exchanged(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    return exchanged(subject, launch, NG_IN, NG_IN_2);
}
static ng_status gradients_exchanged(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    return exchanged(subject, launch, NG_OUT, NG_OUT_2);
}

/* Quantized from what a bf16 tensor between two kernels would hold. */
static ng_status through_bf16(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_caster caster = ng_caster_of(NG_BF16, &cast), element = ng_caster_of(subject->out, &subject->contract.cast);
    const ng_tensor *in = &launch->tensors[NG_IN], *up = &launch->tensors[NG_IN_2], *scales = &launch->tensors[NG_OUT_SCALES];
    ng_status status = subject->launch(subject, launch);
    for (int64_t i = 0; !status && i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            const float y = ng_activate(subject->contract.activation.kind, ng_element_value(in, i, j), ng_element_value(up, i, j));
            const float rounded = ng_float(ng_cast_code(&caster, NG_RN_EVEN, ng_bits(y)) << 16);
            const float encode = ng_scale_e8m0_inverse(ng_element_get(scales, i, j / 32));
            ng_element_store(&launch->tensors[NG_OUT], i, j, ng_cast_code(&element, NG_RN_EVEN, ng_bits(rounded * encode)));
        }
    return status;
}

/* ---- other elements -----------------------------------------------------------------------------------------------*/
typedef float forward_element(float x, float u);
static float cut(float y) { return ng_float(ng_bits(y) & 0xFFFF0000u); }
typedef float backward_element(float x, float u, float d);

static float value(const ng_tensor *t, int64_t i, int64_t j) { return t->data ? ng_element_value(t, i, j) : 1; }
static void store(const ng_launch *launch, ng_role role, int64_t i, int64_t j, float y) {
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_tensor *out = &launch->tensors[role];
    const ng_caster caster = ng_caster_of(out->format, &cast);
    ng_element_store(out, i, j, ng_norm_code(&caster, out->format, y));
}

static ng_status by_forward(const ng_launch *launch, forward_element *element) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++)
            store(launch, NG_OUT, i, j, element(ng_element_value(in, i, j), value(&launch->tensors[NG_IN_2], i, j)));
    return NG_OK;
}
static ng_status by_backward(const ng_kernel *subject, const ng_launch *launch, backward_element *element) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    ng_status status = subject->launch(subject, launch);
    for (int64_t i = 0; !status && i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++)
            store(launch, NG_OUT, i, j, element(ng_element_value(in, i, j), value(&launch->tensors[NG_IN_2], i, j), ng_element_value(&launch->tensors[NG_GRADIENT], i, j)));
    return status;
}

#define FORWARD(name, expression)                                                                          \
    static float name##_element(float x, float u) { return (void)u, expression; }                          \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {      \
        (void)fault, (void)subject;                                                                        \
        return by_forward(launch, name##_element);                                                         \
    }
#define BACKWARD(name, expression)                                                                         \
    static float name##_element(float x, float u, float d) { return (void)u, (void)d, expression; }        \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {      \
        (void)fault;                                                                                       \
        return by_backward(subject, launch, name##_element);                                               \
    }

static float rough_exp(float x) { return ng_float(ng_bits(ng_exp(x)) & 0xFFFFF800u); }
static float short_tail(float x) { return x < -5 ? 0 : x * ng_normal(x, ng_tail_of(ng_normal_argument(x), ng_density(ng_normal_argument(x)))); }

FORWARD(quick_gelu, x * ng_logistic(1.702f * x))
FORWARD(linear_term_alone, x * ng_logistic(NG_GELU_C1 * x))
FORWARD(constant_off, x * ng_logistic(x * (NG_GELU_C1 + NG_GELU_C2 * 1.01f * x * x)))
FORWARD(approximate_exp, x / (1 + rough_exp(-x)) * u)
FORWARD(gate_not_multiplied, ng_logistic(x) * u)
FORWARD(up_forgotten, x * ng_logistic(x))
FORWARD(relu_for_silu, (x > 0 ? x : 0) * u)
FORWARD(tail_cut, short_tail(x))
FORWARD(toward_zero, cut(ng_activate(NG_GELU_ERF, x, 1)))
BACKWARD(product_rule_forgotten, d * u * ng_logistic(x))
BACKWARD(up_not_in_gate_gradient, ng_activate_backward(NG_SWIGLU, x, 1, d, &u))
BACKWARD(gradient_forgotten, ng_activate_backward(NG_SWIGLU, x, u, 1, &u))
BACKWARD(slope_of_quick_gelu, d * (ng_logistic(1.702f * x) + 1.702f * x * ng_logistic(1.702f * x) * (1 - ng_logistic(1.702f * x))))
BACKWARD(density_forgotten, d * ng_normal(x, ng_tail_of(ng_normal_argument(x), ng_density(ng_normal_argument(x)))))
BACKWARD(inner_slope_forgotten, d * (ng_logistic(ng_gelu_argument(x)) + x * ng_logistic(ng_gelu_argument(x)) * (1 - ng_logistic(ng_gelu_argument(x))) * NG_GELU_C1))

/* ---- cross-entropy ------------------------------------------------------------------------------------------------*/
static int32_t label_of(const ng_launch *launch, int64_t row) { return (int32_t)ng_element_get(&launch->tensors[NG_LABELS], row, 0); }
static float loss_of(const ng_launch *launch, int64_t row) { return ng_element_value(&launch->tensors[NG_OUT], row, 0); }

#define LOSS(name, expression)                                                                             \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {      \
        (void)fault;                                                                                       \
        ng_status status = subject->launch(subject, launch);                                               \
        for (int64_t i = 0; !status && i < launch->tensors[NG_IN].rows; i++)                               \
            store(launch, NG_OUT, i, 0, expression);                                                       \
        return status;                                                                                     \
    }

/* exp of the logits themselves overflows beyond 88. */
static float unshifted(const ng_launch *launch, int64_t row) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    float sum = 0;
    for (int64_t j = 0; j < in->columns; j++)
        sum += ng_exp(ng_element_value(in, row, j));
    return label_of(launch, row) < 0 ? 0 : (float)ng_log((double)sum) - ng_element_value(in, row, label_of(launch, row));
}
static float next_label(const ng_launch *launch, int64_t row) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    const int32_t label = label_of(launch, row);
    if (label < 0) return 0;
    return loss_of(launch, row) + ng_element_value(in, row, label) - ng_element_value(in, row, (label + 1) % in->columns);
}
static float ignored_counted(const ng_launch *launch, int64_t row) {
    return label_of(launch, row) < 0 ? (float)ng_log((double)ng_element_value(&launch->tensors[NG_ROW_SUM], row, 0)) : loss_of(launch, row);
}
/* A sum in bf16, as a loss outside autocast's fp32 list would have it. */
static float bf16_sum(const ng_launch *launch, int64_t row) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    const float max = ng_element_value(&launch->tensors[NG_ROW_MAX], row, 0);
    float sum = 0;
    for (int64_t j = 0; j < in->columns; j++)
        sum = ng_float(ng_bits(sum + ng_exp(ng_element_value(in, row, j) - max)) & 0xFFFF0000u);
    return label_of(launch, row) < 0 ? 0 : max - ng_element_value(in, row, label_of(launch, row)) + (float)ng_log((double)sum);
}
LOSS(exp_unshifted, unshifted(launch, i))
LOSS(label_shifted, next_label(launch, i))
LOSS(ignored_rows_counted, ignored_counted(launch, i))
LOSS(sum_in_bf16, bf16_sum(launch, i))
LOSS(in_bits, loss_of(launch, i) * 0x1.715476p0f)
LOSS(negated, -loss_of(launch, i))

#define GRADIENT(name, expression)                                                                         \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {      \
        (void)fault;                                                                                       \
        const ng_tensor *in = &launch->tensors[NG_IN];                                                     \
        ng_status status = subject->launch(subject, launch);                                               \
        for (int64_t i = 0; !status && i < in->rows; i++) {                                                \
            const float max = ng_element_value(&launch->tensors[NG_ROW_MAX], i, 0), r = 1 / ng_element_value(&launch->tensors[NG_ROW_SUM], i, 0); \
            const float d = ng_element_value(&launch->tensors[NG_GRADIENT], i, 0);                         \
            const int32_t label = label_of(launch, i);                                                     \
            for (int64_t j = 0; j < in->columns; j++)                                                      \
                store(launch, NG_OUT, i, j, expression);                                                   \
        }                                                                                                  \
        return status;                                                                                     \
    }
#define AT(k) ng_element_value(in, i, k)
GRADIENT(label_not_subtracted, label < 0 ? 0 : ng_loss_gradient(AT(j), max, r, false, d))
GRADIENT(label_added, label < 0 ? 0 : j == label ? d * (ng_exp(AT(j) - max) * r + 1) : ng_loss_gradient(AT(j), max, r, false, d))
GRADIENT(upstream_forgotten, label < 0 || isnan(d) ? 0 : ng_loss_gradient(AT(j), max, r, j == label, 1))
GRADIENT(ignored_rows_pushed, ng_loss_gradient(AT(j), max, r, j == label, d))
GRADIENT(not_normalised, label < 0 ? 0 : ng_loss_gradient(AT(j), max, r > 0 ? 1 : r, j == label, d))
GRADIENT(divided_by_columns, label < 0 ? 0 : ng_loss_gradient(AT(j), max, r, j == label, d) / (float)in->columns)
GRADIENT(probability_in_bf16, label < 0 ? 0 : d * (ng_float(ng_bits(ng_exp(AT(j) - max) * r) & 0xFFFF0000u) - (j == label ? 1.0f : 0.0f)))

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
static const ng_fault faults[] = {
    {.name = "tanh-for-erf", .right = "gelu-erf/fp32->fp32/cpu/fused", .imitates = "the tanh approximation where the exact GELU was asked for", .change = tanh_for_erf},
    {.name = "erf-for-tanh", .right = "gelu-tanh/fp32->fp32/cpu/fused", .imitates = "the exact GELU where its approximation was asked for", .change = erf_for_tanh},
    {.name = "tanh-for-erf", .right = "gelu-erf-backward/fp32/cpu/fused", .imitates = "forward exact, backward approximate", .change = tanh_for_erf},
    {.name = "quick-gelu", .right = "gelu-tanh/fp32->fp32/cpu/fused", .imitates = "x sigmoid(1.702 x)", .compute = quick_gelu},
    {.name = "quick-gelu", .right = "gelu-tanh/bf16->bf16/cpu/fused", .imitates = "the same, where bf16 hides more", .compute = quick_gelu},
    {.name = "linear-term-alone", .right = "gelu-tanh/fp32->fp32/cpu/fused", .imitates = "the cubic term forgotten", .compute = linear_term_alone},
    {.name = "constant-off", .right = "gelu-tanh/fp32->fp32/cpu/fused", .imitates = "0.04516 for 0.044715", .compute = constant_off},
    {.name = "tail-cut", .right = "gelu-erf/fp32->fp32/cpu/fused", .imitates = "erf taken for -1 below -3.5: a tail without relative accuracy", .compute = tail_cut},
    {.name = "toward-zero", .right = "gelu-erf/bf16->bf16/cpu/fused", .imitates = "the result cut, not rounded", .compute = toward_zero},
    {.name = "approximate-exp", .right = "swiglu/fp32->fp32/cpu/fused", .imitates = "a fast exp of 12 bits", .compute = approximate_exp},
    {.name = "gate-not-multiplied", .right = "swiglu/bf16->bf16/cpu/fused", .imitates = "GLU for SwiGLU", .compute = gate_not_multiplied},
    {.name = "up-forgotten", .right = "swiglu/bf16->bf16/cpu/fused", .imitates = "SiLU for SwiGLU", .compute = up_forgotten},
    {.name = "relu-for-silu", .right = "swiglu/bf16->bf16/cpu/fused", .imitates = "ReGLU for SwiGLU", .compute = relu_for_silu},
    {.name = "gate-and-up-exchanged", .right = "swiglu/bf16->bf16/cpu/fused", .imitates = "the halves of a fused projection exchanged", .compute = gate_and_up_exchanged},
    {.name = "through-bf16", .right = "swiglu/bf16->mxfp8/cpu/fused", .imitates = "quantized from a rounded tensor: twice rounded", .compute = through_bf16},
    {.name = "gradients-exchanged", .right = "swiglu-backward/bf16/cpu/fused", .imitates = "dgate and dup exchanged", .compute = gradients_exchanged},
    {.name = "product-rule-forgotten", .right = "swiglu-backward/bf16/cpu/fused", .imitates = "the gate's own derivative forgotten", .compute = product_rule_forgotten},
    {.name = "up-not-in-gate-gradient", .right = "swiglu-backward/bf16/cpu/fused", .imitates = "dgate without up", .compute = up_not_in_gate_gradient},
    {.name = "gradient-forgotten", .right = "swiglu-backward/bf16/cpu/fused", .imitates = "dgate without the incoming gradient", .compute = gradient_forgotten},
    {.name = "slope-of-quick-gelu", .right = "gelu-tanh-backward/bf16/cpu/fused", .imitates = "the derivative of another approximation", .compute = slope_of_quick_gelu},
    {.name = "inner-slope-forgotten", .right = "gelu-tanh-backward/bf16/cpu/fused", .imitates = "the cubic term's derivative forgotten", .compute = inner_slope_forgotten},
    {.name = "density-forgotten", .right = "gelu-erf-backward/bf16/cpu/fused", .imitates = "x phi(x) forgotten", .compute = density_forgotten},
    {.name = "exp-unshifted", .right = "cross-entropy/fp32/cpu/fused", .imitates = "softmax without its maximum: overflows beyond 88", .compute = exp_unshifted},
    {.name = "label-shifted", .right = "cross-entropy/bf16/cpu/fused", .imitates = "labels one off", .compute = label_shifted},
    {.name = "ignored-rows-counted", .right = "cross-entropy/bf16/cpu/fused", .imitates = "ignore_index ignored", .compute = ignored_rows_counted},
    {.name = "sum-in-bf16", .right = "cross-entropy/bf16/cpu/fused", .imitates = "statistics in the logits' format", .compute = sum_in_bf16},
    {.name = "in-bits", .right = "cross-entropy/bf16/cpu/fused", .imitates = "log2 for log", .compute = in_bits},
    {.name = "negated", .right = "cross-entropy/bf16/cpu/fused", .imitates = "the log-likelihood, not its negative", .compute = negated},
    {.name = "label-not-subtracted", .right = "cross-entropy-backward/bf16/cpu/fused", .imitates = "the softmax itself as gradient", .compute = label_not_subtracted},
    {.name = "label-added", .right = "cross-entropy-backward/bf16/cpu/fused", .imitates = "a sign", .compute = label_added},
    {.name = "upstream-forgotten", .right = "cross-entropy-backward/bf16/cpu/fused", .imitates = "the incoming gradient, and so the loss scale, forgotten", .compute = upstream_forgotten},
    {.name = "ignored-rows-pushed", .right = "cross-entropy-backward/bf16/cpu/fused", .imitates = "ignored rows that still have gradients", .compute = ignored_rows_pushed},
    {.name = "not-normalised", .right = "cross-entropy-backward/bf16/cpu/fused", .imitates = "exp without its sum", .compute = not_normalised},
    {.name = "divided-by-columns", .right = "cross-entropy-backward/bf16/cpu/fused", .imitates = "a mean over the wrong axis", .compute = divided_by_columns},
    {.name = "probability-in-bf16", .right = "cross-entropy-backward/fp32/cpu/fused", .imitates = "a softmax that was stored in bf16", .compute = probability_in_bf16},
};

const ng_fault_list ng_activation_faults = {faults, sizeof faults / sizeof *faults};
