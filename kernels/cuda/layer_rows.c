/* The CUDA kernels of a Transformer's other operations, from the rows that the CPU's are made from. */
#include "kernels/common/layer_rows.h"
#include "kernels/catalogue.h"
#include "kernels/cuda/cuda.h"

#define NG_ATTENTION(operation, OPERATION, name_, format, variant, ...)                                             \
    {.name = operation "/" name_ "/cuda/" variant, .op = OPERATION, .backend = NG_BACKEND_CUDA, .in = format,     \
     .in_b = NG_NO_FORMAT, .out = format, .contract = NG_LAYER_CONTRACT(__VA_ARGS__),                             \
     .supports = ng_cuda_attention_supports, .workspace = ng_cuda_attention_workspace, .launch = ng_cuda_launch_attention},

/* On tensor cores: a contract that no CPU kernel has. */
#define MMA(operation, OPERATION)                                                                                 \
    {.name = operation "/bf16/cuda/causal-mma", .op = OPERATION, .backend = NG_BACKEND_CUDA, .in = NG_BF16,       \
     .in_b = NG_NO_FORMAT, .out = NG_BF16,                                                                        \
     .contract = NG_LAYER_CONTRACT(.compute = NG_FP32, .causal = true, .exp_error = 2, .products = NG_ATTENTION_MMA), \
     .supports = ng_cuda_attention_supports, .workspace = ng_cuda_attention_workspace, .launch = ng_cuda_launch_attention_mma},

static const ng_kernel attentions[] = {
    NG_ATTENTION_ROWS
    MMA("attention-forward", NG_OP_ATTENTION_FORWARD)
    MMA("attention-backward", NG_OP_ATTENTION_BACKWARD)
};

#define LAYER(operation, OPERATION, name_, in_format, out_format, real, variant, turned, function)                  \
    {.name = operation "/" name_ "/cuda/" variant, .op = OPERATION, .backend = NG_BACKEND_CUDA, .in = in_format,  \
     .in_b = NG_NO_FORMAT, .out = out_format, .contract = NG_LAYER_CONTRACT(.compute = real, .inverse = turned),  \
     .supports = ng_cuda_supports, .launch = function},
#define NG_ROPE(name, format, real, variant, turned) LAYER("rope", NG_OP_ROPE, name, format, format, real, variant, turned, ng_cuda_launch_rope)
#define NG_ADD(name, format, real, variant) LAYER("add", NG_OP_ADD, name, format, format, real, variant, false, ng_cuda_launch_add)
#define NG_TRANSPOSE(name, format, real, variant) \
    LAYER("transpose", NG_OP_TRANSPOSE, name, format, format, real, variant, false, ng_cuda_launch_transpose)
#define NG_EMBEDDING(name, format, real, variant) \
    LAYER("embedding-forward", NG_OP_EMBEDDING_FORWARD, name, format, format, real, variant, false, ng_cuda_launch_embedding)
#define NG_EMBEDDING_BACKWARD(name, format, real, variant) \
    LAYER("embedding-backward", NG_OP_EMBEDDING_BACKWARD, name, format, real, real, variant, false, ng_cuda_launch_embedding)

static const ng_kernel layers[] = {NG_LAYER_ROWS};

const ng_kernel_list ng_cuda_attentions = {attentions, sizeof attentions / sizeof *attentions};
const ng_kernel_list ng_cuda_layers = {layers, sizeof layers / sizeof *layers};
