/* Stochastic rounding that is not what it says. Faults of the rounder show with given words; faults of the words only where
 * the kernel draws its own. */
#include "fault.h"

#include "kernels/common/philox.h"

#include <stdlib.h>

uint32_t ng_right_word(const ng_draw *d) {
    return ng_philox(d->seed, d->offset, (uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column);
}

/* ---- the rounder --------------------------------------------------------------------------------------------------*/
static uint32_t with_word(const ng_element *e, uint32_t word) {
    ng_element changed = *e;
    changed.word = word;
    return ng_right_code(&changed);
}

static uint32_t most_of(const ng_element *e) { return (1u << e->cast->random_bits) - 1; }
static uint32_t draw_of(const ng_element *e) { return e->word & most_of(e); }

/* R + 1 and R - 1 without wrapping: P(up) differs by 2^-r. */
static uint32_t up_more(const ng_element *e) { return with_word(e, draw_of(e) < most_of(e) ? draw_of(e) + 1 : most_of(e)); }
static uint32_t up_less(const ng_element *e) { return with_word(e, draw_of(e) ? draw_of(e) - 1 : 0); }
static uint32_t own_up_more(const ng_element *e) { return e->drawn ? up_more(e) : ng_right_code(e); }
static uint32_t own_up_less(const ng_element *e) { return e->drawn ? up_less(e) : ng_right_code(e); }
static uint32_t always_down(const ng_element *e) { return with_word(e, 0); }
static uint32_t own_always_down(const ng_element *e) { return e->drawn ? with_word(e, 0) : ng_right_code(e); }
static uint32_t two_bits(const ng_element *e) { return with_word(e, draw_of(e) & ~(most_of(e) >> 2)); }
static uint32_t own_two_bits(const ng_element *e) { return e->drawn ? two_bits(e) : ng_right_code(e); }
static uint32_t reflected(const ng_element *e) { return e->bits >> 31 ? with_word(e, most_of(e) - draw_of(e)) : ng_right_code(e); }
static uint32_t other_byte(const ng_element *e) { return with_word(e, e->word >> 8); }
static uint32_t nearest(const ng_element *e) { return with_word(e, (most_of(e) + 1) / 2); }
static uint32_t six_tenths(const ng_element *e) { return with_word(e, draw_of(e) * 3 / 5); }
static void half_form(ng_kernel *subject) { subject->contract.cast.stochastic = NG_SR_HALF; }
static void unbiased_form(ng_kernel *subject) { subject->contract.cast.stochastic = NG_SR_UNBIASED; }
static void carry_form(ng_kernel *subject) { subject->contract.cast.stochastic = NG_SR_CARRY; }

/* ---- the words ----------------------------------------------------------------------------------------------------*/
static uint32_t fixed_seed(const ng_draw *d) { return ng_philox(0x5EED, 0, (uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column); }
static uint32_t offset_ignored(const ng_draw *d) { return ng_philox(d->seed, 0, (uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column); }
static uint32_t half_a_seed(const ng_draw *d) {
    return ng_philox((uint32_t)d->seed, d->offset, (uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column);
}
static uint32_t half_an_offset(const ng_draw *d) {
    return ng_philox(d->seed, (uint32_t)d->offset, (uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column);
}
static uint32_t seed_plus_offset(const ng_draw *d) { /* the next step under this seed is this step under the next one */
    return ng_philox(d->seed, 0, (uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column + d->offset);
}
static uint32_t same_in_rows(const ng_draw *d) { return ng_philox(d->seed, d->offset, (uint64_t)d->column); }
static uint32_t same_in_columns(const ng_draw *d) { return ng_philox(d->seed, d->offset, (uint64_t)d->row); }
static uint32_t four_lanes(const ng_draw *d) {
    return ng_philox(d->seed, d->offset, ((uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column) / 4);
}
static uint32_t pairs(const ng_draw *d) {
    return ng_philox(d->seed, d->offset, ((uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column) / 2);
}
static uint32_t zero_seed(const ng_draw *d) { (void)d; return 0; }
static uint32_t counter(const ng_draw *d) { /* a linear congruential step of the index: low bits with a period of 256 */
    return (uint32_t)((uint64_t)d->row * (uint64_t)d->columns + (uint64_t)d->column) * 5u + (uint32_t)d->seed;
}

/* Words drawn once for both copies of a tensor, which then err alike. */
ng_status ng_shares_words(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    ng_launch mine = *launch;
    const ng_tensor *in = &launch->tensors[NG_IN];
    uint32_t *words = NULL;
    (void)fault;
    if (!launch->tensors[NG_RANDOM_WORDS].data) {
        words = malloc((size_t)(in->rows * in->columns) * sizeof *words + 1);
        if (!words) return NG_NO_MEMORY;
        for (int64_t i = 0; i < in->rows * in->columns; i++)
            words[i] = ng_philox(launch->problem->seed, launch->problem->offset, (uint64_t)i);
        mine.tensors[NG_RANDOM_WORDS] = (ng_tensor){words, NG_FP32, NG_HOST, in->rows, in->columns, in->columns * 4};
    }
    ng_status status = subject->launch(subject, &mine);
    free(words);
    return status;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define E4M3 "cast/bf16->e4m3/cpu/sr8-carry-sat"
#define E2M1 "cast/bf16->e2m1/cpu/sr8-carry-sat"
#define WIDE "cast/fp32->e4m3/cpu/sr8-carry-sat"
#define CODE(function) .compute = ng_fault_cast, .code = function
#define WORD(function) .compute = ng_fault_cast, .word = function
#define QUANTIZE(...) .compute = ng_fault_quantize, __VA_ARGS__

static const ng_fault faults[] = {
    {"up-more", WIDE, "P(up) 1/256 too high: R in (0, 256] for [0, 256)", CODE(up_more)},
    {"up-less", WIDE, "P(up) 1/256 too low", CODE(up_less)},
    {"own-up-more", E4M3, "P(up) 1/256 too high, of words that the kernel draws", CODE(own_up_more)},
    {"own-up-less", E2M1, "P(up) 1/256 too low, of words that the kernel draws", CODE(own_up_less)},
    {"always-down", WIDE, "oneapi-src/oneDNN#2903: practically always rounds down", CODE(always_down)},
    {"own-always-down", "cast/fp32->e2m1/cpu/sr8-carry-sat", "a generator that is never called", CODE(own_always_down)},
    {"two-bits", "cast/fp32->e5m2/cpu/sr8-carry-sat", "randomness of two bits", CODE(two_bits)},
    {"own-two-bits", "cast/fp32->e4m3/cpu/sr16-carry-sat", "randomness of two bits, in the words that the kernel draws", CODE(own_two_bits)},
    {"reflected", WIDE, "up in value, not in magnitude", CODE(reflected)},
    {"other-byte", "cast/fp32->e2m1/cpu/sr8-half-sat", "TransformerEngine's software path takes byte i, PTX cvt.rs another", CODE(other_byte)},
    {"nearest", "cast/fp32->e2m1/cpu/sr4-carry-sat", "rounds to nearest where stochastic is asked for", CODE(nearest)},
    {"six-tenths", "cast/fp32->e2m1/cpu/sr16-carry-sat", "a skewed P(up), which TransformerEngine's test_nvfp4_sr_quantize.py accepts", CODE(six_tenths)},
    {"half-form", "cast/fp32->e5m2/cpu/sr8-carry-sat", "graphcore-research/gfloat#36: half a unit added to the random number", .change = half_form},
    {"unbiased-form", WIDE, "graphcore-research/gfloat#36: the discarded bits rounded first", .change = unbiased_form},
    {"biased-form", "cast/fp32->e2m1/cpu/sr8-unbiased-sat", "bits below the random number's cut off: biased by 2^-9 of a step", .change = carry_form},
    {"fixed-seed", WIDE, "the same words for every seed", WORD(fixed_seed)},
    {"offset-ignored", WIDE, "every step draws the same words", WORD(offset_ignored)},
    {"half-a-seed", WIDE, "a seed kept in 32 bits", WORD(half_a_seed)},
    {"half-an-offset", "cast/fp32->e2m1/cpu/sr8-carry-sat", "an offset kept in 32 bits", WORD(half_an_offset)},
    {"offset-added", WIDE, "the offset added to the element: steps overlap", WORD(seed_plus_offset)},
    {"zero-seed", "cast/fp32->e5m2/cpu/sr16-carry-sat", "AMD-AGI/Primus-Turbo#365: a seed of zero", WORD(zero_seed)},
    {"same-in-rows", WIDE, "the row left out of the counter", WORD(same_in_rows)},
    {"same-in-columns", WIDE, "the column left out of the counter", WORD(same_in_columns)},
    {"four-lanes", WIDE, "four lanes share a word", WORD(four_lanes)},
    {"pairs", "cast/fp32->e2m1/cpu/sr8-carry-sat", "PTX cvt.rs to fp8x4: two lanes share a half, where independence is promised", WORD(pairs)},
    {"counter", "cast/fp32->e5m2/cpu/sr8-unbiased-sat", "a linear congruential generator's low bits", WORD(counter)},
    {"all-zero", "quantize/bf16->nvfp4/cpu/te-sr8-carry", "TransformerEngine#3281: NVFP4 stochastic rounding returns zeros on sm_120", .outputs = ng_all_zero},
    {"own-up-more", "quantize/bf16->nvfp4/cpu/te-sr8-carry", "P(up) 1/256 too high, of words that the kernel draws, in quantization", QUANTIZE(.code = own_up_more)},
    {"own-up-less", "quantize/bf16->nvfp4/cpu/te-sr8-carry", "P(up) 1/256 too low, in quantization", QUANTIZE(.code = own_up_less)},
    {"offset-ignored", "quantize/bf16->nvfp4/cpu/te-sr8-half", "every step draws the same words, in quantization", QUANTIZE(.word = offset_ignored)},
    {"own-always-down", "quantize/bf16->mxfp4/cpu/round-up-sr8-carry", "a generator that is never called, in quantization", QUANTIZE(.code = own_always_down)},
    {"own-two-bits", "quantize/bf16->nvfp4/cpu/te-sr8-carry", "randomness of two bits, in quantization", QUANTIZE(.code = own_two_bits)},
    {"four-lanes", "quantize/bf16->mxfp8/cpu/round-up-sr8-carry", "four lanes share a word, in quantization", QUANTIZE(.word = four_lanes)},
    {"same-in-rows", "quantize/bf16->nvfp4/cpu/paper-sr8-carry", "a reused seed: every row rounds alike", QUANTIZE(.word = same_in_rows)},
    {"fixed-seed", "quantize/bf16->mxfp4/cpu/round-up-sr8-half", "the same words for every seed, in quantization", QUANTIZE(.word = fixed_seed)},
    {"transposed-copy", "quantize/bf16->e5m2/cpu/max-over-amax-sr8-carry", "a reused seed for the row-wise and the column-wise copy", .compute = ng_shares_words},
};

const ng_fault_list ng_random_faults = {faults, sizeof faults / sizeof *faults};
