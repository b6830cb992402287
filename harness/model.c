/* Transformer models from config.json, and the products that one training step of them runs.
 * Member names are those of Hugging Face transformers' configuration classes (Llama, GPT-2, Mixtral, DeepSeek-V3, Qwen). */
#include "harness/model.h"

#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LIMIT = 4 << 20 }; /* bytes; a model description takes thousands */
static const int64_t MEMBER_LIMIT = INT32_MAX;
static const int64_t ELEMENT_LIMIT = (int64_t)1 << 60;

/* ---- members ------------------------------------------------------------------------------------------------------------*/
typedef struct member {
    const char *names[3]; /* the first that is there and not null counts */
    size_t offset;        /* of an int64_t in ng_model */
    int64_t least;
    bool required;
} member;

#define AT(field) offsetof(ng_model, field)
static const member members[] = {
    {{"hidden_size", "n_embd", "d_model"}, AT(hidden), 1, true},
    {{"num_hidden_layers", "n_layer"}, AT(layers), 1, true},
    {{"num_attention_heads", "n_head"}, AT(heads), 1, true},
    {{"vocab_size"}, AT(vocabulary), 1, true},
    {{"intermediate_size", "n_inner", "ffn_dim"}, AT(intermediate), 1, false},
    {{"num_key_value_heads"}, AT(kv_heads), 1, false},
    {{"head_dim"}, AT(head_dim), 1, false},
    {{"num_local_experts", "n_routed_experts", "num_experts"}, AT(experts), 0, false},
    {{"num_experts_per_tok"}, AT(experts_per_token), 0, false},
    {{"moe_intermediate_size"}, AT(expert_intermediate), 1, false},
    {{"n_shared_experts"}, AT(shared_experts), 0, false},
    {{"first_k_dense_replace"}, AT(dense_layers), 0, false},
    {{"q_lora_rank"}, AT(q_lora_rank), 1, false},
    {{"kv_lora_rank"}, AT(kv_lora_rank), 1, false},
    {{"qk_rope_head_dim"}, AT(qk_rope_head_dim), 1, false},
    {{"qk_nope_head_dim"}, AT(qk_nope_head_dim), 1, false},
    {{"v_head_dim"}, AT(v_head_dim), 1, false},
};
#undef AT

/* What the class of a model fixes without a member for it. Others: an MLP with a SiLU gates, a head is its own. */
static const struct {
    const char *type;
    bool gated, tied_head;
} model_types[] = {
    {"gpt2", false, true},     {"gpt_neo", false, true},    {"gpt_neox", false, false}, {"gptj", false, false},
    {"bert", false, true},     {"roberta", false, true},    {"esm", false, true},       {"opt", false, true},
    {"bloom", false, true},    {"phi", false, false},       {"llama", true, false},     {"mistral", true, false},
    {"mixtral", true, false},  {"qwen2", true, false},      {"qwen3", true, false},     {"qwen2_moe", true, false},
    {"qwen3_moe", true, false}, {"gemma", true, true},      {"gemma2", true, true},     {"gemma3_text", true, true},
    {"phi3", true, false},     {"deepseek_v2", true, false}, {"deepseek_v3", true, false}, {"olmo2", true, false},
};

typedef struct config {
    const cJSON *object;
    const char *path;
    ng_error *error;
} config;

/* The member, or NULL where it is absent or null. Two of a name are an error: readers disagree on which counts. */
static ng_status find(const config *c, const char *name, const cJSON **found) {
    *found = NULL;
    int count = 0;
    for (const cJSON *item = c->object->child; item; item = item->next)
        if (item->string && !strcmp(item->string, name)) {
            if (!cJSON_IsNull(item)) *found = item;
            if (++count > 1) return ng_fail(c->error, NG_IO, "%s: two members \"%s\"", c->path, name);
        }
    return NG_OK;
}

static const char *kind_of(const cJSON *item) {
    return cJSON_IsString(item) ? "a string" : cJSON_IsBool(item) ? "true or false" : cJSON_IsArray(item) ? "an array" : "an object";
}

static ng_status read_number(const config *c, const char *name, const cJSON *item, int64_t least, int64_t *value) {
    if (!cJSON_IsNumber(item))
        return ng_fail(c->error, NG_IO, "%s: \"%s\" is %s; expected a whole number", c->path, name, kind_of(item));
    double x = item->valuedouble;
    if (!(x >= (double)least && x <= (double)MEMBER_LIMIT && x == floor(x)))
        return ng_fail(c->error, NG_IO, "%s: \"%s\" is %.17g; expected a whole number from %" PRId64 " to %" PRId64, c->path, name, x,
                       least, MEMBER_LIMIT);
    *value = (int64_t)x;
    return NG_OK;
}

static ng_status read_member(const config *c, const member *m, ng_model *model) {
    char or_name[64] = "";
    for (size_t i = 0; i < sizeof m->names / sizeof *m->names && m->names[i]; i++) {
        const cJSON *item;
        ng_status status = find(c, m->names[i], &item);
        if (status) return status;
        if (item) return read_number(c, m->names[i], item, m->least, (int64_t *)(void *)((char *)model + m->offset));
    }
    if (!m->required) return NG_OK;
    if (m->names[1]) snprintf(or_name, sizeof or_name, " (or \"%s\")", m->names[1]);
    return ng_fail(c->error, NG_IO, "%s: no \"%s\"%s", c->path, m->names[0], or_name);
}

static ng_status read_text(const config *c, const char *name, const char **text) {
    const cJSON *item;
    ng_status status = find(c, name, &item);
    *text = "";
    if (status || !item) return status;
    if (!cJSON_IsString(item)) return ng_fail(c->error, NG_IO, "%s: \"%s\" is not a string", c->path, name);
    *text = item->valuestring;
    return NG_OK;
}

static ng_status read_flag(const config *c, const char *name, bool *flag) {
    const cJSON *item;
    ng_status status = find(c, name, &item);
    if (status || !item) return status;
    if (!cJSON_IsBool(item)) return ng_fail(c->error, NG_IO, "%s: \"%s\" is neither true nor false", c->path, name);
    *flag = cJSON_IsTrue(item);
    return NG_OK;
}

/* The class decides on the gate where it is known; else SiLU means SwiGLU, as in every class that uses it. */
static ng_status read_class(const config *c, ng_model *model) {
    const char *type, *act, *function;
    ng_status status = read_text(c, "model_type", &type);
    if (!status) status = read_text(c, "hidden_act", &act);
    if (!status) status = read_text(c, "activation_function", &function);
    if (status) return status;
    if (!*act) act = function;
    model->gated = !strcmp(act, "silu") || !strcmp(act, "swish") || !strcmp(act, "swiglu");
    for (size_t i = 0; i < sizeof model_types / sizeof *model_types; i++)
        if (!strcmp(type, model_types[i].type)) {
            model->gated = model_types[i].gated;
            model->tied_head = model_types[i].tied_head;
        }
    return read_flag(c, "tie_word_embeddings", &model->tied_head);
}

/* Members that would change the products in ways that ng_model cannot say. */
static ng_status refuse_unknown_layouts(const config *c) {
    static const char *const ones[] = {"moe_layer_freq", "decoder_sparse_step"};
    const cJSON *item;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        ng_status status = find(c, ones[i], &item);
        if (status) return status;
        if (item && !(cJSON_IsNumber(item) && item->valuedouble == 1))
            return ng_fail(c->error, NG_UNSUPPORTED, "%s: \"%s\" other than 1 is not supported", c->path, ones[i]);
    }
    ng_status status = find(c, "mlp_only_layers", &item);
    if (!status && item && !(cJSON_IsArray(item) && !item->child))
        status = ng_fail(c->error, NG_UNSUPPORTED, "%s: \"mlp_only_layers\" is not supported", c->path);
    return status;
}

/* Qwen gives the width of its shared experts together; ng_model counts them in experts' widths. */
static ng_status read_shared_width(const config *c, ng_model *model) {
    const cJSON *item;
    int64_t width = 0;
    ng_status status = find(c, "shared_expert_intermediate_size", &item);
    if (status || !item || !model->experts) return status;
    status = read_number(c, "shared_expert_intermediate_size", item, 0, &width);
    if (status) return status;
    if (width % model->expert_intermediate)
        return ng_fail(c->error, NG_UNSUPPORTED, "%s: \"shared_expert_intermediate_size\" %" PRId64
                       " is no multiple of \"moe_intermediate_size\" %" PRId64, c->path, width, model->expert_intermediate);
    model->shared_experts = width / model->expert_intermediate;
    return NG_OK;
}

static ng_status fill_attention(const config *c, ng_model *m) {
    if (m->kv_lora_rank) {
        const char *missing = !m->qk_rope_head_dim   ? "qk_rope_head_dim"
                              : !m->qk_nope_head_dim ? "qk_nope_head_dim"
                              : !m->v_head_dim       ? "v_head_dim"
                                                     : NULL;
        if (missing) return ng_fail(c->error, NG_IO, "%s: no \"%s\", which \"kv_lora_rank\" needs", c->path, missing);
        m->head_dim = m->qk_nope_head_dim + m->qk_rope_head_dim;
        m->kv_heads = m->heads;
        return NG_OK;
    }
    if (!m->kv_heads) m->kv_heads = m->heads;
    if (m->heads % m->kv_heads)
        return ng_fail(c->error, NG_IO, "%s: \"num_key_value_heads\" %" PRId64 " does not divide \"num_attention_heads\" %" PRId64,
                       c->path, m->kv_heads, m->heads);
    if (!m->head_dim && m->hidden % m->heads)
        return ng_fail(c->error, NG_IO, "%s: \"num_attention_heads\" %" PRId64 " does not divide \"hidden_size\" %" PRId64
                       ", and there is no \"head_dim\"", c->path, m->heads, m->hidden);
    if (!m->head_dim) m->head_dim = m->hidden / m->heads;
    return NG_OK;
}

static ng_status fill_mlp(const config *c, ng_model *m) {
    const cJSON *gpt2_style;
    ng_status status = find(c, "n_embd", &gpt2_style);
    if (status) return status;
    if (!m->intermediate && gpt2_style) m->intermediate = 4 * m->hidden; /* GPT2Config: n_inner None means 4 n_embd */
    if (!m->experts) {
        m->experts_per_token = m->expert_intermediate = m->shared_experts = m->dense_layers = 0;
    } else {
        if (!m->expert_intermediate) m->expert_intermediate = m->intermediate;
        if (m->experts_per_token < 1 || m->experts_per_token > m->experts)
            return ng_fail(c->error, NG_IO, "%s: \"num_experts_per_tok\" is %" PRId64 "; expected 1 to the number of experts, %" PRId64,
                           c->path, m->experts_per_token, m->experts);
        if (m->dense_layers > m->layers)
            return ng_fail(c->error, NG_IO, "%s: \"first_k_dense_replace\" is %" PRId64 ", with %" PRId64 " layers", c->path,
                           m->dense_layers, m->layers);
    }
    bool needs_width = m->experts ? !m->expert_intermediate || (m->dense_layers && !m->intermediate) : !m->intermediate;
    if (needs_width) return ng_fail(c->error, NG_IO, "%s: no \"intermediate_size\"", c->path);
    return read_shared_width(c, m);
}

/* ---- reading --------------------------------------------------------------------------------------------------------------*/
/* "models/llama3-8b.json" and "llama3-8b/config.json" are llama3-8b. Part of case ids, so only [A-Za-z0-9._-]. */
static void name_of(const char *path, char name[48]) {
    const char *end = path + strlen(path), *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    if (!strcmp(from, "config.json") && slash && slash > path) {
        end = slash;
        for (from = slash; from > path && from[-1] != '/'; from--)
            ;
    } else if (end - from > 5 && !strcmp(end - 5, ".json")) end -= 5;
    size_t used = 0;
    for (; from < end && used < 47; from++) {
        char c = *from;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        name[used++] = plain ? c : '-';
    }
    name[used] = 0;
}

static ng_status read_config(const config *c, ng_model *model) {
    ng_status status = NG_OK;
    for (size_t i = 0; !status && i < sizeof members / sizeof *members; i++)
        status = read_member(c, &members[i], model);
    if (!status) status = read_class(c, model);
    if (!status) status = refuse_unknown_layouts(c);
    if (!status) status = fill_attention(c, model);
    if (!status) status = fill_mlp(c, model);
    return status;
}

ng_status ng_model_parse(const char *text, size_t size, const char *path, ng_model *model, ng_error *error) {
    ng_model parsed = {0};
    const char *end = NULL, *nul = memchr(text, 0, size);
    if (size > FILE_LIMIT) return ng_fail(error, NG_IO, "%s: %zu bytes; a model description takes at most %d", path, size, FILE_LIMIT);
    if (nul) return ng_fail(error, NG_IO, "%s: byte %td is NUL: not a text file", path, nul - text);
    cJSON *root = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!root) {
        ptrdiff_t at = end && end >= text && end <= text + size ? end - text : 0;
        return ng_fail(error, NG_IO, "%s: not JSON, or cut off, at byte %td", path, at);
    }
    config c = {root, path, error};
    ng_status status = NG_OK;
    for (; end < text + size; end++)
        if (!strchr(" \t\r\n", *end)) {
            status = ng_fail(error, NG_IO, "%s: something follows the JSON object at byte %td", path, end - text);
            goto done;
        }
    if (!cJSON_IsObject(root)) {
        status = ng_fail(error, NG_IO, "%s: not a JSON object", path);
        goto done;
    }
    /* Models of several parts keep the language model's members in an object of their own. */
    const cJSON *hidden, *part;
    if ((status = find(&c, "hidden_size", &hidden)) || (status = find(&c, "text_config", &part))) goto done;
    if (!hidden && cJSON_IsObject(part)) c.object = part;
    name_of(path, parsed.name);
    status = read_config(&c, &parsed);
    if (!status) *model = parsed;
done:
    cJSON_Delete(root);
    return status;
}

static ng_status read_all(int fd, const char *path, char *text, size_t size, ng_error *error) {
    for (size_t used = 0; used < size;) {
        ssize_t got = read(fd, text + used, size - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
        if (!got) return ng_fail(error, NG_IO, "%s: became shorter while it was read", path);
        used += (size_t)got;
    }
    return NG_OK;
}

ng_status ng_model_load(const char *path, ng_model *model, ng_error *error) {
    struct stat info;
    char *text = NULL;
    ng_status status = NG_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info)) status = ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode)) status = ng_fail(error, NG_IO, "%s: not a regular file", path);
    else if (!info.st_size) status = ng_fail(error, NG_IO, "%s: the file is empty", path);
    else if (info.st_size > FILE_LIMIT)
        status = ng_fail(error, NG_IO, "%s: %lld bytes; a model description takes at most %d", path, (long long)info.st_size, FILE_LIMIT);
    if (status) goto done;
    if (!(text = malloc((size_t)info.st_size))) {
        status = ng_fail(error, NG_NO_MEMORY, "%s: no memory for %lld bytes", path, (long long)info.st_size);
        goto done;
    }
    status = read_all(fd, path, text, (size_t)info.st_size, error);
    if (!status) status = ng_model_parse(text, (size_t)info.st_size, path, model, error);
done:
    free(text);
    if (fd >= 0) close(fd);
    return status;
}

/* ---- products ----------------------------------------------------------------------------------------------------------------*/
typedef enum split { WHOLE, COLUMN_PARALLEL, ROW_PARALLEL } split; /* weight [out][in]: out divided, in divided (Megatron-LM) */

typedef struct products {
    const ng_model *model;
    int64_t tensor_parallel;
    ng_model_product *rows;
    size_t capacity, count;
    ng_error *error;
} products;

static bool times(int64_t a, int64_t b, int64_t *product) { return !__builtin_mul_overflow(a, b, product) && *product <= ELEMENT_LIMIT; }

static void put(products *p, const char *layer, ng_phase phase, int64_t m, int64_t n, int64_t k, int64_t count) {
    if (p->count < p->capacity) {
        ng_model_product *row = &p->rows[p->count];
        *row = (ng_model_product){.phase = phase, .m = m, .n = n, .k = k, .count = count};
        snprintf(row->layer, sizeof row->layer, "%s", layer);
    }
    p->count++;
}

/* A linear layer [parts * out][in] over `tokens` tokens in its three phases. */
static ng_status add(products *p, const char *layer, int64_t tokens, int64_t parts, int64_t out, int64_t in, split how, int64_t count) {
    const char *name = p->model->name;
    int64_t tp = how == WHOLE ? 1 : p->tensor_parallel, unused;
    int64_t *divided = how == ROW_PARALLEL ? &in : &out;
    if (count == 0) return NG_OK;
    if (*divided % tp)
        return ng_fail(p->error, NG_BAD_ARGUMENT, "%s: tensor parallelism %" PRId64 " does not divide %s's extent %" PRId64, name, tp, layer,
                       *divided);
    *divided /= tp;
    if (!times(out, parts, &out) || !times(tokens, out, &unused) || !times(tokens, in, &unused) || !times(out, in, &unused))
        return ng_fail(p->error, NG_BAD_ARGUMENT, "%s: %s has more than 2^60 elements", name, layer);
    put(p, layer, NG_FPROP, tokens, out, in, count);
    put(p, layer, NG_DGRAD, tokens, in, out, count);
    put(p, layer, NG_WGRAD, out, in, tokens, count);
    return NG_OK;
}

static ng_status add_attention(products *p, int64_t tokens) {
    const ng_model *m = p->model;
    int64_t per_group = m->heads / m->kv_heads + 2; /* one key and value head and their queries go to one rank together */
    int64_t group = per_group * m->head_dim;
    if (m->kv_heads % p->tensor_parallel)
        return ng_fail(p->error, NG_BAD_ARGUMENT, "%s: tensor parallelism %" PRId64 " does not divide its %" PRId64 " key and value heads",
                       m->name, p->tensor_parallel, m->kv_heads);
    ng_status status = add(p, "qkv", tokens, group, m->kv_heads, m->hidden, COLUMN_PARALLEL, m->layers);
    return status ? status : add(p, "attn_out", tokens, 1, m->hidden, m->heads * m->head_dim, ROW_PARALLEL, m->layers);
}

/* Multi-head latent attention (arXiv:2412.19437 2.1.1); the down projections are on every rank. */
static ng_status add_latent_attention(products *p, int64_t tokens) {
    const ng_model *m = p->model;
    int64_t query = m->qk_nope_head_dim + m->qk_rope_head_dim, key_value = m->qk_nope_head_dim + m->v_head_dim;
    ng_status status = NG_OK;
    if (m->heads % p->tensor_parallel)
        return ng_fail(p->error, NG_BAD_ARGUMENT, "%s: tensor parallelism %" PRId64 " does not divide its %" PRId64 " heads", m->name,
                       p->tensor_parallel, m->heads);
    if (m->q_lora_rank) {
        status = add(p, "q_a", tokens, 1, m->q_lora_rank, m->hidden, WHOLE, m->layers);
        if (!status) status = add(p, "q_b", tokens, query, m->heads, m->q_lora_rank, COLUMN_PARALLEL, m->layers);
    } else status = add(p, "q", tokens, query, m->heads, m->hidden, COLUMN_PARALLEL, m->layers);
    if (!status) status = add(p, "kv_a", tokens, 1, m->kv_lora_rank + m->qk_rope_head_dim, m->hidden, WHOLE, m->layers);
    if (!status) status = add(p, "kv_b", tokens, key_value, m->heads, m->kv_lora_rank, COLUMN_PARALLEL, m->layers);
    return status ? status : add(p, "attn_out", tokens, 1, m->hidden, m->heads * m->v_head_dim, ROW_PARALLEL, m->layers);
}

static ng_status add_mlp(products *p, const char *up, const char *down, int64_t tokens, int64_t width, int64_t count) {
    const ng_model *m = p->model;
    ng_status status = add(p, up, tokens, m->gated ? 2 : 1, width, m->hidden, COLUMN_PARALLEL, count);
    return status ? status : add(p, down, tokens, 1, m->hidden, width, ROW_PARALLEL, count);
}

/* Routing is taken as balanced: each expert has ceil(tokens * experts_per_token / experts) tokens. The router itself, which
 * every recipe keeps in higher precision, is left out. */
static ng_status add_experts(products *p, int64_t tokens) {
    const ng_model *m = p->model;
    int64_t moe_layers = m->layers - m->dense_layers, routed, shared;
    if (!times(tokens, m->experts_per_token, &routed) || !times(m->shared_experts, m->expert_intermediate, &shared))
        return ng_fail(p->error, NG_BAD_ARGUMENT, "%s: its experts have more than 2^60 elements", m->name);
    int64_t each = routed / m->experts + (routed % m->experts != 0);
    ng_status status = add_mlp(p, "moe_up", "moe_down", each, m->expert_intermediate, moe_layers * m->experts);
    if (status || !shared) return status;
    return add_mlp(p, "shared_up", "shared_down", tokens, shared, moe_layers);
}

ng_status ng_model_products(const ng_model *model, int64_t batch, int64_t sequence, int64_t tensor_parallel,
                            ng_model_product *rows, size_t capacity, size_t *count, ng_error *error) {
    products p = {model, tensor_parallel, rows, capacity, 0, error};
    int64_t tokens;
    if (batch < 1 || sequence < 1 || tensor_parallel < 1 || !times(batch, sequence, &tokens))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: batch %" PRId64 ", sequence %" PRId64 ", tensor parallelism %" PRId64
                       ": expected positive numbers whose product is below 2^60", model->name, batch, sequence, tensor_parallel);
    ng_status status = model->kv_lora_rank ? add_latent_attention(&p, tokens) : add_attention(&p, tokens);
    if (!status) status = add_mlp(&p, "mlp_up", "mlp_down", tokens, model->intermediate, model->experts ? model->dense_layers : model->layers);
    if (!status && model->experts) status = add_experts(&p, tokens);
    if (!status) status = add(&p, "lm_head", tokens, 1, model->vocabulary, model->hidden, COLUMN_PARALLEL, 1);
    if (!status) *count = p.count;
    return status;
}
