/* A decoder Transformer whose every operation is a kernel of the catalogue (kernels/kernel.h): embedding, blocks of norm, attention with
 * rotary position, norm and GELU or SwiGLU, a last norm, a head tied to the embedding. T = batch * sequence tokens, D width, F hidden,
 * V vocabulary, L layers. Parameters and their gradients are binary32 (binary64 under fp64) and lie in one row each, so that the optimizer
 * and a checkpoint see one tensor; products read `working` copies in the recipe's format. */
#ifndef NG_SUITES_TRAINING_MODEL_H
#define NG_SUITES_TRAINING_MODEL_H

#include "suites/training/recipe.h"

typedef struct ng_model_shape {
    int64_t layers, width, heads, hidden, sequence, batch, vocabulary;
    bool rms, swiglu; /* RMSNorm in place of LayerNorm, SwiGLU in place of GELU */
} ng_model_shape;

/* NG_BAD_ARGUMENT: with what does not fit. */
ng_status ng_model_shape_check(const ng_model_shape *shape, ng_error *error);

typedef enum ng_part {
    NG_PART_EMBEDDING, NG_PART_QKV, NG_PART_PROJECTION, NG_PART_GATE, NG_PART_UP, NG_PART_DOWN, /* decayed, quantized but for the first */
    NG_PART_GAMMA_1, NG_PART_BETA_1, NG_PART_GAMMA_2, NG_PART_BETA_2, NG_PART_GAMMA, NG_PART_BETA,
    NG_PARTS,
} ng_part;
extern const char *const ng_part_names[NG_PARTS];

typedef struct ng_parameter {
    char name[40]; /* "block 0 qkv" */
    ng_part part;
    int layer;     /* -1: none */
    int64_t at, rows, columns;
    ng_tensor master, gradient, working;
} ng_parameter;

/* Where each parameter lies in the row of all of them: matrices first, so that what decays is one range. */
typedef struct ng_layout {
    ng_parameter *parameters;
    size_t count;
    int64_t decayed, total; /* elements, padding of each to 64 included */
    int64_t elements;       /* without padding */
} ng_layout;
ng_status ng_layout_create(const ng_model_shape *shape, ng_layout *layout, ng_error *error);
void ng_layout_free(ng_layout *layout);
/* Initial weights [total] of a seed: gamma 1, beta 0, matrices uniform with deviation 1 / sqrt(columns), divided by sqrt(2 L) at the ends of
 * branches and by 2 in the embedding. */
void ng_layout_initialize(const ng_layout *layout, const ng_model_shape *shape, uint64_t seed, float *weights);

/* ---- linear layers: y = x W^T, dx = dy W, dW = dy^T x --------------------------------------------------------------*/
typedef struct ng_operand_memory {
    ng_tensor codes, converted; /* converted: cast, not yet transposed; or dequantized; or not yet rotated */
    ng_tensor scales, repeated, tensor_scale;
} ng_operand_memory;

typedef struct ng_linear {
    const ng_product_rules *rules;
    ng_parameter *weight;
    int64_t inputs, outputs;
    int index;             /* among the model's linear layers; the head: -1 */
    ng_operand_memory memory[2][NG_OPERANDS], *operands; /* of the plain and of the quantized rules; those in use */
} ng_linear;

typedef struct ng_delayed { /* of one element format: maxima of the last steps, scales in use, everything fp32 */
    const ng_kernel *update, *own; /* own: the quantizer by the tensor's own maximum */
    ng_tensor history, rolled; /* [NG_HISTORY][slots] */
    ng_tensor scales, next, decode; /* [1][slots] */
    ng_tensor found;           /* [1][1], of the kernel that turns scales into maxima */
} ng_delayed;
enum { NG_HISTORY = 16 };

typedef struct ng_block_state {
    ng_tensor input, normed_1, mean_1, rstd_1, rotated, attended, middle, normed_2, mean_2, rstd_2, up, gate, activated;
    ng_linear qkv, projection, up_layer, gate_layer, down;
} ng_block_state;

typedef struct ng_model_kernels {
    const ng_kernel *norm, *norm_residual, *norm_backward, *activation, *activation_backward, *loss, *loss_backward, *attention,
        *attention_backward, *rope, *rope_inverse, *add, *transpose, *transpose_cast, *embedding, *embedding_backward, *gather_scales,
        *gather_unit, *adam, *adam_fused, *cast, *norm2, *clip, *unscale, *scaler;
} ng_model_kernels;

typedef struct ng_model_state {
    ng_engine *engine;
    ng_recipe_choice choice;
    ng_model_shape shape;
    ng_layout layout;
    ng_product_rules quantized, plain;
    ng_model_kernels kernels;
    ng_pool pool;
    ng_format_id format, wide; /* of activations; of parameters, gradients, statistics */
    bool scaled;               /* dynamic loss scaling */
    double loss_weight;        /* the gradient is that of loss_weight times the mean loss */
    uint64_t seed, draws;      /* of stochastic rounding; draws: launches that drew, this step's in the low 20 bits */
    int64_t step;              /* updates so far */
    ng_block_state *blocks;    /* [layers] */
    ng_linear head;
    int linear_count;
    ng_tensor master, gradient, moment_1, moment_2, working; /* [1][total] */
    ng_tensor cosines, sines, sixteenths, zeros; /* rotary tables; row / 16 of each row; [T][1] of token 0 */
    ng_tensor last, normed, mean, rstd, logits, row_max, row_sum, row_gradient;
    ng_tensor qkv, branch, d_stream, d_stream_2, d_branch, d_width, d_attended, d_rotated, d_qkv, d_hidden, d_up, d_gate, d_width_2, d_logits;
    ng_tensor loss_scale, growth, found_inf; /* [1][1] fp32 */
    ng_delayed delayed[2];     /* e4m3: x and w of each linear layer; e5m2: dy */
} ng_model_state;

/* After this, weights are to be set. Zero step. */
ng_status ng_model_create(ng_engine *engine, const ng_recipe_choice *choice, const ng_model_shape *shape, double loss_weight,
                          ng_model_state *model, ng_error *error);
void ng_model_destroy(ng_model_state *model);

/* A run's beginning: weights [total], moments and step zero, scales as at first. */
ng_status ng_model_begin(ng_model_state *model, const float *weights, uint64_t seed, ng_error *error);
/* Working copies from the masters; after weights were set, and after an update. */
ng_status ng_model_refresh(ng_model_state *model, ng_error *error);
/* Which blocks are quantized: all but those that the recipe keeps; or of these one alone (quantized_only >= 0), for evaluation. */
void ng_model_quantize_blocks(ng_model_state *model, int quantized_only);

/* Losses of the tokens [T][1] (int32 in fp32 storage; loss in model->wide's format). training: also keeps what backward needs. */
ng_status ng_model_forward(ng_model_state *model, const ng_tensor *tokens, const ng_tensor *targets, bool training, const ng_tensor *losses, ng_error *error);
/* Gradients of loss_weight (times the loss scale) times the mean loss, into model->gradient. */
ng_status ng_model_backward(ng_model_state *model, const ng_tensor *tokens, const ng_tensor *targets, ng_error *error);

typedef struct ng_update_options {
    double rate, beta_1, beta_2, epsilon, decay, max_norm;
} ng_update_options;
/* Unscales, clips and applies the gradients; norm [1][1]: of the gradients before clipping. */
ng_status ng_model_update(ng_model_state *model, const ng_update_options *options, const ng_tensor *norm, ng_error *error);

/* ---- linear.c -----------------------------------------------------------------------------------------------------*/
ng_status ng_linear_create(ng_model_state *model, ng_part part, int layer, ng_linear *linear, ng_error *error);
ng_status ng_linear_forward(ng_model_state *model, ng_linear *linear, const ng_tensor *x, bool training, const ng_tensor *y, ng_error *error);
/* After a forward in training. */
void ng_linear_choose(ng_model_state *model, ng_linear *linear, bool quantized);
/* dx NULL: not wanted. */
ng_status ng_linear_backward(ng_model_state *model, ng_linear *linear, const ng_tensor *dy, const ng_tensor *dx, ng_error *error);
ng_status ng_delayed_create(ng_model_state *model, ng_error *error);
ng_status ng_delayed_begin(ng_model_state *model, ng_error *error);
ng_status ng_delayed_update(ng_model_state *model, ng_error *error);

/* A launch's problem: rows, columns, the next draw. */
ng_problem ng_model_problem(ng_model_state *model, const ng_kernel *kernel, int64_t m, int64_t n, int64_t k);

#endif
