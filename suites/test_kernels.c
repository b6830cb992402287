/* The CPU kernels against the reference: casts over every bf16 and fp16 input, block quantization on blocks made to go
 * wrong, products against their predicted bits; the same bits whatever the threads and the instruction set. */
#include "kernels/catalogue.h"
#include "kernels/common/philox.h"
#include "kernels/common/scale_layout.h"
#include "reference/gemm.h"
#include "reference/quantize.h"
#include "reference/round.h"
#include "reference/scale_layout.h"
#include "suites/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors with guard bytes -------------------------------------------------------------------------------------*/
enum { PAD = 5, GUARD = 0xA5 };

static ng_tensor tensor_new(ng_format_id format, int64_t rows, int64_t columns) {
    ng_tensor t = {NULL, format, NG_HOST, rows, columns, ng_row_bytes(format, columns) + PAD};
    t.data = malloc((size_t)(rows * t.row_bytes));
    cr_assert(t.data);
    memset(t.data, GUARD, (size_t)(rows * t.row_bytes));
    return t;
}

/* Also that an odd row of e2m1 ends in a zero nibble, so that equal tensors are equal bytes. */
static bool guards_intact(const ng_tensor *t) {
    const bool half = t->format == NG_E2M1 && t->columns % 2;
    for (int64_t i = 0; half && i < t->rows; i++)
        if (((const uint8_t *)t->data)[i * t->row_bytes + t->columns / 2] >> 4) return false;
    for (int64_t i = 0; i < t->rows; i++)
        for (int p = 1; p <= PAD; p++)
            if (((const uint8_t *)t->data)[(i + 1) * t->row_bytes - p] != GUARD) return false;
    return true;
}

/* First place where two tensors' codes differ; false if none. */
static bool differ(const ng_tensor *a, const ng_tensor *b, int64_t *row, int64_t *column) {
    int64_t bytes = ng_row_bytes(a->format, a->columns);
    for (*row = 0; *row < a->rows; ++*row) {
        if (!memcmp((char *)a->data + *row * a->row_bytes, (char *)b->data + *row * b->row_bytes, (size_t)bytes)) continue;
        for (*column = 0; *column < a->columns; ++*column)
            if (ng_get_code(a, *row, *column) != ng_get_code(b, *row, *column)) return true;
        *column = a->columns; /* the unused nibble of a row of odd length */
        return true;
    }
    return false;
}

static ng_tensor transpose(const ng_tensor *t) {
    ng_tensor out = tensor_new(t->format, t->columns, t->rows);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            ng_set_code(&out, j, i, ng_get_code(t, i, j));
    return out;
}

/* ---- data ---------------------------------------------------------------------------------------------------------*/
static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

typedef enum data_kind { ORDINARY, ANY_BITS, EDGES, TINY, HUGE_VALUES, SPARSE, SPECIALS, SCALE_TIES, DATA_KINDS } data_kind;
static const char *const data_names[DATA_KINDS] = {"ordinary", "any bits", "edges", "tiny", "huge", "sparse", "specials", "scale ties"};

/* Block maxima that nvfp4 maps within a few ulps of a tie of ue4m3, under the tensor's maximum `top` in its corner: there
 * the orders in which libraries compute the scale come apart. */
static float scale_tie(uint32_t r, uint32_t shared, int64_t row, int64_t column) {
    const float top = 1.1f;
    float tie = ldexpf((float)(8 + shared % 8) + 0.5f, (int)(shared >> 8) % 9 - 4), maximum = tie * top / 448;
    if (row == 0 && column == 0) return top;
    if ((uint32_t)column % 16 != (shared >> 16) % 16) return maximum * 0.3f;
    uint32_t bits;
    memcpy(&bits, &maximum, sizeof bits);
    return of_bits((r & 0x80000000u) | (bits + r % 7 - 3));
}

/* A binary32 of that kind. Blocks of 16 consecutive columns share a hash, so that whole blocks are zero or tiny. */
static float datum(data_kind kind, uint64_t seed, int64_t row, int64_t column) {
    uint32_t r = ng_test_hash(seed, (uint64_t)row << 32 | (uint64_t)column), sign = r & 0x80000000u;
    uint32_t shared = ng_test_hash(seed + 1, (uint64_t)row << 32 | (uint64_t)(column / 16));
    uint32_t mantissa = r & 0x7FFFFFu, near = (r >> 8) % 5;
    switch (kind) {
    case ORDINARY: return of_bits(sign | (119u + (r >> 23) % 10) << 23 | mantissa);
    case ANY_BITS: return of_bits(ng_test_hash(seed + 2, r) & (r % 17 ? 0xBFFFFFFFu : 0xFFFFFFFFu));
    case EDGES: /* one ulp around powers of two, 1.5, 1.75, 1.875 and 1.25 times them */
        return of_bits(sign | (((100u + shared % 40 - r % 4) << 23) + (((const uint32_t[]){0, 0x400000, 0x600000, 0x700000, 0x200000})[near] + r % 3 - 1)));
    case TINY: return of_bits(sign | (shared % 3 ? mantissa : (1u + shared % 24) << 23 | mantissa) >> shared % 20);
    case HUGE_VALUES: return of_bits(sign | (245u + r % 10) << 23 | (shared % 2 ? mantissa : 0x7FFFFFu));
    case SPARSE: return shared % 3 == 0 || r % 4 ? of_bits(sign) : of_bits(sign | (90u + shared % 70) << 23 | mantissa);
    case SCALE_TIES: return scale_tie(r, shared, row, column);
    default:
        if (shared % 4 == 0 && r % 23 == 0) return of_bits(sign | 0x7FC00001u);
        if (shared % 4 == 1 && r % 23 == 0) return of_bits(sign | 0x7F800000u);
        return datum(ORDINARY, seed, row, column);
    }
}

static const ng_cast to_nearest = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL};

static void fill(ng_tensor *t, data_kind kind, uint64_t seed) {
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            ng_set_code(t, i, j, ng_round(t->format, (double)datum(kind, seed, i, j), &to_nearest, 0));
}

static void fill_codes(ng_tensor *t, uint64_t seed, bool special) {
    uint32_t last = t->format == NG_E4M3 ? 0x7E : t->format == NG_E5M2 ? 0x7B : 0xFF;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            uint32_t r = ng_test_hash(seed, (uint64_t)(i * t->columns + j)), codes = ng_format_codes(t->format);
            uint32_t code = codes ? r % codes : r;
            if (!special && (code & 0x7F) > last) code = last;
            ng_set_code(t, i, j, code);
        }
}

static ng_tensor random_words(int64_t rows, int64_t columns, uint64_t seed) {
    ng_tensor t = tensor_new(NG_FP32, rows, columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            ng_set_code(&t, i, j, ng_test_hash(seed, (uint64_t)(i * columns + j)));
    return t;
}

/* ---- the catalogue ------------------------------------------------------------------------------------------------*/
enum { MOST_KERNELS = 4096 };

/* The plain CPU kernels of an operation: those of this floor's own lists. */
static size_t cpu_kernels(ng_op op, const ng_kernel **found) {
    static const ng_kernel_list *const lists[] = {&ng_cpu_casts, &ng_cpu_quantizers, &ng_cpu_dequantizers, &ng_cpu_gemms};
    size_t count = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            if (lists[l]->kernels[i].op == op && count < MOST_KERNELS) found[count++] = &lists[l]->kernels[i];
    return count;
}

static void launch(const ng_kernel *kernel, ng_launch *l, int threads, bool portable) {
    char message[256] = "";
    ng_device device = {.backend = NG_BACKEND_CPU, .threads = threads, .portable = portable};
    l->device = &device;
    l->message = message;
    l->message_bytes = sizeof message;
    ng_status status = kernel->launch(kernel, l);
    cr_assert(status == NG_OK, "%s: status %d: %s", kernel->name, (int)status, message);
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const ng_kernel *const *)a)->name, (*(const ng_kernel *const *)b)->name);
}

static void names_are_unique(void) {
    static const ng_kernel *all[MOST_KERNELS];
    size_t count = ng_builtin_kernels(all, MOST_KERNELS);
    cr_assert(count > 0 && count <= MOST_KERNELS);
    qsort(all, count, sizeof *all, compare_names);
    for (size_t i = 1; i < count; i++)
        cr_expect(strcmp(all[i - 1]->name, all[i]->name) != 0, "two kernels are named %s", all[i]->name);
}

/* ---- Philox: known answers of Random123 1.09 (kat_vectors) --------------------------------------------------------*/
static void philox_known_answers(void) {
    static const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    ng_random4 a = ng_philox4(0, 0, 0), b = ng_philox4(~0ull, ~0ull, ~0ull);
    ng_random4 c = ng_philox4(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    for (int i = 0; i < 4; i++) {
        cr_expect(a.word[i] == zeros[i] && b.word[i] == ones[i] && c.word[i] == pi[i], "word %d", i);
        cr_expect(ng_philox(0, 0, (uint64_t)i) == zeros[i], "lane %d", i);
    }
}

/* ---- casts --------------------------------------------------------------------------------------------------------*/
enum { CAST_ROWS = 64, CAST_COLUMNS = 1031 }; /* 66 thousand inputs, rows that no vector length divides */

/* Inputs of a wide format: every bf16 and every fp16 code where the format has them; else bf16 values with their last bits
 * disturbed, so that ties and their neighbours in every narrower format appear. */
static void fill_cast_inputs(ng_tensor *in) {
    for (int64_t i = 0; i < CAST_ROWS; i++)
        for (int64_t j = 0; j < CAST_COLUMNS; j++) {
            uint64_t index = (uint64_t)(i * CAST_COLUMNS + j);
            uint32_t code = (uint32_t)index & 0xFFFFu, r = ng_test_hash(7, index);
            double value = (double)of_bits((code << 16) + (r % 4 ? r % 3 - 1 : r & 0xFFFFu));
            if (in->format == NG_FP64) {
                if (r % 5 == 0) value *= 1 + 0x1p-52;
                if (r % 7 == 0) value *= 0x1p60;
                uint64_t bits;
                memcpy(&bits, &value, sizeof bits);
                ng_set_code(in, i, j, bits);
            } else if (in->format == NG_FP32) {
                ng_set_code(in, i, j, (uint32_t)((code << 16) + (r % 4 ? r % 3 - 1 : r & 0xFFFFu)));
            } else {
                ng_set_code(in, i, j, code);
            }
        }
}

static void check_cast(const ng_kernel *kernel, const ng_tensor *in, const ng_tensor *words) {
    ng_tensor out = tensor_new(kernel->out, in->rows, in->columns);
    ng_problem problem = {.op = NG_OP_CAST, .m = in->rows, .n = in->columns};
    ng_launch l = {.problem = &problem, .tensors = {[NG_IN] = *in, [NG_OUT] = out, [NG_RANDOM_WORDS] = *words}};
    launch(kernel, &l, 2, false);
    cr_expect(guards_intact(&out), "%s: wrote between rows", kernel->name);
    long wrong = 0;
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            double x = ng_get_value(in, i, j);
            uint32_t word = (uint32_t)ng_get_code(words, i, j);
            uint64_t expected = ng_round(kernel->out, x, &kernel->contract.cast, word), got = ng_get_code(&out, i, j);
            if (expected == got || wrong++) continue;
            cr_expect(false, "%s: %a (word %08x) became %llx, the reference has %llx", kernel->name, x, word,
                      (unsigned long long)got, (unsigned long long)expected);
        }
    cr_expect(wrong == 0, "%s: %ld of %lld inputs wrong", kernel->name, wrong, (long long)(in->rows * in->columns));
    free(out.data);
}

static void check_casts(ng_format_id from) {
    static const ng_kernel *kernels[MOST_KERNELS];
    size_t count = cpu_kernels(NG_OP_CAST, kernels), checked = 0;
    ng_tensor in = tensor_new(from, CAST_ROWS, CAST_COLUMNS), words = random_words(CAST_ROWS, CAST_COLUMNS, 11);
    fill_cast_inputs(&in);
    for (size_t i = 0; i < count; i++)
        if (kernels[i]->in == from) check_cast(kernels[i], &in, &words), checked++;
    cr_expect(checked > 30, "only %zu kernels", checked);
    free(in.data);
    free(words.data);
}
static void casts_of_bf16(void) { check_casts(NG_BF16); }
static void casts_of_fp16(void) { check_casts(NG_FP16); }
static void casts_of_fp32(void) { check_casts(NG_FP32); }
static void casts_of_fp64(void) { check_casts(NG_FP64); }

/* All 2^r words for a few values: as many round up as the reference counts. */
static void stochastic_counts(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    static const uint32_t inputs[] = {0x3F800000, 0x3F8CCCCD, 0x3E800000, 0x3D4CCCCD, 0x40B33333, 0xBF99999A, 0x3A83126F, 0x33D6BF95, 0x43DFFFFF};
    enum { INPUTS = sizeof inputs / sizeof *inputs };
    size_t count = cpu_kernels(NG_OP_CAST, kernels), checked = 0;
    for (size_t k = 0; k < count; k++) {
        const ng_cast *cast = &kernels[k]->contract.cast;
        if (cast->rounding != NG_R_STOCHASTIC || kernels[k]->in != NG_FP32 || cast->random_bits > 8) continue;
        int64_t draws = (int64_t)1 << cast->random_bits;
        ng_tensor in = tensor_new(NG_FP32, INPUTS, draws), words = tensor_new(NG_FP32, INPUTS, draws);
        ng_tensor out = tensor_new(kernels[k]->out, INPUTS, draws);
        for (int64_t i = 0; i < INPUTS; i++)
            for (int64_t j = 0; j < draws; j++)
                ng_set_code(&in, i, j, inputs[i]), ng_set_code(&words, i, j, (uint64_t)j);
        ng_problem problem = {.op = NG_OP_CAST, .m = INPUTS, .n = draws};
        ng_launch l = {.problem = &problem, .tensors = {[NG_IN] = in, [NG_OUT] = out, [NG_RANDOM_WORDS] = words}};
        launch(kernels[k], &l, 1, false);
        for (int64_t i = 0; i < INPUTS; i++) {
            double x = (double)of_bits(inputs[i]);
            uint64_t up = 0, expected = ng_round_up_count(kernels[k]->out, x, cast);
            for (int64_t j = 0; j < draws; j++)
                up += fabs(ng_get_value(&out, i, j)) > fabs(x);
            if (fabs(x) < ng_formats[kernels[k]->out].largest)
                cr_expect(up == expected, "%s: %a went up for %llu words of %lld, expected %llu", kernels[k]->name, x,
                          (unsigned long long)up, (long long)draws, (unsigned long long)expected);
        }
        free(in.data), free(words.data), free(out.data);
        checked++;
    }
    cr_expect(checked >= 15, "only %zu kernels", checked);
}

/* ---- quantization -------------------------------------------------------------------------------------------------*/
typedef struct quantized {
    ng_tensor codes, scales;
    float tensor_scale;
} quantized;

static quantized quantized_new(const ng_quantization *q, int64_t rows, int64_t columns) {
    return (quantized){tensor_new(q->element, rows, columns),
                       tensor_new(q->scale, ng_block_count(q->blocks.rows, rows), ng_block_count(q->blocks.columns, columns)), 1.0f};
}
static void quantized_free(quantized *x) {
    free(x->codes.data);
    free(x->scales.data);
}

static void launch_quantize(const ng_kernel *kernel, const ng_tensor *in, const ng_tensor *words, float *given, int threads,
                            bool portable, quantized *out, quantized *out_t) {
    ng_problem problem = {.op = NG_OP_QUANTIZE, .m = in->rows, .n = in->columns, .seed = 3, .offset = 5};
    ng_launch l = {.problem = &problem};
    l.tensors[NG_IN] = *in;
    if (words) l.tensors[NG_RANDOM_WORDS] = *words;
    l.tensors[NG_OUT] = out->codes, l.tensors[NG_OUT_SCALES] = out->scales;
    l.tensors[NG_OUT_T] = out_t->codes, l.tensors[NG_OUT_T_SCALES] = out_t->scales;
    l.tensors[NG_OUT_TENSOR_SCALE] = (ng_tensor){&out->tensor_scale, NG_FP32, NG_HOST, 1, 1, 4};
    l.tensors[NG_SCALE_GIVEN_IN] = (ng_tensor){given, NG_FP32, NG_HOST, 1, 1, 4};
    launch(kernel, &l, threads, portable);
}

static void compare_quantized(const ng_kernel *kernel, const char *what, data_kind kind, const ng_tensor *in, const ng_tensor *words,
                              const float *given, const quantized *got) {
    const ng_quantization *q = &kernel->contract.quantization;
    quantized expected = quantized_new(q, in->rows, in->columns);
    ng_quantize_inputs inputs = {.random = words, .given_scale = given};
    int64_t i, j;
    ng_status status = ng_reference_quantize(q, in, &inputs, NG_TIER_INTEGER, &expected.codes, &expected.scales, &expected.tensor_scale);
    cr_assert(status == NG_OK, "%s: the reference's status is %d", kernel->name, (int)status);
    cr_expect(guards_intact(&got->codes) && guards_intact(&got->scales), "%s: wrote between rows", kernel->name);
    if (differ(&got->scales, &expected.scales, &i, &j))
        cr_expect(false, "%s %s, %s %lldx%lld: scale [%lld][%lld] is %llx, the reference has %llx", kernel->name, what, data_names[kind],
                  (long long)in->rows, (long long)in->columns, (long long)i, (long long)j,
                  (unsigned long long)ng_get_code(&got->scales, i, j), (unsigned long long)ng_get_code(&expected.scales, i, j));
    if (differ(&got->codes, &expected.codes, &i, &j) && j < in->columns)
        cr_expect(false, "%s %s, %s %lldx%lld: element [%lld][%lld] of %a is %llx, the reference has %llx", kernel->name, what,
                  data_names[kind], (long long)in->rows, (long long)in->columns, (long long)i, (long long)j, ng_get_value(in, i, j),
                  (unsigned long long)ng_get_code(&got->codes, i, j), (unsigned long long)ng_get_code(&expected.codes, i, j));
    cr_expect(memcmp(&got->tensor_scale, &expected.tensor_scale, sizeof(float)) == 0, "%s %s, %s: tensor scale %a, the reference has %a",
              kernel->name, what, data_names[kind], (double)got->tensor_scale, (double)expected.tensor_scale);
    quantized_free(&expected);
}

typedef struct quantize_data { /* one input, shared by all kernels */
    data_kind kind;
    ng_tensor in, in_t, words, words_t;
} quantize_data;

static void check_quantize(const ng_kernel *kernel, const quantize_data *d) {
    const ng_quantization *q = &kernel->contract.quantization;
    float given = of_bits(0x41A00000u); /* 20 */
    quantized out = quantized_new(q, d->in.rows, d->in.columns), out_t = quantized_new(q, d->in.columns, d->in.rows);
    launch_quantize(kernel, &d->in, &d->words, &given, 2, false, &out, &out_t);
    out_t.tensor_scale = out.tensor_scale;
    compare_quantized(kernel, "row-wise", d->kind, &d->in, &d->words, &given, &out);
    compare_quantized(kernel, "column-wise", d->kind, &d->in_t, &d->words_t, &given, &out_t);
    quantized_free(&out);
    quantized_free(&out_t);
}

static void check_quantizers_on(ng_format_id from, int64_t rows, int64_t columns, data_kind kind) {
    static const ng_kernel *kernels[MOST_KERNELS];
    size_t count = cpu_kernels(NG_OP_QUANTIZE, kernels), checked = 0;
    uint64_t seed = (uint64_t)(rows * 1000 + columns) * 16 + kind;
    quantize_data d = {.kind = kind, .in = tensor_new(from, rows, columns), .words = random_words(rows, columns, seed + 9)};
    fill(&d.in, kind, seed);
    d.in_t = transpose(&d.in);
    d.words_t = transpose(&d.words);
    for (size_t k = 0; k < count; k++)
        if (kernels[k]->in == from) check_quantize(kernels[k], &d), checked++;
    cr_expect(checked > 40, "only %zu kernels", checked);
    free(d.in.data), free(d.in_t.data), free(d.words.data), free(d.words_t.data);
}

static void check_quantizers(ng_format_id from) {
    for (data_kind kind = 0; kind < DATA_KINDS; kind++) {
        check_quantizers_on(from, 1, 1, kind);
        check_quantizers_on(from, 1, 31, kind);
        check_quantizers_on(from, 33, 65, kind);
    }
    check_quantizers_on(from, 2, 600, EDGES);
    check_quantizers_on(from, 65, 129, SCALE_TIES);
    check_quantizers_on(from, 129, 257, from == NG_BF16 ? EDGES : ANY_BITS);
}
static void quantizers_of_fp32(void) { check_quantizers(NG_FP32); }
static void quantizers_of_bf16(void) { check_quantizers(NG_BF16); }
static void quantizers_of_fp16(void) { check_quantizers(NG_FP16); }

/* Without given words the kernel draws Philox's: the row-wise output for elements 0 .. RC - 1, then the column-wise one. */
static void drawn_words(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    enum { R = 19, C = 77 };
    size_t count = cpu_kernels(NG_OP_QUANTIZE, kernels);
    for (size_t k = 0; k < count; k++) {
        const ng_quantization *q = &kernels[k]->contract.quantization;
        if (q->cast.rounding != NG_R_STOCHASTIC || kernels[k]->in != NG_FP32) continue;
        ng_tensor in = tensor_new(NG_FP32, R, C), words = tensor_new(NG_FP32, R, C), words_t = tensor_new(NG_FP32, C, R);
        fill(&in, ORDINARY, 1);
        for (int64_t i = 0; i < R * C; i++) {
            ng_set_code(&words, i / C, i % C, ng_philox(3, 5, (uint64_t)i));
            ng_set_code(&words_t, i / R, i % R, ng_philox(3, 5, (uint64_t)(R * C + i)));
        }
        ng_tensor in_t = transpose(&in);
        quantized out = quantized_new(q, R, C), out_t = quantized_new(q, C, R);
        launch_quantize(kernels[k], &in, NULL, NULL, 2, false, &out, &out_t);
        out_t.tensor_scale = out.tensor_scale;
        compare_quantized(kernels[k], "row-wise", ORDINARY, &in, &words, NULL, &out);
        compare_quantized(kernels[k], "column-wise", ORDINARY, &in_t, &words_t, NULL, &out_t);
        free(in.data), free(in_t.data), free(words.data), free(words_t.data);
        quantized_free(&out), quantized_free(&out_t);
    }
}

/* ---- operands, dequantization and products ------------------------------------------------------------------------*/
/* Random codes of that quantization; scales of moderate size, or any code at all. */
static ng_operand operand_new(const ng_quantization *q, int64_t rows, int64_t columns, uint64_t seed, bool special) {
    ng_operand x = {.codes = tensor_new(q->element, rows, columns), .blocks = q->blocks, .tensor_scale = 1.0f};
    if (ng_row_bytes(q->element, 2) > 2) fill(&x.codes, special ? ANY_BITS : ORDINARY, seed);
    else fill_codes(&x.codes, seed, special);
    if (q->rule == NG_SCALE_ABSENT) return x;
    x.scales = tensor_new(q->scale, ng_block_count(q->blocks.rows, rows), ng_block_count(q->blocks.columns, columns));
    for (int64_t i = 0; i < x.scales.rows; i++)
        for (int64_t j = 0; j < x.scales.columns; j++) {
            uint32_t r = ng_test_hash(seed + 1, (uint64_t)(i * x.scales.columns + j));
            uint32_t fp32 = (special ? r % 254 : 122 + r % 10) << 23 | (r >> 8 & 0x7FFFFFu);
            ng_set_code(&x.scales, i, j, q->scale == NG_FP32 ? fp32 : q->scale == NG_E8M0 ? special ? r & 0xFF : 120 + r % 12
                                                                                          : special ? r & 0x7F : 8 + r % 90);
        }
    if (q->tensor_scale) x.tensor_scale = of_bits(special ? 0x00812345u : 0x3A812345u);
    return x;
}
static void operand_free(ng_operand *x) {
    free(x->codes.data);
    free(x->scales.data);
}

static void dequantizers(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    static const int64_t shapes[][2] = {{1, 1}, {33, 65}, {129, 257}, {3, 1100}};
    size_t count = cpu_kernels(NG_OP_DEQUANTIZE, kernels);
    cr_assert(count >= 30);
    for (size_t k = 0; k < count; k++)
        for (int s = 0; s < 8; s++) {
            int64_t rows = shapes[s / 2][0], columns = shapes[s / 2][1], i, j;
            ng_operand x = operand_new(&kernels[k]->contract.quantization, rows, columns, (uint64_t)s, s % 2);
            ng_tensor got = tensor_new(kernels[k]->out, rows, columns), expected = tensor_new(kernels[k]->out, rows, columns);
            ng_problem problem = {.op = NG_OP_DEQUANTIZE, .m = rows, .n = columns};
            ng_launch l = {.problem = &problem, .tensors = {[NG_IN] = x.codes, [NG_IN_SCALES] = x.scales, [NG_OUT] = got}};
            l.tensors[NG_IN_TENSOR_SCALE] = (ng_tensor){&x.tensor_scale, NG_FP32, NG_HOST, 1, 1, 4};
            launch(kernels[k], &l, 2, false);
            cr_assert(ng_reference_dequantize(&x, &kernels[k]->contract.cast, NG_TIER_INTEGER, &expected) == NG_OK);
            cr_expect(guards_intact(&got), "%s: wrote between rows", kernels[k]->name);
            if (differ(&got, &expected, &i, &j))
                cr_expect(false, "%s: [%lld][%lld] is %llx, the reference has %llx", kernels[k]->name, (long long)i, (long long)j,
                          (unsigned long long)ng_get_code(&got, i, j), (unsigned long long)ng_get_code(&expected, i, j));
            free(got.data), free(expected.data);
            operand_free(&x);
        }
}

static void launch_gemm(const ng_kernel *kernel, ng_operand *a, ng_operand *b, int threads, bool portable, ng_tensor *out) {
    ng_problem problem = {.op = NG_OP_GEMM, .m = a->codes.rows, .n = b->codes.rows, .k = a->codes.columns};
    ng_launch l = {.problem = &problem};
    cr_assert(!kernel->supports(kernel, &problem, NULL), "%s", kernel->name);
    l.tensors[NG_A] = a->codes, l.tensors[NG_A_SCALES] = a->scales;
    l.tensors[NG_B] = b->codes, l.tensors[NG_B_SCALES] = b->scales;
    l.tensors[NG_A_TENSOR_SCALE] = (ng_tensor){&a->tensor_scale, NG_FP32, NG_HOST, 1, 1, 4};
    l.tensors[NG_B_TENSOR_SCALE] = (ng_tensor){&b->tensor_scale, NG_FP32, NG_HOST, 1, 1, 4};
    l.tensors[NG_OUT] = *out;
    launch(kernel, &l, threads, portable);
}

static void check_gemm(const ng_kernel *kernel, int64_t m, int64_t n, int64_t k, bool special) {
    const ng_contract *c = &kernel->contract;
    ng_operand a = operand_new(&c->a, m, k, (uint64_t)(m * 3 + k), special), b = operand_new(&c->b, n, k, (uint64_t)(n * 7 + k), special);
    ng_tensor got = tensor_new(kernel->out, m, n), initial = tensor_new(kernel->out, m, n), expected = tensor_new(kernel->out, m, n);
    int64_t i, j;
    fill(&initial, ORDINARY, 77);
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++)
            ng_set_code(&got, i, j, ng_get_code(&initial, i, j));
    launch_gemm(kernel, &a, &b, 2, false, &got);
    ng_status status = ng_predict_gemm(&c->sum, &c->cast, &a, &b, c->accumulate_into ? &initial : NULL, 1, &expected, NULL);
    cr_assert(status == NG_OK, "%s: the predictor's status is %d", kernel->name, (int)status);
    cr_expect(guards_intact(&got), "%s: wrote between rows", kernel->name);
    if (differ(&got, &expected, &i, &j))
        cr_expect(false, "%s %lldx%lldx%lld%s: [%lld][%lld] is %llx, predicted %llx", kernel->name, (long long)m, (long long)n, (long long)k,
                  special ? ", any codes" : "", (long long)i, (long long)j, (unsigned long long)ng_get_code(&got, i, j),
                  (unsigned long long)ng_get_code(&expected, i, j));
    free(got.data), free(initial.data), free(expected.data);
    operand_free(&a), operand_free(&b);
}

static void gemms(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 2, 31}, {7, 17, 129}, {13, 33, 1000}, {50, 70, 333}};
    size_t count = cpu_kernels(NG_OP_GEMM, kernels);
    cr_assert(count >= 60);
    for (size_t k = 0; k < count; k++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int special = 0; special < 2; special++)
                check_gemm(kernels[k], shapes[s][0], shapes[s][1], shapes[s][2], special);
        if (k % 9 == 0) check_gemm(kernels[k], 200, 270, 160, false); /* more than one tile each way */
    }
}

/* ---- threads and instruction sets ---------------------------------------------------------------------------------*/
/* Runs the kernel four ways and holds the outputs to the first, guards included. */
static void same_bits_everywhere(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    enum { R = 35, C = 1300, WAYS = 4 };
    size_t count = cpu_kernels(NG_OP_QUANTIZE, kernels);
    for (size_t k = 0; k < count; k++) {
        const ng_quantization *q = &kernels[k]->contract.quantization;
        ng_tensor in = tensor_new(kernels[k]->in, R, C);
        float given = 3.0f;
        quantized out[WAYS], out_t[WAYS];
        int64_t i, j;
        fill(&in, k % 2 ? ANY_BITS : ORDINARY, k);
        for (int way = 0; way < WAYS; way++) {
            out[way] = quantized_new(q, R, C), out_t[way] = quantized_new(q, C, R);
            launch_quantize(kernels[k], &in, NULL, &given, 1 + way % 2, way / 2, &out[way], &out_t[way]);
            cr_expect(!differ(&out[0].codes, &out[way].codes, &i, &j) && !differ(&out[0].scales, &out[way].scales, &i, &j) &&
                          !differ(&out_t[0].codes, &out_t[way].codes, &i, &j) && !differ(&out_t[0].scales, &out_t[way].scales, &i, &j),
                      "%s: other bits with %d threads, %s", kernels[k]->name, 1 + way % 2, way / 2 ? "portable" : "dispatched");
        }
        for (int way = 0; way < WAYS; way++)
            quantized_free(&out[way]), quantized_free(&out_t[way]);
        free(in.data);
    }
}

static void casts_same_bits(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    size_t count = cpu_kernels(NG_OP_CAST, kernels);
    for (size_t k = 0; k < count; k++) {
        ng_tensor in = tensor_new(kernels[k]->in, CAST_ROWS, CAST_COLUMNS), out[4];
        int64_t i, j;
        fill_cast_inputs(&in);
        ng_problem problem = {.op = NG_OP_CAST, .m = CAST_ROWS, .n = CAST_COLUMNS, .seed = 9};
        for (int way = 0; way < 4; way++) {
            out[way] = tensor_new(kernels[k]->out, CAST_ROWS, CAST_COLUMNS);
            ng_launch l = {.problem = &problem, .tensors = {[NG_IN] = in, [NG_OUT] = out[way]}};
            launch(kernels[k], &l, 1 + way % 2, way / 2);
            cr_expect(!differ(&out[0], &out[way], &i, &j), "%s: other bits, way %d", kernels[k]->name, way);
        }
        for (int way = 0; way < 4; way++)
            free(out[way].data);
        free(in.data);
    }
}

static void gemms_same_bits(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    size_t count = cpu_kernels(NG_OP_GEMM, kernels);
    for (size_t k = 0; k < count; k++)
        for (int special = 0; special < 2; special++) {
            ng_operand a = operand_new(&kernels[k]->contract.a, 23, 300, k, special), b = operand_new(&kernels[k]->contract.b, 177, 300, k + 5, special);
            ng_tensor out[4];
            int64_t i, j;
            for (int way = 0; way < 4; way++) {
                out[way] = tensor_new(kernels[k]->out, 23, 177);
                fill(&out[way], ORDINARY, 3);
                launch_gemm(kernels[k], &a, &b, 1 + way % 2, way / 2, &out[way]);
                cr_expect(!differ(&out[0], &out[way], &i, &j), "%s: other bits, way %d", kernels[k]->name, way);
            }
            for (int way = 0; way < 4; way++)
                free(out[way].data);
            operand_free(&a), operand_free(&b);
        }
}

/* ---- what a launch refuses ----------------------------------------------------------------------------------------*/
static void bad_launches(void) {
    static const ng_kernel *kernels[MOST_KERNELS];
    cpu_kernels(NG_OP_CAST, kernels);
    const ng_kernel *kernel = kernels[0];
    ng_tensor in = tensor_new(kernel->in, 4, 4), out = tensor_new(kernel->out, 4, 4);
    ng_problem problem = {.op = NG_OP_CAST, .m = 4, .n = 4};
    ng_device device = {.threads = 1};
    ng_launch good = {.problem = &problem, .device = &device, .tensors = {[NG_IN] = in, [NG_OUT] = out}}, bad;
    cr_expect(kernel->launch(kernel, &good) == NG_OK);
    bad = good, bad.tensors[NG_OUT].data = NULL;
    cr_expect(kernel->launch(kernel, &bad) == NG_BAD_ARGUMENT);
    bad = good, bad.tensors[NG_OUT].rows = 3;
    cr_expect(kernel->launch(kernel, &bad) == NG_BAD_ARGUMENT);
    bad = good, bad.tensors[NG_IN].format = NG_E8M0;
    cr_expect(kernel->launch(kernel, &bad) == NG_BAD_ARGUMENT);
    bad = good, bad.tensors[NG_IN].row_bytes = 1;
    cr_expect(kernel->launch(kernel, &bad) == NG_BAD_ARGUMENT);
    bad = good, bad.tensors[NG_IN].space = NG_GPU;
    cr_expect(kernel->launch(kernel, &bad) == NG_BAD_ARGUMENT);
    free(in.data), free(out.data);
}

/* Where the kernels put each scale is where the reference, which works from places to scales, finds it; everything else is padding. */
static void scale_layouts(void) {
    static const int64_t extents[][2] = {{1, 1}, {3, 5}, {33, 4}, {128, 4}, {129, 9}, {300, 17}};
    for (int layout = 0; layout < NG_LAYOUTS; layout++)
        for (size_t e = 0; e < sizeof extents / sizeof *extents; e++) {
            int64_t R = extents[e][0], C = extents[e][1], rows, columns, used = 0;
            ng_layout_extents((ng_scale_layout)layout, R, C, &rows, &columns);
            cr_assert(rows == ng_scale_rows((ng_scale_layout)layout, R, C) && columns == ng_scale_columns((ng_scale_layout)layout, R, C));
            float *plain = calloc((size_t)(R * C), sizeof *plain), *laid = calloc((size_t)(rows * columns), sizeof *laid);
            cr_assert(plain && laid);
            for (int64_t i = 0; i < R * C; i++)
                plain[i] = (float)(i + 1);
            ng_tensor from = {plain, NG_FP32, NG_HOST, R, C, 4 * C}, to = {laid, NG_FP32, NG_HOST, rows, columns, 4 * columns};
            ng_layout_arrange((ng_scale_layout)layout, &from, &to);
            for (int64_t i = 0; i < rows * columns; i++)
                used += laid[i] > 0;
            cr_expect_eq(used, R * C);
            for (int64_t r = 0; r < R; r++)
                for (int64_t c = 0; c < C; c++) {
                    int64_t row = ng_scale_row((ng_scale_layout)layout, r, c), column = ng_scale_column((ng_scale_layout)layout, r, c, C);
                    cr_assert(row < rows && column < columns && laid[row * columns + column] >= plain[r * C + c] && laid[row * columns + column] <= plain[r * C + c],
                              "layout %d, %ld x %ld: scale (%ld, %ld)", layout, (long)R, (long)C, (long)r, (long)c);
                }
            free(plain);
            free(laid);
        }
    /* cuBLAS documentation, "1D block scaling factors layout": 128 x 4 tiles, offset (r % 32) * 16 + r / 32 * 4 + c */
    cr_expect_eq(ng_scale_column(NG_LAYOUT_SWIZZLED, 33, 1, 4), 1 * 16 + 1 * 4 + 1);
    cr_expect_eq(ng_scale_column(NG_LAYOUT_SWIZZLED, 128, 0, 8), 2 * 512);
    cr_expect_eq(ng_scale_column(NG_LAYOUT_SWIZZLED, 0, 4, 8), 512);
}

const ng_test ng_tests[] = {
    {"kernels", "names are unique", names_are_unique, 0},
    {"kernels", "philox known answers", philox_known_answers, 0},
    {"kernels", "cast: every bf16 input", casts_of_bf16, 0},
    {"kernels", "cast: every fp16 input", casts_of_fp16, 0},
    {"kernels", "cast: fp32 around every bf16 value", casts_of_fp32, 0},
    {"kernels", "cast: fp64 around every bf16 value", casts_of_fp64, 0},
    {"kernels", "cast: words that round up, counted", stochastic_counts, 0},
    {"kernels", "quantize fp32 as the reference does", quantizers_of_fp32, 0},
    {"kernels", "quantize bf16 as the reference does", quantizers_of_bf16, 0},
    {"kernels", "quantize fp16 as the reference does", quantizers_of_fp16, 0},
    {"kernels", "quantize with drawn words", drawn_words, 0},
    {"kernels", "dequantize as the reference does", dequantizers, 0},
    {"kernels", "products as predicted", gemms, 0},
    {"kernels", "quantize: same bits with threads and instruction sets", same_bits_everywhere, 0},
    {"kernels", "cast: same bits with threads and instruction sets", casts_same_bits, 0},
    {"kernels", "products: same bits with threads and instruction sets", gemms_same_bits, 0},
    {"kernels", "launches that must be refused", bad_launches, 0},
    {"kernels", "layouts of scales", scale_layouts, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
