/* The kernel interface, which is also the plug-in ABI: a kernel is a constant descriptor with a contract and functions.
 * The program knows built-in kernels only through these descriptors; `--plugin libmine.so` adds a library's own.
 * Plain C, usable from CUDA C++. A plug-in exports ng_plugin_entry (bottom of this file). */
#ifndef NG_KERNEL_H
#define NG_KERNEL_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NG_ABI_VERSION 1u

typedef enum ng_op {
    NG_OP_CAST,       /* IN (rows, columns) -> OUT, element by element, contract.cast */
    NG_OP_QUANTIZE,   /* IN -> OUT codes + OUT_SCALES (+ OUT_TENSOR_SCALE); blocks along columns */
    NG_OP_DEQUANTIZE, /* IN codes + IN_SCALES (+ IN_TENSOR_SCALE) -> OUT, contract.cast: one rounding of the exact product */
    NG_OP_GEMM,       /* OUT[m][n] = sum over k A[m][k] B[n][k] (+ BIAS[n]); A, B stored with k contiguous ("TN"), or as
                         contract.a_transposed and b_transposed say */
    NG_OP_HADAMARD,   /* IN -> OUT: contract.hadamard over groups of columns, contract.cast (contract_hadamard.h) */
    NG_OP_NORM_FORWARD,  /* IN (+ IN_2), PARAMETER gamma, PARAMETER_2 beta -> OUT, MEAN, RSTD (+ OUT_2, scales): contract_norm.h */
    NG_OP_NORM_BACKWARD, /* IN, GRADIENT, PARAMETER, PARAMETER_2, MEAN, RSTD -> OUT dx, OUT_2 dgamma, OUT_3 dbeta */
    NG_OP_OPTIMIZER,     /* PARAMETER, MOMENT_1, MOMENT_2 changed in place by GRADIENT, and the steps around: contract_optimizer.h */
    NG_OP_ACTIVATION,    /* IN (, IN_2) -> OUT (+ scales): contract_activation.h */
    NG_OP_LOSS,          /* IN, LABELS -> OUT [R][1], ROW_MAX, ROW_SUM */
    NG_OP_ACTIVATION_BACKWARD, /* IN (, IN_2), GRADIENT -> OUT (, OUT_2) */
    NG_OP_LOSS_BACKWARD, /* IN, LABELS, ROW_MAX, ROW_SUM, GRADIENT [R][1] -> OUT */
    NG_OP_SCALE_UPDATE,  /* IN, IN_2 -> OUT, OUT_2, OUT_3: contract_scale_update.h */
    NG_OP_ATTENTION_FORWARD, /* these and what follows: contract_layer.h */
    NG_OP_ATTENTION_BACKWARD,
    NG_OP_ROPE,
    NG_OP_ADD,
    NG_OP_TRANSPOSE,
    NG_OP_EMBEDDING_FORWARD,
    NG_OP_EMBEDDING_BACKWARD,
    NG_OPS,
} ng_op;

typedef enum ng_phase { NG_NO_PHASE, NG_FPROP, NG_DGRAD, NG_WGRAD, NG_PHASES } ng_phase;

typedef enum ng_backend { NG_BACKEND_CPU, NG_BACKEND_CUDA, NG_BACKENDS } ng_backend;

/* The tensors of a launch. Shapes in elements, row-major; R rows, C columns of the operation's input. */
typedef enum ng_role {
    NG_IN,               /* [R][C] */
    NG_IN_SCALES,        /* one scale a block, [ceil(R / block rows)][ceil(C / block columns)] */
    NG_IN_TENSOR_SCALE,  /* [1][1] fp32, decoding */
    NG_OUT,              /* [R][C], or [m][n] of a product */
    NG_OUT_SCALES,       /* as IN_SCALES */
    NG_OUT_TENSOR_SCALE, /* [1][1] fp32, decoding */
    NG_OUT_T,            /* [C][R]: the transposed tensor, quantized along its own columns (column-wise quantization) */
    NG_OUT_T_SCALES,
    NG_A,                /* [m][k]; [k][m] with contract.a_transposed */
    NG_A_SCALES,
    NG_A_TENSOR_SCALE,
    NG_B,                /* [n][k]; [k][n] with contract.b_transposed */
    NG_B_SCALES,
    NG_B_TENSOR_SCALE,
    NG_BIAS,             /* [1][n], of OUT's format */
    NG_RANDOM_WORDS,     /* [R][C] in uint32 (fp32 storage): the random integers R of stochastic rounding, one an element,
                            low r bits used. Absent: the kernel draws its own from (seed, offset). */
    NG_SCALE_GIVEN_IN,   /* [1][1] fp32: the encoding scale of NG_SCALE_GIVEN */
    NG_PARAMETER,        /* optimizers and norms: weights; gamma [1][C] */
    NG_PARAMETER_2,      /* master weights; beta [1][C] */
    NG_GRADIENT,
    NG_MOMENT_1,
    NG_MOMENT_2,
    NG_MEAN,             /* [R][1] fp32 */
    NG_RSTD,             /* [R][1] fp32 */
    NG_OUT_2,
    NG_OUT_3,
    NG_IN_2,             /* [R][C]: norms: the residual that is added to IN */
    NG_OUT_T_TENSOR_SCALE, /* [1][1] fp32, decoding: OUT_T's, where a Hadamard transform makes it another tensor than OUT */
    NG_FOUND_INF,        /* [1][1] fp32: optimizers and their scaler, this and the next three */
    NG_LOSS_SCALE,
    NG_GROWTH_COUNT,
    NG_STEP_COUNT,
    NG_MOMENT_1_SCALES,  /* [R][ceil(C / 128)] fp32: of fp8 moments */
    NG_MOMENT_2_SCALES,
    NG_LABELS,           /* [R][1] int32 (fp32 storage) */
    NG_ROW_MAX,          /* [R][1] fp32 */
    NG_ROW_SUM,          /* [R][1] fp32 */
    NG_TOKENS,           /* [R][1] int32 (fp32 storage) */
    NG_ROLES,
} ng_role;

/* Scalars of an operation, by name, exactly as the user passed them. */
typedef enum ng_scalar {
    NG_EPSILON, NG_LEARNING_RATE, NG_BETA1, NG_BETA2, NG_WEIGHT_DECAY, NG_STEP, NG_GRADIENT_SCALE, NG_ALPHA, NG_BETA,
    NG_GROWTH, NG_BACKOFF, NG_GROWTH_INTERVAL, NG_MAX_NORM,
    NG_HEADS, NG_SEQUENCE, /* of attention: heads of a token; tokens of a sequence */
    NG_SCALARS,
} ng_scalar;

typedef struct ng_problem {
    ng_op op;
    ng_phase phase;
    int64_t m, n, k;      /* products: OUT is m x n. Other operations: m rows, n columns, k 0 */
    uint32_t block;       /* unused */
    uint64_t seed, offset; /* stochastic rounding without NG_RANDOM_WORDS */
    double scalars[NG_SCALARS];
} ng_problem;

typedef struct ng_device {
    ng_backend backend;
    int index;        /* CUDA device ordinal */
    int sm;           /* 90 for Hopper; 0 on a CPU */
    int threads;      /* CPU threads a kernel may use; results never depend on it */
    size_t memory;    /* bytes */
    bool portable;    /* CPU: plain C only, no instruction-set dispatch; results never depend on it */
} ng_device;

typedef struct ng_contract {
    ng_cast cast;                 /* of the result, whatever the operation */
    ng_quantization quantization; /* NG_OP_QUANTIZE: of the result; NG_OP_DEQUANTIZE: of the input */
    ng_quantization a, b;         /* NG_OP_GEMM: how the operands are quantized; rule NG_SCALE_ABSENT for plain formats */
    ng_accumulation sum;          /* NG_OP_GEMM */
    bool accumulate_into;         /* NG_OP_GEMM: adds to what OUT holds */
    ng_determinism determinism;
    bool bias;                    /* NG_OP_GEMM: NG_BIAS is added to the sum, in binary32, before the cast */
    bool a_transposed, b_transposed; /* NG_OP_GEMM, plain formats: stored [k][m], [k][n] ("NN": b, "NT": both) */
    ng_norm norm;                 /* NG_OP_NORM_FORWARD, NG_OP_NORM_BACKWARD */
    ng_optimizer optimizer;       /* NG_OP_OPTIMIZER */
    ng_activation activation;     /* NG_OP_ACTIVATION, NG_OP_ACTIVATION_BACKWARD */
    ng_scale_update scale_update; /* NG_OP_SCALE_UPDATE */
    ng_hadamard hadamard;         /* NG_OP_HADAMARD; NG_OP_QUANTIZE: before the quantization */
    ng_layer layer;               /* contract_layer.h */
} ng_contract;

typedef struct ng_launch {
    const ng_problem *problem;
    const ng_device *device;
    ng_tensor tensors[NG_ROLES]; /* data NULL where a role is absent */
    void *workspace;             /* in the device's space, of the size that `workspace` asked for */
    size_t workspace_bytes;
    void *stream;                /* cudaStream_t, or NULL on a CPU */
    int variant;                 /* 0 .. variants() - 1 */
    char *message;               /* where a failing launch says why; may be NULL */
    size_t message_bytes;
    /* Many tensors in one launch (NG_OP_OPTIMIZER): where list_count is not 0, the i-th tensor of a role is lists[role][i], and tensors
     * [role] holds the roles of one number alone (FOUND_INF ...) and OUT. The arrays are host memory, read before launch returns.
     * The problem is then 1 x all their elements, and k all their rows. */
    int64_t list_count;
    const ng_tensor *lists[NG_ROLES];
} ng_launch;

typedef struct ng_kernel {
    const char *name; /* "gemm/e4m3/cpu/fp32-chain/bf16-out": operation/format/backend/variant..., unique, never reused */
    ng_op op;
    ng_backend backend;
    ng_format_id in;  /* IN or A */
    ng_format_id in_b; /* B; NG_NO_FORMAT otherwise */
    ng_format_id out;
    ng_contract contract;
    /* NULL if this problem runs on this device, else the reason why not (a constant string). */
    const char *(*supports)(const struct ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
    /* Bytes of workspace; may be NULL (none). */
    size_t (*workspace)(const struct ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
    /* Enqueues (GPU) or performs (CPU) the operation. Must not touch anything outside the tensors and workspace, nor
     * change its inputs. Anything but NG_OK fails the case with launch->message. */
    ng_status (*launch)(const struct ng_kernel *kernel, const ng_launch *launch);
    /* Number of algorithms for a problem; NULL: one. */
    int (*variants)(const struct ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
    const void *state; /* the kernel's own constant data */
    /* What a variant keeps to where that is more than kernel->contract says (the split of K, say), and what it is, in words:
     * "algorithm 66, tile 128x256, split-K 2". NULL: kernel->contract and nothing to say. NG_UNSUPPORTED: there is no such variant. */
    ng_status (*describe)(const struct ng_kernel *kernel, const ng_problem *problem, const ng_device *device, int variant,
                          ng_contract *contract, char *text, size_t bytes);
} ng_kernel;

typedef struct ng_plugin {
    uint32_t abi_version;  /* NG_ABI_VERSION of the header it was built with; checked before anything else is read */
    uint32_t kernel_bytes; /* sizeof(ng_kernel) */
    uint32_t count;
    const ng_kernel *const *kernels; /* [count] */
    const char *name;      /* "mykernels 1.2" */
} ng_plugin;

/* What a plug-in exports, with C linkage. */
#define NG_PLUGIN_ENTRY "ng_plugin_entry"
typedef const ng_plugin *(*ng_plugin_function)(void);

#ifdef __cplusplus
}
#endif
#endif
