/* Products, norms, activations, cross-entropy, AdamW, gradient norm and clipping in binary64 on the GPU: the exact side of a training run
 * (contract_layer.h, at its end). Bits equal the CPU kernels': chains of fma for products, a warp's lanes for a row's sums (common/fp64.h). */
#include "kernels/common/fp64.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fp64.h"

namespace {

enum { THREADS = 256, WARPS = THREADS / 32 };
static_assert((int)NG_FP64_LANES == 32, "a lane has a chain");

__device__ __forceinline__ double *row64(const ng_matrix &m, long long row) { return ng_row<double>(m, row); }

/* s_k + s_(k + n/2) until one is left, in every lane: addition commutes. */
__device__ __forceinline__ double halve(double s) {
#pragma unroll
    for (int h = 16; h; h /= 2)
        s += __shfl_xor_sync(0xFFFFFFFFu, s, h);
    return s;
}

unsigned grid_for(long long tasks, int each) { return (unsigned)max(1ll, min((tasks + each - 1) / each, 1ll << 20)); }

/* ---- products -----------------------------------------------------------------------------------------------------
 * Tiles of 64 x 64 of OUT, K in steps of 16; a thread has 4 x 4 sums. */
enum { TILE = 64, DEPTH = 16, PITCH = TILE + 2 };
struct Product {
    ng_matrix a, b, out;
    long long m, n, k;
    bool accumulate;
};

/* Rows [row0, + 64) and K [k0, + 16) of an operand as [k][PITCH], zeros beyond. */
template <bool TURNED>
__device__ __forceinline__ void load_tile(const ng_matrix &x, long long row0, long long rows, long long k0, long long k, double (*to)[PITCH]) {
    for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
        const int i = TURNED ? at % TILE : at / DEPTH, p = TURNED ? at / TILE : at % DEPTH;
        const bool there = row0 + i < rows && k0 + p < k;
        to[p][i] = there ? (TURNED ? row64(x, k0 + p)[row0 + i] : row64(x, row0 + i)[k0 + p]) : 0;
    }
}

template <bool A_TURNED, bool B_TURNED> __global__ void __launch_bounds__(THREADS) product(const __grid_constant__ Product o) {
    __shared__ __align__(16) double a[DEPTH][PITCH], b[DEPTH][PITCH];
    const long long across = (o.n + TILE - 1) / TILE, row0 = blockIdx.x / across * TILE, column0 = blockIdx.x % across * TILE;
    const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    double sum[4][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    for (long long k0 = 0; k0 < o.k; k0 += DEPTH) {
        const int depth = (int)min((long long)DEPTH, o.k - k0);
        load_tile<A_TURNED>(o.a, row0, o.m, k0, o.k, a);
        load_tile<B_TURNED>(o.b, column0, o.n, k0, o.k, b);
        __syncthreads();
#pragma unroll 4
        for (int p = 0; p < depth; p++) {
            double x[4], y[4];
            *reinterpret_cast<double2 *>(x) = *reinterpret_cast<const double2 *>(&a[p][row]);
            *reinterpret_cast<double2 *>(x + 2) = *reinterpret_cast<const double2 *>(&a[p][row + 2]);
            *reinterpret_cast<double2 *>(y) = *reinterpret_cast<const double2 *>(&b[p][column]);
            *reinterpret_cast<double2 *>(y + 2) = *reinterpret_cast<const double2 *>(&b[p][column + 2]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = __fma_rn(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (row0 + row + i < o.m && column0 + column + j < o.n) {
                double *to = &row64(o.out, row0 + row + i)[column0 + column + j];
                *to = o.accumulate ? sum[i][j] + *to : sum[i][j];
            }
}

/* ---- norms: a warp has a row ---------------------------------------------------------------------------------------*/
struct Norm {
    ng_matrix x, dy, gamma, beta, mean, rstd, out, dgamma, dbeta;
    long long rows, columns;
    double epsilon;
    bool centered, zero_centered;
};

__global__ void __launch_bounds__(THREADS) norm_rows(const __grid_constant__ Norm o) {
    const int lane = threadIdx.x % 32;
    for (long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32; row < o.rows; row += (long long)gridDim.x * WARPS) {
        const double *x = row64(o.x, row), *gamma = row64(o.gamma, 0);
        double sum = 0, squares = 0;
        for (long long j = lane; j < o.columns && o.centered; j += 32)
            sum += x[j];
        const double mean = halve(sum) / (double)o.columns;
        for (long long j = lane; j < o.columns; j += 32)
            squares += (x[j] - mean) * (x[j] - mean);
        const double rstd = 1 / ng_sqrt64(halve(squares) / (double)o.columns + o.epsilon);
        for (long long j = lane; j < o.columns; j += 32) {
            const double scaled = ng_norm_hat64(true, x[j], mean, rstd) * ng_norm_weight64(o.zero_centered, gamma[j]);
            row64(o.out, row)[j] = o.centered ? scaled + row64(o.beta, 0)[j] : scaled;
        }
        if (lane) continue;
        if (o.mean.data) *row64(o.mean, row) = mean;
        if (o.rstd.data) *row64(o.rstd, row) = rstd;
    }
}

__global__ void __launch_bounds__(THREADS) norm_gradient_rows(const __grid_constant__ Norm o) {
    const int lane = threadIdx.x % 32;
    for (long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32; row < o.rows; row += (long long)gridDim.x * WARPS) {
        const double *x = row64(o.x, row), *dy = row64(o.dy, row), *gamma = row64(o.gamma, 0), mean = o.centered ? *row64(o.mean, row) : 0,
                     rstd = *row64(o.rstd, row);
        double s1 = 0, s2 = 0;
        for (long long j = lane; j < o.columns; j += 32) {
            const double g = dy[j] * ng_norm_weight64(o.zero_centered, gamma[j]);
            if (o.centered) s1 += g;
            s2 += g * ng_norm_hat64(o.centered, x[j], mean, rstd);
        }
        const double c1 = halve(s1) / (double)o.columns, c2 = halve(s2) / (double)o.columns;
        for (long long j = lane; j < o.columns; j += 32)
            row64(o.out, row)[j] =
                rstd * (dy[j] * ng_norm_weight64(o.zero_centered, gamma[j]) - c1 - ng_norm_hat64(o.centered, x[j], mean, rstd) * c2);
    }
}

/* A block has 32 columns; its warps are the groups of rows. */
static_assert((int)WARPS == (int)NG_FP64_GROUPS, "a warp has a group of rows");
__global__ void __launch_bounds__(THREADS) norm_gradient_columns(const __grid_constant__ Norm o) {
    __shared__ double sums[2][WARPS][32];
    const int group = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long column = blockIdx.x * 32ll + lane;
    double dgamma = 0, dbeta = 0;
    for (long long row = group; row < o.rows && column < o.columns; row += WARPS) {
        const double dy = row64(o.dy, row)[column];
        dgamma += dy * ng_norm_hat64(o.centered, row64(o.x, row)[column], o.centered ? *row64(o.mean, row) : 0, *row64(o.rstd, row));
        dbeta += dy;
    }
    sums[0][group][lane] = dgamma;
    sums[1][group][lane] = dbeta;
    __syncthreads();
    if (group || column >= o.columns) return;
    for (int g = 1; g < WARPS; g++) {
        dgamma += sums[0][g][lane];
        dbeta += sums[1][g][lane];
    }
    row64(o.dgamma, 0)[column] = dgamma;
    if (o.dbeta.data) row64(o.dbeta, 0)[column] = dbeta;
}

/* ---- activations ---------------------------------------------------------------------------------------------------*/
struct Activation {
    ng_matrix x, u, d, out, du;
    long long rows, columns;
    ng_activation_kind kind;
    bool backward;
};

__global__ void __launch_bounds__(THREADS) activation(const __grid_constant__ Activation o) {
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * o.columns; task += (long long)gridDim.x * THREADS) {
        const long long row = task / o.columns, column = task % o.columns;
        const double x = row64(o.x, row)[column], u = o.kind == NG_SWIGLU ? row64(o.u, row)[column] : x;
        double du = 0;
        row64(o.out, row)[column] = o.backward ? ng_activate_backward64(o.kind, x, u, row64(o.d, row)[column], &du) : ng_activate64(o.kind, x, u);
        if (o.backward && o.kind == NG_SWIGLU) row64(o.du, row)[column] = du;
    }
}

/* ---- cross-entropy: a warp has a row --------------------------------------------------------------------------------*/
struct Loss {
    ng_matrix x, labels, max, sum, gradient, out;
    long long rows, columns;
};

__device__ __forceinline__ double larger(double most, double x) { return x > most || x != x ? x : most; }

__global__ void __launch_bounds__(THREADS) loss_rows(const __grid_constant__ Loss o) {
    const int lane = threadIdx.x % 32;
    for (long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32; row < o.rows; row += (long long)gridDim.x * WARPS) {
        const double *x = row64(o.x, row);
        const int label = *ng_row<const int>(o.labels, row);
        double most = -INFINITY, sum = 0;
        for (long long j = lane; j < o.columns; j += 32)
            most = larger(most, x[j]);
        for (int h = 16; h; h /= 2)
            most = larger(most, __shfl_xor_sync(0xFFFFFFFFu, most, h));
        most += 0.0;
        for (long long j = lane; j < o.columns; j += 32)
            sum += ng_exp64(x[j] - most);
        sum = halve(sum);
        if (lane) continue;
        const double at = label >= 0 && label < o.columns ? x[label] : ng_double(0x7FF8000000000000u);
        *row64(o.out, row) = label < 0 ? 0 : most - at + ng_log(sum);
        if (o.max.data) *row64(o.max, row) = most;
        if (o.sum.data) *row64(o.sum, row) = sum;
    }
}

__global__ void __launch_bounds__(THREADS) loss_gradients(const __grid_constant__ Loss o) {
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * o.columns; task += (long long)gridDim.x * THREADS) {
        const long long row = task / o.columns, column = task % o.columns;
        const int label = *ng_row<const int>(o.labels, row);
        const double r = 1 / *row64(o.sum, row), e = ng_exp64(row64(o.x, row)[column] - *row64(o.max, row));
        row64(o.out, row)[column] = label < 0 ? 0 : *row64(o.gradient, row) * (e * r - (column == label ? 1.0 : 0.0));
    }
}

/* ---- optimizer: a launch a tensor -----------------------------------------------------------------------------------*/
struct Adam {
    ng_matrix p, g, m, v;
    const float *found_inf;
    long long rows, columns;
    ng_adam_factors64 factors;
};

__global__ void __launch_bounds__(THREADS) adam(const __grid_constant__ Adam o) {
    if (o.found_inf && *o.found_inf != 0) return;
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < o.rows * o.columns; task += (long long)gridDim.x * THREADS) {
        const long long row = task / o.columns, column = task % o.columns;
        double p = row64(o.p, row)[column], m = row64(o.m, row)[column], v = row64(o.v, row)[column];
        ng_adam64(&o.factors, row64(o.g, row)[column], &p, &m, &v);
        row64(o.p, row)[column] = p;
        row64(o.m, row)[column] = m;
        row64(o.v, row)[column] = v;
    }
}

/* One block, so that its threads are the chains of squares; `chains` [1024] carries them from tensor to tensor. */
__global__ void __launch_bounds__(NG_FP64_NORM2_CHAINS) squares(ng_matrix g, long long rows, long long columns, bool first, double *chains) {
    double sum = first ? 0 : chains[threadIdx.x];
    for (long long row = 0; row < rows; row++)
        for (long long j = threadIdx.x; j < columns; j += NG_FP64_NORM2_CHAINS) {
            const double x = row64(g, row)[j];
            sum += x * x;
        }
    chains[threadIdx.x] = sum;
}
__global__ void __launch_bounds__(NG_FP64_NORM2_CHAINS) root_of_squares(double *chains, double *out) {
    for (int h = NG_FP64_NORM2_CHAINS / 2; h; h /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < h) chains[threadIdx.x] += chains[threadIdx.x + h];
    }
    if (threadIdx.x == 0) *out = ng_sqrt64(chains[0]);
}
__global__ void __launch_bounds__(THREADS) clip(ng_matrix g, long long rows, long long columns, double most, const double *norm) {
    const double factor = ng_clip_factor64(most, *norm);
    if (factor >= 1) return;
    for (long long task = blockIdx.x * (long long)THREADS + threadIdx.x; task < rows * columns; task += (long long)gridDim.x * THREADS)
        row64(g, task / columns)[task % columns] *= factor;
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
cudaStream_t stream_of(const ng_launch *launch) { return static_cast<cudaStream_t>(launch->stream); }
ng_matrix matrix(const ng_launch *launch, ng_role role) { return ng_matrix_of(&launch->tensors[role]); }

ng_status check(const ng_launch *launch, bool wanted, ng_role role, long long rows, long long columns, ng_status before) {
    return before || !wanted ? before : ng_cuda_check(launch, role, NG_FP64, rows, columns);
}

const ng_tensor *listed(const ng_launch *launch, ng_role role, int64_t i) {
    return launch->list_count ? &launch->lists[role][i] : &launch->tensors[role];
}

/* The i-th tensor of a role, of the extents of the gradient's. */
ng_status check_listed(const ng_launch *launch, ng_role role, int64_t i) {
    ng_launch one = *launch;
    const ng_tensor *g = listed(launch, NG_GRADIENT, i);
    one.tensors[role] = *listed(launch, role, i);
    return ng_cuda_check(&one, role, NG_FP64, g->rows, g->columns);
}

} // namespace

extern "C" ng_status ng_cuda_launch_gemm64(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_contract *c = &kernel->contract;
    const ng_problem *p = launch->problem;
    const Product o = {matrix(launch, NG_A), matrix(launch, NG_B), matrix(launch, NG_OUT), p->m, p->n, p->k, c->accumulate_into};
    ng_status status = check(launch, true, NG_A, c->a_transposed ? p->k : p->m, c->a_transposed ? p->m : p->k, NG_OK);
    status = check(launch, true, NG_B, c->b_transposed ? p->k : p->n, c->b_transposed ? p->n : p->k, status);
    status = check(launch, true, NG_OUT, p->m, p->n, status);
    const long long blocks = (p->m + TILE - 1) / TILE * ((p->n + TILE - 1) / TILE);
    if (!status && blocks > 1ll << 30) status = ng_cuda_fail(launch, NG_UNSUPPORTED, "too many tiles");
    if (status) return status;
    const cudaStream_t stream = stream_of(launch);
    if (c->a_transposed && c->b_transposed) product<true, true><<<(unsigned)blocks, THREADS, 0, stream>>>(o);
    else if (c->b_transposed) product<false, true><<<(unsigned)blocks, THREADS, 0, stream>>>(o);
    else if (c->a_transposed) product<true, false><<<(unsigned)blocks, THREADS, 0, stream>>>(o);
    else product<false, false><<<(unsigned)blocks, THREADS, 0, stream>>>(o);
    return ng_cuda_launched(launch);
}

extern "C" ng_status ng_cuda_launch_norm64(const ng_kernel *kernel, const ng_launch *launch) {
    const long long rows = launch->problem->m, n = launch->problem->n;
    const bool centered = kernel->contract.norm.kind == NG_LAYER_NORM, back = kernel->op == NG_OP_NORM_BACKWARD;
    const ng_tensor *t = launch->tensors;
    ng_status status = check(launch, true, NG_IN, rows, n, NG_OK);
    status = check(launch, true, NG_OUT, rows, n, status);
    status = check(launch, true, NG_PARAMETER, 1, n, status);
    status = check(launch, centered && !back, NG_PARAMETER_2, 1, n, status);
    status = check(launch, back || t[NG_RSTD].data, NG_RSTD, rows, 1, status);
    status = check(launch, centered && (back || t[NG_MEAN].data), NG_MEAN, rows, 1, status);
    status = check(launch, back, NG_GRADIENT, rows, n, status);
    status = check(launch, back, NG_OUT_2, 1, n, status);
    status = check(launch, back && centered, NG_OUT_3, 1, n, status);
    if (status) return status;
    Norm o = {matrix(launch, NG_IN),
              matrix(launch, NG_GRADIENT),
              matrix(launch, NG_PARAMETER),
              matrix(launch, NG_PARAMETER_2),
              matrix(launch, NG_MEAN),
              matrix(launch, NG_RSTD),
              matrix(launch, NG_OUT),
              matrix(launch, NG_OUT_2),
              matrix(launch, NG_OUT_3),
              rows,
              n,
              launch->problem->scalars[NG_EPSILON],
              centered,
              kernel->contract.norm.zero_centered};
    if (!centered) o.mean.data = o.dbeta.data = nullptr;
    const cudaStream_t stream = stream_of(launch);
    if (!back) norm_rows<<<grid_for(rows, WARPS), THREADS, 0, stream>>>(o);
    else {
        norm_gradient_rows<<<grid_for(rows, WARPS), THREADS, 0, stream>>>(o);
        norm_gradient_columns<<<(unsigned)((n + 31) / 32), THREADS, 0, stream>>>(o);
    }
    return ng_cuda_launched(launch);
}

extern "C" ng_status ng_cuda_launch_activation64(const ng_kernel *kernel, const ng_launch *launch) {
    const long long rows = launch->problem->m, n = launch->problem->n;
    const Activation o = {matrix(launch, NG_IN),
                          matrix(launch, NG_IN_2),
                          matrix(launch, NG_GRADIENT),
                          matrix(launch, NG_OUT),
                          matrix(launch, NG_OUT_2),
                          rows,
                          n,
                          kernel->contract.activation.kind,
                          kernel->op == NG_OP_ACTIVATION_BACKWARD};
    const bool gated = o.kind == NG_SWIGLU;
    ng_status status = check(launch, true, NG_IN, rows, n, NG_OK);
    status = check(launch, true, NG_OUT, rows, n, status);
    status = check(launch, gated, NG_IN_2, rows, n, status);
    status = check(launch, o.backward, NG_GRADIENT, rows, n, status);
    status = check(launch, o.backward && gated, NG_OUT_2, rows, n, status);
    if (status) return status;
    activation<<<grid_for(rows * n, THREADS), THREADS, 0, stream_of(launch)>>>(o);
    return ng_cuda_launched(launch);
}

extern "C" ng_status ng_cuda_launch_loss64(const ng_kernel *kernel, const ng_launch *launch) {
    const long long rows = launch->problem->m, n = launch->problem->n;
    const bool back = kernel->op == NG_OP_LOSS_BACKWARD;
    const ng_tensor *t = launch->tensors;
    ng_status status = check(launch, true, NG_IN, rows, n, NG_OK);
    if (!status) status = ng_cuda_check(launch, NG_LABELS, NG_FP32, rows, 1);
    status = check(launch, true, NG_OUT, rows, back ? n : 1, status);
    status = check(launch, back || t[NG_ROW_MAX].data, NG_ROW_MAX, rows, 1, status);
    status = check(launch, back || t[NG_ROW_SUM].data, NG_ROW_SUM, rows, 1, status);
    status = check(launch, back, NG_GRADIENT, rows, 1, status);
    if (status) return status;
    const Loss o = {matrix(launch, NG_IN),
                    matrix(launch, NG_LABELS),
                    matrix(launch, NG_ROW_MAX),
                    matrix(launch, NG_ROW_SUM),
                    matrix(launch, NG_GRADIENT),
                    matrix(launch, NG_OUT),
                    rows,
                    n};
    if (back) loss_gradients<<<grid_for(rows * n, THREADS), THREADS, 0, stream_of(launch)>>>(o);
    else loss_rows<<<grid_for(rows, WARPS), THREADS, 0, stream_of(launch)>>>(o);
    return ng_cuda_launched(launch);
}

extern "C" size_t ng_cuda_optimizer64_workspace(const ng_kernel *kernel, const ng_problem *, const ng_device *) {
    return kernel->contract.optimizer.kind == NG_NORM2 ? NG_FP64_NORM2_CHAINS * sizeof(double) : 0;
}

extern "C" ng_status ng_cuda_launch_optimizer64(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_optimizer_kind kind = kernel->contract.optimizer.kind;
    const double *scalars = launch->problem->scalars;
    const int64_t count = launch->list_count ? launch->list_count : 1;
    const cudaStream_t stream = stream_of(launch);
    const ng_role roles[] = {NG_GRADIENT, NG_PARAMETER, NG_MOMENT_1, NG_MOMENT_2};
    ng_status status = kind == NG_ADAMW_TORCH ? NG_OK : ng_cuda_check(launch, NG_OUT, NG_FP64, 1, 1);
    for (int64_t i = 0; i < count; i++)
        for (int r = 0; r < (kind == NG_ADAMW_TORCH ? 4 : 1) && !status; r++)
            status = check_listed(launch, roles[r], i);
    if (!status && kind == NG_ADAMW_TORCH && !(scalars[NG_STEP] >= 1 && scalars[NG_STEP] <= 0x1p53))
        status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "step %g, expected 1 or more", scalars[NG_STEP]);
    if (!status && launch->workspace_bytes < ng_cuda_optimizer64_workspace(kernel, launch->problem, launch->device))
        status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "a workspace of %zu bytes", launch->workspace_bytes);
    if (status) return status;
    double *chains = static_cast<double *>(launch->workspace), *out = static_cast<double *>(launch->tensors[NG_OUT].data);
    for (int64_t i = 0; i < count; i++) {
        const ng_tensor *g = listed(launch, NG_GRADIENT, i);
        const unsigned blocks = grid_for(g->rows * g->columns, THREADS);
        if (kind == NG_NORM2) squares<<<1, NG_FP64_NORM2_CHAINS, 0, stream>>>(ng_matrix_of(g), g->rows, g->columns, i == 0, chains);
        else if (kind == NG_CLIP) clip<<<blocks, THREADS, 0, stream>>>(ng_matrix_of(g), g->rows, g->columns, scalars[NG_MAX_NORM], out);
        else {
            const Adam o = {ng_matrix_of(listed(launch, NG_PARAMETER, i)),
                            ng_matrix_of(g),
                            ng_matrix_of(listed(launch, NG_MOMENT_1, i)),
                            ng_matrix_of(listed(launch, NG_MOMENT_2, i)),
                            static_cast<const float *>(launch->tensors[NG_FOUND_INF].data),
                            g->rows,
                            g->columns,
                            ng_adam_factors64_of(scalars)};
            adam<<<blocks, THREADS, 0, stream>>>(o);
        }
    }
    if (kind == NG_NORM2) root_of_squares<<<1, NG_FP64_NORM2_CHAINS, 0, stream>>>(chains, out);
    return ng_cuda_launched(launch);
}
