/* Attention on the GPU in chains of fma (contract_layer.h, NG_ATTENTION_CHAIN): the bits of the CPU kernels. Blocks of 256 threads have tiles of
 * 64 queries by 64 keys; a thread has 4 x 4 scores, and 4 rows by 4 channels of each 64 of a result. Every chain runs in one thread: over a head's
 * elements for a score, over ascending keys (queries) for a result, and from memory for a row's sums. Two passes instead of a running maximum:
 * maxima first, then weights; backward a third for the row's sum r and a fourth for dq. dk and dv have kernels of their own over keys. */
#include "kernels/common/fp64.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256, TILE = 64, PITCH = TILE + 4, MOST_D = 128 };

struct Operands {
    ng_matrix in, gradient, out;
    void *statistics; /* backward: [sequences][heads][sequence][3]: m, l, r */
    long long sequence, heads, width;
    int d;
    bool causal;
    double scale; /* as the kernel's numbers hold it */
    ng_caster caster;
};

/* ---- arithmetic ---------------------------------------------------------------------------------------------------*/
__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float less(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double less(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float over(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double over(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float exponential(float x) { return ng_exp(x); }
__device__ __forceinline__ double exponential(double x) { return ng_exp64(x); }

template <typename R> __device__ __forceinline__ R larger(R most, R x) { return x > most || x != x ? x : most; }

template <ng_format_id F> struct Number { typedef float type; };
template <> struct Number<NG_FP64> { typedef double type; };

template <ng_format_id F> __device__ __forceinline__ typename Number<F>::type load(const ng_matrix &m, long long row, long long column) {
    if constexpr (F == NG_FP64) return ng_row<const double>(m, row)[column];
    else if constexpr (F == NG_FP32) return ng_row<const float>(m, row)[column];
    else if constexpr (F == NG_BF16) return ng_decode_bf16(ng_row<const uint16_t>(m, row)[column]);
    else return ng_decode_fp16(ng_row<const uint16_t>(m, row)[column]);
}

template <ng_format_id F> __device__ __forceinline__ void store(const Operands &o, long long row, long long column, typename Number<F>::type x) {
    if constexpr (F == NG_FP64) ng_row<double>(o.out, row)[column] = x;
    else if constexpr (F == NG_FP32) ng_row<uint32_t>(o.out, row)[column] = x != x ? (uint32_t)NG_NAN_BITS : ng_bits(x);
    else ng_row<uint16_t>(o.out, row)[column] = (uint16_t)ng_cast_code(&o.caster, NG_RN_EVEN, ng_bits(x));
}

__device__ __forceinline__ void four(const float *from, float (&x)[4]) {
    const float4 v = *reinterpret_cast<const float4 *>(from);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}
__device__ __forceinline__ void four(const double *from, double (&x)[4]) {
    const double2 v = reinterpret_cast<const double2 *>(from)[0], w = reinterpret_cast<const double2 *>(from)[1];
    x[0] = v.x, x[1] = v.y, x[2] = w.x, x[3] = w.y;
}
__device__ __forceinline__ void put(float *to, float a, float b, float c, float d) { *reinterpret_cast<float4 *>(to) = make_float4(a, b, c, d); }
__device__ __forceinline__ void put(double *to, double a, double b, double c, double d) {
    reinterpret_cast<double2 *>(to)[0] = make_double2(a, b);
    reinterpret_cast<double2 *>(to)[1] = make_double2(c, d);
}

/* ---- tiles --------------------------------------------------------------------------------------------------------
 * 64 tokens of a head in shared memory: elements by tokens [d][PITCH] for scores, tokens by channels [64][channels + 4] for results. Tokens beyond the
 * sequence and channels beyond the head are zeros, which no kept number meets. */
template <ng_format_id F, typename R>
__device__ __forceinline__ void load_across(const Operands &o, const ng_matrix &from, long long row0, long long column, int tokens, R *to) {
    for (int token = threadIdx.x / 32; token < TILE; token += THREADS / 32)
        for (int c = threadIdx.x % 32; c < o.d; c += 32)
            to[c * PITCH + token] = token < tokens ? load<F>(from, row0 + token, column + c) : R(0);
}

template <ng_format_id F, int WIDE, typename R>
__device__ __forceinline__ void load_along(const Operands &o, const ng_matrix &from, long long row0, long long column, int tokens, R *to) {
    for (int token = threadIdx.x / 32; token < TILE; token += THREADS / 32)
        for (int c = threadIdx.x % 32; c < WIDE * TILE; c += 32)
            to[token * (WIDE * TILE + 4) + c] = token < tokens && c < o.d ? load<F>(from, row0 + token, column + c) : R(0);
}

/* s[i][j] = chain over c of x[c][row + i] y[c][column + j] */
template <typename R> __device__ __forceinline__ void products(const R *x, const R *y, int d, int row, int column, R (&s)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = 0;
#pragma unroll 4
    for (int c = 0; c < d; c++) {
        R a[4], b[4];
        four(x + c * PITCH + row, a);
        four(y + c * PITCH + column, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[i][j] = fused(a[i], b[j], s[i][j]);
    }
}

/* sum[w][i][k] continues its chain over `count` tokens t by weight[t][row + i] x[t][64 w + column + k]; where a pair is masked (first[i] > t or
 * t >= last[i]) it does not. */
template <int WIDE, bool MASKED, typename R>
__device__ __forceinline__ void accumulate(const R *weight, const R *x, int count, int row, int column, const int (&first)[4],
                                           const int (&last)[4], R (&sum)[WIDE][4][4]) {
#pragma unroll 2
    for (int t = 0; t < count; t++) {
        R a[4];
        four(weight + t * PITCH + row, a);
#pragma unroll
        for (int w = 0; w < WIDE; w++) {
            R b[4];
            four(x + t * (WIDE * TILE + 4) + w * TILE + column, b);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (!MASKED || (first[i] <= t && t < last[i])) sum[w][i][k] = fused(a[i], b[k], sum[w][i][k]);
        }
    }
}

struct Place {
    long long row0, column, first; /* of the sequence's rows; of the head's columns; of the tile's tokens in the sequence */
    int tokens;                    /* in the tile */
};

/* Heads innermost, so that tiles of the same length run together; queries' long tiles come first, and keys'. */
__device__ __forceinline__ Place place_of(const Operands &o, bool longest_last) {
    const long long tiles = (o.sequence + TILE - 1) / TILE, sequences = gridDim.x / tiles / o.heads, each = sequences * o.heads;
    const long long order = blockIdx.x / each, number = blockIdx.x % each, tile = longest_last ? tiles - 1 - order : order;
    Place p;
    p.row0 = number / o.heads * o.sequence;
    p.column = number % o.heads * o.d;
    p.first = tile * TILE;
    p.tokens = (int)min((long long)TILE, o.sequence - p.first);
    return p;
}

template <int WIDE, typename R> __device__ __forceinline__ void zero(R (&sum)[WIDE][4][4]) {
#pragma unroll
    for (int w = 0; w < WIDE; w++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[w][i][k] = 0;
}

__host__ __device__ constexpr int along_reals(int wide) { return TILE * (wide * TILE + 4); }
__host__ __device__ inline int buffer_reals(int d) { return max(d * PITCH, along_reals((d + TILE - 1) / TILE)); }

/* ---- rows: scores, weights ----------------------------------------------------------------------------------------*/
/* A tile of scores: s[i][j] of the query row + i and the key column + j; visible[i]: how many of the tile's keys that query sees. */
template <typename R> __device__ __forceinline__ void scores(const Operands &o, const R *q, const R *k, R scale, R (&s)[4][4]) {
    products(q, k, o.d, (int)threadIdx.x / 16 * 4, (int)threadIdx.x % 16 * 4, s);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = times(s[i][j], scale);
}

__device__ __forceinline__ void see(const Operands &o, const Place &queries, long long key0, int (&visible)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const long long query = queries.first + threadIdx.x / 16 * 4 + i, last = o.causal ? min(query + 1, o.sequence) : o.sequence;
        visible[i] = (int)max(0ll, min((long long)TILE, last - key0));
    }
}

/* Keys that a tile of queries sees. */
__device__ __forceinline__ long long keys_of(const Operands &o, const Place &queries) {
    return o.causal ? queries.first + queries.tokens : o.sequence;
}

/* Maxima of the tile's rows into `maxima` [64]. */
template <ng_format_id F, typename R>
__device__ __forceinline__ void row_maxima(const Operands &o, const Place &p, const R *q, R *buffer, R scale, R *maxima) {
    R most[4] = {R(-INFINITY), R(-INFINITY), R(-INFINITY), R(-INFINITY)};
    for (long long key0 = 0; key0 < keys_of(o, p); key0 += TILE) {
        R s[4][4];
        int visible[4];
        __syncthreads();
        load_across<F>(o, o.in, p.row0 + key0, o.width + p.column, (int)min((long long)TILE, o.sequence - key0), buffer);
        __syncthreads();
        scores(o, q, buffer, scale, s);
        see(o, p, key0, visible);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if ((int)threadIdx.x % 16 * 4 + j < visible[i]) most[i] = larger(most[i], s[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        for (int offset = 8; offset; offset /= 2)
            most[i] = larger(most[i], __shfl_xor_sync(0xFFFFFFFFu, most[i], offset));
        if (threadIdx.x % 16 == 0) maxima[threadIdx.x / 16 * 4 + i] = most[i];
    }
    __syncthreads();
}

/* e of a tile of scores; 0 where masked. */
template <typename R> __device__ __forceinline__ void weights(const R *maxima, const int (&visible)[4], R (&s)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const R most = maxima[threadIdx.x / 16 * 4 + i];
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = (int)threadIdx.x % 16 * 4 + j < visible[i] ? exponential(less(s[i][j], most)) : R(0);
    }
}

/* to[key][query] */
template <typename R> __device__ __forceinline__ void put_by_key(const R (&s)[4][4], R *to) {
#pragma unroll
    for (int j = 0; j < 4; j++)
        put(to + (threadIdx.x % 16 * 4 + j) * PITCH + threadIdx.x / 16 * 4, s[0][j], s[1][j], s[2][j], s[3][j]);
}

/* What thread t < 64 adds up: the keys that query t of the tile sees. */
__device__ __forceinline__ int seen_by_thread(const Operands &o, const Place &p, long long key0) {
    const long long query = p.first + threadIdx.x, last = o.causal ? min(query + 1, o.sequence) : o.sequence;
    return (int)max(0ll, min((long long)TILE, last - key0));
}

/* ---- forward ------------------------------------------------------------------------------------------------------*/
template <ng_format_id F, int WIDE> __global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ Operands o) {
    typedef typename Number<F>::type R;
    extern __shared__ __align__(16) unsigned char shared[];
    R *q = reinterpret_cast<R *>(shared), *buffer = q + o.d * PITCH, *tile = buffer + buffer_reals(o.d), *maxima = tile + TILE * PITCH,
      *sums = maxima + TILE;
    const Place p = place_of(o, true);
    const R scale = (R)o.scale;
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4, none[4] = {0, 0, 0, 0};
    R l = 0, out[WIDE][4][4];
    load_across<F>(o, o.in, p.row0 + p.first, p.column, p.tokens, q);
    row_maxima<F>(o, p, q, buffer, scale, maxima);
    zero<WIDE>(out);
    for (long long key0 = 0; key0 < keys_of(o, p); key0 += TILE) {
        const int keys = (int)min((long long)TILE, o.sequence - key0);
        R s[4][4];
        int visible[4];
        __syncthreads();
        load_across<F>(o, o.in, p.row0 + key0, o.width + p.column, keys, buffer);
        __syncthreads();
        scores(o, q, buffer, scale, s);
        see(o, p, key0, visible);
        weights(maxima, visible, s);
        put_by_key(s, tile);
        __syncthreads(); /* scores are done with the keys, too */
        load_along<F, WIDE>(o, o.in, p.row0 + key0, 2 * o.width + p.column, keys, buffer);
        if (threadIdx.x < TILE)
            for (int j = 0; j < seen_by_thread(o, p, key0); j++)
                l = plus(l, tile[j * PITCH + threadIdx.x]);
        __syncthreads();
        if (o.causal ? key0 + TILE <= p.first : keys == TILE) accumulate<WIDE, false>(tile, buffer, TILE, row, column, none, visible, out);
        else accumulate<WIDE, true>(tile, buffer, keys, row, column, none, visible, out);
    }
    if (threadIdx.x < TILE) sums[threadIdx.x] = l;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int w = 0; w < WIDE; w++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (row + i < p.tokens && w * TILE + column + k < o.d)
                    store<F>(o, p.row0 + p.first + row + i, p.column + w * TILE + column + k, over(out[w][i][k], sums[row + i]));
}

/* ---- backward: rows ------------------------------------------------------------------------------------------------
 * m, l, r of the rows, kept for the other kernel, and dq. */
template <ng_format_id F, int WIDE> __global__ void __launch_bounds__(THREADS) backward_rows(const __grid_constant__ Operands o) {
    typedef typename Number<F>::type R;
    extern __shared__ __align__(16) unsigned char shared[];
    const int buffer_size = buffer_reals(o.d);
    R *q = reinterpret_cast<R *>(shared), *g = q + o.d * PITCH, *buffer = g + o.d * PITCH, *tile = buffer + buffer_size, *other = tile + TILE * PITCH,
      *maxima = other + TILE * PITCH, *sums = maxima + TILE, *products_of = sums + TILE;
    const Place p = place_of(o, true);
    const R scale = (R)o.scale;
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4, none[4] = {0, 0, 0, 0};
    R l = 0, r = 0, dq[WIDE][4][4];
    load_across<F>(o, o.in, p.row0 + p.first, p.column, p.tokens, q);
    load_across<F>(o, o.gradient, p.row0 + p.first, p.column, p.tokens, g);
    row_maxima<F>(o, p, q, buffer, scale, maxima);
    zero<WIDE>(dq);
    for (int pass = 0; pass < 3; pass++) { /* l, r, dq */
        for (long long key0 = 0; key0 < keys_of(o, p); key0 += TILE) {
            const int keys = (int)min((long long)TILE, o.sequence - key0);
            R s[4][4], a[4][4];
            int visible[4];
            __syncthreads();
            load_across<F>(o, o.in, p.row0 + key0, o.width + p.column, keys, buffer);
            __syncthreads();
            scores(o, q, buffer, scale, s);
            see(o, p, key0, visible);
            weights(maxima, visible, s);
            if (pass > 0) {
                __syncthreads();
                load_across<F>(o, o.in, p.row0 + key0, 2 * o.width + p.column, keys, buffer);
                __syncthreads();
                products(g, buffer, o.d, row, column, a);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        s[i][j] = over(s[i][j], sums[row + i]);
                        if (pass == 2) s[i][j] = times(times(s[i][j], less(a[i][j], products_of[row + i])), scale);
                    }
            }
            put_by_key(s, tile);
            if (pass == 1) put_by_key(a, other);
            __syncthreads();
            if (pass < 2) {
                if (threadIdx.x < TILE)
                    for (int j = 0; j < seen_by_thread(o, p, key0); j++) {
                        const R x = tile[j * PITCH + threadIdx.x];
                        if (pass == 0) l = plus(l, x);
                        else r = fused(x, other[j * PITCH + threadIdx.x], r);
                    }
                continue;
            }
            load_along<F, WIDE>(o, o.in, p.row0 + key0, o.width + p.column, keys, buffer);
            __syncthreads();
            if (o.causal ? key0 + TILE <= p.first : keys == TILE) accumulate<WIDE, false>(tile, buffer, TILE, row, column, none, visible, dq);
            else accumulate<WIDE, true>(tile, buffer, keys, row, column, none, visible, dq);
        }
        if (threadIdx.x < TILE) (pass == 0 ? sums : products_of)[threadIdx.x] = pass == 0 ? l : r;
        __syncthreads();
    }
    R *kept = static_cast<R *>(o.statistics) + ((p.row0 / o.sequence * o.heads + p.column / o.d) * o.sequence + p.first) * 3;
    if (threadIdx.x < p.tokens) {
        kept[3 * threadIdx.x] = maxima[threadIdx.x];
        kept[3 * threadIdx.x + 1] = l;
        kept[3 * threadIdx.x + 2] = r;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int w = 0; w < WIDE; w++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (row + i < p.tokens && w * TILE + column + k < o.d)
                    store<F>(o, p.row0 + p.first + row + i, p.column + w * TILE + column + k, dq[w][i][k]);
}

/* ---- backward: columns ----------------------------------------------------------------------------------------------
 * dk and dv of 64 keys, over the queries that see them. Here a thread's scores are of 4 keys (its rows) by 4 queries, so that p and t are laid out by
 * query. The products of a score commute, so its chain has the same bits. */
template <ng_format_id F, int WIDE> __global__ void __launch_bounds__(THREADS) backward_columns(const __grid_constant__ Operands o) {
    typedef typename Number<F>::type R;
    extern __shared__ __align__(16) unsigned char shared[];
    R *k = reinterpret_cast<R *>(shared), *v = k + o.d * PITCH, *buffer = v + o.d * PITCH, *tile = buffer + buffer_reals(o.d),
      *other = tile + TILE * PITCH, *statistics = other + TILE * PITCH; /* [64][3] */
    const Place p = place_of(o, false);
    const R scale = (R)o.scale;
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    R dk[WIDE][4][4], dv[WIDE][4][4];
    load_across<F>(o, o.in, p.row0 + p.first, o.width + p.column, p.tokens, k);
    load_across<F>(o, o.in, p.row0 + p.first, 2 * o.width + p.column, p.tokens, v);
    zero<WIDE>(dk);
    zero<WIDE>(dv);
    for (long long query0 = o.causal ? p.first : 0; query0 < o.sequence; query0 += TILE) {
        const int queries = (int)min((long long)TILE, o.sequence - query0);
        const R *kept = static_cast<const R *>(o.statistics) + ((p.row0 / o.sequence * o.heads + p.column / o.d) * o.sequence + query0) * 3;
        const bool masked = (o.causal && query0 < p.first + TILE) || queries < TILE;
        R s[4][4], a[4][4];
        int first[4], last[4];
        __syncthreads();
        load_across<F>(o, o.in, p.row0 + query0, p.column, queries, buffer);
        if (threadIdx.x < 3 * TILE) statistics[threadIdx.x] = threadIdx.x < 3 * queries ? kept[threadIdx.x] : R(1);
        __syncthreads();
        scores(o, k, buffer, scale, s);
        __syncthreads();
        load_across<F>(o, o.gradient, p.row0 + query0, p.column, queries, buffer);
        __syncthreads();
        products(v, buffer, o.d, row, column, a);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            first[i] = o.causal ? (int)max(0ll, p.first + row + i - query0) : 0;
            last[i] = queries;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const R *mine = statistics + 3 * (column + j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[i][j] = over(exponential(less(s[i][j], mine[0])), mine[1]);
                a[i][j] = times(times(s[i][j], less(a[i][j], mine[2])), scale);
            }
        }
        put_by_key(s, tile); /* tile[query][key] */
        put_by_key(a, other);
        __syncthreads();
        load_along<F, WIDE>(o, o.gradient, p.row0 + query0, p.column, queries, buffer);
        __syncthreads();
        if (masked) accumulate<WIDE, true>(tile, buffer, queries, row, column, first, last, dv);
        else accumulate<WIDE, false>(tile, buffer, TILE, row, column, first, last, dv);
        __syncthreads();
        load_along<F, WIDE>(o, o.in, p.row0 + query0, p.column, queries, buffer);
        __syncthreads();
        if (masked) accumulate<WIDE, true>(other, buffer, queries, row, column, first, last, dk);
        else accumulate<WIDE, false>(other, buffer, TILE, row, column, first, last, dk);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int w = 0; w < WIDE; w++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const long long at = w * TILE + column + c;
                if (row + i >= p.tokens || at >= o.d) continue;
                store<F>(o, p.row0 + p.first + row + i, o.width + p.column + at, dk[w][i][c]);
                store<F>(o, p.row0 + p.first + row + i, 2 * o.width + p.column + at, dv[w][i][c]);
            }
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
size_t shared_bytes(int d, bool backward, size_t real) {
    const int tiles = TILE * PITCH, kept = 3 * TILE;
    return real * (size_t)(backward ? 2 * d * PITCH + buffer_reals(d) + 2 * tiles + kept : d * PITCH + buffer_reals(d) + tiles + kept);
}

/* What a block may have of shared memory (CUDA programming guide, technical specifications by compute capability). */
size_t shared_limit(int sm) { return sm == 80 || sm == 87 ? 163 << 10 : sm / 10 == 8 || sm / 10 >= 12 ? 99 << 10 : 227 << 10; }

template <typename K> ng_status begin(const ng_launch *launch, K kernel, size_t bytes) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return error == cudaSuccess ? NG_OK : ng_cuda_fail(launch, NG_DEVICE, "%zu bytes of shared memory: %s", bytes, cudaGetErrorString(error));
}

template <ng_format_id F, int WIDE> ng_status run(const ng_launch *launch, const Operands &o, bool back) {
    const size_t bytes = shared_bytes(o.d, back, sizeof(typename Number<F>::type));
    const long long blocks = (o.sequence + TILE - 1) / TILE * o.heads * (launch->problem->m / o.sequence);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (!back) {
        ng_status status = begin(launch, forward<F, WIDE>, bytes);
        if (!status) forward<F, WIDE><<<(unsigned)blocks, THREADS, bytes, stream>>>(o);
        return status ? status : ng_cuda_launched(launch);
    }
    ng_status status = begin(launch, backward_rows<F, WIDE>, bytes);
    if (!status) status = begin(launch, backward_columns<F, WIDE>, bytes);
    if (status) return status;
    backward_rows<F, WIDE><<<(unsigned)blocks, THREADS, bytes, stream>>>(o);
    backward_columns<F, WIDE><<<(unsigned)blocks, THREADS, bytes, stream>>>(o);
    return ng_cuda_launched(launch);
}

template <ng_format_id F> ng_status run_wide(const ng_launch *launch, const Operands &o, bool back) {
    return o.d <= TILE ? run<F, 1>(launch, o, back) : run<F, 2>(launch, o, back);
}

} // namespace

extern "C" const char *ng_cuda_attention_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const char *why = ng_cuda_supports(kernel, problem, device);
    const double heads = problem->scalars[NG_HEADS], sequence = problem->scalars[NG_SEQUENCE];
    if (why) return why;
    if (!(heads >= 1) || !(sequence >= 1) || heads > (double)problem->n || sequence > (double)problem->m) return "no heads, or no sequence";
    if (problem->n % (int64_t)heads || problem->m % (int64_t)sequence)
        return "the width is no multiple of the heads, or the tokens none of the sequence";
    const int64_t d = problem->n / (int64_t)heads;
    if (d > MOST_D) return "heads of more than 128 elements";
    if (shared_bytes((int)d, kernel->op == NG_OP_ATTENTION_BACKWARD, kernel->in == NG_FP64 ? 8 : 4) > shared_limit(device->sm))
        return "heads too wide for this GPU's shared memory";
    if ((sequence / TILE + 1) * heads * ((double)problem->m / sequence) > 0x1p30) return "too many tiles";
    return nullptr;
}

extern "C" size_t ng_cuda_attention_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *) {
    if (kernel->op != NG_OP_ATTENTION_BACKWARD) return 0;
    return (size_t)problem->m * (size_t)problem->scalars[NG_HEADS] * 3 * (kernel->in == NG_FP64 ? 8 : 4);
}

extern "C" ng_status ng_cuda_launch_attention(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *t = launch->tensors;
    const bool back = kernel->op == NG_OP_ATTENTION_BACKWARD;
    const char *why = ng_cuda_attention_supports(kernel, p, launch->device);
    if (why) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "%s", why);
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, p->m, 3 * p->n);
    if (!status && back) status = ng_cuda_check(launch, NG_GRADIENT, kernel->in, p->m, p->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, p->m, back ? 3 * p->n : p->n);
    if (!status && launch->workspace_bytes < ng_cuda_attention_workspace(kernel, p, launch->device))
        status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "a workspace of %zu bytes, expected %zu", launch->workspace_bytes,
                              ng_cuda_attention_workspace(kernel, p, launch->device));
    if (status) return status;
    Operands o = {ng_matrix_of(&t[NG_IN]),
                  ng_matrix_of(&t[NG_GRADIENT]),
                  ng_matrix_of(&t[NG_OUT]),
                  launch->workspace,
                  (long long)p->scalars[NG_SEQUENCE],
                  (long long)p->scalars[NG_HEADS],
                  p->n,
                  0,
                  kernel->contract.layer.causal,
                  0,
                  ng_caster_of(kernel->out, &kernel->contract.cast)};
    o.d = (int)(o.width / o.heads);
    o.scale = kernel->in == NG_FP64 ? 1.0 / sqrt((double)o.d) : (double)ng_div(1.0f, ng_norm_sqrt((float)o.d));
    switch (kernel->in) {
    case NG_FP64: return run_wide<NG_FP64>(launch, o, back);
    case NG_BF16: return run_wide<NG_BF16>(launch, o, back);
    case NG_FP16: return run_wide<NG_FP16>(launch, o, back);
    default: return run_wide<NG_FP32>(launch, o, back);
    }
}
