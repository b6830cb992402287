/* The generator itself: pure functions of (seed, stream, index), in C and CUDA C++, with the same bits everywhere. Only + - * /,
 * sqrt, comparisons and integers, each operation rounded on its own (no fma), so that an x86-64, an aarch64 and a GPU agree.
 *
 * Random words: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), key = seed,
 * counter = (index / 4, stream, draw), word index % 4. The index is row * columns + column of the described tensor. */
#ifndef NG_HARNESS_DATA_CORE_H
#define NG_HARNESS_DATA_CORE_H

#include "harness/data.h"

#include <math.h>
#include <string.h>

#ifdef __CUDACC__
#define NG_CORE static __host__ __device__ __forceinline__
#else
#define NG_CORE static inline __attribute__((always_inline, unused))
#endif

/* What the distributions made for a format need of it. */
typedef struct ng_core_target {
    int mantissa_bits, bias, emin, emax;
    double largest;
    uint32_t codes; /* finite codes without sign */
    bool is_signed;
    bool narrow;    /* 8 bits or fewer: quantized in blocks, so some elements hold the block scale at 1 */
} ng_core_target;

typedef struct ng_data_core {
    ng_distribution distribution;
    uint32_t stream;
    uint64_t seed;
    int64_t rows, columns; /* of the described tensor */
    double parameter;      /* never 0 */
    ng_core_target target;
    const float *normal;   /* ng_normal_table(), or its copy on the device */
} ng_data_core;

enum { NG_NORMAL_ROWS = 31 * 16 + 1 };
#ifdef __cplusplus
extern "C" {
#endif
/* [NG_NORMAL_ROWS][4]: coefficients of the normal quantile, see data_normal.h. */
const float *ng_normal_table(void);
/* Checks a spec and fills *core, for callers that generate on a device. NG_FILE_TENSOR has none: NG_UNSUPPORTED. */
ng_status ng_data_core_of(const ng_data_spec *spec, ng_data_core *core, ng_error *error);
#ifdef __cplusplus
}
#endif

/* ---- arithmetic that no compiler contracts --------------------------------------------------------------------------*/
#ifdef __CUDA_ARCH__
NG_CORE float ng_core_multiply(float a, float b) { return __fmul_rn(a, b); }
NG_CORE float ng_core_add(float a, float b) { return __fadd_rn(a, b); }
NG_CORE double ng_core_multiply_d(double a, double b) { return __dmul_rn(a, b); }
NG_CORE double ng_core_add_d(double a, double b) { return __dadd_rn(a, b); }
#else
NG_CORE float ng_core_multiply(float a, float b) { return a * b; }
NG_CORE float ng_core_add(float a, float b) { return a + b; }
NG_CORE double ng_core_multiply_d(double a, double b) { return a * b; }
NG_CORE double ng_core_add_d(double a, double b) { return a + b; }
#endif
NG_CORE float ng_core_multiply_add(float a, float b, float c) { return ng_core_add(ng_core_multiply(a, b), c); }

NG_CORE uint32_t ng_core_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
NG_CORE float ng_core_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
NG_CORE double ng_core_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* 2^e, -1022 <= e <= 1023. */
NG_CORE double ng_core_power(int e) { return ng_core_double((uint64_t)(e + 1023) << 52); }
/* The binary64 `step` places of 2^(e - 52) away in magnitude: 2^45 is an ulp of bf16, 2^29 one of binary32. */
NG_CORE double ng_core_nudge(double x, int64_t step) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return ng_core_double(bits + (uint64_t)step);
}
/* A random integer in [0, n) from a word. */
NG_CORE uint32_t ng_core_below(uint32_t word, uint32_t n) { return (uint32_t)(((uint64_t)word * n) >> 32); }

/* ---- random words ---------------------------------------------------------------------------------------------------*/
typedef enum ng_core_draw {
    NG_DRAW_VALUE,          /* index of the element; 1, 2, 3: its further words */
    NG_DRAW_ROW = 16,       /* index of the row */
    NG_DRAW_COLUMN_GROUP,   /* column / 64 */
    NG_DRAW_BLOCK,          /* row * ceil(columns / 16) + column / 16 */
    NG_DRAW_BLOCK_32,       /* the same for 32 */
    NG_DRAW_TILE,           /* the same for tiles of 128 x 128 */
    NG_DRAW_PLACE,          /* index of the row */
} ng_core_draw;

NG_CORE void ng_core_philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1, uint32_t *out) {
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

NG_CORE uint32_t ng_core_word(const ng_data_core *core, uint32_t draw, uint64_t index) {
    uint32_t words[4];
    ng_core_philox((uint32_t)(index >> 2), (uint32_t)(index >> 34), core->stream, draw, (uint32_t)core->seed,
                   (uint32_t)(core->seed >> 32), words);
    return words[index & 3];
}

/* ---- binary32 values from one word ------------------------------------------------------------------------------------*/
/* Inverse of the normal distribution: bit 0 is the sign, the odd integer (word >> 1) | 1 over 2^31 the two-sided tail
 * probability. Exponent and leading bits of that integer as a binary32 choose the cubic. |z| <= 6.24. */
NG_CORE float ng_core_normal(uint32_t word, const float *table) {
    uint32_t p = ng_core_bits((float)(int32_t)((word >> 1) | 1u));
    int32_t c = (int32_t)((p >> 19) - (127u << 4)) * 4; /* 32 bits, so that compilers make it a gather */
    float t = (float)(int32_t)(p & 0x7FFFFu) * 0x1p-19f, z = table[c + 3];
    z = ng_core_multiply_add(z, t, table[c + 2]);
    z = ng_core_multiply_add(z, t, table[c + 1]);
    z = ng_core_multiply_add(z, t, table[c]);
    return ng_core_float(ng_core_bits(z) ^ (word << 31));
}

NG_CORE float ng_core_uniform(uint32_t word) { return (float)((int32_t)(word >> 8) - 0x800000) * 0x1p-23f; }
NG_CORE float ng_core_positive(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

/* +-exp(z): 2^n times a polynomial for 2^f, |f| <= 1/2; relative error below 2e-6. The sign is the word's bit 1, which the
 * normal does not use. */
NG_CORE float ng_core_lognormal(uint32_t word, const float *table) {
    float y = ng_core_multiply(ng_core_normal(word, table), 0x1.715476p+0f);
    int32_t n = (int32_t)ng_core_add(y, 16.5f) - 16; /* |y| < 9.1, so that truncation is floor */
    float f = ng_core_add(y, -(float)n);
    float e = ng_core_multiply_add(0x1.430912p-13f, f, 0x1.5d87fep-10f); /* (ln 2)^k / k! */
    e = ng_core_multiply_add(e, f, 0x1.3b2ab6p-7f);
    e = ng_core_multiply_add(e, f, 0x1.c6b08ep-5f);
    e = ng_core_multiply_add(e, f, 0x1.ebfbep-3f);
    e = ng_core_multiply_add(e, f, 0x1.62e43p-1f);
    e = ng_core_multiply_add(e, f, 1.0f);
    return ng_core_float((ng_core_bits(e) + ((uint32_t)n << 23)) ^ ((word & 2u) << 30));
}

/* z0 / sqrt((z1^2 + z2^2 + z3^2) / 3) of four independent normals. */
NG_CORE float ng_core_student_of(float z0, float squares) {
    squares = squares > 0x1p-60f ? squares : 0x1p-60f;
    return ng_core_multiply(z0, 0x1.bb67aep+0f) / sqrtf(squares);
}
NG_CORE float ng_core_student(const float z[4]) {
    return ng_core_student_of(z[0], ng_core_multiply_add(z[3], z[3], ng_core_multiply_add(z[2], z[2], ng_core_multiply(z[1], z[1]))));
}

NG_CORE float ng_core_integer(uint32_t word, uint32_t largest) {
    return (float)((int32_t)ng_core_below(word, 2 * largest + 1) - (int32_t)largest);
}

/* ---- parts that rows share --------------------------------------------------------------------------------------------*/
NG_CORE int64_t ng_core_outlier_column(const ng_data_core *core, int64_t group) { /* one in each 64 */
    return group * 64 + (int64_t)(ng_core_word(core, NG_DRAW_COLUMN_GROUP, (uint64_t)group) & 63);
}

/* Whole blocks of 1x16, 1x32 and 128x128, one in eight of each kind. */
NG_CORE bool ng_core_zero_block(const ng_data_core *core, int64_t row, int64_t group) {
    uint64_t per_row = (uint64_t)((core->columns + 15) / 16), r = (uint64_t)row, g = (uint64_t)group;
    return !(ng_core_word(core, NG_DRAW_BLOCK, r * per_row + g) & 7) ||
           !(ng_core_word(core, NG_DRAW_BLOCK_32, r * ((per_row + 1) / 2) + g / 2) & 7) ||
           !(ng_core_word(core, NG_DRAW_TILE, r / 128 * ((per_row + 7) / 8) + g / 8) & 7);
}

/* Every eighth row, from row 0, holds non-finite values at two places: NaN; +Inf; -Inf; +Inf and -Inf. Elsewhere one element
 * in 64 is -0. (Rare by intention: one NaN in K makes a whole product row NaN.) */
typedef struct ng_core_places {
    int64_t column[2]; /* -1: none */
    float value[2];
} ng_core_places;

NG_CORE ng_core_places ng_core_nonfinite(const ng_data_core *core, int64_t row) {
    ng_core_places places = {{-1, -1}, {0, 0}};
    if (row & 7) return places;
    uint64_t group = (uint64_t)row >> 3, kind = (group + (core->seed & 3)) & 3, columns = (uint64_t)core->columns;
    const float infinity = ng_core_float(0x7F800000u), nan = ng_core_float(0x7FFFFFFFu);
    for (int i = 0; i < 2; i++) {
        uint32_t word = ng_core_word(core, NG_DRAW_PLACE, group * 2 + (uint64_t)i);
        places.column[i] = (int64_t)(columns <= UINT32_MAX ? ng_core_below(word, (uint32_t)columns) : word);
        places.value[i] = kind == 0 ? nan : kind == 1 || (kind == 3 && i) ? infinity : -infinity;
    }
    return places;
}
NG_CORE bool ng_core_negative_zero(uint32_t word) { return !(word & 0xFCu); }

/* scale * (mean + z): the mean `parameter` times the deviation, scales 1/8 to 8. */
typedef struct ng_core_row_scale {
    float mean, scale;
} ng_core_row_scale;
NG_CORE ng_core_row_scale ng_core_large_mean(const ng_data_core *core, int64_t row) {
    uint32_t word = ng_core_word(core, NG_DRAW_ROW, (uint64_t)row);
    ng_core_row_scale s = {word & 1 ? -(float)core->parameter : (float)core->parameter,
                           (float)ng_core_power((int)ng_core_below(word, 7) - 3)};
    return s;
}

/* ---- distributions made for a format: binary64 values, rounded by whoever stores them ------------------------------------*/
NG_CORE double ng_core_magnitude(const ng_core_target *t, uint32_t code) {
    int m = t->mantissa_bits, e = (int)(code >> m);
    uint32_t f = code & ((1u << m) - 1);
    if (!m) return ng_core_power(e - t->bias); /* e8m0 */
    return e ? (double)(f | 1u << m) * ng_core_power(e - t->bias - m) : (double)f * ng_core_power(1 - t->bias - m);
}
NG_CORE double ng_core_sign(const ng_core_target *t, double x, uint32_t bit) { return t->is_signed && (bit & 1) ? -x : x; }

/* One element in 16 at the largest value: whatever the block or tensor, its scale is then 1 and the others stay what they are. */
NG_CORE bool ng_core_anchors(const ng_core_target *t, int64_t column) { return t->narrow && !(column & 15); }

/* Half of the elements exact midpoints; the others the next binary32 to either side, or the nearest that leaves room in fewer
 * bits: an ulp of bf16 beside midpoints that bf16 holds, else a quarter of the target's. */
NG_CORE double ng_core_tie(const ng_data_core *core, uint64_t index, int64_t column) {
    const ng_core_target *t = &core->target;
    uint32_t w0 = ng_core_word(core, 0, index), w1 = ng_core_word(core, 1, index), code = ng_core_below(w0, t->codes - 1);
    if (ng_core_anchors(t, column)) return ng_core_sign(t, t->largest, w1 >> 3);
    double x = ng_core_add_d(ng_core_magnitude(t, code), ng_core_magnitude(t, code + 1)) * 0.5;
    int64_t coarse = (int64_t)1 << (t->mantissa_bits <= 5 ? 45 : 50 - t->mantissa_bits);
    int64_t fine = t->mantissa_bits <= 21 ? (int64_t)1 << 29 : coarse;
    if (w1 & 4) x = ng_core_nudge(x, (w1 & 1 ? -1 : 1) * (w1 & 2 ? fine : coarse));
    return ng_core_sign(t, x, w1 >> 3);
}

/* Magnitudes from a quarter of the smallest subnormal to four times the smallest normal number, one in 16 a zero. */
NG_CORE double ng_core_subnormal(const ng_data_core *core, uint64_t index, int64_t row, int64_t column) {
    const ng_core_target *t = &core->target;
    uint32_t w0 = ng_core_word(core, 0, index), w1 = ng_core_word(core, 1, index);
    uint64_t block = (uint64_t)row * (uint64_t)((core->columns + 15) / 16) + (uint64_t)(column / 16);
    if (ng_core_anchors(t, column) && (ng_core_word(core, NG_DRAW_BLOCK, block) & 3)) return ng_core_sign(t, t->largest, w1);
    int e = t->emin - t->mantissa_bits - 2 + (int)ng_core_below(w0, (uint32_t)t->mantissa_bits + 4);
    double x = (double)(0x800000u | w1 >> 9) * ng_core_power(e - 23);
    return ng_core_sign(t, w0 & 15 ? x : 0.0, w1);
}

/* The largest value, the midpoint above it and its neighbours, the value below, and anything in [1/2, 2) of it. */
NG_CORE double ng_core_near_overflow(const ng_data_core *core, uint64_t index) {
    const ng_core_target *t = &core->target;
    uint32_t w0 = ng_core_word(core, 0, index), w1 = ng_core_word(core, 1, index);
    double ulp = ng_core_power(t->emax - t->mantissa_bits), x;
    switch (w1 & 7) {
    case 0: x = t->largest; break;
    case 1: x = ng_core_add_d(t->largest, ulp * 0.5); break;
    case 2: x = ng_core_nudge(ng_core_add_d(t->largest, ulp * 0.5), -((int64_t)1 << 29)); break;
    case 3: x = ng_core_nudge(ng_core_add_d(t->largest, ulp * 0.5), (int64_t)1 << 29); break;
    case 4: x = ng_core_add_d(t->largest, -ulp); break;
    default: x = ng_core_multiply_d(t->largest, ng_core_add_d(0.5, ng_core_multiply_d((double)w0, 0x1.8p-32))); break;
    }
    return ng_core_sign(t, x, w1 >> 3);
}

/* The largest of a 1 x 16 block: 2^e times 1, the largest value's significand (where max / amax steps), the significand where
 * rounding the amax to the element's bits carries, or six times a midpoint of ue4m3; exact, or an ulp off. */
NG_CORE double ng_core_edge(const ng_core_target *t, uint32_t word) {
    double x;
    switch (word >> 8 & 3) {
    case 0: x = 1.0; break;
    case 1: x = t->largest * ng_core_power(-t->emax); break;
    case 2: x = 2.0 - ng_core_power(-t->mantissa_bits - 1); break;
    default: x = 1.5 * (1.0 + (double)(2 * (word >> 12 & 7) + 1) * 0.0625); break; /* exact */
    }
    if (word >> 16 & 1) x = ng_core_nudge(x, (word >> 17 & 1 ? -1 : 1) * (word >> 18 & 1 ? (int64_t)1 << 29 : (int64_t)1 << 45));
    return x * ng_core_power((int)(word >> 4 & 15) - 8);
}

NG_CORE double ng_core_block_edge(const ng_data_core *core, uint64_t index, int64_t row, int64_t column) {
    const ng_core_target *t = &core->target;
    int64_t start = column & ~(int64_t)15, width = core->columns - start < 16 ? core->columns - start : 16;
    uint64_t block = (uint64_t)row * (uint64_t)((core->columns + 15) / 16) + (uint64_t)(column / 16);
    uint32_t b = ng_core_word(core, NG_DRAW_BLOCK, block), w = ng_core_word(core, 0, index);
    double edge = ng_core_edge(t, b);
    if (column - start == (int64_t)ng_core_below(b << 28, (uint32_t)width)) return ng_core_sign(t, edge, w);
    double u = t->is_signed ? ng_core_uniform(w) : ng_core_positive(w);
    return ng_core_multiply_d(u * 0.984375, edge); /* 63/64: stays below the edge in bf16 too */
}

/* Rows of A times rows of B cancel but for one term. Along the contracted axis of length n, with h = n / 2, element h + i
 * repeats element i, negated in one of the two operands; term 0 is broken: A has p, B has p there, and at h A has 0, B has p.
 * The sum is p^2 exactly; sum |a b| is about n E|z|^2 = n 2/pi, so p = sqrt(n 2/pi / condition) makes sum |a b| / |sum a b| the
 * condition asked for (as far as the format holds p; it does not depend on the order of the terms).
 * Every tensor takes part in two contractions (x and w over columns in fprop, dy's columns and w's rows in dgrad, dy's and
 * x's rows in wgrad), so both axes are mirrored; signs turn along x's columns and both axes of dy. Row 0 and column 0, which
 * hold the p of the other axis, give products of smaller condition. */
NG_CORE double ng_core_ill_conditioned(const ng_data_core *core, int64_t row, int64_t column) {
    int64_t extent[2] = {core->rows, core->columns}, at[2] = {row, column};
    bool turns[2] = {core->stream >= 2, core->stream != 1}, negative = false;
    for (int axis = 0; axis < 2; axis++) {
        int64_t n = extent[axis], h = n / 2;
        if (n < 4) continue;
        if (at[axis] == 0 || (at[axis] == h && !turns[axis]))
            return (float)sqrt((double)n * 0x1.45f306dc9c883p-1 / core->parameter);
        if (turns[axis] && (at[axis] == h || at[axis] >= 2 * h)) return 0;
        if (at[axis] >= h && at[axis] < 2 * h) {
            at[axis] -= h;
            negative ^= turns[axis];
        }
    }
    float z = ng_core_normal(ng_core_word(core, 0, (uint64_t)at[0] * (uint64_t)core->columns + (uint64_t)at[1]), core->normal);
    return negative ? -z : z;
}

/* ---- any element -----------------------------------------------------------------------------------------------------*/
NG_CORE double ng_core_element(const ng_data_core *core, int64_t row, int64_t column) {
    uint64_t index = (uint64_t)row * (uint64_t)core->columns + (uint64_t)column;
    uint32_t word = ng_core_word(core, 0, index);
    float scale = (float)core->parameter;
    switch (core->distribution) {
    case NG_NORMAL: return ng_core_multiply(ng_core_normal(word, core->normal), scale);
    case NG_UNIFORM: return ng_core_multiply(ng_core_uniform(word), scale);
    case NG_POSITIVE: return ng_core_multiply(ng_core_positive(word), scale);
    case NG_LOGNORMAL: return ng_core_multiply(ng_core_lognormal(word, core->normal), scale);
    case NG_OUTLIERS: {
        float z = ng_core_normal(word, core->normal);
        return column == ng_core_outlier_column(core, column / 64) ? ng_core_multiply(z, scale) : z;
    }
    case NG_STUDENT: {
        float z[4];
        for (uint32_t i = 0; i < 4; i++)
            z[i] = ng_core_normal(ng_core_word(core, i, index), core->normal);
        return ng_core_multiply(ng_core_student(z), scale);
    }
    case NG_INTEGERS: return ng_core_integer(word, (uint32_t)core->parameter);
    case NG_ILL_CONDITIONED: return ng_core_ill_conditioned(core, row, column);
    case NG_TIES: return ng_core_tie(core, index, column);
    case NG_SUBNORMAL: return ng_core_subnormal(core, index, row, column);
    case NG_ZERO_BLOCKS: {
        float z = ng_core_multiply(ng_core_normal(word, core->normal), scale);
        return ng_core_zero_block(core, row, column / 16) ? z * 0.0f : z;
    }
    case NG_BLOCK_EDGES: return ng_core_block_edge(core, index, row, column);
    case NG_NEAR_OVERFLOW: return ng_core_near_overflow(core, index);
    case NG_NONFINITE: {
        ng_core_places places = ng_core_nonfinite(core, row);
        for (int i = 1; i >= 0; i--)
            if (column == places.column[i]) return places.value[i];
        return ng_core_negative_zero(word) ? -0.0f : ng_core_multiply(ng_core_normal(word, core->normal), scale);
    }
    case NG_LARGE_MEAN: {
        ng_core_row_scale s = ng_core_large_mean(core, row);
        return ng_core_multiply(ng_core_add(ng_core_normal(word, core->normal), s.mean), s.scale);
    }
    case NG_CONSTANT:
        return ng_core_multiply(ng_core_normal(ng_core_word(core, NG_DRAW_ROW, (uint64_t)row), core->normal), scale);
    case NG_FILE_TENSOR:
    case NG_DISTRIBUTIONS: break;
    }
    return 0;
}

#endif
