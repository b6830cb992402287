/* Transformer models as Hugging Face config.json files describe them, and the products that training one layer takes. */
#ifndef NG_HARNESS_MODEL_H
#define NG_HARNESS_MODEL_H

#include "harness/error.h"
#include "kernels/kernel.h"

typedef struct ng_model {
    char name[48];                   /* the file's name without .json, or the folder's for config.json: "llama3-8b" */
    int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary;
    bool gated;                      /* SwiGLU-like MLP: gate and up projections, fused in one product */
    int64_t experts, experts_per_token, expert_intermediate, shared_experts, dense_layers; /* mixture of experts; 0: none */
    int64_t q_lora_rank, kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim;      /* multi-head latent attention; 0: none */
    bool tied_head;
} ng_model;

/* One weight's product in one phase. The product executed: OUT[m][n] = sum_k A[m][k] B[n][k].
 * tokens T, weight [out][in]: fprop m=T n=out k=in (x, w); dgrad m=T n=in k=out (dy, w^T); wgrad m=out n=in k=T (dy^T, x^T). */
typedef struct ng_model_product {
    char layer[48];                  /* "qkv", "attn_out", "mlp_up", "mlp_down", "moe_up", "lm_head", ... */
    ng_phase phase;
    int64_t m, n, k;
    int64_t count;                   /* how many like it one training step of the whole model runs */
} ng_model_product;

/* Reads a config.json. Errors name the member that is missing, zero or absurd. */
ng_status ng_model_load(const char *path, ng_model *model, ng_error *error);
/* The same from memory; path names the model and is for messages. */
ng_status ng_model_parse(const char *text, size_t size, const char *path, ng_model *model, ng_error *error);

/* Writes at most `capacity` products and the number that there are. tensor_parallel divides what Megatron-LM divides;
 * extents that it does not divide, or that overflow, are errors. */
ng_status ng_model_products(const ng_model *model, int64_t batch, int64_t sequence, int64_t tensor_parallel,
                            ng_model_product *products, size_t capacity, size_t *count, ng_error *error);

#endif
