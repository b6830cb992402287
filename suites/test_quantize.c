/* Block quantization: scales of every rule at every threshold, both tiers on adversarial tensors, dequantization
 * tables, and the named points where libraries disagree. */
#include "reference/quantize.h"
#include "reference/round.h"
#include "suites/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash(uint64_t x) { /* splitmix64, Steele, Lea and Flood 2014 */
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static ng_format_id scale_format(ng_scale_rule rule) {
    if (rule >= NG_SCALE_NVFP4_PAPER) return NG_UE4M3;
    return rule >= NG_SCALE_MX_FLOOR ? NG_E8M0 : NG_FP32;
}

static const ng_cast saturating = {.rounding = NG_RN_EVEN, .saturate = true};

static ng_quantization recipe(ng_scale_rule rule, ng_format_id element, uint32_t rows, uint32_t columns) {
    return (ng_quantization){.element = element,
                             .scale = scale_format(rule),
                             .blocks = {rows, columns},
                             .rule = rule,
                             .tensor_scale = rule >= NG_SCALE_NVFP4_PAPER,
                             .cast = saturating};
}

static uint64_t scale_of(ng_scale_rule rule, ng_format_id element, double amax, double tensor_amax, double *decode) {
    const ng_quantization q = recipe(rule, element, 1, 32);
    double tensor_scale;
    return ng_reference_scale(&q, amax, tensor_amax, NG_TIER_INTEGER, decode, &tensor_scale);
}

/* ---- scales: edges ------------------------------------------------------------------------------------------------*/
/* Sources: OCP MX 1.0 6.3 (floor, clamp); TransformerEngine ptx.cuh float_to_e8m0 and cvt.rp.satfinite (round up);
 * torchao to_mx (even, ceil, NaN for an infinite amax); arXiv:2509.25149 appendix B (nvfp4). */
static const struct edge {
    ng_scale_rule rule;
    ng_format_id element;
    double amax, tensor_amax;
    uint64_t code;
} edges[] = {
    {NG_SCALE_MX_FLOOR, NG_E4M3, 0, 0, 0x00},
    {NG_SCALE_MX_FLOOR, NG_E4M3, INFINITY, 0, 0xFF},
    {NG_SCALE_MX_FLOOR, NG_E4M3, NAN, 0, 0xFF},
    {NG_SCALE_MX_FLOOR, NG_E4M3, 448, 0, 0x7F},
    {NG_SCALE_MX_FLOOR, NG_E4M3, 511, 0, 0x7F},
    {NG_SCALE_MX_FLOOR, NG_E4M3, 512, 0, 0x80},
    {NG_SCALE_MX_FLOOR, NG_E4M3, 0x1p-119, 0, 0x00},
    {NG_SCALE_MX_FLOOR, NG_E4M3, 0x1p-118, 0, 0x01},
    {NG_SCALE_MX_FLOOR, NG_E4M3, 0x1p-149, 0, 0x00},
    {NG_SCALE_MX_FLOOR, NG_E4M3, FLT_MAX, 0, 0xF6},
    {NG_SCALE_MX_FLOOR, NG_E2M1, FLT_MAX, 0, 0xFC},
    {NG_SCALE_MX_FLOOR, NG_E5M2, 57344, 0, 0x7F},
    {NG_SCALE_MX_FLOOR, NG_E2M3, 7.5, 0, 0x7F},
    {NG_SCALE_MX_FLOOR, NG_E3M2, 28, 0, 0x7F},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, 0, 0, 0x00},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, INFINITY, 0, 0xFE},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, NAN, 0, 0xFF},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, 448, 0, 0x7F},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, 0x1.c00002p8, 0, 0x80},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, FLT_MAX, 0, 0xF7},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, 0x1p-149, 0, 0x00},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, 0x1.cp-119, 0, 0x00},
    {NG_SCALE_MX_ROUND_UP, NG_E4M3, 0x1p-118, 0, 0x01},
    {NG_SCALE_MX_ROUND_UP, NG_E2M1, 6, 0, 0x7F},
    {NG_SCALE_MX_ROUND_UP, NG_E2M1, 0x1.800002p2, 0, 0x80},
    {NG_SCALE_MX_EVEN, NG_E4M3, 0, 0, 0x00},
    {NG_SCALE_MX_EVEN, NG_E4M3, INFINITY, 0, 0xFF},
    {NG_SCALE_MX_EVEN, NG_E4M3, NAN, 0, 0xFF},
    {NG_SCALE_MX_EVEN, NG_E4M3, 496, 0, 0x80}, /* 1.9375 is the tie, and goes up */
    {NG_SCALE_MX_EVEN, NG_E4M3, 0x1.effffep8, 0, 0x7F},
    {NG_SCALE_MX_EVEN, NG_E2M1, 7, 0, 0x80},
    {NG_SCALE_MX_EVEN, NG_E2M1, 0x1.bffffep2, 0, 0x7F},
    {NG_SCALE_MX_EVEN, NG_E2M1, FLT_MAX, 0, 0xFD},
    {NG_SCALE_MX_CEIL, NG_E4M3, 0, 0, 0x00},
    {NG_SCALE_MX_CEIL, NG_E4M3, 256, 0, 0x7F},
    {NG_SCALE_MX_CEIL, NG_E4M3, 0x1.000002p8, 0, 0x80},
    {NG_SCALE_MX_CEIL, NG_E4M3, INFINITY, 0, 0xFF},
    {NG_SCALE_MX_CEIL, NG_E4M3, 0x1.8p-149, 0, 0x00},
    /* fp32: the bits of the decoding scale */
    {NG_SCALE_MAX_OVER_AMAX, NG_E4M3, 0, 0, 0x3F800000},
    {NG_SCALE_MAX_OVER_AMAX, NG_E4M3, INFINITY, 0, 0x3F800000},
    {NG_SCALE_MAX_OVER_AMAX, NG_E4M3, NAN, 0, 0x3F800000},
    {NG_SCALE_MAX_OVER_AMAX, NG_E4M3, 448, 0, 0x3F800000},
    {NG_SCALE_MAX_OVER_AMAX, NG_E4M3, 0x1p-149, 0, 0x00200000}, /* fl(1 / FLT_MAX) = 2^-128 */
    {NG_SCALE_AMAX_OVER_MAX, NG_E4M3, 0, 0, 0x3F800000},
    {NG_SCALE_AMAX_OVER_MAX, NG_E4M3, 896, 0, 0x40000000},
    {NG_SCALE_AMAX_OVER_MAX, NG_E4M3, 0x1p-149, 0, 0x00800000},
    {NG_SCALE_AMAX_OVER_MAX, NG_E4M3, INFINITY, 0, 0x3F800000},
    {NG_SCALE_POW2, NG_E4M3, 448, 0, 0x3F800000},
    {NG_SCALE_POW2, NG_E4M3, 449, 0, 0x40000000},
    {NG_SCALE_POW2, NG_E4M3, 0x1p-149, 0, 0x00400000}, /* e = 2^127 */
    {NG_SCALE_POW2, NG_E4M3, NAN, 0, 0x3F800000},
    /* nvfp4: 448 where the block holds the tensor's amax, and where it does not */
    {NG_SCALE_NVFP4_PAPER, NG_E2M1, 6, 6, 0x7E},
    {NG_SCALE_NVFP4_TE, NG_E2M1, 6, 6, 0x7E},
    {NG_SCALE_NVFP4_PAPER, NG_E2M1, 3, 6, 0x76},
    {NG_SCALE_NVFP4_TE, NG_E2M1, 3, 6, 0x76},
    {NG_SCALE_NVFP4_PAPER, NG_E2M1, 0, 6, 0x00},
    {NG_SCALE_NVFP4_TE, NG_E2M1, 0, 0, 0x00},
    {NG_SCALE_NVFP4_PAPER, NG_E2M1, NAN, NAN, 0x7F},
    {NG_SCALE_NVFP4_TE, NG_E2M1, NAN, NAN, 0x7F},
    {NG_SCALE_NVFP4_PAPER, NG_E2M1, INFINITY, INFINITY, 0x7E},
    {NG_SCALE_NVFP4_TE, NG_E2M1, INFINITY, INFINITY, 0x7E},
    {NG_SCALE_NVFP4_TE, NG_E2M1, 0x1p-20, 1, 0x00}, /* the block scale underflows */
};

static void scale_edges(void) {
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        const struct edge *e = &edges[i];
        const ng_quantization q = recipe(e->rule, e->element, 1, 32);
        for (int tier = 0; tier < 2; tier++) {
            double decode, tensor_scale;
            uint64_t code = ng_reference_scale(&q, e->amax, e->tensor_amax, tier ? NG_TIER_MPFR : NG_TIER_INTEGER,
                                               &decode, &tensor_scale);
            double stored = ng_decode(q.scale, code);
            cr_expect(code == e->code, "row %zu, tier %d: amax %a gives %#lx, expected %#lx", i, tier, e->amax,
                      (unsigned long)code, (unsigned long)e->code);
            cr_expect(stored == decode || (isnan(stored) && isnan(decode)), "row %zu, tier %d: decode %a", i, tier,
                      decode);
        }
    }
}

/* Every exponent of binary32 with the mantissas around every rule's thresholds, both tiers; nvfp4 under several
 * tensors. */
static void scale_thresholds(void) {
    static const ng_format_id elements[] = {NG_E4M3, NG_E5M2, NG_E3M2, NG_E2M3, NG_E2M1};
    static const uint32_t places[] = {0,        0x200000, 0x400000, 0x600000, 0x700000,
                                      0x780000, 0x7C0000, 0x2AAAAA, 0x155555, 0x5A5A5A};
    static const double tensors[] = {0, 6, 1, 0x1.5p-100, 0x1p-149, FLT_MAX, INFINITY, NAN};
    uint32_t different = 0;
#pragma omp parallel for reduction(+ : different) schedule(dynamic)
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++)
            for (int32_t d = -2; d <= 2; d++) {
                uint32_t bits = (exponent << 23) + places[p] + (uint32_t)d;
                if (bits > 0x7F800000) continue;
                for (int rule = NG_SCALE_MAX_OVER_AMAX; rule < NG_SCALE_RULES; rule++) {
                    bool nvfp4 = rule >= NG_SCALE_NVFP4_PAPER;
                    size_t k = (exponent + p) % 5, t = (exponent * 10 + p + (uint32_t)(d + 2)) % 8;
                    const ng_quantization q = recipe((ng_scale_rule)rule, nvfp4 ? NG_E2M1 : elements[k], 1, 32);
                    double decode[2], scale[2], amax = (double)from_bits(bits);
                    uint64_t fast = ng_reference_scale(&q, amax, tensors[t], NG_TIER_INTEGER, &decode[0], &scale[0]);
                    uint64_t slow = ng_reference_scale(&q, amax, tensors[t], NG_TIER_MPFR, &decode[1], &scale[1]);
                    different += fast != slow || memcmp(&scale[0], &scale[1], 8) ||
                                 !(decode[0] == decode[1] || (isnan(decode[0]) && isnan(decode[1])));
                }
            }
    cr_expect(different == 0, "%u scales differ", different);
}

/* ---- scales: all 2^23 mantissas of one binade ---------------------------------------------------------------------
 * In [1, 2) every MX rule has one threshold: the code is -emax below it and one more from it on. */
static const struct step {
    ng_scale_rule rule;
    ng_format_id element;
    uint32_t first_up; /* mantissa of the first amax with the higher code; 2^23: none */
    int low;           /* code - 127 below it */
} steps[] = {
    {NG_SCALE_MX_FLOOR, NG_E4M3, 0x800000, -8},     {NG_SCALE_MX_FLOOR, NG_E5M2, 0x800000, -15},
    {NG_SCALE_MX_FLOOR, NG_E3M2, 0x800000, -4},     {NG_SCALE_MX_FLOOR, NG_E2M3, 0x800000, -2},
    {NG_SCALE_MX_FLOOR, NG_E2M1, 0x800000, -2},     {NG_SCALE_MX_CEIL, NG_E4M3, 0x000001, -8},
    {NG_SCALE_MX_CEIL, NG_E2M1, 0x000001, -2},      {NG_SCALE_MX_ROUND_UP, NG_E4M3, 0x600001, -8},
    {NG_SCALE_MX_ROUND_UP, NG_E5M2, 0x600001, -15}, {NG_SCALE_MX_ROUND_UP, NG_E3M2, 0x600001, -4},
    {NG_SCALE_MX_ROUND_UP, NG_E2M3, 0x700001, -2},  {NG_SCALE_MX_ROUND_UP, NG_E2M1, 0x400001, -2},
    {NG_SCALE_MX_EVEN, NG_E4M3, 0x780000, -8},      {NG_SCALE_MX_EVEN, NG_E5M2, 0x700000, -15},
    {NG_SCALE_MX_EVEN, NG_E3M2, 0x700000, -4},      {NG_SCALE_MX_EVEN, NG_E2M3, 0x780000, -2},
    {NG_SCALE_MX_EVEN, NG_E2M1, 0x600000, -2},
};

static void mantissa_sweep(void) {
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        uint32_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
        for (uint32_t m = 0; m < 1u << 23; m++) {
            double decode;
            uint64_t code = scale_of(steps[s].rule, steps[s].element, (double)from_bits(0x3F800000 | m), 0, &decode);
            wrong += code != (uint64_t)(127 + steps[s].low + (m >= steps[s].first_up));
        }
        cr_expect(wrong == 0, "row %zu: %u of 2^23 mantissas", s, wrong);
    }
}

/* fp32 scales against binary64 quotients: fl(double quotient) is fl(exact quotient), since 53 >= 2 * 24 + 2 (Figueroa
 * 1995). */
static void fp32_mantissa_sweep(void) {
    static const double largest[] = {448, 57344, 6};
    static const ng_format_id elements[] = {NG_E4M3, NG_E5M2, NG_E2M1};
    for (int k = 0; k < 3; k++) {
        uint32_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
        for (uint32_t m = 0; m < 1u << 23; m++) {
            double amax = (double)from_bits(0x3F800000 | m), decode;
            double e = (double)(float)(largest[k] / amax);
            wrong += scale_of(NG_SCALE_MAX_OVER_AMAX, elements[k], amax, 0, &decode) != to_bits((float)(1 / e));
            wrong +=
                scale_of(NG_SCALE_AMAX_OVER_MAX, elements[k], amax, 0, &decode) != to_bits((float)(amax / largest[k]));
            double power = ldexp(1, -ilogb(e));
            wrong += scale_of(NG_SCALE_POW2, elements[k], amax, 0, &decode) != to_bits((float)power);
        }
        cr_expect(wrong == 0, "%s: %u", ng_formats[elements[k]].name, wrong);
    }
}

/* nvfp4 in both orders, each fl() a binary64 operation rounded again: harmless for products and quotients of binary32.
 */
static void nvfp4_mantissa_sweep(void) {
    const double tensor_amax = (double)1.9f, S = (double)(float)(2688 / tensor_amax), sixth = (double)(float)(1.0 / 6);
    const double factor = (double)(float)(S * sixth);
    uint32_t wrong = 0, apart = 0;
#pragma omp parallel for reduction(+ : wrong, apart)
    for (uint32_t m = 0; m < 1u << 23; m++) {
        double amax = (double)from_bits(0x3F800000 | m), unused;
        uint64_t paper = scale_of(NG_SCALE_NVFP4_PAPER, NG_E2M1, amax, tensor_amax, &unused);
        uint64_t te = scale_of(NG_SCALE_NVFP4_TE, NG_E2M1, amax, tensor_amax, &unused);
        wrong += paper != ng_round(NG_UE4M3, (double)(float)((double)(float)(amax / 6) * S), &saturating, 0);
        wrong += te != ng_round(NG_UE4M3, (double)(float)(amax * factor), &saturating, 0);
        apart += paper != te;
    }
    cr_expect(wrong == 0, "%u", wrong);
    cr_expect(apart > 0, "the two orders never differed: the sweep has no power");
}

/* ---- whole tensors ------------------------------------------------------------------------------------------------*/
static ng_tensor new_tensor(ng_format_id format, int64_t rows, int64_t columns) {
    ng_tensor t = {.format = format, .rows = rows, .columns = columns, .row_bytes = ng_row_bytes(format, columns) + 4};
    t.data = calloc((size_t)(rows + 1), (size_t)t.row_bytes);
    cr_assert(t.data);
    return t;
}

/* Areas of 8 x 8: normal, wide, subnormal, zero, huge, with infinities, with NaN, near ties. */
static void fill_adversarial(ng_tensor *t, uint64_t seed) {
    const ng_cast plain = {.rounding = NG_RN_EVEN, .nan = NG_NAN_KEEP_SIGN};
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            uint64_t h = hash(seed ^ (uint64_t)(i * 1000003 + j)),
                     kind = hash(seed + (uint64_t)(i / 8 * 131 + j / 8)) % 10;
            double x = ((double)(h >> 32) - 0x1p31) * 0x1p-31;
            switch (kind) {
            case 0:
                x = ldexp(x, (int)(h % 40) - 20);
                break;
            case 1:
                x = ldexp(x, -130 - (int)(h % 16));
                break; /* down to the subnormals of binary32 */
            case 2:
                x = h & 1 ? 0.0 : -0.0;
                break;
            case 3:
                x = ldexp(x, 127);
                break;
            case 4:
                x = h % 50 == 0 ? (h & 64 ? INFINITY : -INFINITY) : x;
                break;
            case 5:
                x = h % 50 == 0 ? (h & 64 ? (double)NAN : -(double)NAN) : x;
                break;
            case 6:
                x = ldexp((double)((int)(h % 33) - 16) / 2, (int)(h >> 8) % 3);
                break; /* ties of narrow formats */
            case 7:
                x = ldexp(1, (int)(h % 9) - 4) * (h & 256 ? 1 : -1);
                break;
            default:
                break;
            }
            ng_set_code(t, i, j, ng_round(t->format, x, &plain, 0));
        }
}

static bool same_codes(const ng_tensor *a, const ng_tensor *b) {
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->columns; j++)
            if (ng_get_code(a, i, j) != ng_get_code(b, i, j)) return false;
    return true;
}

static void check_tiers(const ng_quantization *q, ng_format_id from, int64_t rows, int64_t columns, uint64_t seed,
                        const char *what) {
    ng_tensor in = new_tensor(from, rows, columns), words = new_tensor(NG_FP32, rows, columns);
    int64_t down = ng_block_count(q->blocks.rows, rows), across = ng_block_count(q->blocks.columns, columns);
    ng_tensor codes[2], scales[2];
    float tensor_scale[2] = {0, 0}, given = 0x1.8p3f;
    double amax = 0x1.4p9;
    fill_adversarial(&in, seed);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            ng_set_code(&words, i, j, hash((uint64_t)(i * columns + j)) & 0xFFFFFFFF);
    const ng_quantize_inputs inputs = {
        .random = &words, .given_scale = &given, .tensor_amax = seed % 3 == 0 ? &amax : NULL};
    for (int tier = 0; tier < 2; tier++) {
        codes[tier] = new_tensor(q->element, rows, columns);
        scales[tier] = new_tensor(q->rule == NG_SCALE_ABSENT ? NG_FP32 : q->scale, down, across);
        ng_status status = ng_reference_quantize(q, &in, &inputs, tier ? NG_TIER_MPFR : NG_TIER_INTEGER, &codes[tier],
                                                 &scales[tier], &tensor_scale[tier]);
        cr_assert(status == NG_OK, "%s: status %d", what, status);
    }
    cr_expect(same_codes(&scales[0], &scales[1]), "%s, seed %lu: scales", what, (unsigned long)seed);
    cr_expect(same_codes(&codes[0], &codes[1]), "%s, seed %lu: codes", what, (unsigned long)seed);
    cr_expect(to_bits(tensor_scale[0]) == to_bits(tensor_scale[1]), "%s: tensor scale", what);

    const ng_operand operand = {.codes = codes[0],
                                .scales = q->rule == NG_SCALE_ABSENT ? (ng_tensor){0} : scales[0],
                                .blocks = q->blocks,
                                .tensor_scale = tensor_scale[0]};
    static const ng_format_id wide[] = {NG_FP32, NG_BF16, NG_FP16};
    for (int k = 0; k < 3; k++) {
        const ng_cast cast = {.rounding = NG_RN_EVEN, .nan = NG_NAN_KEEP_SIGN};
        ng_tensor back[2] = {new_tensor(wide[k], rows, columns), new_tensor(wide[k], rows, columns)};
        cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_INTEGER, &back[0]) == NG_OK);
        cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_MPFR, &back[1]) == NG_OK);
        cr_expect(same_codes(&back[0], &back[1]), "%s: dequantized to %s", what, ng_formats[wide[k]].name);
        free(back[0].data);
        free(back[1].data);
    }
    for (int tier = 0; tier < 2; tier++) {
        free(codes[tier].data);
        free(scales[tier].data);
    }
    free(in.data);
    free(words.data);
}

static const ng_blocks shapes[] = {{0, 0},  {1, 0},   {1, 128}, {128, 128}, {1, 32},
                                   {1, 16}, {16, 16}, {0, 1},   {1, 5},     {3, 7}};

static void tiers_fp32_rules(void) {
    static const ng_format_id elements[] = {NG_E4M3, NG_E5M2, NG_E2M1, NG_E3M2, NG_E2M3, NG_FP16, NG_BF16};
    static const ng_format_id inputs[] = {NG_BF16, NG_FP32, NG_FP16};
    uint64_t seed = 1;
    for (int rule = NG_SCALE_ABSENT; rule <= NG_SCALE_GIVEN; rule++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++, seed++) {
            ng_quantization q = recipe((ng_scale_rule)rule, elements[seed % 7], shapes[s].rows, shapes[s].columns);
            q.cast.saturate = seed % 4 != 0;
            q.cast.nan = (ng_nan_rule)(seed % 3);
            check_tiers(&q, inputs[seed % 3], 19, 61, seed, "fp32 scales");
        }
}

static void tiers_mx(void) {
    static const ng_format_id elements[] = {NG_E4M3, NG_E5M2, NG_E3M2, NG_E2M3, NG_E2M1};
    static const ng_format_id inputs[] = {NG_BF16, NG_FP32, NG_FP16};
    uint64_t seed = 100;
    for (int rule = NG_SCALE_MX_FLOOR; rule <= NG_SCALE_MX_CEIL; rule++)
        for (int e = 0; e < 5; e++)
            for (int k = 0; k < 3; k++, seed++) {
                ng_quantization q = recipe((ng_scale_rule)rule, elements[e], k == 2 ? 32 : 1, k == 1 ? 8 : 32);
                q.cast.nan = (ng_nan_rule)(seed % 3);
                q.cast.saturate = seed % 4 != 0;
                check_tiers(&q, inputs[k], 17, 75, seed, "mx scales");
            }
}

static void tiers_nvfp4(void) {
    static const ng_format_id inputs[] = {NG_BF16, NG_FP32, NG_FP16};
    uint64_t seed = 200;
    for (int rule = NG_SCALE_NVFP4_PAPER; rule <= NG_SCALE_NVFP4_TE; rule++)
        for (int six = NG_4OVER6_OFF; six <= NG_4OVER6_MSE; six++)
            for (int k = 0; k < 4; k++, seed++) {
                ng_quantization q = recipe((ng_scale_rule)rule, NG_E2M1, k % 2 ? 16 : 1, 16);
                q.four_over_six = (ng_four_over_six)six;
                q.tensor_scale = k < 3;
                check_tiers(&q, inputs[k % 3], 21, 77, seed, "nvfp4");
            }
}

static void tiers_stochastic(void) {
    uint64_t seed = 300;
    for (int kind = 0; kind < NG_STOCHASTICS; kind++)
        for (uint8_t r = 4; r <= 32; r = (uint8_t)(r * 2), seed++) {
            static const ng_scale_rule rules[] = {NG_SCALE_NVFP4_TE, NG_SCALE_MX_FLOOR, NG_SCALE_MAX_OVER_AMAX,
                                                  NG_SCALE_ABSENT};
            for (int k = 0; k < 4; k++) {
                ng_quantization q = recipe(rules[k], k == 0 ? NG_E2M1 : NG_E4M3, 1, 16);
                q.cast = (ng_cast){
                    .rounding = NG_R_STOCHASTIC, .stochastic = (ng_stochastic)kind, .random_bits = r, .saturate = true};
                q.four_over_six = k == 0 && r == 8 ? NG_4OVER6_MAE : NG_4OVER6_OFF;
                check_tiers(&q, NG_BF16, 9, 50, seed, "stochastic");
            }
        }
}

/* Directed modes reach results so small that fl() must not come between. */
static void tiers_directed(void) {
    uint64_t seed = 400;
    for (int mode = NG_RN_AWAY; mode <= NG_R_AWAY; mode++)
        for (int rule = NG_SCALE_MAX_OVER_AMAX; rule < NG_SCALE_RULES; rule++, seed++) {
            ng_quantization q = recipe((ng_scale_rule)rule, rule >= NG_SCALE_NVFP4_PAPER ? NG_E2M1 : NG_E4M3, 1, 32);
            q.cast.rounding = (ng_rounding)mode;
            check_tiers(&q, NG_FP32, 8, 70, seed, "directed");
        }
}

/* ---- dequantization tables ----------------------------------------------------------------------------------------*/
static void dequantize_table(ng_format_id element, ng_format_id scale, float tensor_scale) {
    int64_t rows = ng_format_codes(scale), columns = ng_format_codes(element);
    ng_tensor codes = new_tensor(element, rows, columns), scales = new_tensor(scale, rows, 1);
    ng_tensor fast = new_tensor(NG_BF16, rows, columns), slow = new_tensor(NG_BF16, rows, columns);
    for (int64_t i = 0; i < rows; i++) {
        ng_set_code(&scales, i, 0, (uint64_t)i);
        for (int64_t j = 0; j < columns; j++)
            ng_set_code(&codes, i, j, (uint64_t)j);
    }
    const ng_operand operand = {.codes = codes, .scales = scales, .blocks = {1, 0}, .tensor_scale = tensor_scale};
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_INTEGER, &fast) == NG_OK);
    cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_MPFR, &slow) == NG_OK);
    cr_expect(same_codes(&fast, &slow), "%s x %s", ng_formats[element].name, ng_formats[scale].name);
    for (int64_t i = 0; i < rows; i++) /* the product of three small significands is exact in binary64 */
        for (int64_t j = 0; j < columns; j++) {
            double exact = ng_decode(element, (uint64_t)j) * ng_decode(scale, (uint64_t)i) * (double)tensor_scale;
            cr_expect(ng_get_code(&fast, i, j) == ng_round(NG_BF16, exact, &cast, 0), "%s %#lx x %s %#lx",
                      ng_formats[element].name, (unsigned long)j, ng_formats[scale].name, (unsigned long)i);
        }
    free(codes.data);
    free(scales.data);
    free(fast.data);
    free(slow.data);
}

static void dequantize_tables(void) {
    for (int element = NG_E4M3; element <= NG_E2M1; element++)
        dequantize_table((ng_format_id)element, NG_E8M0, 1);
    dequantize_table(NG_E2M1, NG_UE4M3, 1);
    dequantize_table(NG_E2M1, NG_UE4M3, 0x1.234568p-9f);
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    ng_tensor code = new_tensor(NG_E4M3, 1, 1), scale = new_tensor(NG_E8M0, 1, 1), out = new_tensor(NG_FP32, 1, 1);
    ng_set_code(&code, 0, 0, 0x38); /* 1 x code 0: 2^-127, a subnormal that shifting decoders lose */
    const ng_operand operand = {.codes = code, .scales = scale, .blocks = {1, 32}, .tensor_scale = 1};
    cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_INTEGER, &out) == NG_OK);
    cr_expect(ng_get_code(&out, 0, 0) == 0x00400000);
    free(code.data);
    free(scale.data);
    free(out.data);
}

/* Products of 72 bits: bf16 or fp32 elements, fp32 scales, a tensor scale. */
static void dequantize_wide(void) {
    static const ng_format_id elements[] = {NG_FP32, NG_BF16, NG_FP16};
    for (int e = 0; e < 3; e++) {
        ng_tensor codes = new_tensor(elements[e], 40, 50), scales = new_tensor(NG_FP32, 40, 10);
        fill_adversarial(&codes, 5);
        fill_adversarial(&scales, 6);
        const ng_operand operand = {.codes = codes, .scales = scales, .blocks = {1, 5}, .tensor_scale = 0x1.fedcbap-3f};
        static const ng_format_id wide[] = {NG_FP64, NG_FP32, NG_BF16, NG_FP16, NG_E4M3};
        for (int k = 0; k < 5; k++)
            for (int mode = 0; mode < NG_R_STOCHASTIC; mode++) {
                const ng_cast cast = {.rounding = (ng_rounding)mode};
                ng_tensor a = new_tensor(wide[k], 40, 50), b = new_tensor(wide[k], 40, 50);
                cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_INTEGER, &a) == NG_OK);
                cr_assert(ng_reference_dequantize(&operand, &cast, NG_TIER_MPFR, &b) == NG_OK);
                cr_expect(same_codes(&a, &b), "%s to %s, mode %d", ng_formats[elements[e]].name,
                          ng_formats[wide[k]].name, mode);
                free(a.data);
                free(b.data);
            }
        free(codes.data);
        free(scales.data);
    }
}

/* ---- small cases by hand ------------------------------------------------------------------------------------------*/
static void quantize_row(const ng_quantization *q, const float *x, int64_t n, uint64_t *codes, uint64_t *scale) {
    ng_tensor in = new_tensor(NG_FP32, 1, n), out = new_tensor(q->element, 1, n), s = new_tensor(q->scale, 1, 1);
    float tensor_scale;
    memcpy(in.data, x, (size_t)n * sizeof *x);
    cr_assert(ng_reference_quantize(q, &in, NULL, NG_TIER_INTEGER, &out, &s, &tensor_scale) == NG_OK);
    for (int64_t j = 0; j < n; j++)
        codes[j] = ng_get_code(&out, 0, j);
    *scale = ng_get_code(&s, 0, 0);
    free(in.data);
    free(out.data);
    free(s.data);
}

static void by_hand(void) {
    uint64_t codes[4], scale;
    ng_quantization q = recipe(NG_SCALE_MX_FLOOR, NG_E2M1, 1, 32);
    quantize_row(&q, (const float[]){7, 1, -0.5f, -0.0f}, 4, codes, &scale); /* X = 1: 7 is clipped to 6 */
    cr_expect(scale == 0x7F && codes[0] == 0x7 && codes[1] == 0x2 && codes[2] == 0x9 && codes[3] == 0x8);
    q.rule = NG_SCALE_MX_ROUND_UP; /* X = 2: 3.5 ties to 4, 0.5, -0.25 ties to -0 */
    quantize_row(&q, (const float[]){7, 1, -0.5f, -0.0f}, 4, codes, &scale);
    cr_expect(scale == 0x80 && codes[0] == 0x6 && codes[1] == 0x1 && codes[2] == 0x8 && codes[3] == 0x8);
    q = recipe(NG_SCALE_MX_FLOOR, NG_E4M3, 1,
               32); /* a NaN makes the block NaN, an infinity too (OCP's rule in torchao) */
    quantize_row(&q, (const float[]){1, NAN, 2, 3}, 4, codes, &scale);
    cr_expect(scale == 0xFF && codes[0] == 0x7F && codes[3] == 0x7F);
    q.rule = NG_SCALE_MX_ROUND_UP; /* TransformerEngine keeps the finite ones, far below the scale of 2^127 */
    quantize_row(&q, (const float[]){1, -INFINITY, 2, 3}, 4, codes, &scale);
    cr_expect(scale == 0xFE && codes[0] == 0x00 && codes[1] == 0xFE);
    q = recipe(NG_SCALE_MAX_OVER_AMAX, NG_E4M3, 0, 0);
    quantize_row(&q, (const float[]){0, -0.0f, 0, 0}, 4, codes, &scale);
    cr_expect(scale == 0x3F800000 && codes[0] == 0 && codes[1] == 0x80);
}

/* 0 * Inf is a positive NaN here, whatever the machine makes of it (x86-64 a negative one); an input's NaN keeps its
 * sign. */
static void signs_of_nan(void) {
    const float x[] = {INFINITY, -INFINITY, -NAN, NAN}, zero = 0;
    const uint64_t expected[] = {0x7F, 0x7F, signbit(x[2]) ? 0xFF : 0x7F, signbit(x[3]) ? 0xFF : 0x7F};
    ng_quantization q = recipe(NG_SCALE_GIVEN, NG_E4M3, 0, 0);
    q.cast.nan = NG_NAN_KEEP_SIGN;
    ng_tensor in = new_tensor(NG_FP32, 1, 4), codes = new_tensor(NG_E4M3, 1, 4), scale = new_tensor(NG_FP32, 1, 1);
    ng_tensor elements = new_tensor(NG_E5M2, 1, 1), none = new_tensor(NG_FP32, 1, 1), out = new_tensor(NG_FP32, 1, 1);
    const ng_quantize_inputs inputs = {.given_scale = &zero};
    memcpy(in.data, x, sizeof x);
    ng_set_code(&elements, 0, 0, 0x7C); /* infinity, under the scale 0 */
    const ng_operand operand = {.codes = elements, .scales = none, .tensor_scale = 1};
    for (int tier = 0; tier < 2; tier++) {
        ng_tier which = tier ? NG_TIER_MPFR : NG_TIER_INTEGER;
        cr_assert(ng_reference_quantize(&q, &in, &inputs, which, &codes, &scale, NULL) == NG_OK);
        for (int j = 0; j < 4; j++)
            cr_expect(ng_get_code(&codes, 0, j) == expected[j], "tier %d, element %d", tier, j);
        cr_assert(ng_reference_dequantize(&operand, &q.cast, which, &out) == NG_OK);
        cr_expect(ng_get_code(&out, 0, 0) == 0x7FFFFFFF, "tier %d", tier);
    }
    free(in.data);
    free(codes.data);
    free(scale.data);
    free(elements.data);
    free(none.data);
    free(out.data);
}

/* FlashInfer issues 2440 and 2441: blocks of 1e-35 to 1e-40 must not become NaN. */
static void tiny_blocks(void) {
    for (int rule = NG_SCALE_MAX_OVER_AMAX; rule < NG_SCALE_RULES; rule++)
        for (int e = -149; e < -110; e++) {
            if (rule == NG_SCALE_GIVEN) continue;
            ng_quantization q = recipe((ng_scale_rule)rule, NG_E2M1, 1, 32);
            uint64_t codes[4], scale;
            float x = (float)ldexp(1, e);
            quantize_row(&q, (const float[]){x, -x, x, 0}, 4, codes, &scale);
            cr_expect(isfinite(ng_decode(q.scale, scale)) && codes[0] == codes[2] && codes[1] == (codes[0] | 8) &&
                      codes[3] == 0);
        }
}

static void four_over_six(void) {
    uint64_t codes[3], scale;
    ng_quantization q = recipe(NG_SCALE_NVFP4_PAPER, NG_E2M1, 1, 16);
    q.tensor_scale = false;
    q.four_over_six = NG_4OVER6_MSE;
    quantize_row(&q, (const float[]){12, 8, 0}, 3, codes, &scale); /* 6 x 2 and 4 x 2 are exact; 8 / 3 is not */
    cr_expect(ng_decode(NG_UE4M3, scale) == 2 && codes[0] == 0x7 && codes[1] == 0x6);
    quantize_row(&q, (const float[]){12, 9, 0}, 3, codes, &scale); /* 4 x 3 and 3 x 3 are exact; 9 / 2 is not */
    cr_expect(ng_decode(NG_UE4M3, scale) == 3 && codes[0] == 0x6 && codes[1] == 0x5);
    q.four_over_six = NG_4OVER6_MAE;
    quantize_row(&q, (const float[]){12, 9, 0}, 3, codes, &scale);
    cr_expect(ng_decode(NG_UE4M3, scale) == 3);
    quantize_row(&q, (const float[]){12, 0, 0}, 3, codes, &scale); /* both exact: six */
    cr_expect(ng_decode(NG_UE4M3, scale) == 2);
    q.four_over_six = NG_4OVER6_OFF;
    quantize_row(&q, (const float[]){12, 9, 0}, 3, codes, &scale);
    cr_expect(ng_decode(NG_UE4M3, scale) == 2 && codes[1] == 0x6);
    double decode, tensor_scale; /* under a tensor scale 256 takes the place of 448, so that 1.5 times it still fits */
    q.tensor_scale = true;
    cr_expect(ng_reference_scale(&q, 6, 6, NG_TIER_INTEGER, &decode, &tensor_scale) == 0x7E);
    q.four_over_six = NG_4OVER6_MAE;
    cr_expect(ng_reference_scale(&q, 6, 6, NG_TIER_INTEGER, &decode, &tensor_scale) == 0x78 && tensor_scale == 0x1p-8);
    cr_expect(ng_reference_scale(&q, 6, 6, NG_TIER_MPFR, &decode, &tensor_scale) == 0x78 && tensor_scale == 0x1p-8);
}

static void bad_arguments(void) {
    ng_tensor in = new_tensor(NG_BF16, 4, 32), codes = new_tensor(NG_E4M3, 4, 32), scales = new_tensor(NG_E8M0, 4, 1);
    ng_tensor fp64 = new_tensor(NG_FP64, 4, 32), few = new_tensor(NG_E8M0, 3, 1);
    ng_quantization q = recipe(NG_SCALE_MX_FLOOR, NG_E4M3, 1, 32), bad;
    const double odd = 0x1.00000001p0;
    float t;
    cr_expect(ng_reference_quantize(&q, &in, NULL, NG_TIER_INTEGER, &codes, &scales, &t) == NG_OK && t == 1);
    cr_expect(ng_reference_quantize(&q, &in, NULL, NG_TIER_INTEGER, &codes, &few, &t) == NG_BAD_ARGUMENT);
    cr_expect(ng_reference_quantize(&q, &in, NULL, NG_TIER_INTEGER, &in, &scales, &t) == NG_BAD_ARGUMENT);
    cr_expect(ng_reference_quantize(&q, &fp64, NULL, NG_TIER_INTEGER, &codes, &scales, &t) == NG_UNSUPPORTED);
    cr_expect(ng_reference_quantize(&q, &in, &(ng_quantize_inputs){.tensor_amax = &odd}, NG_TIER_INTEGER, &codes,
                                    &scales, &t) == NG_BAD_ARGUMENT);
    bad = q, bad.scale = NG_UE4M3;
    cr_expect(ng_reference_quantize(&bad, &in, NULL, NG_TIER_INTEGER, &codes, &scales, &t) == NG_BAD_ARGUMENT);
    bad = q, bad.four_over_six = NG_4OVER6_MAE;
    cr_expect(ng_reference_quantize(&bad, &in, NULL, NG_TIER_INTEGER, &codes, &scales, &t) == NG_BAD_ARGUMENT);
    bad = q, bad.cast = (ng_cast){.rounding = NG_R_STOCHASTIC, .random_bits = 8};
    cr_expect(ng_reference_quantize(&bad, &in, NULL, NG_TIER_INTEGER, &codes, &scales, &t) == NG_BAD_ARGUMENT);
    bad.cast.random_bits = 33;
    cr_expect(ng_reference_quantize(&bad, &in, NULL, NG_TIER_INTEGER, &codes, &scales, &t) == NG_BAD_ARGUMENT);
    free(in.data);
    free(codes.data);
    free(scales.data);
    free(fp64.data);
    free(few.data);
}

/* ---- where libraries disagree -------------------------------------------------------------------------------------
 * Each row: a library's documented behaviour as one of our casts, and a value at which it parts from another's. */
static const struct disagreement {
    const char *what;
    ng_format_id to;
    double x;
    ng_cast one, other;
    uint64_t code_one, code_other;
} disagreements[] = {
    {"e4m3 overflow: CUDA and Triton saturate, ml_dtypes gives NaN (jax-ml/ml_dtypes issues 147, 260, 400)",
     NG_E4M3,
     500,
     {.saturate = true},
     {.saturate = false},
     0x7E,
     0x7F},
    {"e4m3 of infinity: satfinite 448, ml_dtypes NaN",
     NG_E4M3,
     INFINITY,
     {.saturate = true},
     {.saturate = false},
     0x7E,
     0x7F},
    {"e5m2 overflow: PyTorch eager infinity, torchao clamps",
     NG_E5M2,
     1e6,
     {.saturate = false},
     {.saturate = true},
     0x7C,
     0x7B},
    {"nearest: microxcaling's is half away from zero",
     NG_E2M1,
     2.5,
     {.rounding = NG_RN_EVEN},
     {.rounding = NG_RN_AWAY},
     0x4,
     0x5},
    {"nearest: microxcaling's, least subnormal tie",
     NG_E4M3,
     0x1p-10,
     {.rounding = NG_RN_EVEN},
     {.rounding = NG_RN_AWAY},
     0,
     1},
    {"sign of NaN: CUDA's float path drops it, its double path keeps it",
     NG_E4M3,
     -NAN,
     {.nan = NG_NAN_CANONICAL},
     {.nan = NG_NAN_KEEP_SIGN},
     0x7F,
     0xFF},
    {"e8m0 above 1: CUDA's two modes", NG_E8M0, 1.25, {.rounding = NG_R_ZERO}, {.rounding = NG_R_UP}, 0x7F, 0x80},
    {"e8m0 of 1.25: round up against nearest (PyTorch)",
     NG_E8M0,
     1.25,
     {.rounding = NG_R_UP},
     {.rounding = NG_RN_EVEN},
     0x80,
     0x7F},
    {"e8m0 of infinity: TransformerEngine 0xFE, torchao 0xFF",
     NG_E8M0,
     INFINITY,
     {.rounding = NG_R_UP, .saturate = true},
     {.rounding = NG_R_UP},
     0xFE,
     0xFF},
};

static void disagreements_are_named(void) {
    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++) {
        const struct disagreement *d = &disagreements[i];
        double x = isnan(d->x) ? copysign(d->x, -1) : d->x;
        uint64_t one = ng_round(d->to, x, &d->one, 0), other = ng_round(d->to, x, &d->other, 0);
        cr_expect(one == d->code_one && other == d->code_other, "%s: %#lx and %#lx", d->what, (unsigned long)one,
                  (unsigned long)other);
    }
    const ng_cast cuda = {.rounding = NG_R_ZERO, .saturate = true}; /* 0 and negatives, where ml_dtypes gives NaN */
    cr_expect(ng_round(NG_E8M0, 0, &cuda, 0) == 0 && ng_round(NG_E8M0, -4, &cuda, 0) == 0x81);
}

/* floor(log2f(x)) is wrong just below powers of two even where log2f is correctly rounded: the largest binary32 below
 * 2^e has log2 nearer to e than half an ulp of e in all but a few binades. Libraries that take it for the exponent:
 * microxcaling, and gfloat on float32. */
static int rounded_log2_floor(float x) {
    mpfr_t v;
    mpfr_init2(v, 24);
    mpfr_set_flt(v, x, MPFR_RNDN);
    mpfr_log2(v, v, MPFR_RNDN);
    mpfr_floor(v, v);
    int e = (int)mpfr_get_si(v, MPFR_RNDN);
    mpfr_clear(v);
    return e;
}

static void log2_is_not_the_exponent(void) {
    int binades = 0, floats = 0;
    for (int e = -125; e <= 127; e++)
        binades += rounded_log2_floor(nextafterf((float)ldexp(1, e), 0)) == e;
    for (uint32_t k = 1; k <= 64; k++)
        floats += rounded_log2_floor(from_bits(to_bits(0x1p127f) - k)) == 127;
    cr_expect(binades == 249, "%d of 253 binades", binades);
    cr_expect(floats == 44, "%d of the 64 floats below 2^127", floats);
}

/* How often scale rules part, over the 2^23 mantissas of a binade. "nearest" is amax / max rounded to the nearest power
 * of two (a plain cast to e8m0), which is not NG_SCALE_MX_EVEN. */
static void rules_differ(ng_format_id element, const uint32_t expected[5]) {
    const double largest = ng_formats[element].largest;
    const ng_cast cast = {.rounding = NG_RN_EVEN, .saturate = true};
    uint32_t floor_up = 0, nearest_up = 0, floor_nearest = 0, floor_even = 0, even_up = 0;
#pragma omp parallel for reduction(+ : floor_up, nearest_up, floor_nearest, floor_even, even_up)
    for (uint32_t m = 0; m < 1u << 23; m++) {
        double amax = (double)from_bits(0x3F800000 | m), unused;
        uint64_t low = scale_of(NG_SCALE_MX_FLOOR, element, amax, 0, &unused);
        uint64_t up = scale_of(NG_SCALE_MX_ROUND_UP, element, amax, 0, &unused);
        uint64_t even = scale_of(NG_SCALE_MX_EVEN, element, amax, 0, &unused);
        uint64_t nearest = ng_round(NG_E8M0, amax / largest, &cast, 0);
        floor_up += low != up;
        nearest_up += nearest != up;
        floor_nearest += low != nearest;
        floor_even += low != even;
        even_up += even != up;
    }
    const uint32_t got[5] = {floor_up, nearest_up, floor_nearest, floor_even, even_up};
    for (int k = 0; k < 5; k++)
        cr_expect(got[k] == expected[k], "%s, pair %d: %u, expected %u", ng_formats[element].name, k, got[k],
                  expected[k]);
}

static void rules_differ_e4m3(void) { /* 25 %, 56.25 %, 31.25 %; 6.25 %, 18.75 % */
    rules_differ(NG_E4M3, (const uint32_t[]){2097151, 4718591, 2621440, 524288, 1572863});
}

static void rules_differ_e2m1(void) { /* 50 %, 62.5 %, 12.5 %; 25 %, 25 % */
    rules_differ(NG_E2M1, (const uint32_t[]){4194303, 5242879, 1048576, 2097152, 2097151});
}

/* amax * fl(1/6) is not amax / 6 for 2,796,202 of the 2^23 mantissas; into a round-up e8m0 scale of 448 it makes no
 * difference. */
static void reciprocal_counts(void) {
    uint32_t six = 0, codes = 0;
    const ng_cast up = {.rounding = NG_R_UP, .saturate = true};
#pragma omp parallel for reduction(+ : six, codes)
    for (uint32_t m = 0; m < 1u << 23; m++) {
        float amax = from_bits(0x3F800000 | m), sixth = 1.0f / 6.0f;
        six += to_bits(amax * sixth) != to_bits(amax / 6.0f);
        double unused;
        uint64_t product = scale_of(NG_SCALE_MX_ROUND_UP, NG_E4M3, (double)amax, 0, &unused);
        codes += product != ng_round(NG_E8M0, (double)(amax / 448.0f), &up, 0);
        codes += product != ng_round(NG_E8M0, (double)amax / 448, &up, 0);
    }
    cr_expect(six == 2796202, "%u", six);
    cr_expect(codes == 0, "%u", codes);
}

const ng_test ng_tests[] = {
    {"scale", "zero, infinite, NaN, tiny and huge block maxima under every rule", scale_edges, 0},
    {"scale", "every exponent and threshold neighbourhood: integers agree with MPFR", scale_thresholds, 0},
    {"scale", "all 2^23 mantissas: each MX rule has its one threshold", mantissa_sweep, 0},
    {"scale", "all 2^23 mantissas: fp32 scales are the rounded quotients", fp32_mantissa_sweep, 0},
    {"scale", "all 2^23 mantissas: nvfp4 scales, in both orders of operations", nvfp4_mantissa_sweep, 0},
    {"quantize", "fp32 scales on adversarial tensors: integers agree with MPFR", tiers_fp32_rules, 0},
    {"quantize", "e8m0 scales on adversarial tensors: integers agree with MPFR", tiers_mx, 0},
    {"quantize", "nvfp4 and 4over6 on adversarial tensors: integers agree with MPFR", tiers_nvfp4, 0},
    {"quantize", "stochastic rounding with given words: integers agree with MPFR", tiers_stochastic, 0},
    {"quantize", "directed modes: integers agree with MPFR", tiers_directed, 0},
    {"quantize", "small blocks by hand", by_hand, 0},
    {"quantize", "blocks of 1e-35 to 1e-45 stay numbers", tiny_blocks, 0},
    {"quantize", "4over6 takes the better scale", four_over_six, 0},
    {"quantize", "bad arguments are refused", bad_arguments, 0},
    {"dequantize", "every scale with every element", dequantize_tables, 0},
    {"dequantize", "products of 72 bits are rounded once", dequantize_wide, 0},
    {"disagreements", "casts: each library's behaviour at a value that tells it apart", disagreements_are_named, 0},
    {"disagreements", "floor(log2f(x)) misses the exponent in 249 of 253 binades", log2_is_not_the_exponent, 0},
    {"disagreements", "scale rules of e4m3 part as often as published", rules_differ_e4m3, 0},
    {"disagreements", "scale rules of e2m1 part as often as published", rules_differ_e2m1, 0},
    {"disagreements", "amax times fl(1/6) is not amax / 6 in 2796202 of 2^23 cases", reciprocal_counts, 0},
    {"quantize", "signs of NaN do not depend on the machine", signs_of_nan, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
