/* Input data. data_core.h says what each element is; this file makes rows of them fast: a tile of the described tensor is
 * generated in binary32 (binary64 where a distribution needs it), then rounded into the tensor asked for. The row code
 * and ng_core_element are two ways to the same bits; tests hold one against the other. */
#include "harness/data.h"

#include "harness/data_core.h"
#include "harness/data_normal.h"
#include "harness/tensorfile.h"
#include "reference/format.h"
#include "reference/round.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TILE = 4096, /* elements generated at once */
    SIDE = 64,   /* of a transposed tile */
    LANES = 32,  /* Philox blocks computed side by side */
    SMALL = 1 << 15, /* elements below which threads cost more than they bring */
};

/* ---- distributions ----------------------------------------------------------------------------------------------------*/
const char *const ng_distribution_names[NG_DISTRIBUTIONS] = {
    [NG_NORMAL] = "normal",
    [NG_UNIFORM] = "uniform",
    [NG_POSITIVE] = "positive",
    [NG_LOGNORMAL] = "lognormal",
    [NG_OUTLIERS] = "outliers",
    [NG_STUDENT] = "student",
    [NG_INTEGERS] = "integers",
    [NG_ILL_CONDITIONED] = "ill-conditioned",
    [NG_TIES] = "ties",
    [NG_SUBNORMAL] = "subnormal",
    [NG_ZERO_BLOCKS] = "zero-blocks",
    [NG_BLOCK_EDGES] = "block-edges",
    [NG_NEAR_OVERFLOW] = "near-overflow",
    [NG_NONFINITE] = "nonfinite",
    [NG_LARGE_MEAN] = "large-mean",
    [NG_CONSTANT] = "constant",
    [NG_FILE_TENSOR] = "file",
};

/* Defaults of spec->parameter and the range that it may take. */
static const struct {
    double parameter, least, most;
    bool for_target; /* made for spec->target */
} limits[NG_DISTRIBUTIONS] = {
    [NG_NORMAL] = {1, 0x1p-100, 0x1p100, false},
    [NG_UNIFORM] = {1, 0x1p-100, 0x1p100, false},
    [NG_POSITIVE] = {1, 0x1p-100, 0x1p100, false},
    [NG_LOGNORMAL] = {1, 0x1p-100, 0x1p100, false},
    [NG_OUTLIERS] = {64, 0x1p-100, 0x1p100, false},
    [NG_STUDENT] = {1, 0x1p-100, 0x1p100, false},
    [NG_INTEGERS] = {4, 1, 0x1p20, false}, /* |sum| <= 16 k: exact in binary32 to k = 2^20, in any order */
    [NG_ILL_CONDITIONED] = {1e6, 1, 1e60, false},
    [NG_TIES] = {1, 1, 1, true},
    [NG_SUBNORMAL] = {1, 1, 1, true},
    [NG_ZERO_BLOCKS] = {1, 0x1p-100, 0x1p100, false},
    [NG_BLOCK_EDGES] = {1, 1, 1, true},
    [NG_NEAR_OVERFLOW] = {1, 1, 1, true},
    [NG_NONFINITE] = {1, 0x1p-100, 0x1p100, false},
    [NG_LARGE_MEAN] = {1e4, 1, 0x1p100, false},
    [NG_CONSTANT] = {1, 0x1p-100, 0x1p100, false},
    [NG_FILE_TENSOR] = {1, 1, 1, false},
};

const float *ng_normal_table(void) { return normal_rows[0]; }

ng_status ng_distribution_by_name(const char *name, ng_distribution *distribution, ng_error *error) {
    for (int i = 0; i < NG_DISTRIBUTIONS; i++)
        if (!strcmp(name, ng_distribution_names[i])) {
            *distribution = (ng_distribution)i;
            return NG_OK;
        }
    char known[512] = "";
    size_t used = 0;
    for (int i = 0; i < NG_DISTRIBUTIONS && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? " " : "", ng_distribution_names[i]);
    return ng_fail(error, NG_BAD_ARGUMENT, "no data named \"%s\"; there are: %s", name, known);
}

/* ---- checking a spec --------------------------------------------------------------------------------------------------*/
static ng_core_target target_of(ng_format_id id) {
    const ng_format *f = &ng_formats[id];
    uint32_t all_ones = (1u << (f->exponent_bits + f->mantissa_bits)) - 1;
    uint32_t codes = f->specials == NG_FINITE_ONLY ? all_ones + 1
                     : f->specials == NG_NAN_ALL_ONES ? all_ones
                                                      : all_ones + 1 - (1u << f->mantissa_bits);
    return (ng_core_target){f->mantissa_bits, f->bias, f->emin, f->emax, f->largest, codes, f->is_signed || id == NG_E8M0,
                            f->storage_bits <= 8};
}

static ng_status check_spec(const ng_data_spec *spec, double *parameter, ng_error *error) {
    ng_distribution d = spec->distribution;
    if ((unsigned)d >= NG_DISTRIBUTIONS) return ng_fail(error, NG_BAD_ARGUMENT, "data: no distribution %d", (int)d);
    const char *name = ng_distribution_names[d];
    if (spec->whole_rows < 0 || spec->whole_columns < 0 ||
        (spec->whole_rows && spec->whole_columns > ((int64_t)1 << 60) / spec->whole_rows))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s data: a tensor of %lld x %lld elements", name,
                       (long long)spec->whole_rows, (long long)spec->whole_columns);
    *parameter = spec->parameter == 0 ? limits[d].parameter : spec->parameter;
    if (!(*parameter >= limits[d].least && *parameter <= limits[d].most))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s data: parameter %g is not in [%g, %g]", name, spec->parameter,
                       limits[d].least, limits[d].most);
    if (limits[d].for_target && ((unsigned)spec->target >= NG_FORMATS || spec->target == NG_FP64))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s data needs a target format of 32 bits or fewer", name);
    return NG_OK;
}

bool ng_data_is_binary32(const ng_data_spec *spec) {
    ng_distribution d = spec->distribution;
    return (unsigned)d < NG_DISTRIBUTIONS && !limits[d].for_target && d != NG_ILL_CONDITIONED && d != NG_FILE_TENSOR;
}

ng_status ng_data_core_of(const ng_data_spec *spec, ng_data_core *core, ng_error *error) {
    double parameter = 0;
    ng_status status = check_spec(spec, &parameter, error);
    if (status) return status;
    if (spec->distribution == NG_FILE_TENSOR)
        return ng_fail(error, NG_UNSUPPORTED, "data of a file cannot be generated");
    *core = (ng_data_core){spec->distribution, spec->stream, spec->seed, spec->whole_rows, spec->whole_columns, parameter,
                           {0}, ng_normal_table()};
    if (limits[spec->distribution].for_target) core->target = target_of(spec->target);
    return NG_OK;
}

typedef struct source {
    ng_data_core core;
    const ng_file_tensor *tensor; /* NG_FILE_TENSOR */
    bool wide;                    /* tiles are binary64 */
    bool avx2;
} source;

static ng_status file_source(const ng_data_spec *spec, source *s, ng_error *error) {
    if (!spec->file || spec->file_index < 0 || (size_t)spec->file_index >= ng_tensor_file_count(spec->file))
        return ng_fail(error, NG_BAD_ARGUMENT, "file data: no tensor %d", spec->file_index);
    ng_status status = ng_tensor_file_operand(spec->file, (size_t)spec->file_index, error);
    if (status) return status;
    s->tensor = ng_tensor_file_tensor(spec->file, (size_t)spec->file_index);
    if (spec->whole_rows > s->tensor->rows || spec->whole_columns > s->tensor->columns)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: tensor \"%s\" is %lld x %lld; %lld x %lld asked for",
                       ng_tensor_file_path(spec->file), s->tensor->name, (long long)s->tensor->rows,
                       (long long)s->tensor->columns, (long long)spec->whole_rows, (long long)spec->whole_columns);
    s->wide = s->tensor->format == NG_FP64;
    return NG_OK;
}

static ng_status source_of(const ng_data_spec *spec, source *s, ng_error *error) {
    *s = (source){0};
#if defined __x86_64__
    s->avx2 = __builtin_cpu_supports("avx2");
#endif
    if ((unsigned)spec->distribution >= NG_DISTRIBUTIONS || spec->distribution != NG_FILE_TENSOR) {
        ng_status status = ng_data_core_of(spec, &s->core, error);
        s->wide = !status && (limits[spec->distribution].for_target || spec->distribution == NG_ILL_CONDITIONED);
        return status;
    }
    double parameter = 0;
    ng_status status = check_spec(spec, &parameter, error);
    return status ? status : file_source(spec, s, error);
}

/* ---- a row of the described tensor --------------------------------------------------------------------------------------*/
typedef struct scratch {
    uint32_t words[TILE + 8 + 4 * LANES];
    float squares[TILE]; /* Student t */
    float f[TILE];
    double d[TILE];
} scratch;

/* ng_core_philox for LANES consecutive blocks side by side, in loops that compilers vectorise. */
NG_CORE void philox_lanes(uint64_t block, uint32_t stream, uint32_t draw, uint64_t seed, uint32_t *restrict words) {
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (uint32_t i = 0; i < LANES; i++)
        c0[i] = (uint32_t)(block + i), c1[i] = (uint32_t)((block + i) >> 32), c2[i] = stream, c3[i] = draw;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < LANES; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c0[i] = n0, c1[i] = (uint32_t)p1, c2[i] = n2, c3[i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < LANES; i++)
        words[4 * i] = c0[i], words[4 * i + 1] = c1[i], words[4 * i + 2] = c2[i], words[4 * i + 3] = c3[i];
}

/* Returns the words of elements index .. index + count - 1. A batch may write past them: scratch has room. */
NG_CORE const uint32_t *row_words(const ng_data_core *core, uint32_t draw, uint64_t index, int64_t count, uint32_t *words) {
    uint64_t first = index >> 2, blocks = ((index & 3) + (uint64_t)count + 3) / 4, b = 0;
    for (; b + LANES / 4 < blocks; b += LANES)
        philox_lanes(first + b, core->stream, draw, core->seed, words + 4 * b);
    for (; b < blocks; b++)
        ng_core_philox((uint32_t)(first + b), (uint32_t)((first + b) >> 32), core->stream, draw, (uint32_t)core->seed,
                       (uint32_t)(core->seed >> 32), words + 4 * b);
    return words + (index & 3);
}

/* omp simd: the gathers from the table cannot alias what is written, which compilers do not see by themselves. */
NG_CORE void row_student(const ng_data_core *core, uint64_t index, int64_t count, scratch *s) {
    float scale = (float)core->parameter;
    const float *table = core->normal;
    const uint32_t *w = row_words(core, 0, index, count, s->words);
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        s->f[i] = ng_core_normal(w[i], table);
    for (uint32_t draw = 1; draw < 4; draw++) {
        w = row_words(core, draw, index, count, s->words);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float z = ng_core_normal(w[i], table);
            s->squares[i] = draw == 1 ? z * z : z * z + s->squares[i];
        }
    }
    for (int64_t i = 0; i < count; i++)
        s->f[i] = ng_core_student_of(s->f[i], s->squares[i]) * scale;
}

/* What turns a row of normals into the distributions that act on whole columns, blocks or places. */
static void mark_row(const ng_data_core *core, int64_t row, int64_t column, int64_t count, const uint32_t *w, float *f) {
    int64_t end = column + count;
    if (core->distribution == NG_OUTLIERS)
        for (int64_t g = column / 64; g * 64 < end; g++) {
            int64_t c = ng_core_outlier_column(core, g);
            if (c >= column && c < end) f[c - column] *= (float)core->parameter;
        }
    if (core->distribution == NG_ZERO_BLOCKS)
        for (int64_t g = column / 16; g * 16 < end; g++)
            if (ng_core_zero_block(core, row, g))
                for (int64_t c = g * 16 < column ? column : g * 16; c < end && c < g * 16 + 16; c++)
                    f[c - column] *= 0.0f;
    if (core->distribution == NG_NONFINITE) {
        for (int64_t i = 0; i < count; i++)
            if (ng_core_negative_zero(w[i])) f[i] = -0.0f;
        ng_core_places places = ng_core_nonfinite(core, row);
        for (int i = 0; i < 2; i++)
            if (places.column[i] >= column && places.column[i] < end) f[places.column[i] - column] = places.value[i];
    }
}

NG_CORE void row_floats(const ng_data_core *core, int64_t row, int64_t column, int64_t count, scratch *s) {
    uint64_t index = (uint64_t)row * (uint64_t)core->columns + (uint64_t)column;
    const float *restrict table = core->normal;
    float scale = (float)core->parameter, *restrict f = s->f;
    const uint32_t *restrict w = row_words(core, 0, index, count, s->words);
    switch (core->distribution) {
    case NG_UNIFORM:
        for (int64_t i = 0; i < count; i++)
            f[i] = ng_core_uniform(w[i]) * scale;
        break;
    case NG_POSITIVE:
        for (int64_t i = 0; i < count; i++)
            f[i] = ng_core_positive(w[i]) * scale;
        break;
    case NG_LOGNORMAL:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            f[i] = ng_core_lognormal(w[i], table) * scale;
        break;
    case NG_INTEGERS:
        for (int64_t i = 0; i < count; i++)
            f[i] = ng_core_integer(w[i], (uint32_t)scale);
        break;
    case NG_LARGE_MEAN: {
        ng_core_row_scale r = ng_core_large_mean(core, row);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            f[i] = (ng_core_normal(w[i], table) + r.mean) * r.scale;
        break;
    }
    case NG_CONSTANT: {
        float value = ng_core_normal(ng_core_word(core, NG_DRAW_ROW, (uint64_t)row), table) * scale;
        for (int64_t i = 0; i < count; i++)
            f[i] = value;
        break;
    }
    case NG_STUDENT: row_student(core, index, count, s); break;
    case NG_OUTLIERS: scale = 1; /* the factor is for the outlying columns */ __attribute__((fallthrough));
    default:
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            f[i] = ng_core_normal(w[i], table) * scale;
        if (core->distribution != NG_NORMAL) mark_row(core, row, column, count, w, f);
        break;
    }
}

static void row_file(const ng_file_tensor *t, int64_t row, int64_t column, int64_t count, scratch *s) {
    const char *at = (const char *)t->data + ng_row_bytes(t->format, 1) * (row * t->columns + column);
    if (t->format == NG_FP64) memcpy(s->d, at, (size_t)count * sizeof *s->d);
    else if (t->format == NG_FP32) memcpy(s->f, at, (size_t)count * sizeof *s->f);
    else if (ng_formats[t->format].storage_bits == 16)
        for (int64_t i = 0; i < count; i++) {
            uint16_t code;
            memcpy(&code, at + 2 * i, sizeof code);
            s->f[i] = t->format == NG_BF16 ? ng_core_float((uint32_t)code << 16) : (float)ng_decode(t->format, code);
        }
    else
        for (int64_t i = 0; i < count; i++)
            s->f[i] = (float)ng_decode(t->format, (uint8_t)at[i]);
}

/* ---- rounding into the tensor --------------------------------------------------------------------------------------------*/
/* Nearest even, saturating, NaN canonical: what ng_round does, as plain integer arithmetic. Infinities stay. */
NG_CORE uint16_t to_bf16(float x) {
    uint32_t u = ng_core_bits(x), magnitude = u & 0x7FFFFFFFu, r = (u + 0x7FFFu + (u >> 16 & 1)) >> 16;
    r -= magnitude >= 0x7F7F8000u && magnitude < 0x7F800000u;
    return (uint16_t)(magnitude > 0x7F800000u ? 0x7FFFu : r);
}
NG_CORE uint32_t to_fp32(float x) {
    uint32_t u = ng_core_bits(x);
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFFFFFu : u;
}

static uint64_t round_value(ng_format_id format, double x) {
    ng_cast cast = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};
    cast.saturate = !(isinf(x) && ng_formats[format].specials == NG_IEEE); /* an infinity asked for stays one */
    return ng_round(format, x, &cast, 0);
}

NG_CORE void store_floats(const ng_tensor *out, int64_t row, int64_t column, int64_t count, const float *f) {
    char *line = (char *)out->data + row * out->row_bytes;
    if (out->format == NG_BF16) {
        uint16_t *to = (uint16_t *)(void *)line + column;
        for (int64_t i = 0; i < count; i++)
            to[i] = to_bf16(f[i]);
    } else if (out->format == NG_FP32) {
        uint32_t *to = (uint32_t *)(void *)line + column;
        for (int64_t i = 0; i < count; i++)
            to[i] = to_fp32(f[i]);
    } else
        for (int64_t i = 0; i < count; i++)
            ng_set_code(out, row, column + i, round_value(out->format, (double)f[i]));
}

static void store_doubles(const ng_tensor *out, int64_t row, int64_t column, int64_t count, const double *d) {
    for (int64_t i = 0; i < count; i++)
        ng_set_code(out, row, column + i, round_value(out->format, d[i]));
}

/* ---- compiled twice: portable, and for AVX2 (the same operations, so the same bits) ----------------------------------------*/
typedef struct paths {
    void (*row)(const ng_data_core *core, int64_t row, int64_t column, int64_t count, scratch *s);
    void (*store)(const ng_tensor *out, int64_t row, int64_t column, int64_t count, const float *f);
} paths;

static void row_portable(const ng_data_core *core, int64_t row, int64_t column, int64_t count, scratch *s) {
    row_floats(core, row, column, count, s);
}
static void store_portable(const ng_tensor *out, int64_t row, int64_t column, int64_t count, const float *f) {
    store_floats(out, row, column, count, f);
}
static const paths portable = {row_portable, store_portable};

#if defined __x86_64__
__attribute__((target("avx2"))) static void row_avx2(const ng_data_core *core, int64_t row, int64_t column, int64_t count,
                                                     scratch *s) {
    row_floats(core, row, column, count, s);
}
__attribute__((target("avx2"))) static void store_avx2(const ng_tensor *out, int64_t row, int64_t column, int64_t count,
                                                       const float *f) {
    store_floats(out, row, column, count, f);
}
static const paths avx2 = {row_avx2, store_avx2};
#endif

static const paths *paths_of(const source *s) {
#if defined __x86_64__
    if (s->avx2) return &avx2;
#else
    (void)s;
#endif
    return &portable;
}

/* Elements [column, column + count) of a row into s->f, or s->d where the source is wide. */
static void generate(const source *from, int64_t row, int64_t column, int64_t count, scratch *s) {
    if (from->tensor) row_file(from->tensor, row, column, count, s);
    else if (from->wide)
        for (int64_t i = 0; i < count; i++)
            s->d[i] = ng_core_element(&from->core, row, column + i);
    else paths_of(from)->row(&from->core, row, column, count, s);
}

static void store(const source *from, const ng_tensor *out, int64_t row, int64_t column, int64_t count, const float *f,
                  const double *d) {
    if (from->wide) store_doubles(out, row, column, count, d);
    else paths_of(from)->store(out, row, column, count, f);
}

/* ---- whole tensors -------------------------------------------------------------------------------------------------------*/
typedef struct window {
    const ng_tensor *out;
    int64_t row0, column0; /* of the operand */
    bool transposed;
} window;

static int64_t tiles(int64_t extent, int64_t side) { return extent / side + (extent % side != 0); }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t window_tiles(const window *w) {
    return w->transposed ? tiles(w->out->rows, SIDE) * tiles(w->out->columns, SIDE) : w->out->rows * tiles(w->out->columns, TILE);
}

static void fill_tile(const source *from, const window *w, int64_t tile, scratch *s) {
    int64_t across = tiles(w->out->columns, TILE), i = tile / across, j = tile % across * TILE;
    int64_t count = least(TILE, w->out->columns - j);
    generate(from, w->row0 + i, w->column0 + j, count, s);
    store(from, w->out, i, j, count, s->f, s->d);
}

/* Row r of the described tensor is column r of the operand. */
static void fill_transposed_tile(const source *from, const window *w, int64_t tile, scratch *s) {
    int64_t across = tiles(w->out->columns, SIDE), i0 = tile / across * SIDE, j0 = tile % across * SIDE;
    int64_t rows = least(SIDE, w->out->rows - i0), columns = least(SIDE, w->out->columns - j0);
    float block[SIDE][SIDE];
    double block_d[SIDE][SIDE];
    for (int64_t j = 0; j < columns; j++) {
        generate(from, w->column0 + j0 + j, w->row0 + i0, rows, s);
        for (int64_t i = 0; i < rows; i++)
            if (from->wide) block_d[i][j] = s->d[i];
            else block[i][j] = s->f[i];
    }
    for (int64_t i = 0; i < rows; i++)
        store(from, w->out, i0 + i, j0, columns, block[i], block_d[i]);
}

static int thread_count(int threads, int64_t elements) {
    if (elements < SMALL) return 1;
    return threads > 0 ? threads : omp_get_max_threads();
}

ng_status ng_data_fill(const ng_data_spec *spec, int64_t row0, int64_t column0, ng_tensor *out, int threads, ng_error *error) {
    source from;
    ng_status status = source_of(spec, &from, error);
    if (status) return status;
    int64_t rows = spec->transposed ? spec->whole_columns : spec->whole_rows,
            columns = spec->transposed ? spec->whole_rows : spec->whole_columns;
    if (row0 < 0 || column0 < 0 || out->rows < 0 || out->columns < 0 || row0 > rows - out->rows ||
        column0 > columns - out->columns || out->space != NG_HOST || (unsigned)out->format >= NG_FORMATS)
        return ng_fail(error, NG_BAD_ARGUMENT, "data: elements [%lld +%lld, %lld +%lld) of a tensor of %lld x %lld", (long long)row0,
                       (long long)out->rows, (long long)column0, (long long)out->columns, (long long)rows, (long long)columns);
    if (!out->rows || !out->columns) return NG_OK;
    window w = {out, row0, column0, spec->transposed};
    int64_t count = window_tiles(&w);
    bool failed = false;
#pragma omp parallel num_threads(thread_count(threads, out->rows * out->columns))
    {
        scratch *s = malloc(sizeof *s);
        if (!s) {
#pragma omp atomic write
            failed = true;
        }
#pragma omp for schedule(static)
        for (int64_t tile = 0; tile < count; tile++) {
            if (!s) continue;
            if (w.transposed) fill_transposed_tile(&from, &w, tile, s);
            else fill_tile(&from, &w, tile, s);
        }
        free(s);
    }
    return failed ? ng_fail(error, NG_NO_MEMORY, "data: no memory for %zu bytes", sizeof(scratch)) : NG_OK;
}

/* ---- the largest magnitude -----------------------------------------------------------------------------------------------*/
/* Magnitudes as bit patterns: ordered as the values are, NaN above infinity. Without a sign, negative values become 0. */
static double tile_amax(const source *from, const scratch *s, int64_t count, bool drop_negative) {
    if (from->wide) {
        uint64_t largest = 0;
        for (int64_t i = 0; i < count; i++) {
            double x = drop_negative && s->d[i] < 0 ? 0 : s->d[i];
            uint64_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits &= UINT64_MAX >> 1;
            largest = bits > largest ? bits : largest;
        }
        return ng_core_double(largest);
    }
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = ng_core_bits(drop_negative && s->f[i] < 0 ? 0 : s->f[i]) & 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
    }
    return (double)ng_core_float(largest);
}

static double larger(double a, double b) { return isnan(a) || a > b ? a : b; } /* a NaN wins */

ng_status ng_data_amax(const ng_data_spec *spec, ng_format_id format, int threads, double *amax, ng_error *error) {
    source from;
    ng_status status = source_of(spec, &from, error);
    if (status) return status;
    if ((unsigned)format >= NG_FORMATS) return ng_fail(error, NG_BAD_ARGUMENT, "data: no format %d", (int)format);
    bool drop_negative = !ng_formats[format].is_signed && format != NG_E8M0;
    int64_t across = tiles(spec->whole_columns, TILE), count = spec->whole_rows * across;
    bool failed = false;
    double largest = 0;
#pragma omp parallel num_threads(thread_count(threads, spec->whole_rows * spec->whole_columns))
    {
        scratch *s = malloc(sizeof *s);
        double mine = 0;
        if (!s) {
#pragma omp atomic write
            failed = true;
        }
#pragma omp for schedule(static)
        for (int64_t tile = 0; tile < count; tile++) {
            int64_t column = tile % across * TILE, width = least(TILE, spec->whole_columns - column);
            if (!s) continue;
            generate(&from, tile / across, column, width, s);
            mine = larger(tile_amax(&from, s, width, drop_negative), mine);
        }
#pragma omp critical
        largest = larger(mine, largest);
        free(s);
    }
    if (failed) return ng_fail(error, NG_NO_MEMORY, "data: no memory for %zu bytes", sizeof(scratch));
    /* Rounding is monotone, so the rounded maximum is the maximum of the rounded values. */
    *amax = count ? fabs(ng_decode(format, round_value(format, largest))) : 0;
    return NG_OK;
}
