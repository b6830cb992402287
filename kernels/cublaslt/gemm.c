/* One product through cublasLtMatmul. The heuristic is asked for the dense problem; its n-th answer is variant n. */
#include "kernels/cublaslt/cublaslt.h"
#include "kernels/cublaslt/library.h"

#include <stdio.h>
#include <string.h>

enum { MOST_VARIANTS = 16, ALIGNMENT = 256 };
static const size_t most_workspace = (size_t)64 << 20;

/* ---- the operation, described to the library ------------------------------------------------------------------------*/
typedef struct operation {
    const ng_cublaslt *lt;
    cublasLtMatmulDesc_t multiply;
    cublasLtMatrixLayout_t first, second, out;
    cublasStatus_t status; /* the first failure */
} operation;

static const ng_cublaslt_mode *mode_of(const ng_kernel *kernel) { return kernel->state; }

static cudaDataType_t type_of(ng_format_id format) {
    switch (format) {
    case NG_BF16: return CUDA_R_16BF;
    case NG_FP16: return CUDA_R_16F;
    case NG_E4M3: return CUDA_R_8F_E4M3;
    case NG_E5M2: return CUDA_R_8F_E5M2;
    case NG_E2M1: return CUDA_R_4F_E2M1;
    default: return CUDA_R_32F;
    }
}

static int64_t elements_of(ng_format_id format, int64_t row_bytes) {
    return format == NG_E2M1 ? 2 * row_bytes : row_bytes / ng_cuda_row_bytes(format, 1);
}

static void keep(operation *o, cublasStatus_t status) {
    if (!o->status) o->status = status;
}

static void set(operation *o, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes) {
    if (!o->status) keep(o, o->lt->MatmulDescSetAttribute(o->multiply, attribute, value, bytes));
}

static void layout(operation *o, cublasLtMatrixLayout_t *made, ng_format_id format, int64_t rows, int64_t columns, int64_t ld) {
    if (!o->status) keep(o, o->lt->MatrixLayoutCreate(made, type_of(format), (uint64_t)rows, (uint64_t)columns, ld));
}

/* A row-major [n][k] is a column-major k x n, which enters transposed as the first operand and as it is as the second. */
static void describe_operands(operation *o, const ng_kernel *kernel, const ng_problem *p, const int64_t ld[3]) {
    const ng_contract *c = &kernel->contract;
    const cublasOperation_t turn_first = c->b_transposed ? CUBLAS_OP_N : CUBLAS_OP_T, turn_second = c->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const bool bf16 = mode_of(kernel)->dequantize;
    const ng_format_id in_a = bf16 ? NG_BF16 : kernel->in, in_b = bf16 ? NG_BF16 : kernel->in_b;
    set(o, CUBLASLT_MATMUL_DESC_TRANSA, &turn_first, sizeof turn_first);
    set(o, CUBLASLT_MATMUL_DESC_TRANSB, &turn_second, sizeof turn_second);
    layout(o, &o->first, in_b, c->b_transposed ? p->n : p->k, c->b_transposed ? p->k : p->n, ld[1]);
    layout(o, &o->second, in_a, c->a_transposed ? p->m : p->k, c->a_transposed ? p->k : p->m, ld[0]);
    layout(o, &o->out, kernel->out, p->n, p->m, ld[2]);
}

/* Pointers matter to the heuristic by their alignment alone; without a launch they are any aligned address. */
static const void *address(const ng_launch *launch, ng_role role) {
    return launch ? launch->tensors[role].data : (const void *)(uintptr_t)ALIGNMENT;
}

static void describe_scales(operation *o, const ng_kernel *kernel, const ng_launch *launch) {
    const ng_cublaslt_mode *mode = mode_of(kernel);
    const void *a = address(launch, NG_A_SCALES), *b = address(launch, NG_B_SCALES);
    const int8_t fast = mode->fast_accumulation;
    if (fast) set(o, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (mode->scale_a < 0) return;
    const int32_t first = mode->scale_b, second = mode->scale_a;
    set(o, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &first, sizeof first);
    set(o, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &second, sizeof second);
    set(o, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b, sizeof b);
    set(o, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a, sizeof a);
}

static void describe_epilogue(operation *o, const ng_kernel *kernel, const ng_launch *launch) {
    const cublasLtEpilogue_t add = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = type_of(kernel->out);
    const void *bias = address(launch, NG_BIAS);
    if (kernel->contract.a.tensor_scale) {
        const cublasLtPointerMode_t on_device = CUBLASLT_POINTER_MODE_DEVICE;
        set(o, CUBLASLT_MATMUL_DESC_POINTER_MODE, &on_device, sizeof on_device);
    }
    if (!kernel->contract.bias) return;
    set(o, CUBLASLT_MATMUL_DESC_EPILOGUE, &add, sizeof add);
    set(o, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    set(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

/* Distances of rows in elements, of A, B and OUT; launch NULL: dense. */
static void strides(const ng_kernel *kernel, const ng_problem *p, const ng_launch *launch, int64_t ld[3]) {
    const ng_contract *c = &kernel->contract;
    const bool bf16 = mode_of(kernel)->dequantize;
    ld[0] = c->a_transposed ? p->m : p->k;
    ld[1] = c->b_transposed ? p->n : p->k;
    ld[2] = p->n;
    if (!launch) return;
    if (!bf16) {
        ld[0] = elements_of(kernel->in, launch->tensors[NG_A].row_bytes);
        ld[1] = elements_of(kernel->in_b, launch->tensors[NG_B].row_bytes);
    }
    ld[2] = elements_of(kernel->out, launch->tensors[NG_OUT].row_bytes);
}

static void begin(operation *o, const ng_cublaslt *lt, const ng_kernel *kernel, const ng_problem *problem, const ng_launch *launch) {
    int64_t ld[3];
    *o = (operation){.lt = lt};
    strides(kernel, problem, launch, ld);
    keep(o, lt->MatmulDescCreate(&o->multiply, (cublasComputeType_t)mode_of(kernel)->compute, CUDA_R_32F));
    describe_operands(o, kernel, problem, ld);
    describe_scales(o, kernel, launch);
    describe_epilogue(o, kernel, launch);
}

static void end(operation *o) {
    if (o->multiply) o->lt->MatmulDescDestroy(o->multiply);
    if (o->first) o->lt->MatrixLayoutDestroy(o->first);
    if (o->second) o->lt->MatrixLayoutDestroy(o->second);
    if (o->out) o->lt->MatrixLayoutDestroy(o->out);
}

/* ---- the heuristic's answers ----------------------------------------------------------------------------------------*/
typedef struct answers {
    cublasLtMatmulHeuristicResult_t list[MOST_VARIANTS];
    int count;
    cublasStatus_t status;
} answers;

/* Parts of a split K are added in binary32: results in the output's format would be rounded once a part. */
static void ask(const ng_cublaslt *lt, const ng_kernel *kernel, const ng_problem *problem, answers *found) {
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t list[MOST_VARIANTS];
    cublasLtMatmulPreference_t preference = NULL;
    operation o;
    int count = 0;
    found->count = 0;
    begin(&o, lt, kernel, problem, NULL);
    if (!o.status) keep(&o, lt->MatmulPreferenceCreate(&preference));
    if (!o.status)
        keep(&o, lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most_workspace, sizeof most_workspace));
    if (!o.status)
        keep(&o, lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
    if (!o.status)
        keep(&o, lt->MatmulAlgoGetHeuristic(lt->handle, o.multiply, o.first, o.second, o.out, o.out, preference, MOST_VARIANTS, list, &count));
    for (int i = 0; i < count && !o.status; i++)
        if (!list[i].state) found->list[found->count++] = list[i];
    found->status = o.status ? o.status : found->count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference) lt->MatmulPreferenceDestroy(preference);
    end(&o);
}

/* ---- the kernel interface -------------------------------------------------------------------------------------------*/
/* Constant texts: what supports() gives must stay. */
static const char *refusal(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_NOT_SUPPORTED: return "cuBLASLt: CUBLAS_STATUS_NOT_SUPPORTED for these formats, scales and extents on this GPU";
    case CUBLAS_STATUS_INVALID_VALUE: return "cuBLASLt: CUBLAS_STATUS_INVALID_VALUE for these formats, scales and extents";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "cuBLASLt: CUBLAS_STATUS_ARCH_MISMATCH: not on this GPU";
    default: return "cuBLASLt's heuristic fails";
    }
}

const char *ng_cublaslt_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const char *why = ng_cuda_supports(kernel, problem, device);
    answers found;
    if (why) return why;
    if (problem->k < 1) return "empty problem";
    const ng_cublaslt *lt = ng_cublaslt_library(&why);
    if (!lt) return why;
    ask(lt, kernel, problem, &found);
    return found.status ? refusal(found.status) : NULL;
}

int ng_cublaslt_variants(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const char *why;
    const ng_cublaslt *lt = ng_cublaslt_library(&why);
    answers found;
    (void)device;
    if (!lt) return 0;
    ask(lt, kernel, problem, &found);
    return found.count;
}

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* [alpha and beta][A in bf16][B in bf16][the library's own]; parts that a kernel does not need are empty. */
typedef struct division {
    size_t factors, a, b;
} division;

static division divide(const ng_kernel *kernel, const ng_problem *p) {
    const bool bf16 = mode_of(kernel)->dequantize;
    return (division){kernel->contract.a.tensor_scale ? ALIGNMENT : 0, bf16 ? aligned(2 * (size_t)(p->m * p->k)) : 0,
                      bf16 ? aligned(2 * (size_t)(p->n * p->k)) : 0};
}

size_t ng_cublaslt_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const char *why;
    const ng_cublaslt *lt = ng_cublaslt_library(&why);
    const division d = divide(kernel, problem);
    answers found;
    size_t most = 0;
    (void)device;
    if (!lt) return 0;
    ask(lt, kernel, problem, &found);
    for (int i = 0; i < found.count; i++)
        if (found.list[i].workspaceSize > most) most = found.list[i].workspaceSize;
    return d.factors + d.a + d.b + most;
}

static uint32_t number(const ng_cublaslt *lt, const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, size_t bytes) {
    uint32_t value = 0;
    size_t written;
    return lt->MatmulAlgoConfigGetAttribute(algorithm, attribute, &value, bytes, &written) ? UINT32_MAX : value;
}

/* How K is cut by the algorithms whose order is known, measured on an H200 with cuBLASLt 13.1 (by sums of ones between 2^100 and -2^100,
 * which tell what is added when: arXiv:2411.00442). Parts of whole tiles of the contract's split_tile: 66 (its generated kernels), 13, 14.
 * 21: of tiles of 32 or 64, which of them was not seen: known where both cut alike. 23 and 63: not with K in parts. 43 takes K
 * whole, and so does its stream-K (parts -1) without a workspace that could hold part of a sum. */
static bool cut_of(uint32_t algorithm, int32_t parts, int64_t k, size_t workspace, ng_accumulation *sum) {
    const int64_t wide = (k + 63) / 64, narrow = (k + 31) / 32;
    sum->split_k = (uint16_t)(parts > 1 ? parts : 0);
    switch (algorithm) {
    case 66: case 13: case 14: return parts >= 0;
    case 21:
        if (parts > 1) sum->split_tile = 32;
        return parts >= 0 && (parts <= 1 || (wide + parts - 1) / parts * 2 == (narrow + parts - 1) / parts);
    case 43: return parts == 1 || (parts == -1 && workspace < 1024);
    default: return (algorithm == 23 || algorithm == 63) && parts >= 0 && parts <= 1;
    }
}

static bool on_tensor_cores(const ng_cublaslt *lt, const cublasLtMatmulAlgo_t *algorithm) {
    uint64_t flags = 0;
    size_t written;
    if (lt->MatmulAlgoCapGetAttribute(algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags, &written)) return true;
    return (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK) != 0;
}

/* Where K is cut is not told: at most one cut a step. */
static void refine(const ng_cublaslt *lt, const ng_kernel *kernel, const ng_problem *problem, const cublasLtMatmulHeuristicResult_t *found,
                   ng_accumulation *sum) {
    const cublasLtMatmulAlgo_t *algorithm = &found->algo;
    const uint32_t id = number(lt, algorithm, CUBLASLT_ALGO_CONFIG_ID, 4);
    const int32_t parts = (int32_t)number(lt, algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4);
    const int64_t steps = (problem->k + sum->mma.k - 1) / sum->mma.k, most = parts >= 1 ? parts : steps;
    const bool squares = sum->scales == NG_SCALES_BLOCK_FMA_PRODUCT; /* 6 parts of K: 38 of 64 elements were off by an ulp */
    if (cut_of(id, parts, problem->k, found->workspaceSize, sum) && !(squares && parts > 1)) return;
    sum->split_k = (uint16_t)(most < UINT16_MAX ? most : UINT16_MAX);
    sum->split_unknown = true;
    if (!on_tensor_cores(lt, algorithm)) *sum = (ng_accumulation){.order = NG_SUM_ANY, .scales = sum->scales};
    /* The kernel that adds the parts applies the epilogue to a sum in OUT's format (measured: algorithm 24). */
    if (parts > 1 && kernel->contract.bias) sum->rounds_to = kernel->out;
}

ng_status ng_cublaslt_describe(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device, int variant,
                               ng_contract *contract, char *text, size_t bytes) {
    const char *why;
    const ng_cublaslt *lt = ng_cublaslt_library(&why);
    answers found;
    (void)device;
    if (!lt) return NG_UNSUPPORTED;
    ask(lt, kernel, problem, &found);
    if (variant < 0 || variant >= found.count) return NG_UNSUPPORTED;
    const cublasLtMatmulAlgo_t *algorithm = &found.list[variant].algo;
    const int32_t parts = (int32_t)number(lt, algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4);
    *contract = kernel->contract;
    if (contract->sum.order == NG_SUM_MMA) refine(lt, kernel, problem, &found.list[variant], &contract->sum);
    snprintf(text, bytes, "algorithm %u, tile %u, stages %u, split-K %d, reduction %u, swizzle %u, custom %u, inner %u, cluster %u",
             number(lt, algorithm, CUBLASLT_ALGO_CONFIG_ID, 4), number(lt, algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
             number(lt, algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4), parts,
             number(lt, algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4), number(lt, algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
             number(lt, algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4), number(lt, algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
             number(lt, algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2));
    return NG_OK;
}

/* ---- launch ---------------------------------------------------------------------------------------------------------*/
static ng_status check_scales(const ng_launch *launch, const ng_quantization *q, ng_role role, int64_t rows, int64_t k) {
    int64_t scale_rows, scale_columns;
    if (q->rule == NG_SCALE_ABSENT) return NG_OK;
    ng_cuda_scale_extents(q, rows, k, &scale_rows, &scale_columns);
    return ng_cuda_check(launch, role, q->scale, scale_rows, scale_columns);
}

static ng_status check(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_contract *c = &kernel->contract;
    const ng_problem *p = launch->problem;
    ng_status status = ng_cuda_check(launch, NG_A, kernel->in, c->a_transposed ? p->k : p->m, c->a_transposed ? p->m : p->k);
    if (!status) status = ng_cuda_check(launch, NG_B, kernel->in_b, c->b_transposed ? p->k : p->n, c->b_transposed ? p->n : p->k);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, p->m, p->n);
    if (!status) status = check_scales(launch, &c->a, NG_A_SCALES, p->m, p->k);
    if (!status) status = check_scales(launch, &c->b, NG_B_SCALES, p->n, p->k);
    if (!status && c->bias) status = ng_cuda_check(launch, NG_BIAS, kernel->out, 1, p->n);
    if (!status && c->a.tensor_scale) status = ng_cuda_check(launch, NG_A_TENSOR_SCALE, NG_FP32, 1, 1);
    if (!status && c->b.tensor_scale) status = ng_cuda_check(launch, NG_B_TENSOR_SCALE, NG_FP32, 1, 1);
    return status;
}

/* Alpha is the product of the tensor scales, computed on the device; otherwise 1. */
static ng_status prepare(const ng_kernel *kernel, const ng_launch *launch, const division *d, const void *in[2]) {
    const ng_contract *c = &kernel->contract;
    char *room = launch->workspace;
    ng_status status = NG_OK;
    in[0] = launch->tensors[NG_A].data;
    in[1] = launch->tensors[NG_B].data;
    if (d->factors) status = ng_cublaslt_factors(launch, (float *)(void *)room);
    if (status || !mode_of(kernel)->dequantize) return status;
    in[0] = room + d->factors;
    in[1] = room + d->factors + d->a;
    return ng_cuda_dequantize_bf16(launch, &c->a, &c->b, room + d->factors, room + d->factors + d->a);
}

static ng_status multiply(const ng_cublaslt *lt, const ng_kernel *kernel, const ng_launch *launch, const cublasLtMatmulHeuristicResult_t *found) {
    static const float one = 1, zero = 0;
    const division d = divide(kernel, launch->problem);
    const size_t own = d.factors + d.a + d.b;
    const bool into = kernel->contract.accumulate_into;
    const void *in[2], *alpha = &one, *beta = into ? &one : &zero;
    char *room = launch->workspace;
    if ((own || found->workspaceSize) && (!room || launch->workspace_bytes < own + found->workspaceSize))
        return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "workspace of %zu bytes is missing", own + found->workspaceSize);
    ng_status status = prepare(kernel, launch, &d, in);
    if (status) return status;
    if (d.factors) {
        alpha = room;
        beta = room + sizeof(float) * (into ? 1 : 2); /* factors: alpha, 1, 0 */
    }
    operation o;
    begin(&o, lt, kernel, launch->problem, launch);
    void *out = launch->tensors[NG_OUT].data;
    if (!o.status)
        keep(&o, lt->Matmul(lt->handle, o.multiply, alpha, in[1], o.first, in[0], o.second, beta, out, o.out, out, o.out, &found->algo,
                            room ? room + own : NULL, found->workspaceSize, (cudaStream_t)launch->stream));
    end(&o);
    if (!o.status) return NG_OK;
    return ng_cuda_fail(launch, o.status == CUBLAS_STATUS_NOT_SUPPORTED ? NG_UNSUPPORTED : NG_DEVICE, "cublasLtMatmul: %s", lt->GetStatusName(o.status));
}

ng_status ng_cublaslt_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const char *why;
    const ng_cublaslt *lt = ng_cublaslt_library(&why);
    answers found;
    if (!lt) return ng_cuda_fail(launch, NG_UNSUPPORTED, "%s", why);
    ng_status status = check(kernel, launch);
    if (status) return status;
    ask(lt, kernel, launch->problem, &found);
    if (found.status) return ng_cuda_fail(launch, NG_UNSUPPORTED, "%s", refusal(found.status));
    if (launch->variant < 0 || launch->variant >= found.count)
        return ng_cuda_fail(launch, NG_UNSUPPORTED, "the heuristic offers %d algorithms, %d was asked for", found.count, launch->variant + 1);
    return multiply(lt, kernel, launch, &found.list[launch->variant]);
}
