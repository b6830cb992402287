/* The random Hadamard transform (kernels/cuda/cuda.h): alone, and before a quantization.
 *
 * hadamard_units: a thread holds 16 or 32 neighbouring elements in registers; of 128, four lanes exchange the last two stages.
 * rotate_tile serves every quantizer: a CTA takes a tile of 128 x 128 into shared memory, transforms it in the output's
 * direction and quantizes it, one direction after the other. rotate_columns serves what a gradient needs, nvfp4 with Hadamard 16 on the
 * column-wise copy alone: a thread holds two columns of 16 rows, which are both the group and the block, and the row-wise
 * blocks lie across eight lanes; both copies come from one read. Tensor scales take a pass of maxima before. */
#include "kernels/common/e2m1.h"
#include "kernels/common/hadamard.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { TILE = 128, STRIDE = TILE + 1, THREADS = 256 };

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

__device__ uint32_t block_reduce_max(uint32_t x) {
    __shared__ uint32_t warps[THREADS / 32];
    x = __reduce_max_sync(0xFFFFFFFFu, x);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : 0u;
    x = __reduce_max_sync(0xFFFFFFFFu, x);
    __syncthreads();
    return x;
}

/* ---- alone ----------------------------------------------------------------------------------------------------------*/
struct Transform {
    ng_matrix in, out;
    long long rows, columns, across; /* across: units in a row, a multiple of the lanes of a group */
    ng_hadamard h;
    ng_caster caster;
    float factor;
    bool aligned; /* whole units may be read and written 16 bytes at a time */
};

template <int EACH> __device__ __forceinline__ void load_unit(const Transform &z, long long row, long long from, float (&t)[EACH]) {
    if (z.aligned && from + EACH <= z.columns) {
        if (z.in.format == NG_BF16) {
            const uint4 *in = reinterpret_cast<const uint4 *>(ng_row<const uint16_t>(z.in, row) + from);
#pragma unroll
            for (int v = 0; v < EACH / 8; v++) {
                const uint4 x = in[v];
                const uint32_t pair[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                for (int i = 0; i < 4; i++)
                    t[8 * v + 2 * i] = ng_float(pair[i] << 16), t[8 * v + 2 * i + 1] = ng_float(pair[i] & 0xFFFF0000u);
            }
        } else {
            const float4 *in = reinterpret_cast<const float4 *>(ng_row<const float>(z.in, row) + from);
#pragma unroll
            for (int v = 0; v < EACH / 4; v++) {
                const float4 x = in[v];
                t[4 * v] = x.x, t[4 * v + 1] = x.y, t[4 * v + 2] = x.z, t[4 * v + 3] = x.w;
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        t[i] = from + i < z.columns ? ng_float(ng_load_bits(z.in, row, from + i)) : 0.0f;
}

__device__ __forceinline__ uint32_t code_of(const Transform &z, float y) {
    const uint32_t bits = ng_bits(y);
    if (z.out.format == NG_FP32) return (bits & NG_ABS_MASK) > NG_INF_BITS ? (uint32_t)NG_NAN_BITS : bits;
    return ng_cast_code(&z.caster, NG_RN_EVEN, bits);
}

template <int EACH> __device__ __forceinline__ void store_unit(const Transform &z, long long row, long long from, const float (&t)[EACH]) {
    if (z.aligned && from + EACH <= z.columns) {
        if (z.out.format == NG_BF16) {
            uint4 *out = reinterpret_cast<uint4 *>(ng_row<uint16_t>(z.out, row) + from);
#pragma unroll
            for (int v = 0; v < EACH / 8; v++) {
                uint32_t pair[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    pair[i] = code_of(z, t[8 * v + 2 * i]) | code_of(z, t[8 * v + 2 * i + 1]) << 16;
                out[v] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
            }
        } else {
            uint4 *out = reinterpret_cast<uint4 *>(ng_row<uint32_t>(z.out, row) + from);
#pragma unroll
            for (int v = 0; v < EACH / 4; v++)
                out[v] = make_uint4(code_of(z, t[4 * v]), code_of(z, t[4 * v + 1]), code_of(z, t[4 * v + 2]), code_of(z, t[4 * v + 3]));
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (from + i < z.columns) ng_store_code(z.out, row, from + i, code_of(z, t[i]));
}

/* Of a group of N, or several groups side by side, this thread's EACH elements; lane: which part of a group that spans lanes. */
template <int N, int EACH> __device__ __forceinline__ void butterflies(float (&t)[EACH], int lane) {
#pragma unroll
    for (int half = 1; half < (N < EACH ? N : EACH); half *= 2)
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (!(i & half)) {
                const float a = t[i], b = t[i + half];
                t[i] = ng_add(a, b), t[i + half] = ng_sub(a, b);
            }
#pragma unroll
    for (int apart = 1; apart < N / EACH; apart *= 2)
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float there = __shfl_xor_sync(0xFFFFFFFFu, t[i], apart);
            t[i] = lane & apart ? ng_sub(there, t[i]) : ng_add(t[i], there);
        }
}

template <int N> __global__ void __launch_bounds__(THREADS) hadamard_units(Transform z) {
    constexpr int EACH = N <= 16 ? 16 : 32, LANES = N > EACH ? N / EACH : 1;
    const long long count = z.rows * z.across, whole = z.columns / N * N;
    for (long long first = blockIdx.x * (long long)THREADS; first < count; first += (long long)gridDim.x * THREADS) {
        const long long unit = first + threadIdx.x, row = unit / z.across, from = unit % z.across * EACH;
        const int lane = threadIdx.x % LANES;
        const bool inside = unit < count;
        float t[EACH], y[EACH];
        if (inside) load_unit(z, row, from, t);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            y[i] = inside ? ng_float(ng_bits(t[i]) ^ ng_hadamard_sign(&z.h, (uint32_t)((lane * EACH + i) % N))) : 0.0f;
        butterflies<N, EACH>(y, lane);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            t[i] = from + i < whole ? ng_hadamard_finish(y[i], z.factor) : t[i]; /* behind the last whole group nothing changes */
        if (inside) store_unit(z, row, from, t);
    }
}

template <int N> void start_units(Transform z, cudaStream_t stream) {
    constexpr int EACH = N <= 16 ? 16 : 32, LANES = N > EACH ? N / EACH : 1;
    z.across = (z.columns + EACH * LANES - 1) / (EACH * LANES) * LANES;
    const long long blocks = (z.rows * z.across + THREADS - 1) / THREADS;
    hadamard_units<N><<<(unsigned)min(blocks, 1ll << 20), THREADS, 0, stream>>>(z);
}

bool is_aligned(const ng_matrix &m) { return (uintptr_t)m.data % 16 == 0 && m.row_bytes % 16 == 0; }

/* ---- before a quantization, any form --------------------------------------------------------------------------------*/
struct Rotated {
    ng_quantization q;
    ng_hadamard h;
    ng_caster caster;
    float factor;
    ng_matrix in, words;
    ng_matrix codes[2], scales[2]; /* row-wise, column-wise */
    float *tensor_scale[2];
    uint32_t *maxima;              /* [2] */
    long long extent[2];           /* rows, columns of the input */
    uint64_t seed, offset;
};

/* x[line][place], as the output of that direction has it, transformed where it is to be. */
__device__ void load_tile(const Rotated &z, int direction, long long row0, long long column0, int rows, int columns, float *x) {
    const int n = z.h.size, lines = direction ? columns : rows, whole = (direction ? rows : columns) / n * n;
    __syncthreads();
    for (int t = threadIdx.x; t < rows * TILE; t += THREADS) {
        const int row = t / TILE, column = t % TILE;
        if (column < columns) x[direction ? column * STRIDE + row : row * STRIDE + column] = ng_float(ng_load_bits(z.in, row0 + row, column0 + column));
    }
    __syncthreads();
    if (direction == 0 && z.h.transposed_only) return;
    for (int t = threadIdx.x; t < lines * whole; t += THREADS) {
        float *at = &x[t / whole * STRIDE + t % whole];
        *at = ng_float(ng_bits(*at) ^ ng_hadamard_sign(&z.h, (uint32_t)(t % whole % n)));
    }
    for (int half = 1; half < n; half *= 2) {
        __syncthreads();
        for (int t = threadIdx.x; t < lines * (whole / 2); t += THREADS) {
            const int pair = t % (whole / 2), i = pair / half * 2 * half + pair % half;
            float *at = &x[t / (whole / 2) * STRIDE + i];
            const float a = at[0], b = at[half];
            at[0] = ng_add(a, b), at[half] = ng_sub(a, b);
        }
    }
    __syncthreads();
    for (int t = threadIdx.x; t < lines * whole; t += THREADS) {
        float *at = &x[t / whole * STRIDE + t % whole];
        *at = ng_hadamard_finish(*at, z.factor);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS) rotated_maxima(Rotated z) {
    extern __shared__ float x[];
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    const int rows = (int)min((long long)TILE, z.extent[0] - row0), columns = (int)min((long long)TILE, z.extent[1] - column0);
    for (int direction = 0; direction < 2; direction++) {
        if (!z.codes[direction].data) continue;
        load_tile(z, direction, row0, column0, rows, columns, x);
        const int lines = direction ? columns : rows, length = direction ? rows : columns;
        uint32_t largest = 0;
        for (int t = threadIdx.x; t < lines * length; t += THREADS)
            largest = larger(largest, ng_bits(x[t / length * STRIDE + t % length]) & NG_ABS_MASK);
        largest = block_reduce_max(largest);
        if (threadIdx.x == 0) atomicMax(&z.maxima[direction], largest);
    }
}

__device__ __forceinline__ uint32_t encode(const Rotated &z, float y, int direction, long long line, long long place) {
    if (z.q.cast.rounding != NG_R_STOCHASTIC) return ng_cast_code(&z.caster, NG_RN_EVEN, ng_bits(y));
    const uint64_t before = direction ? (uint64_t)z.extent[0] * (uint64_t)z.extent[1] : 0u;
    const uint32_t word = z.words.data ? ng_row<const uint32_t>(z.words, direction ? place : line)[direction ? line : place]
                                       : ng_philox_byte(z.seed, z.offset, before + (uint64_t)line * (uint64_t)z.extent[1 - direction] + (uint64_t)place);
    return ng_cast_code_stochastic(&z.caster, z.q.cast.stochastic, z.q.cast.random_bits, ng_bits(y), word);
}

__global__ void __launch_bounds__(THREADS) rotate_tile(Rotated z) {
    extern __shared__ float x[];
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    const int rows = (int)min((long long)TILE, z.extent[0] - row0), columns = (int)min((long long)TILE, z.extent[1] - column0);
    const int along = (int)z.q.blocks.columns;
    for (int direction = 0; direction < 2; direction++) {
        if (!z.codes[direction].data) continue;
        load_tile(z, direction, row0, column0, rows, columns, x);
        const ng_tensor_level level = ng_tensor_scale(&z.q, z.q.tensor_scale ? z.maxima[direction] : 0u);
        if (z.q.tensor_scale && row0 == 0 && column0 == 0 && threadIdx.x == 0) *z.tensor_scale[direction] = level.decode;
        const long long line0 = direction ? column0 : row0, place0 = direction ? row0 : column0;
        const int lines = direction ? columns : rows, length = direction ? rows : columns, across = (length + along - 1) / along;
        for (int t = threadIdx.x; t < lines * across; t += THREADS) {
            const int line = t / across, from = t % across * along, end = min(length, from + along);
            const float *at = x + line * STRIDE;
            uint32_t largest = 0;
            for (int i = from; i < end; i++)
                largest = larger(largest, ng_bits(at[i]) & NG_ABS_MASK);
            const ng_block_scale scale = ng_scale_block(&z.q, largest, level);
            ng_row<uint8_t>(z.scales[direction], line0 + line)[(place0 + from) / along] = (uint8_t)scale.code;
            for (int i = from; i < end; i += 2) {
                const uint32_t low = encode(z, ng_mul(at[i], scale.encode), direction, line0 + line, place0 + i);
                const uint32_t high = i + 1 < end ? encode(z, ng_mul(at[i + 1], scale.encode), direction, line0 + line, place0 + i + 1) : 0u;
                ng_store_pair(z.codes[direction], line0 + line, place0 + i, low, high);
            }
        }
    }
}

/* ---- nvfp4, Hadamard 16 on the column-wise copy: 128 rows x 64 columns a CTA ------------------------------------------*/
enum { GROUP = 16, DOWN = 128, ACROSS = 64, LINE = DOWN / 2 + 8 }; /* LINE: bytes between staged columns */

/* This thread's two columns: rows row0 + 16 warp + i, columns column0 + 2 lane and the next. */
__device__ __forceinline__ void load_columns(const Rotated &z, long long row, long long column, uint32_t (&pair)[GROUP]) {
    const unsigned char *at = z.in.data + row * z.in.row_bytes + column * 2;
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        pair[i] = *reinterpret_cast<const uint32_t *>(at + i * z.in.row_bytes);
}

/* One of the two columns (side 0, 1), transformed; returns its largest magnitude. */
__device__ __forceinline__ uint32_t transform_column(const Rotated &z, const uint32_t (&pair)[GROUP], int side, float (&t)[GROUP]) {
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        t[i] = ng_float((side ? pair[i] & 0xFFFF0000u : pair[i] << 16) ^ ng_hadamard_sign(&z.h, i));
    butterflies<GROUP, GROUP>(t, 0);
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        t[i] = ng_hadamard_finish(t[i], z.factor);
        largest = larger(largest, ng_bits(t[i]) & NG_ABS_MASK);
    }
    return largest;
}

__global__ void __launch_bounds__(THREADS) column_maxima(Rotated z) {
    const long long row = blockIdx.y * (long long)DOWN + threadIdx.x / 32 * GROUP, column = blockIdx.x * (long long)ACROSS + threadIdx.x % 32 * 2;
    uint32_t pair[GROUP], both = 0, columns = 0;
    float t[GROUP];
    load_columns(z, row, column, pair);
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        both = __vmaxu2(both, pair[i] & 0x7FFF7FFFu);
    if (z.codes[1].data)
        for (int side = 0; side < 2; side++)
            columns = larger(columns, transform_column(z, pair, side, t));
    const uint32_t rows = block_reduce_max(larger(both & 0xFFFF0000u, both << 16));
    columns = block_reduce_max(columns);
    if (threadIdx.x != 0) return;
    if (z.codes[0].data) atomicMax(&z.maxima[0], rows);
    if (z.codes[1].data) atomicMax(&z.maxima[1], columns);
}

template <bool RANDOM> __device__ __forceinline__ uint32_t encode_any(const Rotated &z, float y, uint32_t random, bool finite) {
    if (finite) return RANDOM ? ng_e2m1_stochastic(y, random) : ng_e2m1_nearest(y);
    return RANDOM ? ng_cast_code_stochastic(&z.caster, NG_SR_CARRY, 8, ng_bits(y), random) : ng_cast_code(&z.caster, NG_RN_EVEN, ng_bits(y));
}

/* A column's 16 codes, element 0 lowest. */
template <bool RANDOM> __device__ __forceinline__ uint64_t encode_column(const Rotated &z, const float (&t)[GROUP], ng_block_scale scale, uint32_t amax,
                                                                         const ng_random4 &random) {
    uint32_t half[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        half[i / 8] |= encode_any<RANDOM>(z, ng_mul(t[i], scale.encode), random.word[i / 4] >> 8 * (i % 4) & 0xFFu, amax < NG_INF_BITS) << 4 * (i % 8);
    return (uint64_t)half[1] << 32 | half[0];
}

struct Staged { /* of a CTA, in shared memory */
    alignas(8) unsigned char codes[ACROSS * LINE];
    alignas(8) unsigned char scales[ACROSS * (DOWN / GROUP)];
    alignas(16) uint4 random[THREADS / 32][GROUP][4]; /* a warp's row-wise bytes: [row][16 columns] */
};

/* The row-wise copy, as it is: a row's blocks of 16 lie across eight lanes, which share two scales each. */
template <bool RANDOM> __device__ __forceinline__ void quantize_rows(const Rotated &z, Staged &staged, const uint32_t (&pair)[GROUP], long long row, long long column,
                                                                     ng_tensor_level level) {
    const int lane = threadIdx.x % 32, eighth = lane % 8, warp = threadIdx.x / 32;
    uint32_t mine[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        uint32_t both = pair[i] & 0x7FFF7FFFu;
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2)
            both = __vmaxu2(both, __shfl_xor_sync(0xFFFFFFFFu, both, apart));
        if (i % 8 == eighth) mine[i / 8] = larger(both & 0xFFFF0000u, both << 16);
    }
    float encode[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const long long its_row = row + eighth + 8 * k;
        const ng_block_scale scale = ng_scale_block(&z.q, mine[k], level);
        encode[k] = scale.encode;
        ng_row<uint8_t>(z.scales[0], its_row)[(column + lane / 8 * 16) / 16] = (uint8_t)scale.code;
        if (RANDOM) {
            const ng_random4 r = ng_philox4(z.seed, z.offset, ((uint64_t)its_row * (uint64_t)z.extent[1] + (uint64_t)column) / 16 + lane / 8);
            staged.random[warp][eighth + 8 * k][lane / 8] = make_uint4(r.word[0], r.word[1], r.word[2], r.word[3]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        const float factor = __shfl_sync(0xFFFFFFFFu, encode[i / 8], (lane & 24) | i % 8);
        const uint32_t amax = __shfl_sync(0xFFFFFFFFu, mine[i / 8], (lane & 24) | i % 8);
        const uint32_t random = RANDOM ? reinterpret_cast<const uint16_t *>(&staged.random[warp][i][lane / 8])[eighth] : 0u;
        const uint32_t low = encode_any<RANDOM>(z, ng_mul(ng_float(pair[i] << 16), factor), random & 0xFFu, amax < NG_INF_BITS);
        const uint32_t high = encode_any<RANDOM>(z, ng_mul(ng_float(pair[i] & 0xFFFF0000u), factor), random >> 8, amax < NG_INF_BITS);
        ng_row<uint8_t>(z.codes[0], row + i)[column / 2 + lane] = (uint8_t)(low | high << 4);
    }
}

template <bool RANDOM> __global__ void __launch_bounds__(THREADS) rotate_columns(Rotated z) {
    __shared__ Staged staged;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long row0 = blockIdx.y * (long long)DOWN, column0 = blockIdx.x * (long long)ACROSS, row = row0 + warp * GROUP;
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    uint32_t pair[GROUP];
    load_columns(z, row, column0 + 2 * lane, pair);
    if (z.codes[0].data) {
        const ng_tensor_level level = ng_tensor_scale(&z.q, z.maxima[0]);
        if (first) *z.tensor_scale[0] = level.decode;
        quantize_rows<RANDOM>(z, staged, pair, row, column0, level);
    }
    if (!z.codes[1].data) return;
    const ng_tensor_level level = ng_tensor_scale(&z.q, z.maxima[1]);
    if (first) *z.tensor_scale[1] = level.decode;
    for (int side = 0; side < 2; side++) {
        const int place = 2 * lane + side;
        float t[GROUP];
        const uint32_t amax = transform_column(z, pair, side, t);
        const ng_block_scale scale = ng_scale_block(&z.q, amax, level);
        ng_random4 random = {{0, 0, 0, 0}};
        if (RANDOM) {
            const uint64_t element = (uint64_t)z.extent[0] * (uint64_t)z.extent[1] + (uint64_t)(column0 + place) * (uint64_t)z.extent[0] + (uint64_t)row;
            random = ng_philox4(z.seed, z.offset, element / 16);
        }
        *reinterpret_cast<uint64_t *>(&staged.codes[place * LINE + warp * 8]) = encode_column<RANDOM>(z, t, scale, amax, random);
        staged.scales[place * (DOWN / GROUP) + warp] = (unsigned char)scale.code;
    }
    __syncthreads();
    for (int t = threadIdx.x; t < ACROSS * (DOWN / GROUP); t += THREADS) { /* eight threads a column of 64 bytes */
        const int place = t / 8, part = t % 8;
        ng_row<uint64_t>(z.codes[1], column0 + place)[row0 / 16 + part] = *reinterpret_cast<const uint64_t *>(&staged.codes[place * LINE + part * 8]);
    }
    if (threadIdx.x < ACROSS)
        *reinterpret_cast<uint64_t *>(ng_row<uint8_t>(z.scales[1], column0 + threadIdx.x) + row0 / 16) =
            *reinterpret_cast<const uint64_t *>(&staged.scales[threadIdx.x * 8]);
}

bool is_aligned_to(const ng_matrix &m, unsigned bytes) { return !m.data || ((uintptr_t)m.data % bytes == 0 && m.row_bytes % bytes == 0); }

bool takes_columns(const Rotated &z) {
    const ng_cast &cast = z.q.cast;
    const bool rounding = cast.rounding == NG_RN_EVEN || (cast.stochastic == NG_SR_CARRY && cast.random_bits == 8 && !z.words.data);
    return z.h.size == GROUP && z.h.transposed_only && z.q.scale == NG_UE4M3 && z.q.blocks.rows == 1 && z.q.blocks.columns == GROUP && rounding &&
           z.in.format == NG_BF16 && z.extent[0] % DOWN == 0 && z.extent[1] % ACROSS == 0 && z.extent[0] / DOWN <= 65535 &&
           is_aligned_to(z.in, 4) && is_aligned_to(z.codes[1], 8) && is_aligned_to(z.scales[1], 8);
}

ng_status check_output(const ng_kernel *kernel, const ng_launch *launch, ng_role codes, ng_role scales, ng_role tensor_scale, int64_t rows, int64_t columns) {
    const ng_quantization *q = &kernel->contract.quantization;
    if (!launch->tensors[codes].data) return NG_OK;
    ng_status status = ng_cuda_check(launch, codes, q->element, rows, columns);
    if (!status) status = ng_cuda_check(launch, scales, q->scale, ng_cuda_blocks(q->blocks.rows, rows), ng_cuda_blocks(q->blocks.columns, columns));
    if (!status && q->tensor_scale) status = ng_cuda_check(launch, tensor_scale, NG_FP32, 1, 1);
    return status;
}

ng_status start_tiles(const Rotated &z, const ng_launch *launch, cudaStream_t stream) {
    const size_t bytes = sizeof(float) * TILE * STRIDE;
    const dim3 grid((unsigned)((z.extent[1] + TILE - 1) / TILE), (unsigned)((z.extent[0] + TILE - 1) / TILE));
    if (grid.y > 65535) return ng_cuda_fail(launch, NG_UNSUPPORTED, "more than %d rows", 65535 * TILE);
    cudaError_t code = cudaFuncSetAttribute(rotate_tile, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (code == cudaSuccess) code = cudaFuncSetAttribute(rotated_maxima, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (code != cudaSuccess) return ng_cuda_fail(launch, NG_DEVICE, "%s", cudaGetErrorString(code));
    if (z.q.tensor_scale) rotated_maxima<<<grid, THREADS, bytes, stream>>>(z);
    rotate_tile<<<grid, THREADS, bytes, stream>>>(z);
    return ng_cuda_launched(launch);
}

} // namespace

extern "C" ng_status ng_cuda_launch_hadamard(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    const ng_hadamard *h = &kernel->contract.hadamard;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, problem->m, problem->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, problem->m, problem->n);
    if (status) return status;
    Transform z = {ng_matrix_of(&launch->tensors[NG_IN]), ng_matrix_of(&launch->tensors[NG_OUT]), problem->m, problem->n, 0, *h,
                   ng_caster_of(kernel->out, &kernel->contract.cast), ng_hadamard_factor(h), false};
    z.aligned = is_aligned(z.in) && is_aligned(z.out);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    switch (h->size) {
    case 4: start_units<4>(z, stream); break;
    case 16: start_units<16>(z, stream); break;
    case 32: start_units<32>(z, stream); break;
    case 128: start_units<128>(z, stream); break;
    default: return ng_cuda_fail(launch, NG_UNSUPPORTED, "groups of %d", h->size);
    }
    return ng_cuda_launched(launch);
}

extern "C" size_t ng_cuda_rotated_workspace(const ng_kernel *, const ng_problem *, const ng_device *) { return 2 * sizeof(uint32_t); }

extern "C" ng_status ng_cuda_launch_rotated(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    const ng_contract *c = &kernel->contract;
    const ng_tensor *t = launch->tensors;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, problem->m, problem->n);
    if (!status) status = check_output(kernel, launch, NG_OUT, NG_OUT_SCALES, NG_OUT_TENSOR_SCALE, problem->m, problem->n);
    if (!status) status = check_output(kernel, launch, NG_OUT_T, NG_OUT_T_SCALES, NG_OUT_T_TENSOR_SCALE, problem->n, problem->m);
    if (!status && c->cast.rounding == NG_R_STOCHASTIC && t[NG_RANDOM_WORDS].data)
        status = ng_cuda_check(launch, NG_RANDOM_WORDS, NG_FP32, problem->m, problem->n);
    if (status) return status;
    if (!t[NG_OUT].data && !t[NG_OUT_T].data) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "neither OUT nor OUT_T is given");
    if (launch->workspace_bytes < 2 * sizeof(uint32_t)) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "no workspace");
    Rotated z = {};
    z.q = c->quantization, z.h = c->hadamard, z.factor = ng_hadamard_factor(&c->hadamard);
    z.caster = ng_caster_of(z.q.element, &z.q.cast);
    z.in = ng_matrix_of(&t[NG_IN]);
    if (c->cast.rounding == NG_R_STOCHASTIC) z.words = ng_matrix_of(&t[NG_RANDOM_WORDS]);
    z.codes[0] = ng_matrix_of(&t[NG_OUT]), z.codes[1] = ng_matrix_of(&t[NG_OUT_T]);
    z.scales[0] = ng_matrix_of(&t[NG_OUT_SCALES]), z.scales[1] = ng_matrix_of(&t[NG_OUT_T_SCALES]);
    z.tensor_scale[0] = static_cast<float *>(t[NG_OUT_TENSOR_SCALE].data), z.tensor_scale[1] = static_cast<float *>(t[NG_OUT_T_TENSOR_SCALE].data);
    z.maxima = static_cast<uint32_t *>(launch->workspace);
    z.extent[0] = problem->m, z.extent[1] = problem->n, z.seed = problem->seed, z.offset = problem->offset;
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (cudaMemsetAsync(z.maxima, 0, 2 * sizeof(uint32_t), stream) != cudaSuccess) return ng_cuda_launched(launch);
    if (!takes_columns(z)) return start_tiles(z, launch, stream);
    const dim3 grid((unsigned)(z.extent[1] / ACROSS), (unsigned)(z.extent[0] / DOWN));
    column_maxima<<<grid, THREADS, 0, stream>>>(z);
    if (c->cast.rounding == NG_R_STOCHASTIC) rotate_columns<true><<<grid, THREADS, 0, stream>>>(z);
    else rotate_columns<false><<<grid, THREADS, 0, stream>>>(z);
    return ng_cuda_launched(launch);
}
