/* cast/<in>-><out>/cpu/<rounding>-<sat|nosat>: one rounding of every element. */
#include "kernels/catalogue.h"
#include "kernels/common/rows.h"
#include "kernels/cpu/cpu.h"

enum { CHUNK = 2048 }; /* elements between load and store; even, and small enough for the first-level cache */

/* ---- one chunk ----------------------------------------------------------------------------------------------------
 * Compiled for each input format and rounding, so that the inner loop has no choices left, and for each instruction set. */
typedef void cast_chunk(const ng_caster *caster, const void *in, int64_t from, int64_t n, uint32_t *codes);
typedef void store_chunk(ng_format_id to, const uint32_t *codes, int64_t n, void *out, int64_t from);

NG_ALWAYS_INLINE void cast_one_chunk(ng_format_id from_format, ng_rounding rounding, const ng_caster *caster, const void *in,
                                     int64_t from, int64_t n, uint32_t *codes) {
    uint32_t bits[CHUNK];
    const ng_caster c = *caster;
    ng_cpu_load_bits(from_format, in, from, n, bits);
    for (int64_t i = 0; i < n; i++)
        codes[i] = ng_cast_code(&c, rounding, bits[i]);
}

static void store(ng_format_id to, const uint32_t *codes, int64_t n, void *out, int64_t from) {
    ng_cpu_store(to, codes, n, out, from);
}
NG_AVX2 static void store_avx2(ng_format_id to, const uint32_t *codes, int64_t n, void *out, int64_t from) {
    ng_cpu_store(to, codes, n, out, from);
}
static store_chunk *const stores[2] = {store, store_avx2};

#define CHUNK_FUNCTION(name, target, in_format, rounding)                                                              \
    target static void name(const ng_caster *c, const void *in, int64_t from, int64_t n, uint32_t *codes) {            \
        cast_one_chunk(in_format, rounding, c, in, from, n, codes);                                                    \
    }
#define CHUNK_FUNCTIONS(in, in_format)                                \
    CHUNK_FUNCTION(in##_rne, , in_format, NG_RN_EVEN)                 \
    CHUNK_FUNCTION(in##_rna, , in_format, NG_RN_AWAY)                 \
    CHUNK_FUNCTION(in##_rz, , in_format, NG_R_ZERO)                   \
    CHUNK_FUNCTION(in##_ru, , in_format, NG_R_UP)                     \
    CHUNK_FUNCTION(in##_ra, , in_format, NG_R_AWAY)                   \
    CHUNK_FUNCTION(in##_rne_avx2, NG_AVX2, in_format, NG_RN_EVEN)     \
    CHUNK_FUNCTION(in##_rna_avx2, NG_AVX2, in_format, NG_RN_AWAY)     \
    CHUNK_FUNCTION(in##_rz_avx2, NG_AVX2, in_format, NG_R_ZERO)       \
    CHUNK_FUNCTION(in##_ru_avx2, NG_AVX2, in_format, NG_R_UP)         \
    CHUNK_FUNCTION(in##_ra_avx2, NG_AVX2, in_format, NG_R_AWAY)
CHUNK_FUNCTIONS(fp64, NG_FP64)
CHUNK_FUNCTIONS(fp32, NG_FP32)
CHUNK_FUNCTIONS(bf16, NG_BF16)
CHUNK_FUNCTIONS(fp16, NG_FP16)

#define CHUNK_ROW(in, suffix)                                                                                        \
    {[NG_RN_EVEN] = in##_rne##suffix, [NG_RN_AWAY] = in##_rna##suffix, [NG_R_ZERO] = in##_rz##suffix,                \
     [NG_R_UP] = in##_ru##suffix, [NG_R_AWAY] = in##_ra##suffix}
static cast_chunk *const chunks[2][NG_FORMATS][NG_ROUNDINGS] = {
    {[NG_FP64] = CHUNK_ROW(fp64, ), [NG_FP32] = CHUNK_ROW(fp32, ), [NG_BF16] = CHUNK_ROW(bf16, ), [NG_FP16] = CHUNK_ROW(fp16, )},
    {[NG_FP64] = CHUNK_ROW(fp64, _avx2), [NG_FP32] = CHUNK_ROW(fp32, _avx2), [NG_BF16] = CHUNK_ROW(bf16, _avx2),
     [NG_FP16] = CHUNK_ROW(fp16, _avx2)},
};

static void e8m0_chunk(const ng_kernel *kernel, const void *in, int64_t from, int64_t n, uint32_t *codes) {
    ng_cpu_load_bits(kernel->in, in, from, n, codes);
    for (int64_t i = 0; i < n; i++)
        codes[i] = ng_cast_e8m0(kernel->contract.cast.rounding, kernel->contract.cast.saturate, codes[i]);
}

static void stochastic_chunk(const ng_kernel *kernel, const ng_launch *launch, const ng_caster *caster, int64_t row,
                             int64_t from, int64_t n, uint32_t *codes) {
    uint32_t words[CHUNK];
    const ng_cast *cast = &kernel->contract.cast;
    const ng_tensor *in = &launch->tensors[NG_IN];
    ng_cpu_load_bits(kernel->in, ng_cpu_row(in, row), from, n, codes);
    ng_cpu_words(launch, row, from, n, (uint64_t)row * (uint64_t)in->columns + (uint64_t)from, words);
    for (int64_t i = 0; i < n; i++)
        codes[i] = ng_cast_code_stochastic(caster, cast->stochastic, cast->random_bits, codes[i], words[i]);
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
static ng_status launch_cast(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT];
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    const ng_rounding rounding = kernel->contract.cast.rounding;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status && rounding == NG_R_STOCHASTIC && launch->tensors[NG_RANDOM_WORDS].data)
        status = ng_cpu_check(launch, NG_RANDOM_WORDS, NG_FP32, rows, columns);
    if (status) return status;

    const ng_caster caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const bool avx2 = ng_cpu_avx2(launch->device);
    cast_chunk *const chunk = rounding == NG_R_STOCHASTIC ? NULL : chunks[avx2][kernel->in][rounding];
    const int64_t across = (columns + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, rows * columns)) schedule(static)
    for (int64_t task = 0; task < rows * across; task++) {
        int64_t row = task / across, from = task % across * CHUNK, n = ng_cpu_min(CHUNK, columns - from);
        uint32_t codes[CHUNK];
        if (kernel->out == NG_E8M0) e8m0_chunk(kernel, ng_cpu_row(in, row), from, n, codes);
        else if (chunk) chunk(&caster, ng_cpu_row(in, row), from, n, codes);
        else stochastic_chunk(kernel, launch, &caster, row, from, n, codes);
        stores[avx2](kernel->out, codes, n, ng_cpu_row(out, row), from);
    }
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define CAST(in_name, in_format, out_name, out_format, mode, how, form, r, sat, does, nan_rule, repeatable)             \
    {.name = "cast/" in_name "->" out_name "/cpu/" mode "-" sat, .op = NG_OP_CAST, .backend = NG_BACKEND_CPU,           \
     .in = in_format, .in_b = NG_NO_FORMAT, .out = out_format,                                                          \
     .contract = {.cast = {how, form, r, does, nan_rule}, .determinism = repeatable},                                   \
     .supports = ng_cpu_supports, .launch = launch_cast}

static const ng_kernel kernels[] = {NG_CAST_ROWS(CAST)};

const ng_kernel_list ng_cpu_casts = {kernels, sizeof kernels / sizeof *kernels};
