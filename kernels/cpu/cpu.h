/* What the CPU kernels share: dispatch, checks of a launch, and rows of numbers in and out of memory. */
#ifndef NG_KERNELS_CPU_H
#define NG_KERNELS_CPU_H

#include "kernels/common/cast.h"
#include "kernels/common/decode.h"
#include "kernels/kernel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__x86_64__)
#define NG_HAVE_AVX2 1
#define NG_AVX2 __attribute__((target("avx2,fma")))
#else
#define NG_HAVE_AVX2 0
#define NG_AVX2
#endif

#define NG_ALWAYS_INLINE static inline __attribute__((always_inline, unused))

/* Loads and stores of elements at any address, whatever type the memory was written with. */
typedef uint16_t ng_u16 __attribute__((may_alias, aligned(1)));
typedef uint32_t ng_u32 __attribute__((may_alias, aligned(1)));
typedef float ng_f32 __attribute__((may_alias, aligned(1)));
typedef double ng_f64 __attribute__((may_alias, aligned(1)));

/* Whether AVX2 and FMA may be used for this launch. Both paths give the same bits. */
NG_ALWAYS_INLINE bool ng_cpu_avx2(const ng_device *device) {
#if NG_HAVE_AVX2
    return !(device && device->portable) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    (void)device;
    return false;
#endif
}

NG_ALWAYS_INLINE int ng_cpu_threads(const ng_device *device) { return device && device->threads > 0 ? device->threads : 1; }

/* Threads for that much work (elements, or multiply-adds / 64): one for little, which a team would only wait on. */
NG_ALWAYS_INLINE int ng_cpu_team(const ng_device *device, int64_t work) {
    return work < 16384 ? 1 : ng_cpu_threads(device);
}

/* Number of the calling thread in its team. */
NG_ALWAYS_INLINE int ng_cpu_thread(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

NG_ALWAYS_INLINE int64_t ng_cpu_min(int64_t a, int64_t b) { return a < b ? a : b; }

/* Extent of a block along an axis (0: the whole of it), and the number of blocks. */
NG_ALWAYS_INLINE int64_t ng_cpu_block(uint32_t block, int64_t extent) { return block ? (int64_t)block : extent > 0 ? extent : 1; }
NG_ALWAYS_INLINE int64_t ng_cpu_blocks(uint32_t block, int64_t extent) {
    int64_t size = ng_cpu_block(block, extent);
    return extent / size + (extent % size != 0);
}

NG_ALWAYS_INLINE uint8_t *ng_cpu_row(const ng_tensor *t, int64_t row) { return (uint8_t *)t->data + row * t->row_bytes; }

/* Writes launch->message and returns status. */
ng_status ng_cpu_fail(const ng_launch *launch, ng_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Bytes of a row of `columns` elements. */
int64_t ng_cpu_row_bytes(ng_format_id format, int64_t columns);

/* NG_OK if the role is there, in host memory, of that format and extents, with rows far enough apart. */
ng_status ng_cpu_check(const ng_launch *launch, ng_role role, ng_format_id format, int64_t rows, int64_t columns);

/* NULL: any problem of the kernel's operation with positive extents. */
const char *ng_cpu_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* The elements [from, from + n) of a row as binary32 values (fp64 excluded). */
typedef struct ng_cpu_decoder {
    ng_format_id format;
    float value[256]; /* of each code, formats of at most 8 bits */
} ng_cpu_decoder;
void ng_cpu_decoder_init(ng_cpu_decoder *decoder, ng_format_id format);
void ng_cpu_decode(const ng_cpu_decoder *decoder, const void *row, int64_t from, int64_t n, float *values);

/* Right-aligned codes into a row of `to`, columns [from, from + n); from is even for e2m1. An odd last e2m1 column leaves
 * the high nibble 0. Inlined so that the caller's instruction set serves it. */
NG_ALWAYS_INLINE void ng_cpu_store(ng_format_id to, const uint32_t *codes, int64_t n, void *row, int64_t from) {
    switch (to) {
    case NG_FP32: memcpy((ng_u32 *)row + from, codes, (size_t)n * 4); break;
    case NG_TF32:
        for (int64_t i = 0; i < n; i++)
            ((ng_u32 *)row)[from + i] = codes[i] << 13;
        break;
    case NG_BF16:
    case NG_FP16:
        for (int64_t i = 0; i < n; i++)
            ((ng_u16 *)row)[from + i] = (uint16_t)codes[i];
        break;
    case NG_E2M1: {
        uint8_t *p = (uint8_t *)row + from / 2;
        for (int64_t i = 0; i < n / 2; i++)
            p[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
        if (n & 1) p[n / 2] = (uint8_t)codes[n - 1];
        break;
    }
    default:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)row)[from + i] = (uint8_t)codes[i];
    }
}

/* The binary32 bits of n elements of one of the wide input formats; `in` a constant where speed matters. */
NG_ALWAYS_INLINE void ng_cpu_load_bits(ng_format_id in, const void *row, int64_t from, int64_t n, uint32_t *bits) {
    switch (in) {
    case NG_BF16:
        for (int64_t i = 0; i < n; i++)
            bits[i] = (uint32_t)((const ng_u16 *)row)[from + i] << 16;
        break;
    case NG_FP16:
        for (int64_t i = 0; i < n; i++)
            bits[i] = ng_bits(ng_decode_fp16(((const ng_u16 *)row)[from + i]));
        break;
    case NG_FP64:
        for (int64_t i = 0; i < n; i++)
            bits[i] = ng_bits(ng_round_to_odd(((const ng_f64 *)row)[from + i]));
        break;
    default: memcpy(bits, (const ng_u32 *)row + from, (size_t)n * 4);
    }
}

/* The random words of elements [from, from + n) of a row: from NG_RANDOM_WORDS, or else drawn for the element indices
 * first, first + 1, ... (common/philox.h). */
void ng_cpu_words(const ng_launch *launch, int64_t row, int64_t from, int64_t n, uint64_t first, uint32_t *words);

/* The launch function of quantizers without a transform (quantize.c). */
ng_status ng_cpu_quantize(const ng_kernel *kernel, const ng_launch *launch);

#endif
