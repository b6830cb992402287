/* Lists of tensors on the GPU: what a launch of an optimizer works on travels in the kernel's parameters, so that it needs no
 * memory, no copy, and can be captured in a graph. A span is a stretch of elements that lie one after the other in every role; a
 * block takes one chunk of one span. Thousands of tensors are a few launches. */
#ifndef NG_KERNELS_CUDA_OPTIMIZER_CUH
#define NG_KERNELS_CUDA_OPTIMIZER_CUH

#include "kernels/common/optimizer.h"
#include "kernels/cuda/device.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

enum { THREADS = 256, EACH = 4, ROUND = THREADS * EACH, CHUNK = 8192, MOST_SPANS = 400 };
static_assert((int)CHUNK == (int)NG_NORM2_CHUNK && (int)ROUND == (int)NG_NORM2_CHAINS, "a thread has four chains of a chunk");

struct Span {
    unsigned char *p, *p2, *g, *m, *v;
    float *m_scales, *v_scales;
    long long count;
};

struct Spans {
    unsigned first[MOST_SPANS + 1]; /* number of each span's first chunk; behind the last, of all */
    int count;
    Span span[MOST_SPANS];
};

/* The span that a block's chunk lies in. */
__device__ __forceinline__ int span_of(const Spans &spans, unsigned chunk) {
    int low = 0, high = spans.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (spans.first[middle] <= chunk) low = middle;
        else high = middle;
    }
    return low;
}

/* ---- four elements ------------------------------------------------------------------------------------------------*/
template <ng_format_id F> struct Size { static constexpr int bytes = F == NG_FP32 ? 4 : F == NG_E4M3 || F == NG_E5M2 ? 1 : 2; };

template <ng_format_id F> __device__ __forceinline__ float decode(uint32_t code) {
    return F == NG_FP32 ? ng_float(code) : F == NG_BF16 ? ng_decode_bf16(code) : F == NG_FP16 ? __half2float(__ushort_as_half((unsigned short)code))
           : F == NG_E4M3 ? ng_decode_e4m3(code) : ng_decode_e5m2(code);
}

/* Codes, as they lie in memory: a vector of them where it is whole and aligned. */
template <ng_format_id F> __device__ __forceinline__ void load_codes(const unsigned char *from, long long at, int n, bool vector, uint32_t (&code)[EACH]) {
    if (vector) {
        if (F == NG_FP32) {
            const uint4 w = __ldcs(reinterpret_cast<const uint4 *>(from + at * 4));
            code[0] = w.x, code[1] = w.y, code[2] = w.z, code[3] = w.w;
        } else if (Size<F>::bytes == 2) {
            const uint2 w = __ldcs(reinterpret_cast<const uint2 *>(from + at * 2));
            code[0] = w.x & 0xFFFFu, code[1] = w.x >> 16, code[2] = w.y & 0xFFFFu, code[3] = w.y >> 16;
        } else {
            const uint32_t w = __ldcs(reinterpret_cast<const uint32_t *>(from + at));
            code[0] = w & 0xFFu, code[1] = w >> 8 & 0xFFu, code[2] = w >> 16 & 0xFFu, code[3] = w >> 24;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        code[i] = 0;
        if (i >= n) continue;
        if (F == NG_FP32) code[i] = reinterpret_cast<const uint32_t *>(from)[at + i];
        else if (Size<F>::bytes == 2) code[i] = reinterpret_cast<const uint16_t *>(from)[at + i];
        else code[i] = from[at + i];
    }
}

template <ng_format_id F> __device__ __forceinline__ void store_codes(unsigned char *to, long long at, int n, bool vector, const uint32_t (&code)[EACH]) {
    if (vector) {
        if (F == NG_FP32) __stcs(reinterpret_cast<uint4 *>(to + at * 4), make_uint4(code[0], code[1], code[2], code[3]));
        else if (Size<F>::bytes == 2) __stcs(reinterpret_cast<uint2 *>(to + at * 2), make_uint2(code[0] | code[1] << 16, code[2] | code[3] << 16));
        else __stcs(reinterpret_cast<uint32_t *>(to + at), code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (i >= n) continue;
        if (F == NG_FP32) reinterpret_cast<uint32_t *>(to)[at + i] = code[i];
        else if (Size<F>::bytes == 2) reinterpret_cast<uint16_t *>(to)[at + i] = (uint16_t)code[i];
        else to[at + i] = (uint8_t)code[i];
    }
}

template <ng_format_id F> __device__ __forceinline__ void load_values(const unsigned char *from, long long at, int n, bool vector, float (&x)[EACH]) {
    uint32_t code[EACH];
    load_codes<F>(from, at, n, vector, code);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        x[i] = decode<F>(code[i]);
}

/* To nearest even; NaN canonical, as these conversions give it. */
template <ng_format_id F> __device__ __forceinline__ uint32_t encode(float x) {
    if (F == NG_FP32) return ng_norm_code(nullptr, NG_FP32, x);
    return F == NG_BF16 ? (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(x)) : (uint32_t)__half_as_ushort(__float2half_rn(x));
}
template <ng_format_id F> __device__ __forceinline__ void store_values(unsigned char *to, long long at, int n, bool vector, const float (&x)[EACH]) {
    uint32_t code[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        code[i] = encode<F>(x[i]);
    store_codes<F>(to, at, n, vector, code);
}

template <ng_format_id F> __device__ __forceinline__ bool is_aligned(const unsigned char *p) { return (uintptr_t)p % (Size<F>::bytes * EACH) == 0; }

/* ---- cutting a launch into spans, on the host -----------------------------------------------------------------------*/
struct Cut {
    const ng_launch *launch;
    ng_role extents;       /* the role whose extents count */
    long long whole;       /* rows that follow each other make one span if their width is a multiple of this; 0: never */
    ng_status (*start)(void *context, const Spans &spans);
    void *context;
};

inline const ng_tensor *listed(const ng_launch *launch, ng_role role, long long i) {
    return launch->list_count ? (launch->lists[role] ? &launch->lists[role][i] : nullptr) : &launch->tensors[role];
}

/* Whether a role's rows follow each other. */
inline bool is_dense(const ng_tensor *t) { return !t || !t->data || t->rows == 1 || t->row_bytes == ng_cuda_row_bytes(t->format, t->columns); }

inline unsigned char *row_at(const ng_launch *launch, ng_role role, long long tensor, long long row) {
    const ng_tensor *t = listed(launch, role, tensor);
    return t && t->data ? static_cast<unsigned char *>(t->data) + row * t->row_bytes : nullptr;
}

inline Span make_span(const ng_launch *launch, long long tensor, long long row, long long count) {
    const Span s = {row_at(launch, NG_PARAMETER, tensor, row), row_at(launch, NG_PARAMETER_2, tensor, row), row_at(launch, NG_GRADIENT, tensor, row),
                    row_at(launch, NG_MOMENT_1, tensor, row), row_at(launch, NG_MOMENT_2, tensor, row),
                    reinterpret_cast<float *>(row_at(launch, NG_MOMENT_1_SCALES, tensor, row)),
                    reinterpret_cast<float *>(row_at(launch, NG_MOMENT_2_SCALES, tensor, row)), count};
    return s;
}

inline bool is_one_span(const Cut &cut, long long tensor) {
    static const ng_role roles[] = {NG_PARAMETER, NG_PARAMETER_2, NG_GRADIENT, NG_MOMENT_1, NG_MOMENT_2, NG_MOMENT_1_SCALES, NG_MOMENT_2_SCALES};
    const ng_tensor *t = listed(cut.launch, cut.extents, tensor);
    if (t->rows == 1) return true;
    if (!cut.whole || t->columns % cut.whole) return false;
    for (ng_role role : roles)
        if (!is_dense(listed(cut.launch, role, tensor))) return false;
    return true;
}

/* Calls start for every few hundred spans, in order. */
inline ng_status for_spans(const Cut &cut, Spans *spans) {
    const long long tensors = cut.launch->list_count ? cut.launch->list_count : 1;
    ng_status status = NG_OK;
    unsigned long long chunks = 0;
    spans->count = 0;
    for (long long i = 0; i < tensors && !status; i++) {
        const ng_tensor *t = listed(cut.launch, cut.extents, i);
        const bool one = is_one_span(cut, i);
        for (long long row = 0; row < (one ? 1 : t->rows) && !status; row++) {
            const long long count = one ? t->rows * t->columns : t->columns;
            if (!count) continue;
            spans->span[spans->count] = make_span(cut.launch, i, row, count);
            spans->first[spans->count++] = (unsigned)chunks;
            chunks += (unsigned long long)((count + CHUNK - 1) / CHUNK);
            spans->first[spans->count] = (unsigned)chunks;
            if (chunks > 0x7FFFFFFFull) return ng_cuda_fail(cut.launch, NG_UNSUPPORTED, "more elements than one grid can have");
            if (spans->count < MOST_SPANS && chunks < 0x40000000ull) continue;
            status = cut.start(cut.context, *spans);
            spans->count = 0;
            chunks = 0;
        }
    }
    return !status && spans->count ? cut.start(cut.context, *spans) : status;
}

/* Every tensor of a role, in device memory, of the extents of `like`'s. */
inline ng_status check_listed(const ng_launch *launch, ng_role role, ng_format_id format, ng_role like, long long block) {
    if (!launch->list_count) {
        const ng_tensor *t = &launch->tensors[like];
        return ng_cuda_check(launch, role, format, t->rows, (t->columns + block - 1) / block);
    }
    if (!launch->lists[role] || !launch->lists[like]) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "list of role %d is absent", (int)role);
    for (long long i = 0; i < launch->list_count; i++) {
        const ng_tensor *t = &launch->lists[role][i], *l = &launch->lists[like][i];
        if (!t->data || t->space != NG_GPU || t->format != format || t->rows != l->rows || t->columns != (l->columns + block - 1) / block ||
            t->row_bytes < ng_cuda_row_bytes(format, t->columns))
            return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "tensor %lld of role %d is absent, not in device memory, or of another format or shape", i, (int)role);
    }
    return NG_OK;
}
inline ng_status check_number(const ng_launch *launch, ng_role role, bool needed) {
    return needed || launch->tensors[role].data ? ng_cuda_check(launch, role, NG_FP32, 1, 1) : NG_OK;
}
inline float *number_at(const ng_launch *launch, ng_role role) { return static_cast<float *>(launch->tensors[role].data); }

} // namespace

#endif
