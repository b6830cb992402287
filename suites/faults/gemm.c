/* Products that are almost right: operands spoiled on the way in, results on the way out, another tensor core, another order
 * of the same additions. */
#include "fault.h"

#include "kernels/contracts.h"

#include <math.h>
#include <stdlib.h>

/* ---- a chain with a choice of addition ----------------------------------------------------------------------------*/
static float *decoded(const ng_tensor *t, bool reversed) {
    float *x = malloc((size_t)(t->rows * t->columns) * sizeof *x + 1);
    for (int64_t i = 0; x && i < t->rows; i++)
        for (int64_t k = 0; k < t->columns; k++)
            x[i * t->columns + (reversed ? t->columns - 1 - k : k)] = ng_element_value(t, i, k);
    return x;
}

static float scale_at_end(const ng_launch *launch, ng_role role, int64_t row) {
    const ng_tensor *scales = &launch->tensors[role];
    return scales->data ? ng_element_value(scales, scales->rows > 1 ? row : 0, 0) : 1.0f;
}

static void store(const ng_kernel *subject, const ng_launch *launch, int64_t i, int64_t j, float sum) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    sum = sum * scale_at_end(launch, NG_A_SCALES, i) * scale_at_end(launch, NG_B_SCALES, j);
    const ng_element e = {.cast = &subject->contract.cast, .to = subject->out, .value = (double)sum, .bits = ng_bits(sum)};
    if (subject->out == NG_FP32) ng_element_set(out, i, j, isnan(sum) ? NG_NAN_BITS : ng_bits(sum));
    else ng_element_set(out, i, j, ng_right_code(&e));
}

ng_status ng_fault_chain(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    float *a = decoded(&launch->tensors[NG_A], false), *b = decoded(&launch->tensors[NG_B], false);
    ng_status status = a && b ? NG_OK : NG_NO_MEMORY;
    for (int64_t i = 0; !status && i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float sum = 0;
            for (int64_t k = 0; k < p->k; k++)
                sum = fault->add(sum, a[i * p->k + k], b[j * p->k + k]);
            store(subject, launch, i, j, sum);
        }
    free(a);
    free(b);
    return status;
}

static float to_bf16(float x) {
    uint32_t bits = ng_bits(x);
    return isfinite(x) ? ng_float((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u) : x;
}
static float to_fp16(float x) {
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_caster caster = ng_caster_of(NG_FP16, &cast);
    return ng_decode_fp16(ng_cast_code(&caster, NG_RN_EVEN, ng_bits(x)));
}
static float add_in_bf16(float s, float a, float b) { return to_bf16(s + a * b); }
static float add_in_fp16(float s, float a, float b) { return to_fp16(s + a * b); }
static float add_unfused(float s, float a, float b) { return s + a * b; }
static float add_truncating(float s, float a, float b) { /* rounding toward zero of the sum */
    double exact = (double)s + (double)a * (double)b;
    float sum = (float)exact;
    return isfinite(sum) && fabs((double)sum) > fabs(exact) ? ng_float(ng_bits(sum) - 1) : sum;
}
static float add_rounded_products(float s, float a, float b) { return s + to_bf16(a * b); }

/* ---- operands -----------------------------------------------------------------------------------------------------*/
static void set_column(const ng_tensor *t, int64_t to, int64_t from) {
    for (int64_t i = 0; i < t->rows; i++)
        ng_element_set(t, i, to, from < 0 ? 0 : ng_element_get(t, i, from));
}
static void drops_one(const ng_launch *launch) { set_column(&launch->tensors[NG_A], launch->problem->k / 2, -1); }
static void drops_last(const ng_launch *launch) { set_column(&launch->tensors[NG_A], launch->problem->k - 1, -1); }
static void drops_tail(const ng_launch *launch) {
    for (int64_t k = launch->problem->k / 32 * 32; k < launch->problem->k; k++)
        set_column(&launch->tensors[NG_A], k, -1);
}
static void doubles_one(const ng_launch *launch) {
    int64_t k = launch->problem->k / 2;
    if (!k) return;
    set_column(&launch->tensors[NG_A], k, k - 1);
    set_column(&launch->tensors[NG_B], k, k - 1);
}
static void turns_square(const ng_launch *launch) {
    const ng_tensor *b = &launch->tensors[NG_B];
    for (int64_t i = 0; b->rows == b->columns && i < b->rows; i++)
        for (int64_t k = 0; k < i; k++) {
            uint32_t x = ng_element_get(b, i, k);
            ng_element_set(b, i, k, ng_element_get(b, k, i));
            ng_element_set(b, k, i, x);
        }
}
static void reverses(const ng_launch *launch) {
    for (int role = 0; role < 2; role++) {
        const ng_tensor *t = &launch->tensors[role ? NG_B : NG_A];
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t k = 0; k < t->columns / 2; k++) {
                uint32_t x = ng_element_get(t, i, k);
                ng_element_set(t, i, k, ng_element_get(t, i, t->columns - 1 - k));
                ng_element_set(t, i, t->columns - 1 - k, x);
            }
    }
}
/* Rows taken to lie without padding between them. */
static void ignores_stride(const ng_launch *launch) {
    const ng_tensor *a = &launch->tensors[NG_A];
    ng_tensor packed = *a;
    int64_t bytes = a->format == NG_E2M1 ? (a->columns + 1) / 2 : a->format == NG_BF16 || a->format == NG_FP16 ? a->columns * 2 : a->columns;
    ng_tensor twin = ng_tensor_twin(a);
    packed.data = twin.data;
    packed.row_bytes = bytes;
    for (int64_t i = 0; twin.data && i < a->rows; i++)
        for (int64_t k = 0; k < a->columns; k++)
            ng_element_set(a, i, k, ng_element_get(&packed, i, k));
    free(twin.data);
}
static void tf32_inputs(const ng_launch *launch) {
    for (int role = 0; role < 2; role++) {
        const ng_tensor *t = &launch->tensors[role ? NG_B : NG_A];
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t k = 0; k < t->columns; k++)
                ng_element_set(t, i, k, ng_element_get(t, i, k) & 0xFFFFE000u);
    }
}
static void flushes_fp16(const ng_launch *launch) {
    const ng_tensor *a = &launch->tensors[NG_A];
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t k = 0; k < a->columns; k++)
            if ((ng_element_get(a, i, k) & 0x7FFF) < 0x400) ng_element_set(a, i, k, 0);
}
static void shift_scales(const ng_tensor *scales, int64_t from) {
    ng_tensor old = ng_tensor_twin(scales);
    for (int64_t i = 0; old.data && i < scales->rows; i++)
        for (int64_t j = from; j < scales->columns; j++)
            ng_element_set(scales, i, j, ng_element_get(&old, i, (j + 1) % scales->columns));
    free(old.data);
}
static void neighbours_scale(const ng_launch *launch) { shift_scales(&launch->tensors[NG_A_SCALES], 0); }
static void first_scale(const ng_launch *launch) {
    const ng_tensor *scales = &launch->tensors[NG_A_SCALES];
    for (int64_t i = 0; i < scales->rows; i++)
        for (int64_t j = 1; j < scales->columns; j++)
            ng_element_set(scales, i, j, ng_element_get(scales, i, 0));
}
static void rows_scale(const ng_launch *launch) {
    const ng_tensor *scales = &launch->tensors[NG_B_SCALES];
    for (int64_t i = 1; i < scales->rows; i++)
        for (int64_t j = 0; j < scales->columns; j++)
            ng_element_set(scales, i, j, ng_element_get(scales, 0, j));
}
static void scales_turned(const ng_launch *launch) {
    const ng_tensor *scales = &launch->tensors[NG_B_SCALES];
    ng_tensor old = ng_tensor_twin(scales);
    for (int64_t i = 0; old.data && i < scales->rows; i++)
        for (int64_t j = 0; j < scales->columns; j++)
            if (j < scales->rows && i < scales->columns) ng_element_set(scales, i, j, ng_element_get(&old, j, i));
    free(old.data);
}
static void zero_codes_vanish(const ng_launch *launch) { /* an e8m0 code 0, 2^-127, decoded as 0 */
    const ng_tensor *scales = &launch->tensors[NG_A_SCALES], *a = &launch->tensors[NG_A];
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t k = 0; k < a->columns; k++)
            if (ng_element_get(scales, i, k / 32) == 0) ng_element_set(a, i, k, 0);
}
static void one_tensor_scale(const ng_launch *launch) {
    const float one = 1.0f;
    if (launch->tensors[NG_B_TENSOR_SCALE].data) ng_element_set(&launch->tensors[NG_B_TENSOR_SCALE], 0, 0, ng_bits(one));
}
static void scales_of_32(const ng_launch *launch) { /* a block of 16 takes the scale of the pair of blocks */
    const ng_tensor *scales = &launch->tensors[NG_A_SCALES];
    for (int64_t i = 0; i < scales->rows; i++)
        for (int64_t j = 1; j < scales->columns; j += 2)
            ng_element_set(scales, i, j, ng_element_get(scales, i, j - 1));
}
static void alpha_twice(const ng_launch *launch) {
    const ng_tensor *scales = &launch->tensors[NG_A_SCALES];
    for (int64_t i = 0; i < scales->rows; i++)
        ng_element_set(scales, i, 0, ng_bits(ng_element_value(scales, i, 0) * ng_element_value(scales, i, 0)));
}

/* ---- results ------------------------------------------------------------------------------------------------------*/
static void swaps_rows(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    for (int64_t j = 0; out->rows > 2 && j < out->columns; j++) {
        uint32_t x = ng_element_get(out, 1, j);
        ng_element_set(out, 1, j, ng_element_get(out, 2, j));
        ng_element_set(out, 2, j, x);
    }
}
static void stale_tile(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    int64_t from = (out->columns - 1) / 16 * 16;
    (void)before;
    for (int64_t i = 0; from && i < out->rows; i++)
        for (int64_t j = from; j < out->columns; j++)
            ng_element_set(out, i, j, ng_element_get(out, i, j - 16));
}
static void last_bit(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    ng_element_set(out, out->rows - 1, out->columns - 1, ng_element_get(out, out->rows - 1, out->columns - 1) ^ 1);
}
static void flushes_small(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    for (int64_t i = 0; i < out->rows; i++)
        for (int64_t j = 0; j < out->columns; j++)
            if (fabsf(ng_element_value(out, i, j)) < 0x1p-14f) ng_element_set(out, i, j, 0);
}
static void beta_twice(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    for (int64_t i = 0; before->data && i < out->rows; i++)
        for (int64_t j = 0; j < out->columns; j++)
            ng_element_set(out, i, j, ng_bits(ng_element_value(out, i, j) + ng_element_value(before, i, j)));
}

/* Two halves of K, each rounded to fp16 before they are added. */
static ng_status split_in_fp16(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    float *a = decoded(&launch->tensors[NG_A], false), *b = decoded(&launch->tensors[NG_B], false);
    ng_status status = a && b ? NG_OK : NG_NO_MEMORY;
    (void)fault;
    for (int64_t i = 0; !status && i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float part[2] = {0, 0};
            for (int64_t k = 0; k < p->k; k++)
                part[k >= p->k / 2] += a[i * p->k + k] * b[j * p->k + k];
            store(subject, launch, i, j, to_fp16(part[0]) + to_fp16(part[1]));
        }
    free(a);
    free(b);
    return status;
}

/* The parts of a split K added by whoever comes first: here the last part first. */
static ng_status parts_reversed(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)fault;
    const int64_t k = launch->problem->k, tiles = (k + 63) / 64, share = (tiles + 3) / 4 * 64;
    ng_launch mine = *launch;
    for (int role = 0; role < 2; role++) {
        const ng_tensor *from = &launch->tensors[role ? NG_B : NG_A];
        ng_tensor *to = &mine.tensors[role ? NG_B : NG_A];
        *to = ng_tensor_twin(from);
        for (int64_t i = 0; to->data && k == 4 * share && i < from->rows; i++)
            for (int64_t at = 0; at < k; at++)
                ng_element_set(to, i, (3 - at / share) * share + at % share, ng_element_get(from, i, at));
    }
    bool copied = mine.tensors[NG_A].data && mine.tensors[NG_B].data;
    ng_status status = copied ? subject->launch(subject, &mine) : NG_NO_MEMORY;
    free(mine.tensors[NG_A].data);
    free(mine.tensors[NG_B].data);
    return status;
}

/* fp32 results of the kernel's twin, rounded to fp16 and then to bf16. */
static ng_status through_fp16(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *out = &launch->tensors[NG_OUT];
    ng_kernel wide = *subject;
    ng_launch mine = *launch;
    (void)fault;
    wide.out = NG_FP32;
    mine.tensors[NG_OUT] = (ng_tensor){malloc((size_t)(p->m * p->n) * 4 + 1), NG_FP32, NG_HOST, p->m, p->n, p->n * 4};
    ng_status status = mine.tensors[NG_OUT].data ? subject->launch(&wide, &mine) : NG_NO_MEMORY;
    for (int64_t i = 0; !status && i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const float x = to_fp16(ng_element_value(&mine.tensors[NG_OUT], i, j));
            const ng_element e = {.cast = &subject->contract.cast, .to = NG_BF16, .bits = ng_bits(x)};
            ng_element_set(out, i, j, ng_right_code(&e));
        }
    free(mine.tensors[NG_OUT].data);
    return status;
}

/* A split of K that follows the number of threads. */
static ng_status split_by_threads(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    ng_kernel changed = *subject;
    (void)fault;
    if (launch->device->threads > 1) changed.contract.sum.split_k = 2, changed.contract.sum.split_tile = 16;
    return subject->launch(&changed, launch);
}

/* Bytes of A in one format read as another. */
static ng_status reads_as_e4m3(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    ng_launch mine = *launch;
    (void)fault;
    mine.tensors[NG_A].format = NG_E4M3;
    return subject->launch(subject, &mine);
}
static void a_is_e4m3(ng_kernel *subject) { subject->in = subject->contract.a.element = NG_E4M3; }

/* ---- contracts ----------------------------------------------------------------------------------------------------*/
static void twelve_bits(ng_kernel *s) { s->contract.sum.mma.fraction_bits = 11; }
static void thirteen_bits(ng_kernel *s) { s->contract.sum.mma.fraction_bits = 12; }
static void fifteen_bits(ng_kernel *s) { s->contract.sum.mma.fraction_bits = 14; }
static void fourteen_bits(ng_kernel *s) { s->contract.sum.mma.fraction_bits = 13, s->contract.sum.mma.output_bits = 13; }
static void f24(ng_kernel *s) { s->contract.sum.mma.fraction_bits = 24; }
static void f23(ng_kernel *s) { s->contract.sum.mma.fraction_bits = 23; }
static void wide_output(ng_kernel *s) { s->contract.sum.mma.output_bits = 23; }
static void not_promoted(ng_kernel *s) { s->contract.sum.promote_every = 0; }
static void promoted_at_64(ng_kernel *s) { s->contract.sum.promote_every = 2; }
static void promoted_at_256(ng_kernel *s) { s->contract.sum.promote_every = 8; }
static void promoted_at_128(ng_kernel *s) { s->contract.sum.promote_every = 4; }
static void not_split(ng_kernel *s) { s->contract.sum.split_k = 0; }
static void split_in_two(ng_kernel *s) { s->contract.sum.split_k = 2; }
static void split_by_tiles_of_32(ng_kernel *s) { s->contract.sum.split_tile = 32; }
static void scaled_once(ng_kernel *s) { s->contract.sum.scales = NG_SCALES_BLOCK_FMA_PRODUCT; }
static void scaled_twice(ng_kernel *s) { s->contract.sum.scales = NG_SCALES_BLOCK_FMA_SECOND; }
static void leaf_16(ng_kernel *s) { s->contract.sum.leaf = 16; }
static void truncates(ng_kernel *s) { s->contract.cast.rounding = NG_R_ZERO; }
static void half_away(ng_kernel *s) { s->contract.cast.rounding = NG_RN_AWAY; }
static void not_accumulated(ng_kernel *s) { s->contract.accumulate_into = false; }

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define CHAIN "gemm/bf16/cpu/fp32-chain/fp32-out"
#define TREE "gemm/bf16/cpu/fp32-pairwise/fp32-out"
#define ADDED "gemm/bf16/cpu/fp32-chain/fp32-out-acc"
#define FP8 "gemm/e4m3/cpu/hopper-promoted/fp32-out"
#define FAST "gemm/e4m3/cpu/hopper-fast/fp32-out"
#define WIDE "gemm/e4m3/cpu/blackwell/fp32-out"
#define BF16 "gemm/bf16/cpu/hopper/fp32-out"
#define SPLIT "gemm/bf16/cpu/hopper-split4/fp32-out"
#define SCALED "gemm/e4m3/cpu/fp32-chain/fp32-out"
#define SQUARE "gemm/e4m3-128/cpu/hopper/fp32-out"
#define MXFP8 "gemm/mxfp8/cpu/fp32-chain/fp32-out"
#define NVFP4 "gemm/nvfp4/cpu/fp32-chain/fp32-out"
#define ADD(function) .compute = ng_fault_chain, .add = function

static const ng_fault faults[] = {
    {"drops-one", CHAIN, "one element of K lost at a tile's seam", .inputs = drops_one},
    {"drops-last", FP8, "k < K - 1", .inputs = drops_last},
    {"drops-tail", MXFP8, "K behind the last whole 32 not multiplied", .inputs = drops_tail},
    {"doubles-one", CHAIN, "one element of K taken twice, its neighbour not at all", .inputs = doubles_one},
    {"turned-if-square", CHAIN, "B read as [k][n], which only a square shape allows", .inputs = turns_square},
    {"ignores-stride", "gemm/fp16/cpu/fp32-chain/fp16-out", "a leading dimension taken for the width", .inputs = ignores_stride},
    {"tail-unwritten", CHAIN, "the last tile's columns never stored", .outputs = ng_tail_unwritten},
    {"corner-unwritten", BF16, "a bound of < count - 1", .outputs = ng_corner_unwritten},
    {"stale-tile", CHAIN, "the last tile stores the one before", .outputs = stale_tile},
    {"unwritten", "gemm/e5m2/cpu/hopper-fast/bf16-out", "a launch that fails without a word", .outputs = ng_unwritten},
    {"all-zero", FAST, "TransformerEngine tests/cpp/test_common.cu accepts zeros for small results", .outputs = ng_all_zero},
    {"all-nan", "gemm/e4m3/cpu/hopper-promoted/bf16-out", "NaN > atol is false: NVIDIA/apex and TransformerEngine comparators pass it", .outputs = ng_all_nan},
    {"swaps-rows", CHAIN, "two rows exchanged", .outputs = swaps_rows},
    {"last-bit", BF16, "one element off by one unit in the last place", .outputs = last_bit},
    {"last-row", "gemm/bf16/cpu/fp32-chain/bf16-out", "rows beyond a grid's 65535", .outputs = ng_last_row_wrong},
    {"flips-a-bit", "gemm/fp16/cpu/hopper/fp32-out", "DeepGEMM#365: other bits in some launches", .outputs = ng_flips_a_bit},
    {"changes-input", "gemm/e4m3-row/cpu/hopper-fast/fp32-out", "operands scaled in place", .outputs = ng_changes_input},
    {"dies-of-tails", "gemm/e5m2/cpu/ada/fp32-out", "an aligned load at the end of a row", .outputs = ng_dies_of_tails},
    {"flushes-results", "gemm/fp16/cpu/hopper/fp16-out", "fp16 results below 2^-14 flushed", .outputs = flushes_small},

    {"twelve-bits", FAST, "an accumulator of 12 significant bits", .change = twelve_bits},
    {"thirteen-bits", FP8, "an accumulator one bit short", .change = thirteen_bits},
    {"fourteen-bits", WIDE, "Hopper's 14 bits (arXiv:2412.19437 3.3.2) where 25 fraction bits are promised", .change = fourteen_bits},
    {"fifteen-bits", FAST, "one bit more than promised: better, but not the same", .change = fifteen_bits},
    {"f24", BF16, "Ampere's alignment on a Hopper", .change = f24},
    {"f23", "gemm/bf16/cpu/ampere/fp32-out", "Volta's alignment on an Ampere", .change = f23},
    {"wide-output", FAST, "results of a step kept in 24 bits in place of 14", .change = wide_output},
    {"two-steps", "gemm/bf16/cpu/hopper/bf16-out", "two steps of 8 for one of 16", .runs = "gemm/bf16/cpu/ampere/bf16-out"},
    {"chain", BF16, "an fp32 chain for a tensor core", .runs = "gemm/bf16/cpu/fp32-chain/fp32-out"},
    {"mma-sync", FAST, "fp8 by two fp16 steps (NVIDIA/cutlass#1986)", .runs = "gemm/e4m3/cpu/hopper-mma-sync/fp32-out"},
    {"not-promoted", FP8, "fast accumulation where promotion is promised (arXiv:2412.19437)", .change = not_promoted},
    {"not-promoted", "gemm/fp8-hybrid/cpu/hopper-promoted/bf16-out", "the same, of gradients and with a bf16 result", .change = not_promoted},
    {"promoted-at-64", FP8, "another interval of promotion", .change = promoted_at_64},
    {"promoted-at-256", FP8, "another interval of promotion", .change = promoted_at_256},
    {"promoted", FAST, "promotion where none is promised", .change = promoted_at_128},
    {"not-split", SPLIT, "K in one part for four", .change = not_split},
    {"split-in-two", SPLIT, "K in two parts for four", .change = split_in_two},
    {"parts-reversed", SPLIT, "atomics: the parts of K added in another order", .compute = parts_reversed},
    {"split-by-threads", BF16, "K split among the threads that there are", .compute = split_by_threads},
    {"other-tiles", "gemm/bf16/cpu/hopper-split2/fp32-out", "K split at other tiles", .change = split_by_tiles_of_32},
    {"scaled-once", "gemm/e4m3-1x128/cpu/hopper/fp32-out", "block scales multiplied first", .change = scaled_once},
    {"scaled-twice", SQUARE, "block scales one after the other", .change = scaled_twice},

    {"bf16-accumulator", CHAIN, "sums kept in bf16", ADD(add_in_bf16)},
    {"bf16-accumulator", SCALED, "sums of fp8 products kept in bf16", ADD(add_in_bf16)},
    {"fp16-accumulator", "gemm/fp16/cpu/fp32-chain/fp32-out", "fp16 accumulation (cublasGemmEx with CUBLAS_COMPUTE_16F)", ADD(add_in_fp16)},
    {"truncating-chain", CHAIN, "an fp32 chain that rounds toward zero", ADD(add_truncating)},
    {"rounded-products", CHAIN, "products rounded to bf16 before they are added", ADD(add_rounded_products)},
    {"unfused", "gemm/fp32/cpu/fp32-chain/fp32-out", "a multiplication and an addition for an fma", ADD(add_unfused)},
    {"split-in-fp16", "gemm/fp16/cpu/fp32-pairwise/fp16-out", "split-K with fp16 partial sums, which overflow", .compute = split_in_fp16},
    {"reversed", CHAIN, "K from the end", .inputs = reverses},
    {"pairwise", CHAIN, "a tree of chains for one chain", .runs = TREE},
    {"chain", TREE, "one chain for a tree", .runs = CHAIN},
    {"leaves-of-16", TREE, "another leaf", .change = leaf_16},

    {"not-accumulated", ADDED, "beta ignored: the gradient that was there is lost", .change = not_accumulated},
    {"accumulated-twice", ADDED, "beta applied twice", .outputs = beta_twice},
    {"alpha-twice", SCALED, "a's scale applied twice", .inputs = alpha_twice},
    {"truncates", "gemm/bf16/cpu/hopper/bf16-out", "bf16 results truncated", .change = truncates},
    {"half-away", "gemm/e4m3/cpu/blackwell/bf16-out", "bf16 results with halves away from zero", .change = half_away},
    {"through-fp16", "gemm/bf16/cpu/ampere/bf16-out", "results through fp16", .compute = through_fp16},
    {"tf32-inputs", "gemm/fp32/cpu/fp32-pairwise/fp32-out", "TransformerEngine#3014: tf32 without being asked", .inputs = tf32_inputs},
    {"flushes-inputs", "gemm/fp16/cpu/ampere/fp32-out", "AMD MI200: fp16 subnormals count as zero", .inputs = flushes_fp16},
    {"e5m2-as-e4m3", "gemm/fp8-hybrid/cpu/blackwell/fp32-out", "TransformerEngine#3342: gradients in e5m2 read as e4m3", .compute = reads_as_e4m3, .change = a_is_e4m3},

    {"neighbours-scale", MXFP8, "the next block's scale", .inputs = neighbours_scale},
    {"first-scale", "gemm/e4m3-1x128/cpu/hopper/bf16-out", "the first block's scale for all of K", .inputs = first_scale},
    {"first-rows-scale", "gemm/e4m3-row/cpu/hopper/fp32-out", "the first row's scale for all", .inputs = rows_scale},
    {"scales-turned", SQUARE, "scales indexed [column block][row block]", .inputs = scales_turned},
    {"code-0-as-0", "gemm/mxfp8/cpu/blackwell/fp32-out", "TransformerEngine#3262: e8m0 code 0 decoded as 0", .inputs = zero_codes_vanish},
    {"one-tensor-scale", NVFP4, "the tensor scale of one operand forgotten", .inputs = one_tensor_scale},
    {"blocks-of-32", NVFP4, "a scale for 32 elements in place of 16", .inputs = scales_of_32},
};

const ng_fault_list ng_gemm_faults = {faults, sizeof faults / sizeof *faults};
