/* The CUDA optimizers', activations' and losses' descriptors, from the rows that the CPU's are made from. */
#include "kernels/catalogue.h"
#include "kernels/common/activation_rows.h"
#include "kernels/common/optimizer_rows.h"
#include "kernels/cuda/cuda.h"

#define NG_ADAM(o, i, I, G, variant, kind, master, m1, m2, correction, capturable)                                      \
    {.name = o "/" i "/cuda/" variant, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CUDA, .in = G, .in_b = NG_NO_FORMAT, \
     .out = I, .contract = NG_ADAM_CONTRACT(kind, master, m1, m2, correction, capturable),                              \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_adam},
#define NG_STEP(o, i, I, variant, kind)                                                                                 \
    {.name = o "/" i "/cuda/" variant, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CUDA, .in = I, .in_b = NG_NO_FORMAT, \
     .out = I, .contract = NG_STEP_CONTRACT(kind), .supports = ng_cuda_supports, .workspace = ng_cuda_steps_workspace,  \
     .launch = ng_cuda_launch_steps},

static const ng_kernel optimizers[] = {NG_ADAM_ROWS NG_STEP_ROWS};

#define FORWARD(o, k, i, I, o_, O, form, variant, bytes, launcher)                                                      \
    {.name = o "/" i "->" o_ "/cuda/" variant, .op = NG_OP_ACTIVATION, .backend = NG_BACKEND_CUDA, .in = I,             \
     .in_b = NG_NO_FORMAT, .out = O, .contract = NG_ACTIVATION_CONTRACT(k, form), .supports = ng_cuda_supports,         \
     .workspace = bytes, .launch = launcher},
#define NG_FORWARD(...) FORWARD(__VA_ARGS__, "fused", NULL, ng_cuda_launch_activation)
#define NG_UNFUSED(...) FORWARD(__VA_ARGS__, "unfused", ng_cuda_activation_unfused_workspace, ng_cuda_launch_activation_unfused)
#define NG_BACKWARD(o, k, i, I)                                                                                         \
    {.name = o "/" i "/cuda/fused", .op = NG_OP_ACTIVATION_BACKWARD, .backend = NG_BACKEND_CUDA, .in = I,               \
     .in_b = NG_NO_FORMAT, .out = I, .contract = NG_ACTIVATION_CONTRACT(k, PLAIN), .supports = ng_cuda_supports,        \
     .launch = ng_cuda_launch_activation},

static const ng_kernel activations[] = {NG_ACTIVATION_ROWS};

#define NG_LOSS(i, I)                                                                                                   \
    {.name = "cross-entropy/" i "/cuda/fused", .op = NG_OP_LOSS, .backend = NG_BACKEND_CUDA, .in = I,                   \
     .in_b = NG_NO_FORMAT, .out = NG_FP32, .contract = {.cast = NG_NORM_CAST, .determinism = NG_DETERMINISTIC},         \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_loss},                                                      \
    {.name = "cross-entropy-backward/" i "/cuda/fused", .op = NG_OP_LOSS_BACKWARD, .backend = NG_BACKEND_CUDA, .in = I, \
     .in_b = NG_NO_FORMAT, .out = I, .contract = {.cast = NG_NORM_CAST, .determinism = NG_DETERMINISTIC},               \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_loss},

static const ng_kernel losses[] = {NG_LOSS_ROWS};

const ng_kernel_list ng_cuda_optimizers = {optimizers, sizeof optimizers / sizeof *optimizers};
const ng_kernel_list ng_cuda_activations = {activations, sizeof activations / sizeof *activations};
const ng_kernel_list ng_cuda_losses = {losses, sizeof losses / sizeof *losses};
