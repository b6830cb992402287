/* Rotary position, addition, transposition and embedding on the GPU (contract_layer.h). */
#include "kernels/common/norm.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256 };

template <ng_format_id F> struct Number { typedef float type; };
template <> struct Number<NG_FP64> { typedef double type; };

__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float less(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double less(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

template <ng_format_id F> __device__ __forceinline__ typename Number<F>::type load(const ng_matrix &m, long long row, long long column) {
    if constexpr (F == NG_FP64) return ng_row<const double>(m, row)[column];
    else if constexpr (F == NG_FP32) return ng_row<const float>(m, row)[column];
    else if constexpr (F == NG_BF16) return ng_decode_bf16(ng_row<const uint16_t>(m, row)[column]);
    else return ng_decode_fp16(ng_row<const uint16_t>(m, row)[column]);
}

template <ng_format_id F>
__device__ __forceinline__ void store(const ng_matrix &m, const ng_caster &caster, long long row, long long column, typename Number<F>::type x) {
    if constexpr (F == NG_FP64) ng_row<double>(m, row)[column] = x;
    else if constexpr (F == NG_FP32) ng_row<uint32_t>(m, row)[column] = ng_norm_code(nullptr, NG_FP32, x);
    else ng_row<uint16_t>(m, row)[column] = (uint16_t)ng_norm_code(&caster, F, x);
}

unsigned grid_for(long long tasks) { return (unsigned)min((tasks + THREADS - 1) / THREADS, 1ll << 20); }

/* ---- rope ---------------------------------------------------------------------------------------------------------*/
struct Rope {
    ng_matrix in, out, cosines, sines;
    long long rows, sequence, width;
    int half;
    bool inverse;
    ng_caster caster;
};

/* A thread has one pair of queries or keys, or two values to copy. */
template <ng_format_id F> __global__ void __launch_bounds__(THREADS) rope(const __grid_constant__ Rope o) {
    typedef typename Number<F>::type R;
    const long long pairs = (3 * o.width + 1) / 2, turned = o.width; /* pairs of a row; those of queries and keys */
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * pairs; task += (long long)gridDim.x * THREADS) {
        const long long row = task / pairs, pair = task % pairs;
        if (pair >= turned) {
            for (long long column = 2 * pair; column < min(2 * pair + 2, 3 * o.width); column++)
                ng_store_code(o.out, row, column, ng_load_code(o.in, row, column));
            continue;
        }
        const int i = (int)(pair % o.half);
        const long long column = pair / o.half * 2 * o.half + i, at = row % o.sequence;
        const R x = load<F>(o.in, row, column), y = load<F>(o.in, row, column + o.half);
        const R c = ng_row<const R>(o.cosines, at)[i], s = ng_row<const R>(o.sines, at)[i], sine = o.inverse ? -s : s;
        store<F>(o.out, o.caster, row, column, less(times(x, c), times(y, sine)));
        store<F>(o.out, o.caster, row, column + o.half, plus(times(y, c), times(x, sine)));
    }
}

/* The values, of 8 bytes each: ng_store_code knows none so wide. */
__global__ void __launch_bounds__(THREADS) copy_values(const __grid_constant__ Rope o) {
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * o.width; task += (long long)gridDim.x * THREADS) {
        const long long row = task / o.width, column = 2 * o.width + task % o.width;
        ng_row<double>(o.out, row)[column] = ng_row<const double>(o.in, row)[column];
    }
}

__global__ void __launch_bounds__(THREADS) rope64(const __grid_constant__ Rope o) {
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * o.width; task += (long long)gridDim.x * THREADS) {
        const long long row = task / o.width, pair = task % o.width, at = row % o.sequence;
        const int i = (int)(pair % o.half);
        const long long column = pair / o.half * 2 * o.half + i;
        const double x = ng_row<const double>(o.in, row)[column], y = ng_row<const double>(o.in, row)[column + o.half];
        const double c = ng_row<const double>(o.cosines, at)[i], s = ng_row<const double>(o.sines, at)[i], sine = o.inverse ? -s : s;
        ng_row<double>(o.out, row)[column] = less(times(x, c), times(y, sine));
        ng_row<double>(o.out, row)[column + o.half] = plus(times(y, c), times(x, sine));
    }
}

/* ---- add ----------------------------------------------------------------------------------------------------------*/
struct Add {
    ng_matrix a, b, out;
    long long rows, columns;
    ng_caster caster;
};

/* 16 bytes of a row. */
union Vector {
    uint4 whole;
    double fp64[2];
    float fp32[4];
    uint16_t half[8];
};

template <ng_format_id F> __device__ __forceinline__ typename Number<F>::type get(const Vector &v, int i) {
    if constexpr (F == NG_FP64) return v.fp64[i];
    else if constexpr (F == NG_FP32) return v.fp32[i];
    else if constexpr (F == NG_BF16) return ng_decode_bf16(v.half[i]);
    else return ng_decode_fp16(v.half[i]);
}
template <ng_format_id F> __device__ __forceinline__ void put(const ng_caster &caster, int i, typename Number<F>::type x, Vector *v) {
    if constexpr (F == NG_FP64) v->fp64[i] = x;
    else if constexpr (F == NG_FP32) v->fp32[i] = ng_float(ng_norm_code(nullptr, NG_FP32, x));
    else v->half[i] = (uint16_t)ng_norm_code(&caster, F, x);
}

/* A thread has `EACH` elements of 16 bytes, or one where rows are not aligned. */
template <ng_format_id F, bool ALIGNED> __global__ void __launch_bounds__(THREADS) add(const __grid_constant__ Add o) {
    constexpr int EACH = ALIGNED ? (F == NG_FP64 ? 2 : F == NG_FP32 ? 4 : 8) : 1;
    const long long across = o.columns / EACH;
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * across; task += (long long)gridDim.x * THREADS) {
        const long long row = task / across, column = task % across * EACH;
        if constexpr (!ALIGNED) store<F>(o.out, o.caster, row, column, plus(load<F>(o.a, row, column), load<F>(o.b, row, column)));
        else {
            constexpr int BYTES = 16 / EACH;
            Vector a, b, y;
            a.whole = *reinterpret_cast<const uint4 *>(o.a.data + row * o.a.row_bytes + column * BYTES);
            b.whole = *reinterpret_cast<const uint4 *>(o.b.data + row * o.b.row_bytes + column * BYTES);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                put<F>(o.caster, i, plus(get<F>(a, i), get<F>(b, i)), &y);
            *reinterpret_cast<uint4 *>(o.out.data + row * o.out.row_bytes + column * BYTES) = y.whole;
        }
    }
}

bool rows_aligned(const ng_tensor *t) { return (uintptr_t)t->data % 16 == 0 && (t->rows == 1 || t->row_bytes % 16 == 0); }

template <ng_format_id F> void launch_add(const Add &o, bool aligned, cudaStream_t stream) {
    constexpr int each = F == NG_FP64 ? 2 : F == NG_FP32 ? 4 : 8;
    if (aligned && o.columns % each == 0) add<F, true><<<grid_for(o.rows * o.columns / each), THREADS, 0, stream>>>(o);
    else add<F, false><<<grid_for(o.rows * o.columns), THREADS, 0, stream>>>(o);
}

/* ---- transpose ----------------------------------------------------------------------------------------------------*/
enum { SIDE = 32 };
template <typename T> __global__ void __launch_bounds__(THREADS) transpose(ng_matrix in, ng_matrix out, long long rows, long long columns) {
    __shared__ T tile[SIDE][SIDE + 1];
    const long long down = (rows + SIDE - 1) / SIDE, across = (columns + SIDE - 1) / SIDE;
    const int x = threadIdx.x % SIDE;
    for (long long task = blockIdx.x; task < down * across; task += gridDim.x) {
        const long long row0 = task / across * SIDE, column0 = task % across * SIDE;
        for (int y = threadIdx.x / SIDE; y < SIDE; y += THREADS / SIDE)
            if (row0 + y < rows && column0 + x < columns) tile[y][x] = ng_row<const T>(in, row0 + y)[column0 + x];
        __syncthreads();
        for (int y = threadIdx.x / SIDE; y < SIDE; y += THREADS / SIDE)
            if (column0 + y < columns && row0 + x < rows) ng_row<T>(out, column0 + y)[row0 + x] = tile[x][y];
        __syncthreads();
    }
}

/* ---- embedding ----------------------------------------------------------------------------------------------------*/
/* A token outside the vocabulary reads all ones: NaN. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    gather(ng_matrix tokens, ng_matrix table, ng_matrix out, long long rows, long long columns, long long vocabulary) {
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < rows * columns; task += (long long)gridDim.x * THREADS) {
        const long long row = task / columns, column = task % columns, token = *ng_row<const int>(tokens, row);
        T code;
        memset(&code, 0xFF, sizeof code);
        if (token >= 0 && token < vocabulary) code = ng_row<const T>(table, token)[column];
        ng_row<T>(out, row)[column] = code;
    }
}

/* A block has one row of the vocabulary and THREADS columns. It finds the row's tokens, in their order, THREADS tokens at a time. */
template <ng_format_id F>
__global__ void __launch_bounds__(THREADS)
    add_gradients(ng_matrix tokens, ng_matrix gradient, ng_matrix out, long long rows, long long columns, long long vocabulary) {
    typedef typename Number<F>::type R;
    __shared__ int found[THREADS], counts[THREADS / 32];
    const long long across = (columns + THREADS - 1) / THREADS;
    const ng_caster none = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (long long task = blockIdx.x; task < vocabulary * across; task += gridDim.x) {
        const long long row = task / across, column = task % across * THREADS + threadIdx.x;
        R sum = 0;
        bool touched = false;
        for (long long first = 0; first < rows; first += THREADS) {
            const bool mine = first + threadIdx.x < rows && *ng_row<const int>(tokens, first + threadIdx.x) == row;
            const unsigned ballot = __ballot_sync(0xFFFFFFFFu, mine);
            __syncthreads(); /* what was found before is added */
            if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = __popc(ballot);
            __syncthreads();
            int count = 0, before = 0;
            for (int warp = 0; warp < THREADS / 32; warp++) {
                if (warp == (int)threadIdx.x / 32) before = count;
                count += counts[warp];
            }
            if (mine) found[before + __popc(ballot & ((1u << threadIdx.x % 32) - 1))] = (int)threadIdx.x;
            __syncthreads();
            if (column >= columns || !count) continue;
            if (!touched) sum = ng_row<const R>(out, row)[column];
            touched = true;
#pragma unroll 4
            for (int i = 0; i < count; i++)
                sum = plus(sum, load<F>(gradient, first + found[i], column));
        }
        if (touched) store<sizeof(R) == 8 ? NG_FP64 : NG_FP32>(out, none, row, column, sum);
    }
}

} // namespace

extern "C" ng_status ng_cuda_launch_rope(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *t = launch->tensors;
    const ng_format_id real = kernel->contract.layer.compute;
    const long long heads = (long long)p->scalars[NG_HEADS], sequence = (long long)p->scalars[NG_SEQUENCE];
    if (heads < 1 || sequence < 1 || p->n % (2 * heads) || p->m % sequence)
        return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "heads of an even size, and whole sequences, are wanted");
    const long long half = p->n / heads / 2;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, p->m, 3 * p->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, p->m, 3 * p->n);
    if (!status) status = ng_cuda_check(launch, NG_PARAMETER, real, sequence, half);
    if (!status) status = ng_cuda_check(launch, NG_PARAMETER_2, real, sequence, half);
    if (status) return status;
    const Rope o = {ng_matrix_of(&t[NG_IN]),
                    ng_matrix_of(&t[NG_OUT]),
                    ng_matrix_of(&t[NG_PARAMETER]),
                    ng_matrix_of(&t[NG_PARAMETER_2]),
                    p->m,
                    sequence,
                    p->n,
                    (int)half,
                    kernel->contract.layer.inverse,
                    ng_caster_of(kernel->out, &kernel->contract.cast)};
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    const unsigned blocks = grid_for(o.rows * ((3 * o.width + 1) / 2));
    switch (kernel->in) {
    case NG_FP64:
        rope64<<<blocks, THREADS, 0, stream>>>(o);
        copy_values<<<blocks, THREADS, 0, stream>>>(o);
        break;
    case NG_BF16: rope<NG_BF16><<<blocks, THREADS, 0, stream>>>(o); break;
    case NG_FP16: rope<NG_FP16><<<blocks, THREADS, 0, stream>>>(o); break;
    default: rope<NG_FP32><<<blocks, THREADS, 0, stream>>>(o);
    }
    return ng_cuda_launched(launch);
}

extern "C" ng_status ng_cuda_launch_add(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *t = launch->tensors;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, p->m, p->n);
    if (!status) status = ng_cuda_check(launch, NG_IN_2, kernel->in, p->m, p->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, p->m, p->n);
    if (status) return status;
    const Add o = {ng_matrix_of(&t[NG_IN]),
                   ng_matrix_of(&t[NG_IN_2]),
                   ng_matrix_of(&t[NG_OUT]),
                   p->m,
                   p->n,
                   ng_caster_of(kernel->out, &kernel->contract.cast)};
    const bool aligned = rows_aligned(&t[NG_IN]) && rows_aligned(&t[NG_IN_2]) && rows_aligned(&t[NG_OUT]);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    switch (kernel->in) {
    case NG_FP64: launch_add<NG_FP64>(o, aligned, stream); break;
    case NG_BF16: launch_add<NG_BF16>(o, aligned, stream); break;
    case NG_FP16: launch_add<NG_FP16>(o, aligned, stream); break;
    default: launch_add<NG_FP32>(o, aligned, stream);
    }
    return ng_cuda_launched(launch);
}

extern "C" ng_status ng_cuda_launch_transpose(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, p->m, p->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT_T, kernel->out, p->n, p->m);
    if (status) return status;
    const ng_matrix in = ng_matrix_of(&launch->tensors[NG_IN]), out = ng_matrix_of(&launch->tensors[NG_OUT_T]);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    const unsigned blocks = (unsigned)min((long long)((p->m + SIDE - 1) / SIDE) * ((p->n + SIDE - 1) / SIDE), 1ll << 20);
    switch (ng_cuda_row_bytes(kernel->in, 1)) {
    case 8: transpose<uint64_t><<<blocks, THREADS, 0, stream>>>(in, out, p->m, p->n); break;
    case 4: transpose<uint32_t><<<blocks, THREADS, 0, stream>>>(in, out, p->m, p->n); break;
    default: transpose<uint16_t><<<blocks, THREADS, 0, stream>>>(in, out, p->m, p->n);
    }
    return ng_cuda_launched(launch);
}

extern "C" ng_status ng_cuda_launch_embedding(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *t = launch->tensors;
    const bool back = kernel->op == NG_OP_EMBEDDING_BACKWARD;
    ng_status status = ng_cuda_check(launch, NG_TOKENS, NG_FP32, p->m, 1);
    if (!status)
        status = back ? ng_cuda_check(launch, NG_GRADIENT, kernel->in, p->m, p->n) : ng_cuda_check(launch, NG_PARAMETER, kernel->in, p->k, p->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, back ? p->k : p->m, p->n);
    if (status) return status;
    const ng_matrix tokens = ng_matrix_of(&t[NG_TOKENS]), from = ng_matrix_of(&t[back ? NG_GRADIENT : NG_PARAMETER]), out = ng_matrix_of(&t[NG_OUT]);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (!back) {
        const unsigned blocks = grid_for(p->m * p->n);
        switch (ng_cuda_row_bytes(kernel->in, 1)) {
        case 8: gather<uint64_t><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k); break;
        case 4: gather<uint32_t><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k); break;
        default: gather<uint16_t><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k);
        }
        return ng_cuda_launched(launch);
    }
    const unsigned blocks = (unsigned)min((long long)p->k * ((p->n + THREADS - 1) / THREADS), 1ll << 20);
    switch (kernel->in) {
    case NG_FP64: add_gradients<NG_FP64><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k); break;
    case NG_BF16: add_gradients<NG_BF16><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k); break;
    case NG_FP16: add_gradients<NG_FP16><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k); break;
    default: add_gradients<NG_FP32><<<blocks, THREADS, 0, stream>>>(tokens, from, out, p->m, p->n, p->k);
    }
    return ng_cuda_launched(launch);
}
