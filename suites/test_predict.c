/* The predictor against itself and against others: the fast path against the plain one, the plain one against sums done
 * with MPFR from the contract's words alone, both against rows derived by hand; bounds against exact products; and that
 * the prediction is sharp: a neighbouring contract gives other bits. */
#include "kernels/contracts.h"
#include "reference/predict.h"
#include "reference/round.h"
#include "suites/test.h"
#include "suites/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- data ---------------------------------------------------------------------------------------------------------*/
static uint64_t next(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return ldexp((double)(next(state) >> 11), -53);
}

static double normal(uint64_t *state) /* nearly: twelve uniform numbers */
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform(state);
    return sum;
}

typedef enum data_kind { NORMAL, POSITIVE, ANY_FINITE, CANCELLING, TINY, SPARSE, NONFINITE, DATA_KINDS } data_kind;

static const char *const data_names[] = {"normal", "positive", "any finite code", "cancelling", "tiny", "sparse", "nonfinite"};

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .saturate = true};
static const ng_cast plain_cast = {.rounding = NG_RN_EVEN};

static uint64_t finite_code(ng_format_id format, uint64_t *state)
{
    const ng_format *f = &ng_formats[format];
    for (;;) {
        int bits = format == NG_TF32 ? 32 : f->exponent_bits + f->mantissa_bits + f->is_signed;
        uint64_t code = next(state);
        if (bits < 64) code &= (UINT64_C(1) << bits) - 1;
        if (format == NG_TF32) code &= ~UINT64_C(0x1FFF);
        if (isfinite(ng_decode(format, code))) return code;
    }
}

static double draw(data_kind kind, ng_format_id format, uint64_t *state)
{
    const ng_format *f = &ng_formats[format];
    double least = ldexp(1, f->emin - f->mantissa_bits);
    switch (kind) {
    case NORMAL: return normal(state);
    case POSITIVE: return uniform(state);
    case TINY: /* products around binary32's smallest numbers where the format reaches so far */
        return normal(state) * (f->emin <= -126 ? ldexp(1, -80 + (int)(next(state) % 12)) : least * 8);
    case SPARSE: return next(state) % 4 ? (next(state) % 2 ? -0.0 : 0.0) : normal(state);
    case NONFINITE: {
        uint64_t which = next(state) % 256;
        return which == 0 ? INFINITY : which == 1 ? -INFINITY : which == 2 && next(state) % 4 == 0 ? NAN : normal(state);
    }
    case ANY_FINITE:
    case CANCELLING:
    case DATA_KINDS: break;
    }
    return ng_decode(format, finite_code(format, state));
}

/* Cancelling: an odd term of A is minus its neighbour while B's are equal, but for every seventh pair. */
static void fill(ng_tensor *t, data_kind kind, bool is_a, uint64_t *state)
{
    const ng_cast *cast = kind == NONFINITE ? &plain_cast : &nearest;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t k = 0; k < t->columns; k++) {
            double x = draw(kind, t->format, state);
            if (kind == CANCELLING && k % 2 && k % 14 != 13) x = ng_get_value(t, i, k - 1) * (is_a ? -1 : 1);
            ng_set_code(t, i, k, ng_round(t->format, x, cast, 0));
        }
}

static ng_tensor new_tensor(ng_format_id format, int64_t rows, int64_t columns)
{
    ng_tensor t = {.format = format, .rows = rows, .columns = columns, .row_bytes = ng_row_bytes(format, columns)};
    t.data = calloc((size_t)rows + 1, (size_t)t.row_bytes + 1);
    cr_assert(t.data);
    return t;
}

static void free_operand(ng_operand *x)
{
    free(x->codes.data);
    free(x->scales.data);
}

/* Scales: powers of two near 1 and, for fp32, odd ones; a few extremes. */
static double draw_scale(ng_format_id format, uint64_t *state)
{
    double x = ldexp(1 + (format == NG_E8M0 ? 0 : uniform(state)), (int)(next(state) % 9) - 4);
    return next(state) % 32 ? x : ldexp(x, (int)(next(state) % 41) - 20);
}

static ng_operand new_operand(ng_format_id format, ng_format_id scale, ng_blocks blocks, float tensor_scale, int64_t rows,
                              int64_t k, data_kind kind, bool is_a, uint64_t *state)
{
    ng_operand x = {.codes = new_tensor(format, rows, k), .blocks = blocks, .tensor_scale = tensor_scale};
    fill(&x.codes, kind, is_a, state);
    if (scale == NG_NO_FORMAT) return x;
    x.scales = new_tensor(scale, ng_block_count(blocks.rows, rows), ng_block_count(blocks.columns, k));
    for (int64_t i = 0; i < x.scales.rows; i++)
        for (int64_t q = 0; q < x.scales.columns; q++)
            ng_set_code(&x.scales, i, q, ng_round(scale, draw_scale(scale, state), &nearest, 0));
    return x;
}

/* ---- contracts ----------------------------------------------------------------------------------------------------*/
typedef struct subject {
    const char *name;
    ng_format_id a, b, scale;
    ng_blocks a_blocks, b_blocks;
    ng_accumulation sum;
    float tensor_scale;
    bool accumulate;
} subject;

#define MMA(...) {.order = NG_SUM_MMA, .mma = __VA_ARGS__}
#define PLAIN(f) f, f, NG_NO_FORMAT, {0, 0}, {0, 0}

static const subject subjects[] = {
    {"hopper-wgmma-fp8", PLAIN(NG_E4M3), MMA(NG_STEP_HOPPER_FP8), 1, false},
    {"hopper-wgmma-fp8 e5m2", PLAIN(NG_E5M2), MMA(NG_STEP_HOPPER_FP8), 1, false},
    {"hopper-wgmma-fp8 e5m2 x e4m3", NG_E5M2, NG_E4M3, NG_NO_FORMAT, {0, 0}, {0, 0}, MMA(NG_STEP_HOPPER_FP8), 1, false},
    {"hopper-wgmma-fp8 promoted", PLAIN(NG_E4M3), MMA(NG_STEP_HOPPER_FP8, .promote_every = 4), 1, false},
    {"hopper-wgmma-fp8 promoted, accumulate", PLAIN(NG_E4M3), MMA(NG_STEP_HOPPER_FP8, .promote_every = 4), 0x1.8p-3f, true},
    {"hopper-wgmma-fp8 rows", NG_E4M3, NG_E4M3, NG_FP32, {1, 0}, {1, 0}, MMA(NG_STEP_HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_AFTER), 1, false},
    {"hopper-wgmma-fp8 fma product", NG_E4M3, NG_E4M3, NG_FP32, {1, 128}, {128, 128}, MMA(NG_STEP_HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_PRODUCT), 1, false},
    {"hopper-wgmma-fp8 fma second", NG_E4M3, NG_E4M3, NG_FP32, {1, 128}, {1, 128}, MMA(NG_STEP_HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_SECOND), 1, true},
    {"hopper-wgmma-fp8 sequential", NG_E4M3, NG_E5M2, NG_FP32, {1, 64}, {1, 128}, MMA(NG_STEP_HOPPER_FP8, .scales = NG_SCALES_BLOCK_SEQUENTIAL), 1, false},
    {"hopper-wgmma-fp8 split", PLAIN(NG_E4M3), MMA(NG_STEP_HOPPER_FP8, .promote_every = 4, .split_k = 3, .split_tile = 64), 1, false},
    {"hopper-mma-sync-fp8", PLAIN(NG_E4M3), MMA(NG_STEP_HOPPER_MMA_SYNC_FP8), 1, false},
    {"hopper-mma-sync-fp8 e5m2", PLAIN(NG_E5M2), MMA(NG_STEP_HOPPER_MMA_SYNC_FP8), 1, false},
    {"hopper-fp16", PLAIN(NG_FP16), MMA(NG_STEP_HOPPER_FP16), 1, false},
    {"hopper-fp16 split", PLAIN(NG_FP16), MMA(NG_STEP_HOPPER_FP16, .split_k = 4, .split_tile = 64), 1, true},
    {"hopper-bf16", PLAIN(NG_BF16), MMA(NG_STEP_HOPPER_BF16), 1, false},
    {"hopper-tf32", PLAIN(NG_TF32), MMA(NG_STEP_HOPPER_TF32), 1, false},
    {"hopper-tf32 split", PLAIN(NG_TF32), MMA(NG_STEP_HOPPER_TF32, .split_k = 3, .split_tile = 16), 1, false},
    {"ada-fp8", PLAIN(NG_E4M3), MMA(NG_STEP_ADA_FP8), 1, false},
    {"ada-fp8 e5m2", PLAIN(NG_E5M2), MMA(NG_STEP_ADA_FP8), 1, false},
    {"ada-fp16", PLAIN(NG_FP16), MMA(NG_STEP_ADA_FP16), 1, false},
    {"ada-bf16", PLAIN(NG_BF16), MMA(NG_STEP_ADA_BF16), 1, false},
    {"ada-tf32", PLAIN(NG_TF32), MMA(NG_STEP_ADA_TF32), 1, false},
    {"volta-fp16", PLAIN(NG_FP16), MMA(NG_STEP_VOLTA_FP16), 1, false},
    {"blackwell-fp8", PLAIN(NG_E4M3), MMA(NG_STEP_BLACKWELL_FP8), 1, false},
    {"blackwell-fp8 e3m2", PLAIN(NG_E3M2), MMA(NG_STEP_BLACKWELL_FP8), 1, false},
    {"blackwell-fp8 e2m3 x e5m2", NG_E2M3, NG_E5M2, NG_NO_FORMAT, {0, 0}, {0, 0}, MMA(NG_STEP_BLACKWELL_FP8), 1, false},
    {"blackwell-mxf8f6f4", NG_E4M3, NG_E4M3, NG_E8M0, {1, 32}, {1, 32}, MMA(NG_STEP_BLACKWELL_MXF8F6F4, .scales = NG_SCALES_IN_MMA), 1, false},
    {"blackwell-mxf8f6f4 e2m1", NG_E2M1, NG_E2M1, NG_E8M0, {1, 32}, {1, 32}, MMA(NG_STEP_BLACKWELL_MXF8F6F4, .scales = NG_SCALES_IN_MMA), 1, false},
    {"blackwell-mxf4nvf4", NG_E2M1, NG_E2M1, NG_UE4M3, {1, 16}, {1, 16}, MMA(NG_STEP_BLACKWELL_NVF4, .scales = NG_SCALES_IN_MMA), 0x1.921fb6p-5f, false},
    {"blackwell-mxf4nvf4-mxf4", NG_E2M1, NG_E2M1, NG_E8M0, {1, 32}, {1, 32}, MMA(NG_STEP_BLACKWELL_MXF4, .scales = NG_SCALES_IN_MMA), 1, false},
    {"hopper-bf16 of mxfp8", NG_E4M3, NG_E4M3, NG_E8M0, {1, 32}, {1, 32}, MMA(NG_STEP_HOPPER_BF16, .scales = NG_SCALES_DEQUANTIZED), 1, false},
    {"odd step: 11 bits, groups of 8", PLAIN(NG_BF16), {.order = NG_SUM_MMA, .mma = NG_STEP("odd", 16, 8, 11, 9)}, 1, false},
    {"odd step: 28 bits, groups of 32", PLAIN(NG_E4M3), {.order = NG_SUM_MMA, .mma = NG_STEP("odd", 32, 32, 28, 23)}, 1, false},
    {"chain e4m3", PLAIN(NG_E4M3), {.order = NG_SUM_CHAIN}, 1, false},
    {"chain e4m3, scales in sequence", NG_E4M3, NG_E4M3, NG_FP32, {1, 128}, {128, 128}, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_BLOCK_SEQUENTIAL}, 1, false},
    {"chain bf16", PLAIN(NG_BF16), {.order = NG_SUM_CHAIN}, 1, true},
    {"chain bf16 fma", PLAIN(NG_BF16), {.order = NG_SUM_CHAIN, .fused = true}, 1, false},
    {"chain fp32", PLAIN(NG_FP32), {.order = NG_SUM_CHAIN}, 1, false},
    {"chain fp32 fma", PLAIN(NG_FP32), {.order = NG_SUM_CHAIN, .fused = true}, 1, false},
    {"chain of dequantized nvfp4", NG_E2M1, NG_E2M1, NG_UE4M3, {1, 16}, {16, 16}, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_DEQUANTIZED}, 0x1.3p-7f, false},
    {"chain of dequantized e4m3", NG_E4M3, NG_E4M3, NG_FP32, {1, 128}, {128, 128}, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_DEQUANTIZED, .fused = true}, 1, false},
    {"pairwise fp16", PLAIN(NG_FP16), {.order = NG_SUM_PAIRWISE, .leaf = 8}, 1, false},
    {"pairwise fp32 fma", PLAIN(NG_FP32), {.order = NG_SUM_PAIRWISE, .leaf = 32, .fused = true}, 1, false},
    {"pairwise e5m2 split", PLAIN(NG_E5M2), {.order = NG_SUM_PAIRWISE, .leaf = 16, .split_k = 2, .split_tile = 48}, 1, false},
    {"fp64 fp16", PLAIN(NG_FP16), {.order = NG_SUM_FP64}, 1, false},
    {"fp64 fp32", PLAIN(NG_FP32), {.order = NG_SUM_FP64}, 1, true},
    {"hopper-wgmma-fp8 rows, swapped", NG_E4M3, NG_E4M3, NG_FP32, {1, 0}, {1, 0}, MMA(NG_STEP_HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_AFTER, .scales_swapped = true), 1, false},
    {"hopper-bf16 of nvfp4 in quads", NG_E2M1, NG_E2M1, NG_UE4M3, {1, 16}, {1, 16},
     MMA(NG_STEP_HOPPER_BF16, .scales = NG_SCALES_DEQUANTIZED, .split_k = 2, .split_tile = 128, .k_order = NG_K_QUADS), 0x1.3p-7f, false},
    {"hopper-wgmma-fp8 rows at once", NG_E4M3, NG_E4M3, NG_FP32, {1, 0}, {1, 0}, MMA(NG_STEP_HOPPER_FP8, .scales = NG_SCALES_AFTER_AT_ONCE), 1, true},
    {"hopper-wgmma-fp8 fma second, swapped", NG_E4M3, NG_E4M3, NG_FP32, {1, 128}, {1, 128}, MMA(NG_STEP_HOPPER_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_SECOND, .scales_swapped = true), 1, false},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

typedef struct problem {
    const subject *subject;
    data_kind kind;
    uint64_t seed;
    ng_operand a, b;
    ng_tensor initial; /* data NULL: none */
    int64_t m, n, k;
} problem;

static problem new_problem(const subject *s, data_kind kind, int64_t m, int64_t n, int64_t k, uint64_t seed)
{
    if (s->sum.k_order != NG_K_ASCENDING) k = (k + 127) / 128 * 128;
    problem p = {.subject = s, .kind = kind, .seed = seed, .m = m, .n = n, .k = k};
    uint64_t state = seed * 1000003u + (uint64_t)kind * 101 + (uint64_t)(s - subjects);
    p.a = new_operand(s->a, s->scale, s->a_blocks, s->tensor_scale, m, k, kind, true, &state);
    p.b = new_operand(s->b, s->scale, s->b_blocks, 1, n, k, kind, false, &state);
    if (!s->accumulate) return p;
    p.initial = new_tensor(NG_FP32, m, n);
    fill(&p.initial, kind, true, &state);
    return p;
}

static void free_problem(problem *p)
{
    free_operand(&p->a);
    free_operand(&p->b);
    free(p->initial.data);
}

static const ng_tensor *initial_of(const problem *p)
{
    return p->initial.data ? &p->initial : NULL;
}

static ng_status predict(const problem *p, const ng_accumulation *sum, bool fast, int threads, ng_tensor *out, double *bound)
{
    return (fast ? ng_predict_gemm : ng_predict_gemm_plain)(sum, &plain_cast, &p->a, &p->b, initial_of(p), threads, out, bound);
}

static double *new_doubles(int64_t count)
{
    double *x = malloc((size_t)(count ? count : 1) * sizeof *x);
    cr_assert(x);
    return x;
}

/* ---- the fast path against the plain one --------------------------------------------------------------------------*/
static bool close_bounds(double fast, double plain)
{
    if (isinf(fast) || isinf(plain)) return isinf(fast) && isinf(plain);
    return fast >= plain * (1 - 1e-9) && fast <= plain * (1 + 1e-4);
}

static void check_fast(const subject *s, data_kind kind, int64_t m, int64_t n, int64_t k, uint64_t seed)
{
    problem p = new_problem(s, kind, m, n, k, seed);
    ng_tensor fast = new_tensor(NG_FP32, m, n), bounded = new_tensor(NG_FP32, m, n), plain = new_tensor(NG_FP32, m, n);
    double *fast_bound = new_doubles(m * n), *plain_bound = new_doubles(m * n);
    int threads = m * n > 1024 ? 2 : 1; /* results do not depend on it */
    cr_assert_eq(predict(&p, &s->sum, true, threads, &fast, NULL), NG_OK, "%s", s->name);
    cr_assert_eq(predict(&p, &s->sum, true, 1, &bounded, fast_bound), NG_OK, "%s", s->name);
    cr_assert_eq(predict(&p, &s->sum, false, threads, &plain, plain_bound), NG_OK, "%s", s->name);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            uint64_t x = ng_get_code(&fast, i, j), y = ng_get_code(&plain, i, j), z = ng_get_code(&bounded, i, j);
            cr_assert(x == y && x == z, "%s, %s, %ldx%ldx%ld seed %lu: (%ld, %ld) fast %08lx, with bounds %08lx, plain %08lx", s->name,
                      data_names[kind], (long)m, (long)n, (long)k, (unsigned long)seed, (long)i, (long)j, (unsigned long)x, (unsigned long)z, (unsigned long)y);
            cr_assert(close_bounds(fast_bound[i * n + j], plain_bound[i * n + j]), "%s, %s, seed %lu: (%ld, %ld) bound fast %a, plain %a", s->name,
                      data_names[kind], (unsigned long)seed, (long)i, (long)j, fast_bound[i * n + j], plain_bound[i * n + j]);
        }
    free(fast.data), free(bounded.data), free(plain.data), free(fast_bound), free(plain_bound);
    free_problem(&p);
}

static void fast_path_is_the_plain_one(void)
{
    static const int64_t shapes[][3] = {{3, 35, 300}, {2, 9, 129}, {5, 33, 16}, {1, 1, 1}, {2, 3, 515}};
    for (size_t s = 0; s < SUBJECTS; s++)
        for (int kind = 0; kind < DATA_KINDS; kind++)
            for (size_t q = 0; q < sizeof shapes / sizeof *shapes; q++)
                check_fast(&subjects[s], (data_kind)kind, shapes[q][0], shapes[q][1], shapes[q][2], 7 + q);
}

/* More rows than a tile, more columns than a lane group, and K beyond a piece: tiles meet at their edges. */
static void fast_path_over_tile_edges(void)
{
    check_fast(&subjects[0], NORMAL, 65, 66, 160, 3);
    check_fast(&subjects[3], CANCELLING, 66, 31, 288, 4);
    check_fast(&subjects[14], NORMAL, 67, 33, 160, 5);
    check_fast(&subjects[41], NORMAL, 17, 33, 333, 6);
}

/* ---- the plain path against MPFR ----------------------------------------------------------------------------------
 * From the words of kernels/contract.h: every number is an MPFR number wide enough to be exact (bf16 products span 2^-266
 * to 2^256, and scales inside may add 2^254 either way); fl() is one mpfr rounding. */
enum { WIDE = 1400 };

static double round_to_float(mpfr_srcptr x)
{
    return (double)mpfr_get_flt(x, MPFR_RNDN);
}

static int raw_exponent(double x, int emin)
{
    int e;
    frexp(x, &e);
    return e - 1 > emin ? e - 1 : emin;
}

typedef struct slow_term {
    mpfr_t value;
    int exponent;
} slow_term;

/* The fused sum of finite terms. */
static double slow_fused(const ng_mma *mma, slow_term *terms, int count)
{
    int e = mma->min_exponent;
    mpfr_t sum;
    mpfr_init2(sum, WIDE);
    mpfr_set_zero(sum, 1);
    for (int i = 0; i < count; i++)
        if (!mpfr_zero_p(terms[i].value) && terms[i].exponent > e) e = terms[i].exponent;
    for (int i = 0; i < count; i++) {
        mpfr_mul_2si(terms[i].value, terms[i].value, mma->fraction_bits - e, MPFR_RNDN);
        mpfr_trunc(terms[i].value, terms[i].value);
        mpfr_add(sum, sum, terms[i].value, MPFR_RNDN);
    }
    mpfr_mul_2si(sum, sum, e - mma->fraction_bits, MPFR_RNDN);
    int top = mpfr_zero_p(sum) ? -126 : (int)mpfr_get_exp(sum) - 1;
    int quantum = (top > -126 ? top : -126) - mma->output_bits;
    mpfr_mul_2si(sum, sum, -quantum, MPFR_RNDN);
    mpfr_trunc(sum, sum);
    mpfr_mul_2si(sum, sum, quantum, MPFR_RNDN);
    double result = mpfr_cmp_d(sum, 0x1p128) >= 0 ? INFINITY : mpfr_cmp_d(sum, -0x1p128) <= 0 ? -INFINITY : mpfr_get_d(sum, MPFR_RNDN);
    mpfr_clear(sum);
    return result == 0 ? 0 : result;
}

typedef struct slow {
    const problem *p;
    const ng_accumulation *sum;
    int64_t i, j;
} slow;

static double slow_value(const ng_operand *x, int64_t row, int64_t k)
{
    return k < x->codes.columns ? ng_get_value(&x->codes, row, k) : 0;
}

static double slow_scale(const ng_operand *x, int64_t row, int64_t k)
{
    if (!x->scales.data || k >= x->codes.columns) return 1;
    int64_t height = x->blocks.rows ? x->blocks.rows : x->codes.rows, width = x->blocks.columns ? x->blocks.columns : x->codes.columns;
    return ng_get_value(&x->scales, row / height, k / width);
}

static int emin_of(ng_format_id f)
{
    return ng_formats[f].emin;
}

/* The element that stands at a place of the sum: quads are threads, of four elements each in a step. */
static int64_t slow_place(const slow *w, int64_t place)
{
    static const int64_t first[] = {0, 1, 4, 5}, second[] = {2, 3, 6, 7};
    if (w->sum->k_order == NG_K_ASCENDING) return place;
    int64_t chunk = place / 128, step = place / 16 % 8, thread = place / 4 % 4;
    return 128 * chunk + 32 * thread + 8 * (step / 2) + (step % 2 ? second : first)[place % 4];
}

/* Term k of a step: value and raw exponent, scales inside included. */
static void slow_product(const slow *w, int64_t place, slow_term *t, double *special)
{
    const int64_t k = slow_place(w, place);
    double a = slow_value(&w->p->a, w->i, k), b = slow_value(&w->p->b, w->j, k);
    bool as_fp16 = w->sum->mma.interleave != 0; /* fp8 is converted first */
    int ea = emin_of(as_fp16 ? NG_FP16 : w->p->a.codes.format), eb = emin_of(as_fp16 ? NG_FP16 : w->p->b.codes.format);
    double sa = slow_scale(&w->p->a, w->i, k), sb = slow_scale(&w->p->b, w->j, k);
    if (w->sum->scales == NG_SCALES_DEQUANTIZED) a *= sa, b *= sb, ea = eb = -126;
    t->exponent = raw_exponent(a, ea) + raw_exponent(b, eb);
    *special += a * b; /* NaN and infinities by IEEE 754; a finite product does not overflow binary64 */
    bool finite = isfinite(a * b);
    mpfr_set_d(t->value, finite ? a : 0, MPFR_RNDN);
    mpfr_mul_d(t->value, t->value, finite ? b : 0, MPFR_RNDN);
    if (!w->sum->mma.scales_inside) return;
    t->exponent += raw_exponent(sa, -127) + raw_exponent(sb, -127);
    mpfr_mul_d(t->value, t->value, sa, MPFR_RNDN);
    mpfr_mul_d(t->value, t->value, sb, MPFR_RNDN);
    if (isnan(sa) || isnan(sb)) *special = NAN;
}

/* Products [from, from + dot) as one term: their exact sum times the scales, which alone give the exponent. */
static void slow_dot(const slow *w, int64_t from, slow_term *t, double *special)
{
    double dot = 0, sa = slow_scale(&w->p->a, w->i, from), sb = slow_scale(&w->p->b, w->j, from);
    int least = w->p->a.scales.format == NG_UE4M3 ? -6 : -127;
    for (int64_t k = from; k < from + w->sum->mma.dot; k++) dot += slow_value(&w->p->a, w->i, k) * slow_value(&w->p->b, w->j, k);
    mpfr_set_d(t->value, dot, MPFR_RNDN);
    mpfr_mul_d(t->value, t->value, sa, MPFR_RNDN);
    mpfr_mul_d(t->value, t->value, sb, MPFR_RNDN);
    t->exponent = raw_exponent(sa, least) + raw_exponent(sb, least);
    if (isnan(sa) || isnan(sb)) *special = NAN;
}

static double slow_step(const slow *w, int64_t k0, int64_t to, double c)
{
    const ng_mma *mma = &w->sum->mma;
    slow_term terms[NG_MAX_STEP + 1];
    for (int i = 0; i <= mma->k; i++) mpfr_init2(terms[i].value, WIDE);
    for (int g = 0; g < mma->k / mma->group; g++) {
        int count = 0;
        double special = c;
        for (int k = 0; k < mma->k; k++) { /* who belongs to group g */
            bool member = mma->interleave ? k % 4 / 2 == g : k / mma->group == g;
            if (!member || (mma->dot && k % mma->dot)) continue;
            if (k0 + k >= to) continue; /* zeros */
            if (mma->dot) slow_dot(w, k0 + k, &terms[count], &special);
            else slow_product(w, k0 + k, &terms[count], &special);
            count++;
        }
        mpfr_set_d(terms[count].value, isfinite(c) ? c : 0, MPFR_RNDN);
        terms[count].exponent = raw_exponent(c, -126);
        c = isfinite(special) ? slow_fused(mma, terms, count + 1) : special;
    }
    for (int i = 0; i <= mma->k; i++) mpfr_clear(terms[i].value);
    return c;
}

/* fl(x + y z), or with keep_double in binary64. */
static double slow_fma(double x, double y, double z, bool keep_double)
{
    mpfr_t t;
    if (!isfinite(x + y * z)) {
        double r = x + y * z;
        if (!isfinite(x) || !isfinite(y) || !isfinite(z)) return r;
    }
    mpfr_init2(t, 4400); /* binary64 from end to end */
    mpfr_set_d(t, y, MPFR_RNDN);
    mpfr_mul_d(t, t, z, MPFR_RNDN);
    mpfr_add_d(t, t, x, MPFR_RNDN);
    double result = keep_double ? mpfr_get_d(t, MPFR_RNDN) : round_to_float(t);
    if (mpfr_zero_p(t)) result = x + y * z; /* the sign of a zero */
    mpfr_clear(t);
    return result;
}

static double slow_fl(double x)
{
    return (double)(float)x;
}

static double slow_element_of(const slow *w, const ng_operand *x, int64_t row, int64_t k)
{
    double v = slow_value(x, row, k);
    return w->sum->scales == NG_SCALES_DEQUANTIZED ? slow_fl(v * slow_scale(x, row, k)) : v;
}

static double slow_chain(const slow *w, int64_t from, int64_t to)
{
    double s = 0;
    for (int64_t k = from; k < to; k++) {
        double a = slow_element_of(w, &w->p->a, w->i, k), b = slow_element_of(w, &w->p->b, w->j, k);
        if (w->sum->order == NG_SUM_FP64) s = slow_fma(s, a, b, true);
        else if (w->sum->fused) s = slow_fma(s, a, b, false);
        else s = slow_fma(s, slow_fma(-0.0, a, b, false), 1, false);
    }
    return s;
}

static double slow_pairwise(const slow *w, int64_t from, int64_t to)
{
    double sums[1024];
    int64_t count = 0;
    for (int64_t k = from; k < to; k += w->sum->leaf) sums[count++] = slow_chain(w, k, k + w->sum->leaf < to ? k + w->sum->leaf : to);
    for (; count > 1; count = (count + 1) / 2)
        for (int64_t q = 0; 2 * q < count; q++)
            sums[q] = 2 * q + 1 < count ? slow_fma(sums[2 * q], sums[2 * q + 1], 1, false) : sums[2 * q];
    return sums[0];
}

static double slow_inner(const slow *w, int64_t from, int64_t to)
{
    double main = 0, c = 0;
    int steps = 0;
    if (w->sum->order == NG_SUM_PAIRWISE) return slow_pairwise(w, from, to);
    if (w->sum->order != NG_SUM_MMA) return slow_chain(w, from, to);
    for (int64_t k = from; k < to; k += w->sum->mma.k) {
        c = slow_step(w, k, to, c);
        if (!w->sum->promote_every || ++steps % w->sum->promote_every) continue;
        main = slow_fma(main, c, 1, false);
        c = 0;
    }
    return w->sum->promote_every ? slow_fma(main, c, 1, false) : c;
}

static double slow_times(double x, double y)
{
    return slow_fma(-0.0, x, y, false);
}

static double slow_block(const slow *w, int64_t from, int64_t to, double main)
{
    double chain = slow_inner(w, from, to), sa = slow_scale(&w->p->a, w->i, from), sb = slow_scale(&w->p->b, w->j, from);
    if (w->sum->scales_swapped) {
        double other = sa;
        sa = sb;
        sb = other;
    }
    if (w->sum->scales == NG_SCALES_BLOCK_SEQUENTIAL) return slow_fma(main, slow_times(slow_times(chain, sa), sb), 1, false);
    if (w->sum->scales == NG_SCALES_BLOCK_FMA_PRODUCT) return slow_fma(main, chain, slow_times(sa, sb), false);
    return slow_fma(main, slow_times(chain, sb), sa, false);
}

static bool is_blocked(const ng_accumulation *sum)
{
    return sum->scales == NG_SCALES_BLOCK_SEQUENTIAL || sum->scales == NG_SCALES_BLOCK_FMA_PRODUCT || sum->scales == NG_SCALES_BLOCK_FMA_SECOND;
}

static double slow_part(const slow *w, int64_t from, int64_t to)
{
    double main = 0;
    if (!is_blocked(w->sum)) return slow_inner(w, from, to);
    int64_t a = w->p->a.blocks.columns, b = w->p->b.blocks.columns, block = a < b ? a : b;
    for (int64_t k = from; k < to; k += block) main = slow_block(w, k, k + block < to ? k + block : to, main);
    return main;
}

static double slow_element(const problem *p, int64_t i, int64_t j)
{
    const ng_accumulation *sum = &p->subject->sum;
    slow w = {p, sum, i, j};
    int64_t tile = sum->split_k > 1 ? sum->split_tile : p->k, parts = sum->split_k > 1 ? sum->split_k : 1;
    int64_t tiles = (p->k + tile - 1) / tile, part = (tiles + parts - 1) / parts * tile;
    double total = 0;
    for (int64_t from = 0; from < p->k; from += part) {
        double s = slow_part(&w, from, from + part < p->k ? from + part : p->k);
        total = from ? slow_fma(total, s, 1, false) : s;
    }
    bool after = sum->scales == NG_SCALES_AFTER || sum->scales == NG_SCALES_AFTER_AT_ONCE;
    double first = after ? slow_scale(&p->a, i, 0) : 1, second = after ? slow_scale(&p->b, j, 0) : 1;
    if (sum->scales_swapped) {
        double other = first;
        first = second;
        second = other;
    }
    if (sum->scales == NG_SCALES_AFTER) total = slow_times(slow_times(total, first), second);
    if (sum->scales == NG_SCALES_AFTER_AT_ONCE) total = slow_times(total, slow_times(first, second));
    if (p->subject->tensor_scale != 1) total = slow_times(total, (double)p->subject->tensor_scale);
    if (p->initial.data) total = slow_fma(total, ng_get_value(&p->initial, i, j), 1, false);
    return total;
}

static void check_slow(const subject *s, data_kind kind, int64_t m, int64_t n, int64_t k, uint64_t seed)
{
    problem p = new_problem(s, kind, m, n, k, seed);
    ng_tensor out = new_tensor(NG_FP32, m, n);
    cr_assert_eq(predict(&p, &s->sum, true, 1, &out, NULL), NG_OK, "%s", s->name);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            uint64_t x = ng_get_code(&out, i, j), y = ng_round(NG_FP32, slow_element(&p, i, j), &plain_cast, 0);
            cr_assert(x == y, "%s, %s, k %ld, seed %lu: (%ld, %ld) predicted %08lx, by MPFR %08lx", s->name, data_names[kind], (long)k, (unsigned long)seed,
                      (long)i, (long)j, (unsigned long)x, (unsigned long)y);
        }
    free(out.data);
    free_problem(&p);
}

static void prediction_is_what_mpfr_gives(void)
{
    for (size_t s = 0; s < SUBJECTS; s++)
        for (int kind = 0; kind < DATA_KINDS; kind++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                check_slow(&subjects[s], (data_kind)kind, 2, 3, 213, 11 + seed);
                check_slow(&subjects[s], (data_kind)kind, 2, 2, 37, 14 + seed);
            }
}

/* ---- bounds -------------------------------------------------------------------------------------------------------*/
/* The largest |error| / bound over finite elements, each of which must be within its bound; NaN where every bound is 0. */
static double largest_ratio(const subject *s, data_kind kind, int64_t m, int64_t n, int64_t k, uint64_t seed)
{
    problem p = new_problem(s, kind, m, n, k, seed);
    ng_tensor out = new_tensor(NG_FP64, m, n);
    double *bound = new_doubles(m * n), worst = NAN;
    ng_exact_product exact = {0};
    cr_assert_eq(predict(&p, &s->sum, true, 1, &out, bound), NG_OK, "%s", s->name);
    cr_assert_eq((m * n * k > 20000 ? ng_exact_gemm : ng_exact_gemm_mpfr)(&p.a, &p.b, initial_of(&p), 1, &exact), NG_OK);
    for (int64_t q = 0; q < m * n; q++) {
        double y = ng_get_value(&out, q / n, q % n), error = fabs((y - exact.high[q]) - exact.low[q]);
        if (!isfinite(y)) {
            cr_assert(isinf(bound[q]), "%s: a bound for what is not finite", s->name);
            continue;
        }
        cr_assert(error <= bound[q] * (1 + 0x1p-50), "%s, %s, k %ld, seed %lu: element %ld off by %a, bound %a", s->name, data_names[kind], (long)k, (unsigned long)seed, (long)q, error, bound[q]);
        if (bound[q] > 0 && !(error / bound[q] <= worst)) worst = error / bound[q];
    }
    ng_exact_product_free(&exact);
    free(out.data), free(bound);
    free_problem(&p);
    return worst;
}

static void bounds_hold(void)
{
    for (size_t s = 0; s < SUBJECTS; s++)
        for (int kind = 0; kind < NONFINITE; kind++)
            for (int round = 0; round < 3; round++) {
                static const int64_t extents[] = {64, 300, 1};
                double ratio = largest_ratio(&subjects[s], (data_kind)kind, 5, 7, extents[round], 21 + (uint64_t)round);
                cr_assert(!(ratio >= 1), "%s, %s: largest error / bound %g", subjects[s].name, data_names[kind], ratio);
            }
}

/* Tensor cores alone, results in binary32: truncation is one-sided, so that the bound is nearly reached. */
static void bounds_are_sharp(void)
{
    for (size_t s = 0; s < SUBJECTS; s++) {
        if (subjects[s].sum.order != NG_SUM_MMA || subjects[s].accumulate || subjects[s].scale != NG_NO_FORMAT) continue;
        double positive = largest_ratio(&subjects[s], POSITIVE, 16, 32, 512, 31), few = largest_ratio(&subjects[s], NORMAL, 16, 32, 128, 32);
        cr_expect(!(positive < 0.3) && !(few < 0.3), "%s: largest error / bound %.3f on positive data, %.3f at K = 128", subjects[s].name, positive, few);
    }
}

/* ---- power --------------------------------------------------------------------------------------------------------*/
static int64_t differing(const problem *p, const ng_accumulation *x, const ng_accumulation *y)
{
    ng_tensor tx = new_tensor(NG_FP32, p->m, p->n), ty = new_tensor(NG_FP32, p->m, p->n);
    int64_t count = 0;
    cr_assert(predict(p, x, true, 1, &tx, NULL) == NG_OK && predict(p, y, true, 1, &ty, NULL) == NG_OK);
    for (int64_t q = 0; q < p->m * p->n; q++) count += ng_get_code(&tx, q / p->n, q % p->n) != ng_get_code(&ty, q / p->n, q % p->n);
    free(tx.data), free(ty.data);
    return count;
}

/* Bits from the largest to the smallest product of two formats: an adder of so many bits loses none. */
static int product_span(const subject *s)
{
    const ng_format *a = &ng_formats[s->a], *b = &ng_formats[s->b];
    return a->emax + b->emax - (a->emin - a->mantissa_bits + b->emin - b->mantissa_bits);
}

static int changes_of(const subject *s, ng_accumulation *changed)
{
    const ng_accumulation *sum = &s->sum;
    int count = 0;
    for (int q = 0; q < 10; q++) changed[q] = *sum;
    if (sum->order == NG_SUM_MMA) {
        bool loses_bits = sum->mma.fraction_bits < product_span(s) && !sum->mma.dot; /* nvf4: by hand below */
        if (loses_bits) changed[count++].mma.fraction_bits--;
        if (loses_bits) changed[count++].mma.fraction_bits++;
        if (product_span(s) + 4 >= sum->mma.output_bits) changed[count++].mma.output_bits--;
        if (loses_bits && !sum->mma.interleave) changed[count++].mma.group /= 2;
        if (sum->mma.interleave) changed[count++].mma.interleave = 0;
        if (sum->promote_every) changed[count++].promote_every = 2;
        if (sum->promote_every && !is_blocked(sum)) changed[count++].promote_every = 8;
    }
    if (sum->order == NG_SUM_PAIRWISE) changed[count++].leaf *= 2;
    if (sum->order == NG_SUM_CHAIN && s->a == NG_FP32) changed[count].fused = !sum->fused, count++;
    if (sum->split_k) changed[count++].split_k--;
    if (sum->scales == NG_SCALES_BLOCK_FMA_PRODUCT) changed[count++].scales = NG_SCALES_BLOCK_FMA_SECOND;
    if (sum->scales == NG_SCALES_BLOCK_FMA_SECOND) changed[count++].scales = NG_SCALES_BLOCK_SEQUENTIAL;
    if (sum->scales_swapped) changed[count++].scales_swapped = false;
    if (sum->scales == NG_SCALES_AFTER_AT_ONCE) changed[count++].scales = NG_SCALES_AFTER;
    return count;
}

/* Every wrong assumption about a contract moves bits: each planted change is seen, on ordinary data where adders are
 * narrow, on data of all exponents where they are wide for their format. */
static void neighbouring_contracts_differ(void)
{
    for (size_t s = 0; s < SUBJECTS; s++) {
        ng_accumulation changed[10];
        bool wide = ng_formats[subjects[s].a].storage_bits <= 8 && subjects[s].sum.mma.fraction_bits != 13;
        problem p = new_problem(&subjects[s], wide ? ANY_FINITE : NORMAL, 8, 32, 512, 41);
        int count = changes_of(&subjects[s], changed);
        for (int q = 0; q < count; q++)
            cr_expect(differing(&p, &subjects[s].sum, &changed[q]) > 0, "%s: change %d moves no bit", subjects[s].name, q);
        free_problem(&p);
    }
}

/* ---- composition by hand ------------------------------------------------------------------------------------------*/
static void set_row(ng_tensor *t, int64_t row, const double *values)
{
    for (int64_t k = 0; k < t->columns; k++) ng_set_code(t, row, k, ng_round(t->format, values[k], &nearest, 0));
}

/* One element; K as given by the values. */
static double one(const ng_accumulation *sum, ng_format_id format, int64_t k, const double *a, const double *b, ng_operand *scales_a, ng_operand *scales_b)
{
    ng_operand x = {.codes = new_tensor(format, 1, k), .tensor_scale = 1}, y = {.codes = new_tensor(format, 1, k), .tensor_scale = 1};
    ng_tensor out = new_tensor(NG_FP32, 1, 1);
    set_row(&x.codes, 0, a);
    set_row(&y.codes, 0, b);
    if (scales_a) x.scales = scales_a->scales, x.blocks = scales_a->blocks;
    if (scales_b) y.scales = scales_b->scales, y.blocks = scales_b->blocks;
    cr_assert_eq(ng_predict_gemm_plain(sum, &plain_cast, &x, &y, NULL, 1, &out, NULL), NG_OK);
    double plain = ng_get_value(&out, 0, 0);
    cr_assert_eq(ng_predict_gemm(sum, &plain_cast, &x, &y, NULL, 1, &out, NULL), NG_OK);
    double result = ng_get_value(&out, 0, 0);
    cr_expect(result == plain || (isnan(result) && isnan(plain)), "%a, the plain path %a", result, plain);
    free(x.codes.data), free(y.codes.data), free(out.data);
    return result;
}

/* 256 elements: 1 in the first step, 2^-13 in the steps 2 and 5. Without promotion 1 + 2^-13 + 2^-13 = 1 + 2^-12. With
 * 2^-14 in place of 2^-13 both are lost beside 1 (E = 0) unless promotion after step 4 lets the second start anew:
 * 1 + 2^-14 in binary32. */
static void promotion_by_hand(void)
{
    static const ng_accumulation never = MMA(NG_STEP_HOPPER_FP8), every_4 = MMA(NG_STEP_HOPPER_FP8, .promote_every = 4);
    double a[256] = {[0] = 1, [32] = 0x1p-6, [128] = 0x1p-6}, b[256] = {[0] = 1, [32] = 0x1p-7, [128] = 0x1p-7};
    cr_expect_eq(one(&never, NG_E4M3, 256, a, b, NULL, NULL), 1 + 0x1p-12);
    cr_expect_eq(one(&every_4, NG_E4M3, 256, a, b, NULL, NULL), 1 + 0x1p-12);
    b[32] = b[128] = 0x1p-8;
    cr_expect_eq(one(&never, NG_E4M3, 256, a, b, NULL, NULL), 1);
    cr_expect_eq(one(&every_4, NG_E4M3, 256, a, b, NULL, NULL), 1 + 0x1p-14);
}

/* Two blocks of 128, each with the sum 1; scales sa = {1 + 2^-23, 1}, sb = {1 + 2^-23, 2^-47}.
 * PRODUCT: sa sb = 1 + 2^-22 + 2^-46 -> fl 1 + 2^-22; main = 1 + 2^-22; then + 2^-47: nothing.
 * With sb = {1, 2^-24} and sa = {1 + 2^-23, 1 + 2^-23}: 1 + 2^-23 + 2^-24 + 2^-47: above the midpoint: fma rounds up to
 * 1 + 2^-22; SECOND: fl(chain sb) = 2^-24, times sa inside the fma: the same 2^-24 + 2^-47: up;
 * SEQUENTIAL: fl(fl(1 sa) sb) = 2^-24 + 2^-47 exactly, and the sum is rounded once: up as well. With sums 1 and sb = 2^-24,
 * sa = 1: a tie, to even: main 1 + 2^-23 -> 1 + 2^-22. */
static void block_scales_by_hand(void)
{
    double a[256] = {[0] = 1, [128] = 1}, b[256] = {[0] = 1, [128] = 1};
    float sa[2] = {1 + 0x1p-23f, 1 + 0x1p-23f}, sb[2] = {1, 0x1p-24f};
    ng_tensor ta = {sa, NG_FP32, NG_HOST, 1, 2, 8}, tb = {sb, NG_FP32, NG_HOST, 1, 2, 8};
    ng_operand xa = {.scales = ta, .blocks = {1, 128}}, xb = {.scales = tb, .blocks = {1, 128}};
    static const ng_accumulation product = MMA(NG_STEP_HOPPER_FP8, .scales = NG_SCALES_BLOCK_FMA_PRODUCT);
    static const ng_accumulation second = MMA(NG_STEP_HOPPER_FP8, .scales = NG_SCALES_BLOCK_FMA_SECOND);
    static const ng_accumulation sequential = MMA(NG_STEP_HOPPER_FP8, .scales = NG_SCALES_BLOCK_SEQUENTIAL);
    cr_expect_eq(one(&product, NG_E4M3, 256, a, b, &xa, &xb), 1 + 0x1p-22);
    cr_expect_eq(one(&second, NG_E4M3, 256, a, b, &xa, &xb), 1 + 0x1p-22);
    cr_expect_eq(one(&sequential, NG_E4M3, 256, a, b, &xa, &xb), 1 + 0x1p-22);
    /* chain 1.5, sa = 1 + 2^-23, sb = 1 + 2^-23, first block alone:
     * PRODUCT 1.5 (1 + 2^-22) = 1.5 + 1.5 2^-22 = 1.5 + 3 2^-23 exactly; SECOND and SEQUENTIAL: fl(1.5 + 1.5 2^-23) is a
     * tie between 1.5 + 2^-23 and 1.5 + 2^-22, to even: 1.5 + 2^-22 (1.5 = 0x600000 2^-23 is even, + 2 is even); times
     * 1 + 2^-23: 1.5 + 2^-22 + 1.5 2^-23 + 2^-45 = 1.5 + 3.5 2^-23 + 2^-45: up, 1.5 + 4 2^-23. */
    a[0] = 1.5, a[128] = 0, sb[0] = 1 + 0x1p-23f;
    cr_expect_eq(one(&product, NG_E4M3, 256, a, b, &xa, &xb), 1.5 + 0x3p-23);
    cr_expect_eq(one(&second, NG_E4M3, 256, a, b, &xa, &xb), 1.5 + 0x4p-23);
    cr_expect_eq(one(&sequential, NG_E4M3, 256, a, b, &xa, &xb), 1.5 + 0x4p-23);
}

/* Near ties that binary64 cannot see. (1 + 2^-12)(1 - 2^-12 + 2^-24) = 1 + 2^-36 and (1 + 2^-23)(1 - 2^-23) = 1 - 2^-46,
 * times 2^-24 beside 1: sums just above and just below the middle between two binary32 numbers, by 2^-60 and 2^-70. */
static void fma_ties_by_hand(void)
{
    static const ng_accumulation fused = {.order = NG_SUM_CHAIN, .fused = true};
    for (int sign = -1; sign <= 1; sign += 2) {
        double a[2] = {sign, sign * (1 + 0x1p-12)}, b[2] = {1, (1 - 0x1p-12 + 0x1p-24) * 0x1p-24};
        cr_expect_eq(one(&fused, NG_FP32, 2, a, b, NULL, NULL), sign * (1 + 0x1p-23)); /* a tie would go to 1 */
        a[0] = sign * (1 + 0x1p-23), a[1] = sign * (1 + 0x1p-23), b[1] = (1 - 0x1p-23) * 0x1p-24;
        cr_expect_eq(one(&fused, NG_FP32, 2, a, b, NULL, NULL), sign * (1 + 0x1p-23)); /* a tie would go to 1 + 2^-22 */
        /* Inward: 1 + 2^-22 less a little more than half a place is 1 + 2^-23; a tie would go back to 1 + 2^-22. */
        a[0] = sign * (1 + 0x1p-22), a[1] = -sign * (1 + 0x1p-12), b[1] = (1 - 0x1p-12 + 0x1p-24) * 0x1p-24;
        cr_expect_eq(one(&fused, NG_FP32, 2, a, b, NULL, NULL), sign * (1 + 0x1p-23));
    }
}

/* K = 320 in tiles of 64, split in 2: 5 tiles, the first part holds 3. 2^24 in tile 0, 1 in tiles 2 and 3: in one chain
 * of binary32 each 1 is lost to a tie; split, the second 1 comes as a part of its own and is lost too; 1 in tiles 3 and 4
 * make 2, which stays. */
static void split_by_hand(void)
{
    static const ng_accumulation chain = {.order = NG_SUM_CHAIN}, split = {.order = NG_SUM_CHAIN, .split_k = 2, .split_tile = 64};
    double a[320] = {[0] = 4096, [191] = 1, [192] = 1}, b[320] = {[0] = 4096, [191] = 1, [192] = 1};
    cr_expect_eq(one(&chain, NG_FP16, 320, a, b, NULL, NULL), 0x1p24);
    cr_expect_eq(one(&split, NG_FP16, 320, a, b, NULL, NULL), 0x1p24);
    a[191] = 0, a[319] = b[319] = 1;
    cr_expect_eq(one(&chain, NG_FP16, 320, a, b, NULL, NULL), 0x1p24);
    cr_expect_eq(one(&split, NG_FP16, 320, a, b, NULL, NULL), 0x1p24 + 2);
}

/* nvf4: four dots of 16. 6 6 16 = 576 times the scales 1 1; a second dot 0.5 0.5 = 2^-2 times 2^-9 2^-9 (raw exponents -6
 * -6, significands 2^-3) is 2^-20. E = 0, so 35 fraction bits hold it; the result 576 keeps 2^(9-23) = 2^-14: cut. With
 * -576 in a third dot only 2^-20 is left. */
static void nvf4_by_hand(void)
{
    static const ng_accumulation sum = MMA(NG_STEP_BLACKWELL_NVF4, .scales = NG_SCALES_IN_MMA);
    double a[64] = {0}, b[64] = {0};
    uint8_t sa[4] = {0x38, 0x01, 0x38, 0x38}, sb[4] = {0x38, 0x01, 0x38, 0x38};
    ng_tensor ta = {sa, NG_UE4M3, NG_HOST, 1, 4, 4}, tb = {sb, NG_UE4M3, NG_HOST, 1, 4, 4};
    ng_operand xa = {.scales = ta, .blocks = {1, 16}}, xb = {.scales = tb, .blocks = {1, 16}};
    for (int k = 0; k < 16; k++) a[k] = b[k] = 6;
    a[16] = b[16] = 0.5;
    cr_expect_eq(one(&sum, NG_E2M1, 64, a, b, &xa, &xb), 576);
    for (int k = 32; k < 48; k++) a[k] = 6, b[k] = -6;
    cr_expect_eq(one(&sum, NG_E2M1, 64, a, b, &xa, &xb), 0x1p-20);
    /* Scales 448 448 (raw exponent 16) for the large dots: multiples of 2^(16 - 35) = 2^-19 stay, 2^-20 does not. */
    sa[0] = sb[0] = sa[2] = sb[2] = 0x7E;
    cr_expect_eq(one(&sum, NG_E2M1, 64, a, b, &xa, &xb), 0);
    a[17] = b[17] = 0.5;
    cr_expect_eq(one(&sum, NG_E2M1, 64, a, b, &xa, &xb), 0x1p-19);
    sa[3] = 0x7F; /* a NaN scale over zeros */
    cr_expect(isnan(one(&sum, NG_E2M1, 64, a, b, &xa, &xb)));
}

/* bf16 and fp16 results are the binary32 sum rounded once to nearest even: 1 + 2^-8 is a tie of bf16. */
static void results_are_cast_once(void)
{
    static const ng_accumulation sum = MMA(NG_STEP_HOPPER_FP8, .promote_every = 4);
    ng_operand a = {.codes = new_tensor(NG_E4M3, 1, 32), .tensor_scale = 1}, b = {.codes = new_tensor(NG_E4M3, 1, 32), .tensor_scale = 1};
    ng_tensor out = new_tensor(NG_BF16, 1, 1);
    double x[32] = {1, 0x1p-4}, y[32] = {1, 0x1p-4};
    set_row(&a.codes, 0, x), set_row(&b.codes, 0, y);
    cr_assert_eq(ng_predict_gemm(&sum, &plain_cast, &a, &b, NULL, 1, &out, NULL), NG_OK);
    cr_expect_eq(ng_get_code(&out, 0, 0), 0x3F80);
    x[2] = y[2] = 0x1p-6;
    set_row(&a.codes, 0, x), set_row(&b.codes, 0, y);
    cr_assert_eq(ng_predict_gemm(&sum, &plain_cast, &a, &b, NULL, 1, &out, NULL), NG_OK);
    cr_expect_eq(ng_get_code(&out, 0, 0), 0x3F81);
    ng_cast stochastic = {.rounding = NG_R_STOCHASTIC, .random_bits = 8};
    cr_expect_eq(ng_predict_gemm(&sum, &stochastic, &a, &b, NULL, 1, &out, NULL), NG_UNSUPPORTED);
    static const ng_accumulation any = {.order = NG_SUM_ANY};
    cr_expect_eq(ng_predict_gemm(&any, &plain_cast, &a, &b, NULL, 1, &out, NULL), NG_UNSUPPORTED);
    out.columns = 2;
    cr_expect_eq(ng_predict_gemm(&sum, &plain_cast, &a, &b, NULL, 1, &out, NULL), NG_BAD_ARGUMENT);
    free(a.codes.data), free(b.codes.data), free(out.data);
}

/* ---- bias ---------------------------------------------------------------------------------------------------------
 * Truncation is one-sided: on uniform [0, 1) data, K = 4096, FP8 loses 6.6 % of the sum, and 0.05 % with promotion every
 * 128 (simulated with the model that reproduces an H200's products). */
static double bias_of(uint16_t promote_every)
{
    ng_accumulation sum = MMA(NG_STEP_HOPPER_FP8, .promote_every = promote_every);
    problem p = new_problem(&subjects[0], POSITIVE, 16, 32, 4096, 51);
    ng_tensor out = new_tensor(NG_FP32, 16, 32);
    ng_exact_product exact = {0};
    double error = 0, total = 0;
    cr_assert_eq(predict(&p, &sum, true, 2, &out, NULL), NG_OK);
    cr_assert_eq(ng_exact_gemm(&p.a, &p.b, NULL, 2, &exact), NG_OK);
    for (int64_t q = 0; q < 16 * 32; q++) {
        error += ng_get_value(&out, q / 32, q % 32) - exact.high[q];
        total += exact.high[q];
    }
    ng_exact_product_free(&exact);
    free(out.data);
    free_problem(&p);
    return error / total;
}

static void truncation_is_biased(void)
{
    double never = bias_of(0), promoted = bias_of(4);
    cr_expect(never > -0.070 && never < -0.062, "without promotion %.4f", never);
    cr_expect(promoted > -0.0006 && promoted < -0.0004, "with promotion %.6f", promoted);
}

/* ---- recorded steps -----------------------------------------------------------------------------------------------*/
static void rows_by_hand(void)
{
    static const struct { const char *file, *contract; size_t rows; } sets[] = {
        {"fp8_hopper_by_hand.txt", "hopper-wgmma-fp8", 16},
        {"fp8_ada_by_hand.txt", "ada-fp8", 4},
        {"bf16_hopper_by_hand.txt", "hopper-bf16", 11},
    };
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        char path[4096];
        ng_vectors v;
        ng_error error = {0};
        size_t place, differ;
        uint32_t computed;
        snprintf(path, sizeof path, "%s/vectors/%s", NG_SUITES_DIR, sets[s].file);
        cr_assert_eq(ng_vectors_read(path, &v, &error), NG_OK, "%s", error.text);
        cr_expect_eq(v.count, sets[s].rows);
        ng_mma mma = ng_contract_by_name(sets[s].contract)->sum.mma;
        cr_assert_eq(ng_vectors_replay(&v, &mma, 1, &place, &computed, &differ), NG_OK);
        cr_expect(differ == 0, "%s:%zu: expected %08x, computed %08x", path, v.lines[place], v.d[place], computed);
        mma.fraction_bits++; /* the rows tell F from F + 1 */
        cr_assert_eq(ng_vectors_replay(&v, &mma, 1, &place, &computed, &differ), NG_OK);
        cr_expect(differ > 0, "%s: blind to one more fraction bit", path);
        ng_vectors_free(&v);
    }
}

static ng_status read_text(const char *text, ng_error *error)
{
    char path[] = "/tmp/narrowgauge-vectors-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !close(fd));
    ng_vectors v;
    ng_status status = ng_vectors_read(path, &v, error);
    if (status == NG_OK) ng_vectors_free(&v);
    unlink(path);
    return status;
}

static void malformed_files_are_named(void)
{
#define HEAD "# e4m3 inputs, fp32 output, K=2\n# accumulator: none\n"
    static const struct { const char *text, *complaint; } bad[] = {
        {"", "no comment names"},
        {"3838 3838 00000000 40000000\n", ":1: a row before"},
        {HEAD, "holds no rows"},
        {HEAD "3838 3838 00000000\n", ":3: a row has four"},
        {HEAD "3838 3838 00000000 40000000 1\n", ":3: a row has four"},
        {HEAD "383838 3838 00000000 40000000\n", ":3: a column"},
        {HEAD "38g8 3838 00000000 40000000\n", "not hexadecimal"},
        {HEAD "3838 3838 0000000 40000000\n", "8 hexadecimal digits"},
        {"# e4m3 inputs, fp32 output, K=0\n", "K=N"},
        {"# e9m9 inputs, fp32 output, K=2\n", "no format"},
        {"# e4m3 inputs, fp16 output, K=2\n", "fp32 output"},
        {"# e4m3 inputs, fp32 output, K=2\n# accumulator: some\n", "c, none or after"},
        {"# e4m3 inputs, fp32 output, K=2\n3838 3838 00000000 40000000\n", "accumulator"},
        {"# e3m2 inputs, fp32 output, K=1\n# accumulator: c\n7f 00 00000000 00000000\n", "more bits"},
    };
    ng_error error;
    cr_expect_eq(read_text(HEAD "3838 3838 00000000 40000000\n", &error), NG_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (ng_error){0};
        cr_expect(read_text(bad[i].text, &error) != NG_OK, "accepted: %s", bad[i].text);
        cr_expect(strstr(error.text, bad[i].complaint), "\"%s\" does not say \"%s\"", error.text, bad[i].complaint);
    }
}

const ng_test ng_tests[] = {
    {"predict", "rows derived by hand", rows_by_hand, 0},
    {"predict", "promotion derived by hand", promotion_by_hand, 0},
    {"predict", "block scales derived by hand", block_scales_by_hand, 0},
    {"predict", "split of K derived by hand", split_by_hand, 0},
    {"predict", "nvf4 derived by hand", nvf4_by_hand, 0},
    {"predict", "results are cast once", results_are_cast_once, 0},
    {"predict", "fast path equals plain path", fast_path_is_the_plain_one, 0},
    {"predict", "fast path over tile edges", fast_path_over_tile_edges, 0},
    {"predict", "prediction equals MPFR", prediction_is_what_mpfr_gives, 0},
    {"predict", "bounds hold", bounds_hold, 0},
    {"predict", "bounds are sharp on tensor cores", bounds_are_sharp, 0},
    {"predict", "neighbouring contracts differ", neighbouring_contracts_differ, 0},
    {"predict", "truncation is biased as measured", truncation_is_biased, 0},
    {"predict", "malformed vector files are named", malformed_files_are_named, 0},
    {"predict", "ties of fma derived by hand", fma_ties_by_hand, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
