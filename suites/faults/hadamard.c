/* Hadamard transforms that are not what they say, alone and before a quantization; delayed scaling that is not either. */
#include "fault.h"

#include "kernels/common/hadamard.h"
#include "kernels/common/scale_update.h"

#include <math.h>
#include <stdlib.h>

/* ---- contracts that the code keeps in place of its own ------------------------------------------------------------*/
static void signs_ignored(ng_kernel *subject) { subject->contract.hadamard.signs[0] = 0; }
static void one_sign(ng_kernel *subject) { subject->contract.hadamard.signs[0] ^= 1u << 7; }
static void signs_repeated(ng_kernel *subject) {
    for (int i = 1; i < 4; i++)
        subject->contract.hadamard.signs[i] = subject->contract.hadamard.signs[0];
}
static void divided_again(ng_kernel *subject) { subject->contract.hadamard.shift++; }
static void groups_of_32(ng_kernel *subject) { subject->contract.hadamard.size = 32; }
static void both_copies(ng_kernel *subject) { subject->contract.hadamard.transposed_only = false; }
static void one_copy(ng_kernel *subject) { subject->contract.hadamard.transposed_only = true; }

/* ---- groups computed otherwise ------------------------------------------------------------------------------------*/
typedef void group_transform(const ng_hadamard *h, float *t);

static float to_bf16(float x) {
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_caster caster = ng_caster_of(NG_BF16, &cast);
    return ng_float(ng_cast_code(&caster, NG_RN_EVEN, ng_bits(x)) << 16);
}

static void apply_signs(const ng_hadamard *h, float *t) {
    for (uint32_t j = 0; j < h->size; j++)
        t[j] = ng_float(ng_bits(t[j]) ^ ng_hadamard_sign(h, j));
}
static void scale(const ng_hadamard *h, float factor, float *t) {
    for (uint32_t j = 0; j < h->size; j++)
        t[j] = t[j] * factor + 0.0f;
}

static void stages_reversed(const ng_hadamard *h, float *t) {
    apply_signs(h, t);
    for (uint32_t half = h->size / 2; half; half /= 2)
        for (uint32_t i = 0; i < h->size; i++)
            if (!(i & half)) {
                float a = t[i], b = t[i + half];
                t[i] = a + b, t[i + half] = a - b;
            }
    scale(h, ng_hadamard_factor(h), t);
}

static void in_bf16(const ng_hadamard *h, float *t) {
    apply_signs(h, t);
    for (uint32_t half = 1; half < h->size; half *= 2)
        for (uint32_t i = 0; i < h->size; i++)
            if (!(i & half)) {
                float a = t[i], b = t[i + half];
                t[i] = to_bf16(a + b), t[i + half] = to_bf16(a - b);
            }
    scale(h, ng_hadamard_factor(h), t);
}

static void signs_after(const ng_hadamard *h, float *t) {
    ng_hadamard_butterflies(t, h->size);
    apply_signs(h, t);
    scale(h, ng_hadamard_factor(h), t);
}

/* Walsh's order of the rows, by the number of sign changes, for Hadamard's own. */
static void by_sequency(const ng_hadamard *h, float *t) {
    float y[NG_HADAMARD_MOST];
    apply_signs(h, t);
    ng_hadamard_butterflies(t, h->size);
    for (uint32_t i = 0; i < h->size; i++) {
        uint32_t gray = i ^ i >> 1, place = 0;
        for (uint32_t bit = 1; bit < h->size; bit *= 2)
            place = place * 2 + !!(gray & bit);
        y[i] = t[place];
    }
    memcpy(t, y, h->size * sizeof *t);
    scale(h, ng_hadamard_factor(h), t);
}

static void irrational_factor(const ng_hadamard *h, float *t) {
    apply_signs(h, t);
    ng_hadamard_butterflies(t, h->size);
    scale(h, 1 / sqrtf((float)h->size), t);
}

static void last_stage_missing(const ng_hadamard *h, float *t) {
    apply_signs(h, t);
    ng_hadamard_butterflies(t, h->size / 2);
    ng_hadamard_butterflies(t + h->size / 2, h->size / 2);
    scale(h, ng_hadamard_factor(h), t);
}

/* Every whole group by `transform`; tail: what is left too, filled up with zeros. */
static void transform_all(const ng_hadamard *h, const ng_launch *launch, group_transform *transform, bool tail) {
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT];
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_caster caster = ng_caster_of(out->format, &cast);
    for (int64_t row = 0; row < in->rows; row++)
        for (int64_t from = 0; from < in->columns; from += h->size) {
            float t[NG_HADAMARD_MOST] = {0};
            int64_t n = in->columns - from < h->size ? in->columns - from : h->size;
            for (int64_t j = 0; j < n; j++)
                t[j] = ng_element_value(in, row, from + j);
            if (n == h->size || tail) transform(h, t);
            for (int64_t j = 0; j < n; j++)
                ng_element_store(out, row, from + j, out->format == NG_FP32 ? ng_bits(t[j]) : ng_cast_code(&caster, NG_RN_EVEN, ng_bits(t[j])));
        }
}

#define COMPUTE(name, transform, tail)                                                                             \
    static ng_status name(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {              \
        (void)fault;                                                                                               \
        transform_all(&subject->contract.hadamard, launch, transform, tail);                                       \
        return NG_OK;                                                                                              \
    }
static void rightly(const ng_hadamard *h, float *t) {
    apply_signs(h, t);
    ng_hadamard_butterflies(t, h->size);
    scale(h, ng_hadamard_factor(h), t);
}
COMPUTE(other_order, stages_reversed, false)
COMPUTE(narrow_sums, in_bf16, false)
COMPUTE(late_signs, signs_after, false)
COMPUTE(sequency, by_sequency, false)
COMPUTE(square_root, irrational_factor, false)
COMPUTE(short_of_a_stage, last_stage_missing, false)
COMPUTE(tail_too, rightly, true)

/* ---- in front of a quantization -----------------------------------------------------------------------------------*/
static ng_hadamard sixteen(void) { return (ng_hadamard)NG_HADAMARD(16, 2, false); }

/* The transform rounded to bf16 before it is quantized, as when it is a kernel of its own. */
static void rounded_between(const ng_launch *launch) {
    const ng_hadamard h = sixteen();
    const ng_tensor *in = &launch->tensors[NG_IN];
    for (int64_t row = 0; row < in->rows; row++)
        for (int64_t from = 0; from + h.size <= in->columns; from += h.size) {
            float t[16];
            for (int64_t j = 0; j < h.size; j++)
                t[j] = ng_element_value(in, row, from + j);
            rightly(&h, t);
            for (int64_t j = 0; j < h.size; j++)
                ng_element_set(in, row, from + j, ng_bits(to_bf16(t[j])) >> 16);
        }
}

/* ---- delayed scaling ----------------------------------------------------------------------------------------------*/
static void all_steps(ng_kernel *subject) { subject->contract.scale_update.most_recent = false; }
static void one_step(ng_kernel *subject) { subject->contract.scale_update.most_recent = true; }
static void no_margin(ng_kernel *subject) { subject->contract.scale_update.margin = 0; }
static void other_format(ng_kernel *subject) { subject->contract.scale_update.element = NG_E5M2; }

static void over_tensors(const ng_launch *launch, void (*change)(const ng_launch *launch, int64_t tensor)) {
    for (int64_t j = 0; j < launch->tensors[NG_IN].columns; j++)
        change(launch, j);
}
static void set_scale(const ng_launch *launch, int64_t j, float scale) {
    ng_element_set(&launch->tensors[NG_OUT_2], 0, j, ng_bits(scale));
    ng_element_set(&launch->tensors[NG_OUT_3], 0, j, ng_bits(1 / scale));
}
static void one_for_zero(const ng_launch *launch, int64_t j) {
    if (ng_element_value(&launch->tensors[NG_OUT_2], 0, j) == ng_element_value(&launch->tensors[NG_IN_2], 0, j)) set_scale(launch, j, 1);
}
static void infinite(const ng_launch *launch, int64_t j) {
    if (ng_element_value(&launch->tensors[NG_OUT_2], 0, j) == FLT_MAX) set_scale(launch, j, INFINITY);
}
static void old_slot(const ng_launch *launch, int64_t j) {
    ng_element_set(&launch->tensors[NG_OUT], 0, j, ng_element_get(&launch->tensors[NG_IN], 0, j));
}
static void fixed_scale_for_none(const ng_launch *launch, const ng_tensor *before) { (void)before; over_tensors(launch, one_for_zero); }
static void not_clamped(const ng_launch *launch, const ng_tensor *before) { (void)before; over_tensors(launch, infinite); }
static void slot_not_cleared(const ng_launch *launch, const ng_tensor *before) { (void)before; over_tensors(launch, old_slot); }

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define ALONE "hadamard/bf16->bf16/cpu/16-over-4"
#define WIDE "hadamard/bf16->fp32/cpu/16-over-4"
#define FUSED "quantize/bf16->nvfp4/cpu/te-rht16"
#define COLUMNS "quantize/bf16->nvfp4/cpu/te-rht16-columns"

static const ng_fault faults[] = {
    {"signs-ignored", ALONE, "a Hadamard transform that is not random", .change = signs_ignored},
    {"one-sign", ALONE, "two operands under different signs: their product is another", .change = one_sign},
    {"signs-repeated", "hadamard/bf16->bf16/cpu/128-over-8", "32 signs for all four quarters of 128", .change = signs_repeated},
    {"divided-again", ALONE, "normalised by kernel and caller", .change = divided_again},
    {"groups-of-32", WIDE, "a group of two neighbours", .change = groups_of_32},
    {"other-order", WIDE, "the stages in the opposite order: other bits, the same accuracy", .compute = other_order},
    {"narrow-sums", WIDE, "intermediate sums in bf16", .compute = narrow_sums},
    {"signs-after", ALONE, "diag(s) H for H diag(s)", .compute = late_signs},
    {"sequency", "hadamard/fp32->fp32/cpu/16-over-4", "rows in Walsh's order", .compute = sequency},
    {"square-root", "hadamard/fp32->fp32/cpu/32-over-4", "divided by sqrt(32), rounded", .compute = square_root},
    {"short-of-a-stage", "hadamard/bf16->fp32/cpu/128-over-8", "lanes that do not exchange the last stage", .compute = short_of_a_stage},
    {"tail-too", ALONE, "the last columns filled up with zeros and transformed", .compute = tail_too},
    {"tail-unwritten", WIDE, "a grid of whole groups", .outputs = ng_tail_unwritten},
    {"all-zero", ALONE, "nothing computed", .outputs = ng_all_zero},
    {"last-row", ALONE, "rows beyond a grid's 65535", .outputs = ng_last_row_wrong},
    {"flips-a-bit", ALONE, "a race between two writers", .outputs = ng_flips_a_bit},
    {"transform-missing", FUSED, "disable_rht left on", .runs = "quantize/bf16->nvfp4/cpu/te"},
    {"signs-ignored", FUSED, "the transform without its signs", .change = signs_ignored},
    {"both-copies", COLUMNS, "the row-wise copy transformed too, for a dgrad whose weights are not", .change = both_copies},
    {"one-copy", FUSED, "the row-wise copy forgotten", .change = one_copy},
    {"rounded-between", FUSED, "the transform rounded to bf16 before it is quantized", .runs = "quantize/bf16->nvfp4/cpu/te", .inputs = rounded_between},
    {"other-factor", "quantize/bf16->mxfp4/cpu/round-up-rht32-second", "the first operand's factor for the second's", .runs = "quantize/bf16->mxfp4/cpu/round-up-rht32"},
    {"shared-words", COLUMNS "-sr8-carry", "a reused seed for both copies, behind a transform", .compute = ng_shares_words},
    {"all-steps", "scale-update/e4m3/cpu/most-recent", "the largest of the history for the most recent", .change = all_steps},
    {"one-step", "scale-update/e4m3/cpu/max", "the reverse: what no step of before can correct", .change = one_step},
    {"no-margin", "scale-update/e4m3/cpu/max-margin3", "the margin forgotten", .change = no_margin},
    {"other-format", "scale-update/e4m3/cpu/max", "e5m2's largest value for e4m3's", .change = other_format},
    {"one-for-zero", "scale-update/e4m3/cpu/max", "scale 1 after a step of zeros, infinities or NaN, for the one in use", .outputs = fixed_scale_for_none},
    {"not-clamped", "scale-update/e5m2/cpu/max", "an infinite scale of a tiny maximum", .outputs = not_clamped},
    {"slot-not-cleared", "scale-update/e5m2/cpu/most-recent", "the staging slot keeps the last maximum", .outputs = slot_not_cleared},
};

const ng_fault_list ng_hadamard_faults = {faults, sizeof faults / sizeof *faults};
