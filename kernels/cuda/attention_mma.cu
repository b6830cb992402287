/* Attention on bf16 tensor cores (contract_layer.h, NG_ATTENTION_MMA), mma.sync m16n8k16 with fp32 accumulators. Blocks of 4 warps have 64 queries (or
 * keys), 16 a warp. Maxima come first, then weights, so that nothing is rescaled; backward recomputes the scores for each of l, r and dq, and
 * again, by keys, for dk and dv. A score's accumulator is an operand of the next product as it lies (PTX ISA, fragments of m16n8k16). */
#include "kernels/common/norm.h"
#include "kernels/common/elementary.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };

struct Operands {
    ng_matrix in, gradient, out;
    float *statistics; /* backward: [sequences][heads][sequence][3]: m, l, r */
    long long sequence, heads, width;
    int d;
    bool causal, aligned;
    float scale;
    ng_caster caster;
};

/* ---- fragments ----------------------------------------------------------------------------------------------------*/
__device__ __forceinline__ uint32_t address(const uint16_t *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void load4(const uint16_t *p, uint32_t (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address(p))
                 : "memory");
}
__device__ __forceinline__ void load4_turned(const uint16_t *p, uint32_t (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address(p))
                 : "memory");
}
__device__ __forceinline__ void step(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ uint32_t two_bf16(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* c = the warp's 16 rows of x [.][PITCH] times N rows of y [N][PITCH], over D. */
template <int D, int N> __device__ __forceinline__ void products(const uint16_t *x, const uint16_t *y, float (&c)[N / 8][4]) {
    constexpr int PITCH = D + 8;
    const int lane = threadIdx.x % 32;
    const uint16_t *a_at = x + (lane / 8 % 2 * 8 + lane % 8) * PITCH + lane / 16 * 8;
    const uint16_t *b_at = y + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t a[4];
        load4(a_at + k, a);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            load4(b_at + n * 16 * PITCH + k, b);
            step(c[2 * n], a, b[0], b[1]);
            step(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* sum [16 rows][D] += weight [16 rows][N] in bf16 times y [N][PITCH]. */
template <int D, int N> __device__ __forceinline__ void accumulate(const float (&weight)[N / 8][4], const uint16_t *y, float (&sum)[D / 8][4]) {
    constexpr int PITCH = D + 8;
    const int lane = threadIdx.x % 32;
    const uint16_t *b_at = y + (lane / 8 % 2 * 8 + lane % 8) * PITCH + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const uint32_t a[4] = {two_bf16(weight[2 * k][0], weight[2 * k][1]), two_bf16(weight[2 * k][2], weight[2 * k][3]),
                               two_bf16(weight[2 * k + 1][0], weight[2 * k + 1][1]), two_bf16(weight[2 * k + 1][2], weight[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load4_turned(b_at + k * 16 * PITCH + n * 16, b);
            step(sum[2 * n], a, b[0], b[1]);
            step(sum[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* ---- tiles --------------------------------------------------------------------------------------------------------*/
/* `rows` tokens of a head as [rows][D + 8]; zeros beyond the sequence and the head. */
template <int D>
__device__ __forceinline__ void load_tile(const Operands &o, const ng_matrix &from, long long row0, long long column, int rows, int tokens,
                                          uint16_t *to) {
    constexpr int PITCH = D + 8;
    for (int at = threadIdx.x; at < rows * (D / 8); at += THREADS) {
        const int token = at / (D / 8), c = at % (D / 8) * 8;
        uint16_t *place = to + token * PITCH + c;
        const uint16_t *source = ng_row<const uint16_t>(from, row0 + token) + column + c;
        if (o.aligned && token < tokens && c + 8 <= o.d) {
            *reinterpret_cast<uint4 *>(place) = *reinterpret_cast<const uint4 *>(source);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            place[i] = token < tokens && c + i < o.d ? source[i] : (uint16_t)0;
    }
}

struct Place {
    long long row0, column, first;
    int tokens;
};

__device__ __forceinline__ Place place_of(const Operands &o, bool longest_last) {
    const long long tiles = (o.sequence + ROWS - 1) / ROWS, sequences = gridDim.x / tiles / o.heads, each = sequences * o.heads;
    const long long order = blockIdx.x / each, number = blockIdx.x % each, tile = longest_last ? tiles - 1 - order : order;
    Place p;
    p.row0 = number / o.heads * o.sequence;
    p.column = number % o.heads * o.d;
    p.first = tile * ROWS;
    p.tokens = (int)min((long long)ROWS, o.sequence - p.first);
    return p;
}

__device__ __forceinline__ float *kept_of(const Operands &o, const Place &p, long long token) {
    return o.statistics + ((p.row0 / o.sequence * o.heads + p.column / o.d) * o.sequence + token) * 3;
}

__device__ __forceinline__ float larger(float most, float x) { return x > most || x != x ? x : most; }

/* A thread's accumulators are of the rows lane / 4 and 8 more (i / 2), the columns 8 n + lane % 4 * 2 + i % 2. */
__device__ __forceinline__ int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8; }
__device__ __forceinline__ int column_of(int n, int i) { return n * 8 + threadIdx.x % 4 * 2 + i % 2; }

__device__ __forceinline__ float of_row(float x) { /* added over the four threads that share a row */
    x = ng_add(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return ng_add(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

template <int D> __device__ __forceinline__ void store_rows(const Operands &o, const Place &p, long long column, const float (&x)[D / 8][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (row_of(i) < p.tokens && column_of(n, i) < o.d)
                ng_row<uint16_t>(o.out, p.row0 + p.first + row_of(i))[column + column_of(n, i)] =
                    (uint16_t)ng_cast_code(&o.caster, NG_RN_EVEN, ng_bits(x[n][i]));
}

/* Keys that a tile of queries sees; that one of the two rows of a thread sees. */
__device__ __forceinline__ long long keys_of(const Operands &o, const Place &p) { return o.causal ? p.first + p.tokens : o.sequence; }
__device__ __forceinline__ bool sees(const Operands &o, const Place &p, long long key0, int n, int i) {
    const long long key = key0 + column_of(n, i);
    return key < o.sequence && (!o.causal || key <= p.first + row_of(i));
}

enum { KEYS = 64 };

/* Scores of the block's queries and 64 keys. */
template <int D> __device__ __forceinline__ void scores(const Operands &o, const uint16_t *q, const uint16_t *k, float (&s)[KEYS / 8][4]) {
    products<D, KEYS>(q + threadIdx.x / 32 * 16 * (D + 8), k, s);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = ng_mul(s[n][i], o.scale);
}

template <int D> __device__ __forceinline__ void row_maxima(const Operands &o, const Place &p, const uint16_t *q, uint16_t *k, float (&most)[2]) {
    most[0] = most[1] = -INFINITY;
    for (long long key0 = 0; key0 < keys_of(o, p); key0 += KEYS) {
        float s[KEYS / 8][4];
        __syncthreads();
        load_tile<D>(o, o.in, p.row0 + key0, o.width + p.column, KEYS, (int)min((long long)KEYS, o.sequence - key0), k);
        __syncthreads();
        scores<D>(o, q, k, s);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (sees(o, p, key0, n, i)) most[i / 2] = larger(most[i / 2], s[n][i]);
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
        most[row] = larger(most[row], __shfl_xor_sync(0xFFFFFFFFu, most[row], 1));
        most[row] = larger(most[row], __shfl_xor_sync(0xFFFFFFFFu, most[row], 2));
    }
}

__device__ __forceinline__ void weights(const Operands &o, const Place &p, long long key0, const float (&most)[2], float (&s)[KEYS / 8][4]) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = sees(o, p, key0, n, i) ? ng_exp(ng_sub(s[n][i], most[i / 2])) : 0.0f;
}

template <int COUNT> __device__ __forceinline__ void zero(float (&x)[COUNT][4]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
}

/* ---- forward ------------------------------------------------------------------------------------------------------*/
template <int D> __global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ Operands o) {
    extern __shared__ __align__(16) uint16_t shared[];
    uint16_t *q = shared, *k = q + ROWS * (D + 8), *v = k + KEYS * (D + 8);
    const Place p = place_of(o, true);
    float most[2], l[2] = {0, 0}, out[D / 8][4];
    load_tile<D>(o, o.in, p.row0 + p.first, p.column, ROWS, p.tokens, q);
    row_maxima<D>(o, p, q, k, most);
    zero(out);
    for (long long key0 = 0; key0 < keys_of(o, p); key0 += KEYS) {
        const int keys = (int)min((long long)KEYS, o.sequence - key0);
        float s[KEYS / 8][4];
        __syncthreads();
        load_tile<D>(o, o.in, p.row0 + key0, o.width + p.column, KEYS, keys, k);
        load_tile<D>(o, o.in, p.row0 + key0, 2 * o.width + p.column, KEYS, keys, v);
        __syncthreads();
        scores<D>(o, q, k, s);
        weights(o, p, key0, most, s);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                l[i / 2] = ng_add(l[i / 2], s[n][i]);
        accumulate<D, KEYS>(s, v, out);
    }
    l[0] = of_row(l[0]);
    l[1] = of_row(l[1]);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[n][i] = ng_div(out[n][i], l[i / 2]);
    store_rows<D>(o, p, p.column, out);
}

/* ---- backward: rows ------------------------------------------------------------------------------------------------*/
template <int D> __global__ void __launch_bounds__(THREADS) backward_rows(const __grid_constant__ Operands o) {
    extern __shared__ __align__(16) uint16_t shared[];
    uint16_t *q = shared, *g = q + ROWS * (D + 8), *k = g + ROWS * (D + 8), *v = k + KEYS * (D + 8);
    const Place p = place_of(o, true);
    float most[2], l[2] = {0, 0}, r[2] = {0, 0}, dq[D / 8][4];
    load_tile<D>(o, o.in, p.row0 + p.first, p.column, ROWS, p.tokens, q);
    load_tile<D>(o, o.gradient, p.row0 + p.first, p.column, ROWS, p.tokens, g);
    row_maxima<D>(o, p, q, k, most);
    zero(dq);
    for (int pass = 0; pass < 3; pass++) { /* l, r, dq */
        for (long long key0 = 0; key0 < keys_of(o, p); key0 += KEYS) {
            const int keys = (int)min((long long)KEYS, o.sequence - key0);
            float s[KEYS / 8][4], a[KEYS / 8][4];
            __syncthreads();
            load_tile<D>(o, o.in, p.row0 + key0, o.width + p.column, KEYS, keys, k);
            if (pass) load_tile<D>(o, o.in, p.row0 + key0, 2 * o.width + p.column, KEYS, keys, v);
            __syncthreads();
            scores<D>(o, q, k, s);
            weights(o, p, key0, most, s);
            if (pass) products<D, KEYS>(g + threadIdx.x / 32 * 16 * (D + 8), v, a);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (pass == 0) {
                        l[i / 2] = ng_add(l[i / 2], s[n][i]);
                        continue;
                    }
                    s[n][i] = ng_div(s[n][i], l[i / 2]);
                    if (pass == 1) r[i / 2] = sees(o, p, key0, n, i) ? ng_norm_fma(s[n][i], a[n][i], r[i / 2]) : r[i / 2];
                    else s[n][i] = sees(o, p, key0, n, i) ? ng_mul(ng_mul(s[n][i], ng_sub(a[n][i], r[i / 2])), o.scale) : 0.0f;
                }
            if (pass == 2) accumulate<D, KEYS>(s, k, dq);
        }
#pragma unroll
        for (int row = 0; row < 2; row++) {
            if (pass == 0) l[row] = of_row(l[row]);
            if (pass == 1) r[row] = of_row(r[row]);
        }
    }
    store_rows<D>(o, p, p.column, dq);
#pragma unroll
    for (int row = 0; row < 2; row++)
        if (threadIdx.x % 4 == 0 && row_of(2 * row) < p.tokens) {
            float *kept = kept_of(o, p, p.first + row_of(2 * row));
            kept[0] = most[row];
            kept[1] = l[row];
            kept[2] = r[row];
        }
}

/* ---- backward: columns ----------------------------------------------------------------------------------------------
 * A warp has 16 keys; its accumulators' columns are queries. */
enum { QUERIES = 32 };
template <int D> __global__ void __launch_bounds__(THREADS) backward_columns(const __grid_constant__ Operands o) {
    extern __shared__ __align__(16) uint16_t shared[];
    __shared__ float statistics[3][QUERIES];
    uint16_t *k = shared, *v = k + ROWS * (D + 8), *q = v + ROWS * (D + 8), *g = q + QUERIES * (D + 8);
    const Place p = place_of(o, false);
    const int mine = threadIdx.x / 32 * 16 * (D + 8);
    float dk[D / 8][4], dv[D / 8][4];
    load_tile<D>(o, o.in, p.row0 + p.first, o.width + p.column, ROWS, p.tokens, k);
    load_tile<D>(o, o.in, p.row0 + p.first, 2 * o.width + p.column, ROWS, p.tokens, v);
    zero(dk);
    zero(dv);
    for (long long query0 = o.causal ? p.first : 0; query0 < o.sequence; query0 += QUERIES) {
        const int queries = (int)min((long long)QUERIES, o.sequence - query0);
        float s[QUERIES / 8][4], a[QUERIES / 8][4];
        __syncthreads();
        load_tile<D>(o, o.in, p.row0 + query0, p.column, QUERIES, queries, q);
        load_tile<D>(o, o.gradient, p.row0 + query0, p.column, QUERIES, queries, g);
        if (threadIdx.x < 3 * QUERIES)
            statistics[threadIdx.x / QUERIES][threadIdx.x % QUERIES] =
                (int)threadIdx.x % QUERIES < queries ? kept_of(o, p, query0 + threadIdx.x % QUERIES)[threadIdx.x / QUERIES] : 1.0f;
        __syncthreads();
        products<D, QUERIES>(k + mine, q, s);
        products<D, QUERIES>(v + mine, g, a);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = column_of(n, i);
                const bool seen = column < queries && (!o.causal || p.first + row_of(i) <= query0 + column);
                const float weight = ng_div(ng_exp(ng_sub(ng_mul(s[n][i], o.scale), statistics[0][column])), statistics[1][column]);
                s[n][i] = seen ? weight : 0.0f;
                a[n][i] = seen ? ng_mul(ng_mul(weight, ng_sub(a[n][i], statistics[2][column])), o.scale) : 0.0f;
            }
        accumulate<D, QUERIES>(s, g, dv);
        accumulate<D, QUERIES>(a, q, dk);
    }
    store_rows<D>(o, p, o.width + p.column, dk);
    store_rows<D>(o, p, 2 * o.width + p.column, dv);
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
template <typename K> ng_status begin(const ng_launch *launch, K kernel, size_t bytes) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return error == cudaSuccess ? NG_OK : ng_cuda_fail(launch, NG_DEVICE, "%zu bytes of shared memory: %s", bytes, cudaGetErrorString(error));
}

template <int D> ng_status run(const ng_launch *launch, const Operands &o, bool back) {
    const size_t row = (D + 8) * sizeof(uint16_t), forward_bytes = (ROWS + 2 * KEYS) * row, rows_bytes = (2 * ROWS + 2 * KEYS) * row,
                 columns_bytes = (2 * ROWS + 2 * QUERIES) * row; /* at most 68 KiB */
    const unsigned blocks = (unsigned)((o.sequence + ROWS - 1) / ROWS * o.heads * (launch->problem->m / o.sequence));
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (!back) {
        ng_status status = begin(launch, forward<D>, forward_bytes);
        if (!status) forward<D><<<blocks, THREADS, forward_bytes, stream>>>(o);
        return status ? status : ng_cuda_launched(launch);
    }
    ng_status status = begin(launch, backward_rows<D>, rows_bytes);
    if (!status) status = begin(launch, backward_columns<D>, columns_bytes);
    if (status) return status;
    backward_rows<D><<<blocks, THREADS, rows_bytes, stream>>>(o);
    backward_columns<D><<<blocks, THREADS, columns_bytes, stream>>>(o);
    return ng_cuda_launched(launch);
}

bool rows_aligned(const ng_tensor *t) { return !t->data || ((uintptr_t)t->data % 16 == 0 && (t->rows == 1 || t->row_bytes % 16 == 0)); }

} // namespace

extern "C" ng_status ng_cuda_launch_attention_mma(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *t = launch->tensors;
    const bool back = kernel->op == NG_OP_ATTENTION_BACKWARD;
    const char *why = ng_cuda_attention_supports(kernel, p, launch->device);
    if (why) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "%s", why);
    ng_status status = ng_cuda_check(launch, NG_IN, NG_BF16, p->m, 3 * p->n);
    if (!status && back) status = ng_cuda_check(launch, NG_GRADIENT, NG_BF16, p->m, p->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, NG_BF16, p->m, back ? 3 * p->n : p->n);
    if (!status && launch->workspace_bytes < ng_cuda_attention_workspace(kernel, p, launch->device))
        status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "a workspace of %zu bytes, expected %zu", launch->workspace_bytes,
                              ng_cuda_attention_workspace(kernel, p, launch->device));
    if (status) return status;
    Operands o = {ng_matrix_of(&t[NG_IN]), ng_matrix_of(&t[NG_GRADIENT]), ng_matrix_of(&t[NG_OUT]), static_cast<float *>(launch->workspace),
                  (long long)p->scalars[NG_SEQUENCE], (long long)p->scalars[NG_HEADS], p->n, 0, kernel->contract.layer.causal, false, 0,
                  ng_caster_of(NG_BF16, &kernel->contract.cast)};
    o.d = (int)(o.width / o.heads);
    o.aligned = o.d % 8 == 0 && rows_aligned(&t[NG_IN]) && rows_aligned(&t[NG_GRADIENT]);
    o.scale = ng_div(1.0f, ng_norm_sqrt((float)o.d));
    return o.d <= 64 ? run<64>(launch, o, back) : run<128>(launch, o, back);
}
