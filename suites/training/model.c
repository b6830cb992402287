/* A model's kernels and memory. */
#include "suites/training/model.h"

#include "kernels/common/fp64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ng_problem ng_model_problem(ng_model_state *m, const ng_kernel *kernel, int64_t m_, int64_t n, int64_t k) {
    const uint64_t draw = (uint64_t)m->step << 20 | (m->draws++ & 0xFFFFF);
    return (ng_problem){.op = kernel->op, .m = m_, .n = n, .k = k, .seed = m->seed, .offset = draw};
}

/* ---- kernels ------------------------------------------------------------------------------------------------------*/
static const char *name_of(ng_format_id format) {
    return format == NG_FP64 ? "fp64" : format == NG_FP32 ? "fp32" : format == NG_FP16 ? "fp16" : "bf16";
}

/* A kernel that a backend may lack: NULL. */
static ng_status find_if_there(const ng_engine *e, ng_op op, const ng_kernel **kernel, const char *first, const char *format, const char *rest) {
    if (ng_engine_find(e, op, kernel, NULL, "%s/%s->%s/*/%s", first, format, format, rest)) *kernel = NULL;
    return NG_OK;
}

typedef struct wanted {
    ng_op op;
    size_t offset;
    char glob[96];
} wanted;

static ng_status find_norms(ng_model_state *m, ng_error *error) {
    ng_model_kernels *k = &m->kernels;
    const char *f = name_of(m->format), *norm = m->shape.rms ? "rmsnorm" : "layernorm", *parameters = m->format == NG_FP64 ? "fp64-params" : "fp32-params";
    const ng_kernel *apart = NULL;
    ng_status status = ng_engine_find(m->engine, NG_OP_NORM_FORWARD, &k->norm, error, "%s/%s->%s/*/%s", norm, f, f, parameters);
    if (!status) status = ng_engine_find(m->engine, NG_OP_NORM_BACKWARD, &k->norm_backward, error, "%s-backward/%s/*/%s", norm, f, parameters);
    if (status) return status;
    if (!m->choice.unfused) return find_if_there(m->engine, NG_OP_NORM_FORWARD, &k->norm_residual, norm, f, "fp32-params-residual");
    find_if_there(m->engine, NG_OP_NORM_FORWARD, &apart, norm, f, "fp32-params-unfused");
    if (apart) k->norm = apart;
    return NG_OK;
}

/* Attention by tensor cores where the backend has it. */
static void prefer_tensor_cores(ng_model_state *m) {
    const ng_kernel *forward, *backward;
    if (!ng_engine_find(m->engine, NG_OP_ATTENTION_FORWARD, &forward, NULL, "attention-forward/bf16/*/causal-mma")) m->kernels.attention = forward;
    if (!ng_engine_find(m->engine, NG_OP_ATTENTION_BACKWARD, &backward, NULL, "attention-backward/bf16/*/causal-mma")) m->kernels.attention_backward = backward;
}

static ng_status find_kernels(ng_model_state *m, ng_error *error) {
    ng_model_kernels *k = &m->kernels;
    const char *f = name_of(m->format), *w = name_of(m->wide), *act = m->shape.swiglu ? "swiglu" : "gelu-tanh";
    const char *how = m->format == NG_FP64 ? "plain" : "fused";
    wanted list[] = {
#define WANT(operation, member, ...) {operation, offsetof(ng_model_kernels, member), ""}
        WANT(NG_OP_ACTIVATION, activation), WANT(NG_OP_ACTIVATION_BACKWARD, activation_backward), WANT(NG_OP_LOSS, loss),
        WANT(NG_OP_LOSS_BACKWARD, loss_backward), WANT(NG_OP_ATTENTION_FORWARD, attention), WANT(NG_OP_ATTENTION_BACKWARD, attention_backward),
        WANT(NG_OP_ROPE, rope), WANT(NG_OP_ROPE, rope_inverse), WANT(NG_OP_ADD, add), WANT(NG_OP_TRANSPOSE, transpose),
        WANT(NG_OP_EMBEDDING_FORWARD, embedding), WANT(NG_OP_EMBEDDING_BACKWARD, embedding_backward), WANT(NG_OP_OPTIMIZER, adam),
        WANT(NG_OP_OPTIMIZER, norm2), WANT(NG_OP_OPTIMIZER, clip), WANT(NG_OP_OPTIMIZER, unscale), WANT(NG_OP_OPTIMIZER, scaler),
        WANT(NG_OP_TRANSPOSE, transpose_cast), WANT(NG_OP_EMBEDDING_FORWARD, gather_scales), WANT(NG_OP_EMBEDDING_FORWARD, gather_unit),
    };
    enum { COUNT = sizeof list / sizeof *list };
    const char *const globs[COUNT] = {"%2$s/%1$s->%1$s/*/%3$s", "%2$s-backward/%1$s/*/%3$s", "cross-entropy/%1$s/*/%3$s", "cross-entropy-backward/%1$s/*/%3$s",
        "attention-forward/%1$s/*/causal", "attention-backward/%1$s/*/causal", "rope/%1$s/*/forward", "rope/%1$s/*/inverse", "add/%1$s/*/rne",
        "transpose/%1$s/*/copy", "embedding-forward/%1$s/*/gather", "embedding-backward/%1$s/*/chain", "adamw/%4$s/*/torch", "norm2/%4$s/*/*",
        "clip/%4$s/*/norm2", "unscale/fp32/*/checked", "scaler/fp32/*/dynamic", "transpose/tf32/*/copy", "embedding-forward/bf16/*/gather",
        "embedding-forward/fp32/*/gather"};
    ng_status status = find_norms(m, error);
    for (int i = 0; i < COUNT && !status; i++) {
        snprintf(list[i].glob, sizeof list[i].glob, globs[i], f, act, how, w);
        status = ng_engine_find(m->engine, list[i].op, (const ng_kernel **)((char *)k + list[i].offset), error, "%s", list[i].glob);
    }
    if (!status && m->format == NG_BF16) prefer_tensor_cores(m);
    if (!status && m->format != m->wide)
        status = ng_engine_find(m->engine, NG_OP_CAST, &k->cast, error, "cast/fp32->%s/*/rne-nosat", f);
    if (!status && m->format == NG_BF16 && !m->choice.unfused)
        status = ng_engine_find(m->engine, NG_OP_OPTIMIZER, &k->adam_fused, error, "adamw/bf16/*/torch-master-fp32-gradients");
    return status;
}

/* ---- memory -------------------------------------------------------------------------------------------------------*/
typedef struct tensor_row {
    ng_tensor *tensor;
    int64_t rows, columns;
    ng_format_id format;
} tensor_row;

static ng_status create_tensors(ng_model_state *m, const tensor_row *rows, size_t count, ng_error *error) {
    ng_status status = NG_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = ng_pool_tensor(&m->pool, rows[i].format, rows[i].rows, rows[i].columns, rows[i].tensor, error);
    return status;
}

static ng_status create_parameters(ng_model_state *m, ng_error *error) {
    const int64_t n = m->layout.total;
    const tensor_row rows[] = {{&m->master, 1, n, m->wide}, {&m->gradient, 1, n, m->wide}, {&m->moment_1, 1, n, m->wide}, {&m->moment_2, 1, n, m->wide}};
    ng_status status = create_tensors(m, rows, sizeof rows / sizeof *rows, error);
    if (!status && m->format != m->wide) status = ng_pool_tensor(&m->pool, m->format, 1, n, &m->working, error);
    for (size_t i = 0; i < m->layout.count && !status; i++) {
        ng_parameter *p = &m->layout.parameters[i];
        p->master = ng_tensor_view(&m->master, p->at, p->rows, p->columns);
        p->gradient = ng_tensor_view(&m->gradient, p->at, p->rows, p->columns);
        p->working = m->format == m->wide ? p->master : ng_tensor_view(&m->working, p->at, p->rows, p->columns);
    }
    return status;
}

static ng_status create_activations(ng_model_state *m, ng_error *error) {
    const ng_model_shape *s = &m->shape;
    const int64_t t = s->batch * s->sequence, d = s->width, h = s->hidden, v = s->vocabulary, most = 3 * d > h ? 3 * d : h;
    const ng_format_id f = m->format, w = m->wide;
    const tensor_row rows[] = {
        {&m->last, t, d, f}, {&m->normed, t, d, f}, {&m->mean, t, 1, w}, {&m->rstd, t, 1, w}, {&m->logits, t, v, f}, {&m->row_max, t, 1, w},
        {&m->row_sum, t, 1, w}, {&m->row_gradient, t, 1, w}, {&m->qkv, t, 3 * d, f}, {&m->branch, t, d, f}, {&m->d_stream, t, d, f},
        {&m->d_stream_2, t, d, f}, {&m->d_branch, t, d, f}, {&m->d_width, t, d, f}, {&m->d_width_2, t, d, f}, {&m->d_attended, t, d, f},
        {&m->d_rotated, t, 3 * d, f}, {&m->d_qkv, t, 3 * d, f}, {&m->d_hidden, t, h, f}, {&m->d_up, t, h, f}, {&m->d_gate, t, h, f},
        {&m->d_logits, t, v, f}, {&m->loss_scale, 1, 1, NG_FP32}, {&m->growth, 1, 1, NG_FP32}, {&m->found_inf, 1, 1, NG_FP32},
        {&m->cosines, s->sequence, d / s->heads / 2, w}, {&m->sines, s->sequence, d / s->heads / 2, w}, {&m->zeros, t, 1, NG_FP32},
        {&m->sixteenths, most, 1, NG_FP32}};
    ng_status status = create_tensors(m, rows, sizeof rows / sizeof *rows, error);
    for (int64_t l = 0; l < s->layers && !status; l++) {
        ng_block_state *b = &m->blocks[l];
        const tensor_row kept[] = {{&b->input, t, d, f}, {&b->normed_1, t, d, f}, {&b->mean_1, t, 1, w}, {&b->rstd_1, t, 1, w}, {&b->rotated, t, 3 * d, f},
                                   {&b->attended, t, d, f}, {&b->middle, t, d, f}, {&b->normed_2, t, d, f}, {&b->mean_2, t, 1, w}, {&b->rstd_2, t, 1, w},
                                   {&b->up, t, h, f}, {&b->activated, t, h, f}};
        status = create_tensors(m, kept, sizeof kept / sizeof *kept, error);
        if (!status && s->swiglu) status = ng_pool_tensor(&m->pool, f, t, h, &b->gate, error);
    }
    return status;
}

static ng_status create_linears(ng_model_state *m, ng_error *error) {
    ng_status status = ng_linear_create(m, NG_PART_EMBEDDING, -1, &m->head, error);
    for (int l = 0; l < m->shape.layers && !status; l++) {
        ng_block_state *b = &m->blocks[l];
        status = ng_linear_create(m, NG_PART_QKV, l, &b->qkv, error);
        if (!status) status = ng_linear_create(m, NG_PART_PROJECTION, l, &b->projection, error);
        if (!status && m->shape.swiglu) status = ng_linear_create(m, NG_PART_GATE, l, &b->gate_layer, error);
        if (!status) status = ng_linear_create(m, NG_PART_UP, l, &b->up_layer, error);
        if (!status) status = ng_linear_create(m, NG_PART_DOWN, l, &b->down, error);
    }
    return status;
}

/* ---- constants ----------------------------------------------------------------------------------------------------*/
static ng_status write_reals(ng_model_state *m, const ng_tensor *to, const double *values, ng_error *error) {
    const int64_t count = to->rows * to->columns;
    if (to->format == NG_FP64) return ng_engine_write(m->engine, to, values, error);
    float *narrow = malloc((size_t)count * sizeof *narrow);
    if (!narrow) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    ng_status status = ng_engine_write(m->engine, to, narrow, error);
    free(narrow);
    return status;
}

/* cos and sin of position * 10000^(-2 i / d): one turn by Taylor (an angle of at most 1), positions by adding turns. */
static ng_status write_rotations(ng_model_state *m, ng_error *error) {
    const int64_t sequence = m->cosines.rows, half = m->cosines.columns;
    double *c = malloc((size_t)(2 * sequence * half) * sizeof *c), *s = c ? c + sequence * half : NULL;
    if (!c) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < half; i++) {
        const double angle = ng_exp64(-ng_log(10000.0) * (double)i / (double)half), square = angle * angle;
        double cosine = 0, sine = 0;
        for (int k = 24; k >= 2; k -= 2) {
            cosine = (1 + cosine) * -square / (double)(k * (k - 1));
            sine = (1 + sine) * -square / (double)(k * (k + 1));
        }
        cosine += 1, sine = (sine + 1) * angle;
        c[i] = 1, s[i] = 0;
        for (int64_t p = 1; p < sequence; p++) {
            const double before = c[(p - 1) * half + i], beside = s[(p - 1) * half + i];
            c[p * half + i] = before * cosine - beside * sine;
            s[p * half + i] = beside * cosine + before * sine;
        }
    }
    ng_status status = write_reals(m, &m->cosines, c, error);
    if (!status) status = write_reals(m, &m->sines, s, error);
    free(c);
    return status;
}

static ng_status write_constants(ng_model_state *m, ng_error *error) {
    const int64_t tokens = m->shape.batch * m->shape.sequence, most = m->sixteenths.rows > tokens ? m->sixteenths.rows : tokens;
    double *reals = malloc((size_t)most * sizeof *reals);
    int32_t *integers = malloc((size_t)most * sizeof *integers);
    ng_status status = reals && integers ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < most && !status; i++)
        reals[i] = m->loss_weight / (double)tokens, integers[i] = (int32_t)(i / 16);
    if (!status) status = write_reals(m, &m->row_gradient, reals, error);
    if (!status) status = ng_engine_write(m->engine, &m->sixteenths, integers, error);
    if (!status) status = write_rotations(m, error);
    free(reals);
    free(integers);
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------*/
ng_status ng_model_create(ng_engine *engine, const ng_recipe_choice *choice, const ng_model_shape *shape, double loss_weight, ng_model_state *m, ng_error *error) {
    const ng_format_id format = choice->recipe->format;
    *m = (ng_model_state){.engine = engine, .choice = *choice, .shape = *shape, .pool = {.engine = engine}, .format = format,
                          .wide = format == NG_FP64 ? NG_FP64 : NG_FP32, .scaled = choice->recipe->scaled && !choice->unscaled, .loss_weight = loss_weight};
    ng_status status = ng_model_shape_check(shape, error);
    if (!status) status = ng_layout_create(shape, &m->layout, error);
    if (!status && !(m->blocks = calloc((size_t)shape->layers, sizeof *m->blocks))) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!status) status = find_kernels(m, error);
    if (!status) status = ng_recipe_rules(engine, choice, true, &m->quantized, error);
    if (!status) status = ng_recipe_rules(engine, choice, false, &m->plain, error);
    if (!status) status = create_parameters(m, error);
    if (!status) status = create_activations(m, error);
    if (!status) status = create_linears(m, error);
    if (!status && choice->recipe->delayed) status = ng_delayed_create(m, error);
    if (!status) status = write_constants(m, error);
    if (!status) ng_model_quantize_blocks(m, -1);
    if (status) ng_model_destroy(m);
    return status;
}

void ng_model_destroy(ng_model_state *m) {
    ng_pool_free(&m->pool);
    ng_layout_free(&m->layout);
    free(m->blocks);
    m->blocks = NULL;
}

void ng_model_quantize_blocks(ng_model_state *m, int only) {
    for (int l = 0; l < m->shape.layers; l++) {
        ng_block_state *b = &m->blocks[l];
        const bool kept = l < m->choice.keep_first || l >= m->shape.layers - m->choice.keep_last, quantized = !kept && (only < 0 || l == only);
        ng_linear *const all[] = {&b->qkv, &b->projection, &b->up_layer, &b->down, &b->gate_layer};
        for (int i = 0; i < (m->shape.swiglu ? 5 : 4); i++)
            ng_linear_choose(m, all[i], quantized);
    }
}

ng_status ng_model_begin(ng_model_state *m, const float *weights, uint64_t seed, ng_error *error) {
    const float scale = (float)(m->loss_weight * 65536.0 / (double)(m->shape.batch * m->shape.sequence));
    double *wide = NULL;
    ng_status status = NG_OK;
    if (m->wide == NG_FP64) {
        wide = malloc((size_t)m->layout.total * sizeof *wide);
        for (int64_t i = 0; i < m->layout.total && wide; i++)
            wide[i] = weights[i];
        status = wide ? ng_engine_write(m->engine, &m->master, wide, error) : ng_fail(error, NG_NO_MEMORY, "out of memory");
        free(wide);
    } else status = ng_engine_write(m->engine, &m->master, weights, error);
    if (!status) status = ng_engine_clear(m->engine, &m->moment_1, error);
    if (!status) status = ng_engine_clear(m->engine, &m->moment_2, error);
    if (!status) status = ng_engine_clear(m->engine, &m->growth, error);
    if (!status) status = ng_engine_clear(m->engine, &m->found_inf, error);
    if (!status) status = ng_engine_write(m->engine, &m->loss_scale, &scale, error);
    if (!status && m->choice.recipe->delayed) status = ng_delayed_begin(m, error);
    m->seed = seed;
    m->step = 0;
    return status ? status : ng_model_refresh(m, error);
}
