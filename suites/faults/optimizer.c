/* Optimizers, and the steps around them, that are almost right. */
#include "fault.h"

#include "kernels/common/optimizer.h"

#include <stdlib.h>

/* ---- other hyper-parameters ---------------------------------------------------------------------------------------*/
typedef void change_scalars(double *scalars);

static ng_status with_scalars(const ng_kernel *subject, const ng_launch *launch, change_scalars *change) {
    ng_problem problem = *launch->problem;
    ng_launch mine = *launch;
    change(problem.scalars);
    mine.problem = &problem;
    return subject->launch(subject, &mine);
}

#define SCALARS(name, statement)                                                                                          \
    static void name##_scalars(double *s) { statement; }                                                                  \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {                     \
        (void)fault;                                                                                                      \
        return with_scalars(subject, launch, name##_scalars);                                                             \
    }
/* volatile: gcc 12 takes two neighbouring conversions to float and back, done as one vector, for nothing. */
SCALARS(float_betas, for (int i = NG_BETA1; i <= NG_BETA2; i++) { volatile float b = (float)s[i]; s[i] = (double)b; })
SCALARS(step_late, s[NG_STEP] += 1)
SCALARS(step_early, s[NG_STEP] = s[NG_STEP] > 1 ? s[NG_STEP] - 1 : 1)
SCALARS(eps_squared, s[NG_EPSILON] *= s[NG_EPSILON])
SCALARS(eps_1e6, s[NG_EPSILON] = 1e-6)
SCALARS(beta2_998, s[NG_BETA2] = 0.998)
SCALARS(lr_off, s[NG_LEARNING_RATE] *= 1.001)
SCALARS(decay_without_lr, s[NG_WEIGHT_DECAY] /= s[NG_LEARNING_RATE])
SCALARS(no_decay, s[NG_WEIGHT_DECAY] = 0)
SCALARS(scale_ignored, s[NG_GRADIENT_SCALE] = 0)
SCALARS(betas_swapped, const double b = s[NG_BETA1]; s[NG_BETA1] = s[NG_BETA2]; s[NG_BETA2] = b)

/* ---- other contracts ----------------------------------------------------------------------------------------------*/
static void uncorrected(ng_kernel *subject) { subject->contract.optimizer.bias_correction = false; }
static void corrected(ng_kernel *subject) { subject->contract.optimizer.bias_correction = true; }
static void l2_for_decay(ng_kernel *subject) { subject->contract.optimizer.kind = NG_ADAM_L2; }
static void decay_after(ng_kernel *subject) { subject->contract.optimizer.kind = NG_ADAMW_APEX; }
static void decay_before(ng_kernel *subject) { subject->contract.optimizer.kind = NG_ADAMW_TORCH; }

/* ---- other launches -----------------------------------------------------------------------------------------------*/
static ng_status never_skips(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_launch mine = *launch;
    mine.tensors[NG_FOUND_INF].data = NULL;
    return subject->launch(subject, &mine);
}

/* As the ignored no-op flag of a fused functor: parameters kept, moments not. */
static ng_status skips_parameters_alone(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    ng_tensor kept = ng_tensor_twin(&launch->tensors[NG_PARAMETER]);
    const bool found = launch->tensors[NG_FOUND_INF].data && ng_element_value(&launch->tensors[NG_FOUND_INF], 0, 0) != 0;
    if (launch->list_count || !found || !kept.data) {
        free(kept.data);
        return subject->launch(subject, launch);
    }
    ng_status status = never_skips(fault, subject, launch);
    for (int64_t i = 0; i < kept.rows; i++)
        for (int64_t j = 0; j < kept.columns; j++)
            ng_element_set(&launch->tensors[NG_PARAMETER], i, j, ng_element_get(&kept, i, j));
    free(kept.data);
    return status;
}

static ng_status last_tensor_missed(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_launch mine = *launch;
    if (mine.list_count > 1) mine.list_count--;
    return subject->launch(subject, &mine);
}

/* A role's elements of every tensor of a launch, once more after the kernel. */
static void again(const ng_launch *launch, ng_role role, uint32_t (*change)(uint32_t code)) {
    for (int64_t t = 0; t < (launch->list_count ? launch->list_count : 1); t++) {
        const ng_tensor *x = launch->list_count ? &launch->lists[role][t] : &launch->tensors[role];
        for (int64_t i = 0; x->data && i < x->rows; i++)
            for (int64_t j = 0; j < x->columns; j++)
                ng_element_set(x, i, j, change(ng_element_get(x, i, j)));
    }
}
static uint32_t through_bf16(uint32_t bits) {
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_caster caster = ng_caster_of(NG_BF16, &cast);
    return ng_cast_code(&caster, NG_RN_EVEN, bits) << 16;
}
static uint32_t last_bit(uint32_t bits) { return bits ^ 1; }
static uint32_t without_remainder(uint32_t bits) { (void)bits; return 0; }

#define AFTERWARDS(name, role, change)                                                                          \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {           \
        (void)fault;                                                                                            \
        ng_status status = subject->launch(subject, launch);                                                    \
        if (!status) again(launch, role, change);                                                               \
        return status;                                                                                          \
    }
AFTERWARDS(moment_in_bf16, NG_MOMENT_1, through_bf16)
AFTERWARDS(moment_2_in_bf16, NG_MOMENT_2, through_bf16)
AFTERWARDS(master_in_bf16, NG_PARAMETER_2, through_bf16)
AFTERWARDS(last_bit_wrong, NG_PARAMETER, last_bit)
AFTERWARDS(remainder_lost, NG_PARAMETER_2, without_remainder)

/* bf16 parameters that keep the remainder but are cut, not rounded: NVIDIA/TransformerEngine's adam.cu undoes a rounding that then
 * never was. */
static ng_status parameter_cut(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_status status = subject->launch(subject, launch);
    for (int64_t t = 0; !status && t < (launch->list_count ? launch->list_count : 1); t++) {
        const ng_tensor *p = launch->list_count ? &launch->lists[NG_PARAMETER][t] : &launch->tensors[NG_PARAMETER];
        const ng_tensor *rest = launch->list_count ? &launch->lists[NG_PARAMETER_2][t] : &launch->tensors[NG_PARAMETER_2];
        for (int64_t i = 0; i < p->rows; i++)
            for (int64_t j = 0; j < p->columns; j++)
                ng_element_set(p, i, j, (ng_element_get(p, i, j) - (ng_element_get(rest, i, j) >> 15)) & 0xFFFFu);
    }
    return status;
}

static ng_status cut_from_master(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_status status = subject->launch(subject, launch);
    for (int64_t t = 0; !status && t < (launch->list_count ? launch->list_count : 1); t++) {
        const ng_tensor *p = launch->list_count ? &launch->lists[NG_PARAMETER][t] : &launch->tensors[NG_PARAMETER];
        const ng_tensor *master = launch->list_count ? &launch->lists[NG_PARAMETER_2][t] : &launch->tensors[NG_PARAMETER_2];
        for (int64_t i = 0; i < p->rows; i++)
            for (int64_t j = 0; j < p->columns; j++)
                ng_element_set(p, i, j, ng_element_get(master, i, j) >> 16);
    }
    return status;
}

/* fp8 moments under the scale of the step before: what grows saturates. */
static ng_status scale_kept(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_tensor scales = ng_tensor_twin(&launch->tensors[NG_MOMENT_1_SCALES]);
    ng_status status = subject->launch(subject, launch);
    for (int64_t i = 0; scales.data && i < scales.rows; i++)
        for (int64_t j = 0; j < scales.columns; j++)
            ng_element_set(&launch->tensors[NG_MOMENT_1_SCALES], i, j, ng_element_get(&scales, i, j));
    free(scales.data);
    return status;
}

/* ---- other elements -----------------------------------------------------------------------------------------------*/
typedef void one_step(const ng_adam_factors *f, float g, float *p, float *m, float *v);

static ng_status by_element(const ng_kernel *subject, const ng_launch *launch, one_step *step) {
    const ng_adam_factors f = ng_adam_factors_of(launch->problem->scalars, subject->contract.optimizer.bias_correction, (int64_t)launch->problem->scalars[NG_STEP]);
    const ng_tensor *found = &launch->tensors[NG_FOUND_INF];
    if (found->data && ng_element_value(found, 0, 0) != 0) return NG_OK;
    for (int64_t t = 0; t < (launch->list_count ? launch->list_count : 1); t++) {
        static const ng_role roles[4] = {NG_GRADIENT, NG_PARAMETER, NG_MOMENT_1, NG_MOMENT_2};
        const ng_tensor *x[4];
        for (int k = 0; k < 4; k++)
            x[k] = launch->list_count ? &launch->lists[roles[k]][t] : &launch->tensors[roles[k]];
        for (int64_t i = 0; i < x[0]->rows; i++)
            for (int64_t j = 0; j < x[0]->columns; j++) {
                float e[4];
                for (int k = 0; k < 4; k++)
                    e[k] = ng_element_value(x[k], i, j);
                step(&f, e[0], &e[1], &e[2], &e[3]);
                for (int k = 1; k < 4; k++)
                    ng_element_set(x[k], i, j, ng_norm_code(NULL, NG_FP32, e[k]));
            }
    }
    return NG_OK;
}

#define STEP(name, second, root, rest)                                                                                      \
    static void name##_step(const ng_adam_factors *f, float g, float *p, float *m, float *v) {                              \
        const float before = *m;                                                                                            \
        if (f->scaled) g *= f->g;                                                                                           \
        *m = f->b1 * before + f->a1 * g;                                                                                    \
        *v = second;                                                                                                        \
        const float q = *m / (root), first = before;                                                                        \
        (void)first, (void)q;                                                                                               \
        *p = rest;                                                                                                          \
    }                                                                                                                       \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {                       \
        (void)fault;                                                                                                        \
        return by_element(subject, launch, name##_step);                                                                    \
    }
#define SECOND (f->b2 * *v + f->a2 * g * g)
#define ROOT (ng_norm_sqrt(*v) * f->s2 + f->epsilon)
#define REST (f->d * *p - f->l1 * q)
STEP(eps_inside, SECOND, ng_norm_sqrt(*v * f->s2 * f->s2 + f->epsilon), REST)
STEP(eps_uncorrected, SECOND, (ng_norm_sqrt(*v) + f->epsilon) * f->s2, REST)
STEP(gradient_not_squared, f->b2 * *v + f->a2 * g, ROOT, REST)
STEP(old_moment, SECOND, ROOT, f->d * *p - f->l1 * (first / (ROOT)))
STEP(ascends, SECOND, ROOT, f->d * *p + f->l1 * q)
STEP(decay_of_the_new, SECOND, ROOT, f->d * (*p - f->l1 * q))
STEP(second_uncorrected, SECOND, ng_norm_sqrt(*v) + f->epsilon, REST)
STEP(max_of_moments, (*v > SECOND ? *v : SECOND), ROOT, REST)
STEP(root_approximate, SECOND, ng_float(ng_bits(ng_norm_sqrt(*v)) & 0xFFFFFC00u) * f->s2 + f->epsilon, REST)

/* ---- the steps around ---------------------------------------------------------------------------------------------*/
static ng_status infinity_missed(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_status status = subject->launch(subject, launch);
    ng_element_set(&launch->tensors[NG_FOUND_INF], 0, 0, 0);
    return status;
}

/* x > max is false of NaN. */
static ng_status nan_missed(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    bool infinite = false;
    ng_status status = subject->launch(subject, launch);
    for (int64_t t = 0; t < (launch->list_count ? launch->list_count : 1); t++) {
        const ng_tensor *g = launch->list_count ? &launch->lists[NG_GRADIENT][t] : &launch->tensors[NG_GRADIENT];
        for (int64_t i = 0; i < g->rows; i++)
            for (int64_t j = 0; j < g->columns; j++)
                infinite = infinite || (ng_bits(ng_element_value(g, i, j)) & NG_ABS_MASK) == NG_INF_BITS;
    }
    if (!infinite) ng_element_set(&launch->tensors[NG_FOUND_INF], 0, 0, 0);
    return status;
}

static ng_status not_scaled(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    float one = 1;
    ng_launch mine = *launch;
    mine.tensors[NG_LOSS_SCALE].data = &one;
    return subject->launch(subject, &mine);
}

static ng_status grows_past_finite(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    const float before = ng_element_value(&launch->tensors[NG_LOSS_SCALE], 0, 0), count = ng_element_value(&launch->tensors[NG_GROWTH_COUNT], 0, 0);
    const bool found = ng_element_value(&launch->tensors[NG_FOUND_INF], 0, 0) != 0;
    ng_status status = subject->launch(subject, launch);
    if (!found && (double)count + 1 >= launch->problem->scalars[NG_GROWTH_INTERVAL])
        ng_element_set(&launch->tensors[NG_LOSS_SCALE], 0, 0, ng_bits(before * (float)launch->problem->scalars[NG_GROWTH]));
    return status;
}
SCALARS(grows_late, s[NG_GROWTH_INTERVAL] += 1)
SCALARS(backs_off_twice, s[NG_BACKOFF] *= s[NG_BACKOFF])

/* The count goes on after an infinity. */
static ng_status count_kept(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    const uint32_t count = ng_element_get(&launch->tensors[NG_GROWTH_COUNT], 0, 0);
    const bool found = ng_element_value(&launch->tensors[NG_FOUND_INF], 0, 0) != 0;
    ng_status status = subject->launch(subject, launch);
    if (found) ng_element_set(&launch->tensors[NG_GROWTH_COUNT], 0, 0, count);
    return status;
}

static float sum_of_squares(const ng_launch *launch) {
    float sum = 0;
    for (int64_t t = 0; t < (launch->list_count ? launch->list_count : 1); t++) {
        const ng_tensor *g = launch->list_count ? &launch->lists[NG_GRADIENT][t] : &launch->tensors[NG_GRADIENT];
        for (int64_t i = 0; i < g->rows; i++)
            for (int64_t j = 0; j < g->columns; j++)
                sum += ng_element_value(g, i, j) * ng_element_value(g, i, j);
    }
    return sum;
}
static ng_status norm_in_fp32(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault, (void)subject;
    ng_element_set(&launch->tensors[NG_OUT], 0, 0, ng_norm_code(NULL, NG_FP32, ng_norm_sqrt(sum_of_squares(launch))));
    return NG_OK;
}
static ng_status norm_squared(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    ng_status status = subject->launch(subject, launch);
    const float norm = ng_element_value(&launch->tensors[NG_OUT], 0, 0);
    ng_element_set(&launch->tensors[NG_OUT], 0, 0, ng_norm_code(NULL, NG_FP32, norm * norm));
    return status;
}

/* Scales up what is below the limit. */
static ng_status always_clips(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    const float factor = (float)launch->problem->scalars[NG_MAX_NORM] / (ng_element_value(&launch->tensors[NG_OUT], 0, 0) + 1e-6f);
    if (!(factor > 1)) return subject->launch(subject, launch);
    for (int64_t i = 0; i < launch->tensors[NG_GRADIENT].rows; i++)
        for (int64_t j = 0; j < launch->tensors[NG_GRADIENT].columns; j++) {
            const float x = ng_element_value(&launch->tensors[NG_GRADIENT], i, j) * factor;
            ng_element_set(&launch->tensors[NG_GRADIENT], i, j, ng_norm_code(NULL, NG_FP32, x));
        }
    return NG_OK;
}
static ng_status no_epsilon(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    float norm = ng_element_value(&launch->tensors[NG_OUT], 0, 0) - 1e-6f;
    ng_launch mine = *launch;
    mine.tensors[NG_OUT].data = &norm;
    return subject->launch(subject, &mine);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define TORCH "adamw/fp32/cpu/torch"
#define APEX "adamw/fp32/cpu/apex"

static const ng_fault faults[] = {
    {.name = "l2-for-adamw", .right = TORCH, .imitates = "Adam applied where AdamW was asked for; its mirror is flagos-ai/FlagGems#4988, unnoticed because tests had no decay", .change = l2_for_decay},
    {.name = "adamw-for-l2", .right = "adam/fp32/cpu/l2", .imitates = "flagos-ai/FlagGems#4988: _fused_adam applied AdamW's rule", .change = decay_before},
    {.name = "decay-after", .right = TORCH, .imitates = "the order of decay differs between backends: bitsandbytes#2010", .change = decay_after},
    {.name = "decay-before", .right = APEX, .imitates = "the same, the other way", .change = decay_before},
    {.name = "decay-of-the-new", .right = TORCH, .imitates = "decay multiplied after the update", .compute = decay_of_the_new},
    {.name = "no-decay", .right = TORCH, .imitates = "weight decay forgotten", .compute = no_decay},
    {.name = "decay-without-lr", .right = TORCH, .imitates = "decay not multiplied by the learning rate", .compute = decay_without_lr},
    {.name = "float-betas", .right = TORCH, .imitates = "betas as float where double was passed: apex and TransformerEngine compute the corrections from floats", .compute = float_betas},
    {.name = "step-late", .right = TORCH, .imitates = "bias correction one step late", .compute = step_late},
    {.name = "step-early", .right = TORCH, .imitates = "bias correction one step early", .compute = step_early},
    {.name = "uncorrected", .right = TORCH, .imitates = "bias correction forgotten", .change = uncorrected},
    {.name = "corrected", .right = "adamw/fp32/cpu/torch-uncorrected", .imitates = "bias correction where none was asked for", .change = corrected},
    {.name = "second-uncorrected", .right = TORCH, .imitates = "the second moment's correction forgotten", .compute = second_uncorrected},
    {.name = "eps-squared", .right = TORCH, .imitates = "eps^2 for eps", .compute = eps_squared},
    {.name = "eps-1e-6", .right = TORCH, .imitates = "1e-6 for 1e-8: passes Apex's own tolerance", .compute = eps_1e6},
    {.name = "eps-inside", .right = TORCH, .imitates = "eps under the root", .compute = eps_inside},
    {.name = "eps-uncorrected", .right = TORCH, .imitates = "eps added before the correction, as the Adam paper's shortened form has it", .compute = eps_uncorrected},
    {.name = "beta2-998", .right = TORCH, .imitates = "beta2 0.998 for 0.999: passes Apex's own tolerance on some seeds", .compute = beta2_998},
    {.name = "betas-swapped", .right = TORCH, .imitates = "beta1 and beta2 exchanged", .compute = betas_swapped},
    {.name = "lr-1.001", .right = TORCH, .imitates = "a learning rate a thousandth off", .compute = lr_off},
    {.name = "scale-ignored", .right = TORCH, .imitates = "gradients not unscaled", .compute = scale_ignored},
    {.name = "gradient-not-squared", .right = TORCH, .imitates = "the second moment of g, not g^2", .compute = gradient_not_squared},
    {.name = "old-moment", .right = TORCH, .imitates = "the update taken from the first moment of the step before", .compute = old_moment},
    {.name = "ascends", .right = TORCH, .imitates = "the sign of the update", .compute = ascends},
    {.name = "max-of-moments", .right = TORCH, .imitates = "AMSGrad where Adam was asked for", .compute = max_of_moments},
    {.name = "root-approximate", .right = TORCH, .imitates = "--use_fast_math: an approximate square root", .compute = root_approximate},
    {.name = "never-skips", .right = TORCH, .imitates = "a NaN that does not skip the step: apex's plain functor has its no-op flag commented out", .compute = never_skips},
    {.name = "skips-parameters-alone", .right = TORCH, .imitates = "a skipped step that still poisons the moments", .compute = skips_parameters_alone},
    {.name = "last-tensor-missed", .right = TORCH, .imitates = "the last tensor of a list is not updated", .compute = last_tensor_missed},
    {.name = "moment-in-bf16", .right = TORCH, .imitates = "the first moment kept in the wrong format", .compute = moment_in_bf16},
    {.name = "moment-2-in-bf16", .right = TORCH, .imitates = "the second moment kept in the wrong format", .compute = moment_2_in_bf16},
    {.name = "last-bit-wrong", .right = TORCH, .imitates = "arithmetic that changed within the bound", .compute = last_bit_wrong},
    {.name = "master-in-bf16", .right = "adamw/bf16/cpu/torch-master", .imitates = "a master weight of no more precision than the parameter", .compute = master_in_bf16},
    {.name = "toward-zero", .right = "adamw/bf16/cpu/torch-master", .imitates = "parameters cut, not rounded, from the master", .compute = cut_from_master},
    {.name = "remainder-lost", .right = "adamw/bf16/cpu/torch-remainder", .imitates = "a remainder that is not written back", .compute = remainder_lost},
    {.name = "parameter-cut", .right = "adamw/bf16/cpu/torch-remainder", .imitates = "the high half stored without rounding", .compute = parameter_cut},
    {.name = "scale-kept", .right = "adamw/fp32/cpu/torch-fp8-moments", .imitates = "a scale of fp8 moments that is not renewed", .compute = scale_kept},
    {.name = "infinity-missed", .right = "unscale/fp32/cpu/checked", .imitates = "no check for infinities", .compute = infinity_missed},
    {.name = "nan-missed", .right = "unscale/fp32/cpu/checked", .imitates = "a check that NaN passes: comparisons with NaN are false", .compute = nan_missed},
    {.name = "not-scaled", .right = "unscale/fp32/cpu/checked", .imitates = "gradients left scaled", .compute = not_scaled},
    {.name = "grows-past-finite", .right = "scaler/fp32/cpu/dynamic", .imitates = "a loss scale that grows to infinity", .compute = grows_past_finite},
    {.name = "grows-late", .right = "scaler/fp32/cpu/dynamic", .imitates = "growth one step late", .compute = grows_late},
    {.name = "backs-off-twice", .right = "scaler/fp32/cpu/dynamic", .imitates = "the scale quartered", .compute = backs_off_twice},
    {.name = "count-kept", .right = "scaler/fp32/cpu/dynamic", .imitates = "good steps before an infinity still counted", .compute = count_kept},
    {.name = "norm-in-fp32", .right = "norm2/fp32/cpu/fp64-sum", .imitates = "the gradient norm as one fp32 chain", .compute = norm_in_fp32},
    {.name = "norm-squared", .right = "norm2/fp32/cpu/fp64-sum", .imitates = "the root forgotten", .compute = norm_squared},
    {.name = "always-clips", .right = "clip/fp32/cpu/norm2", .imitates = "gradients below the limit scaled up to it", .compute = always_clips},
    {.name = "no-epsilon", .right = "clip/fp32/cpu/norm2", .imitates = "1e-6 left out", .compute = no_epsilon},
};

const ng_fault_list ng_optimizer_faults = {faults, sizeof faults / sizeof *faults};
