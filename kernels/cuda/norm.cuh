/* Rows of norms on the GPU. A group of L lanes (kernels/common/norm.h) has a row; lane l has its vectors of eight elements
 * l, l + L, ...: so the contract's chain k is position k mod 8 of lane k / 8. Up to 512 lanes a row waits in shared memory,
 * copied there asynchronously while the row before it is computed; every thread reads back only what it copied itself. */
#ifndef NG_KERNELS_CUDA_NORM_CUH
#define NG_KERNELS_CUDA_NORM_CUH

#include "kernels/common/norm.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { EACH = NG_NORM_VECTOR, HELD = NG_NORM_HELD, STAGES = 3 };

/* Eight elements as they lie in memory. */
template <ng_format_id F> struct Vector {
    uint4 raw[F == NG_FP32 ? 2 : 1];
};

struct Rows { /* a tensor whose rows are read or written by vectors */
    unsigned char *data;
    long long row_bytes;
    bool aligned; /* every row begins on 16 bytes */
};

inline Rows rows_of(const ng_tensor *t) {
    const Rows r = {static_cast<unsigned char *>(t->data), (long long)t->row_bytes, (uintptr_t)t->data % 16 == 0 && t->row_bytes % 16 == 0};
    return r;
}

struct Parameters {
    const void *gamma, *beta; /* beta NULL: absent */
    ng_format_id format;
    bool aligned, zero_centered;
    float absent; /* what stands for beta */
};

template <ng_format_id F> __device__ __forceinline__ uint32_t element_bytes() { return F == NG_FP32 ? 4 : 2; }

/* ---- loads --------------------------------------------------------------------------------------------------------*/
/* A vector that the row's end cuts, or that is not aligned; what is missing is 0. Not inlined, and by value: nothing of the
 * usual path has an address. */
template <ng_format_id F> __device__ __noinline__ Vector<F> load_cut(const unsigned char *row, int v, int columns) {
    uint32_t word[sizeof(Vector<F>) / 4];
    Vector<F> to;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Vector<F>) / 4); i++)
        word[i] = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (v * EACH + e >= columns) continue;
        if (F == NG_FP32) word[e] = reinterpret_cast<const uint32_t *>(row)[v * EACH + e];
        else word[e / 2] |= (uint32_t)reinterpret_cast<const uint16_t *>(row)[v * EACH + e] << 16 * (e % 2);
    }
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Vector<F>) / 16); i++)
        to.raw[i] = make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
    return to;
}

template <ng_format_id F> __device__ __forceinline__ void load(Vector<F> &to, const Rows &from, long long row, int v, int columns) {
    const unsigned char *at = from.data + row * from.row_bytes;
    if (!from.aligned || (v + 1) * EACH > columns) {
        to = load_cut<F>(at, v, columns);
        return;
    }
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Vector<F>) / 16); i++)
        to.raw[i] = reinterpret_cast<const uint4 *>(at)[v * (sizeof(Vector<F>) / 16) + i];
}

/* WHOLE, here and below: every vector is known to be whole and aligned, so that there is no other path to keep registers for. */
/* This lane's vectors of a row into its own places of shared memory: slot[i * threads], i counting 16 bytes. */
template <ng_format_id F, bool WHOLE = false> __device__ __forceinline__ void stage(uint4 *slot, int threads, const Rows &from, long long row, int lane, int lanes, int columns) {
    const unsigned char *at = from.data + row * from.row_bytes;
    enum { WORDS = sizeof(Vector<F>) / 16 };
#pragma unroll
    for (int u = 0; u < HELD; u++) {
        const int v = lane + u * lanes;
        if (v * EACH >= columns) return;
        if (WHOLE || (from.aligned && (v + 1) * EACH <= columns)) {
#pragma unroll
            for (int i = 0; i < WORDS; i++) {
                const uint32_t to = (uint32_t)__cvta_generic_to_shared(slot + (u * WORDS + i) * threads);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(at + (size_t)(v * WORDS + i) * 16) : "memory");
            }
        } else {
            const Vector<F> x = load_cut<F>(at, v, columns);
#pragma unroll
            for (int i = 0; i < WORDS; i++)
                slot[(u * WORDS + i) * threads] = x.raw[i];
        }
    }
}
__device__ __forceinline__ void stage_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void stage_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

template <ng_format_id F> __device__ __forceinline__ void staged(Vector<F> &to, const uint4 *slot, int threads, int u) {
    enum { WORDS = sizeof(Vector<F>) / 16 };
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        to.raw[i] = slot[(u * WORDS + i) * threads];
}

template <ng_format_id F> __device__ __forceinline__ void unpack(const Vector<F> &from, float (&x)[EACH]) {
    uint32_t word[sizeof(Vector<F>) / 4];
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Vector<F>) / 16); i++) {
        word[4 * i] = from.raw[i].x;
        word[4 * i + 1] = from.raw[i].y;
        word[4 * i + 2] = from.raw[i].z;
        word[4 * i + 3] = from.raw[i].w;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (F == NG_FP32) x[e] = ng_float(word[e]);
        else if (F == NG_BF16) x[e] = ng_float(e % 2 ? word[e / 2] & 0xFFFF0000u : word[e / 2] << 16);
        else { /* exact, subnormals too */
            const uint16_t half = (uint16_t)(word[e / 2] >> 16 * (e % 2));
            asm("cvt.f32.f16 %0, %1;" : "=f"(x[e]) : "h"(half));
        }
    }
}

struct Eight {
    float x[EACH];
};

__device__ __noinline__ Eight parameters_cut(const void *from, ng_format_id format, int v, int columns, float missing) {
    Eight w;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int j = v * EACH + e;
        if (j >= columns) w.x[e] = missing;
        else if (format == NG_FP32) w.x[e] = static_cast<const float *>(from)[j];
        else w.x[e] = ng_decode_float(format, static_cast<const uint16_t *>(from)[j]);
    }
    return w;
}

/* Eight parameters from element 8 v on; `missing` behind the row's end. They stay in the caches. */
template <bool WHOLE> __device__ __forceinline__ void parameters(const void *from, ng_format_id format, bool aligned, int v, int columns, float missing, float (&w)[EACH]) {
    if (!WHOLE && (!aligned || (v + 1) * EACH > columns)) {
        const Eight cut = parameters_cut(from, format, v, columns, missing);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            w[e] = cut.x[e];
    } else if (format == NG_FP32) {
        const float4 a = reinterpret_cast<const float4 *>(from)[2 * v], b = reinterpret_cast<const float4 *>(from)[2 * v + 1];
        w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
    } else if (format == NG_BF16) {
        const Vector<NG_BF16> x = {{reinterpret_cast<const uint4 *>(from)[v]}};
        unpack(x, w);
    } else {
        const Vector<NG_FP16> x = {{reinterpret_cast<const uint4 *>(from)[v]}};
        unpack(x, w);
    }
}

template <bool WHOLE = false> __device__ __forceinline__ void load_weights(const Parameters &p, int v, int columns, float (&w)[EACH]) {
    parameters<WHOLE>(p.gamma, p.format, p.aligned, v, columns, 0.0f, w);
    if (!p.zero_centered) return;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        w[e] = ng_add(1.0f, w[e]);
}

template <bool WHOLE = false> __device__ __forceinline__ void load_beta(const Parameters &p, int v, int columns, float (&b)[EACH]) {
    if (p.beta) {
        parameters<WHOLE>(p.beta, p.format, p.aligned, v, columns, p.absent, b);
        return;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        b[e] = p.absent;
}

/* ---- stores -------------------------------------------------------------------------------------------------------*/
/* Two results, to nearest even; NaN is 0x7FFF (PTX ISA, cvt), the contract's. */
template <ng_format_id F> __device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t both;
    if (F == NG_BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ uint32_t canonical(float y) { return y != y ? (uint32_t)NG_NAN_BITS : ng_bits(y); }

template <ng_format_id F> __device__ __forceinline__ void round_to(const float (&y)[EACH], Vector<F> &to) {
    if (F == NG_FP32) {
        to.raw[0] = make_uint4(canonical(y[0]), canonical(y[1]), canonical(y[2]), canonical(y[3]));
        to.raw[sizeof(Vector<F>) / 16 - 1] = make_uint4(canonical(y[4]), canonical(y[5]), canonical(y[6]), canonical(y[7]));
    } else {
        to.raw[0] = make_uint4(pack<F>(y[0], y[1]), pack<F>(y[2], y[3]), pack<F>(y[4], y[5]), pack<F>(y[6], y[7]));
    }
}

template <ng_format_id F> __device__ __noinline__ void store_cut(Vector<F> x, unsigned char *row, int v, int columns) {
    const uint4 first = x.raw[0], last = x.raw[sizeof(Vector<F>) / 16 - 1];
    const uint32_t word[8] = {first.x, first.y, first.z, first.w, last.x, last.y, last.z, last.w};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (v * EACH + e >= columns) continue;
        if (F == NG_FP32) reinterpret_cast<uint32_t *>(row)[v * EACH + e] = word[e];
        else reinterpret_cast<uint16_t *>(row)[v * EACH + e] = (uint16_t)(word[e / 2] >> 16 * (e % 2));
    }
}

template <ng_format_id F, bool WHOLE = false> __device__ __forceinline__ void store(const Vector<F> &x, const Rows &to, long long row, int v, int columns) {
    unsigned char *at = to.data + row * to.row_bytes;
    if (!WHOLE && (!to.aligned || (v + 1) * EACH > columns)) {
        if (v * EACH < columns) store_cut(x, at, v, columns);
        return;
    }
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Vector<F>) / 16); i++)
        __stcs(reinterpret_cast<uint4 *>(at) + v * (sizeof(Vector<F>) / 16) + i, x.raw[i]);
}

/* ---- sums of a row ------------------------------------------------------------------------------------------------*/
struct Group {
    int lane, lanes, number; /* number: of the group in its CTA */
    float *slots;            /* [32] for each sum that is under way: shared memory of the group */
};

/* At most four groups have several warps (L = 64); constant numbers, so that only so many barriers are taken. */
__device__ __forceinline__ void group_sync(const Group &g) {
    switch (g.number) {
    case 0: asm volatile("bar.sync 1, %0;" ::"r"(g.lanes) : "memory"); break;
    case 1: asm volatile("bar.sync 2, %0;" ::"r"(g.lanes) : "memory"); break;
    case 2: asm volatile("bar.sync 3, %0;" ::"r"(g.lanes) : "memory"); break;
    default: asm volatile("bar.sync 4, %0;" ::"r"(g.lanes) : "memory");
    }
}

__device__ __forceinline__ float halve_eight(const float (&p)[EACH]) {
    return ng_add(ng_add(ng_add(p[0], p[4]), ng_add(p[2], p[6])), ng_add(ng_add(p[1], p[5]), ng_add(p[3], p[7])));
}

/* Adding is commutative, so both lanes of an exchange get the bits of the contract's halving. */
__device__ __forceinline__ float halve_warp(float s) {
#pragma unroll
    for (int h = 16; h; h /= 2)
        s = ng_add(s, __shfl_xor_sync(0xFFFFFFFFu, s, h));
    return s;
}

__device__ __forceinline__ float halve_warps(int warps, const float *slots) {
    float s = slots[threadIdx.x & (warps - 1)];
    for (int h = warps / 2; h; h /= 2)
        s = ng_add(s, __shfl_xor_sync(0xFFFFFFFFu, s, h));
    return s;
}

/* The sum in every lane. `which` alternates, so that no slot is written before all have read it. */
__device__ __forceinline__ float reduce(const Group &g, const float (&p)[EACH], int which) {
    float s = halve_warp(halve_eight(p));
    const int warps = g.lanes / 32;
    if (warps == 1) return s;
    float *slots = g.slots + 32 * which;
    if (threadIdx.x % 32 == 0) slots[g.lane / 32] = s;
    group_sync(g);
    return halve_warps(warps, slots);
}

__device__ __forceinline__ void reduce_two(const Group &g, const float (&p)[EACH], const float (&q)[EACH], int which, float &a, float &b) {
    a = halve_warp(halve_eight(p));
    b = halve_warp(halve_eight(q));
    const int warps = g.lanes / 32;
    if (warps == 1) return;
    float *slots = g.slots + 64 * which;
    if (threadIdx.x % 32 == 0) slots[g.lane / 32] = a, slots[32 + g.lane / 32] = b;
    group_sync(g);
    a = halve_warps(warps, slots);
    b = halve_warps(warps, slots + 32);
}

/* ---- launches -----------------------------------------------------------------------------------------------------*/
/* Bytes of shared memory that a CTA may have. */
inline size_t most_shared() {
    int device = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return most > 4096 ? (size_t)most - 4096 : 0; /* less what kernels declare themselves */
}

/* CTAs of this kernel that the device runs at once, at least one; where none fits, the launch says so. Without the attribute, 48 KiB
 * are the limit for what the kernel declares itself and this together. */
template <typename K> int resident(K *kernel, int threads, size_t shared) {
    int device = 0, processors = 0, each = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (shared) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared) != cudaSuccess || each < 1) each = 1;
    return processors * each;
}

} // namespace

#endif
