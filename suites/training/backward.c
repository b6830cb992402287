#include "suites/training/model.h"

static int64_t tokens_of(const ng_model_state *m) { return m->shape.batch * m->shape.sequence; }

static ng_parameter *find(ng_model_state *m, ng_part part, int layer) {
    for (size_t i = 0; i < m->layout.count; i++)
        if (m->layout.parameters[i].part == part && m->layout.parameters[i].layer == layer) return &m->layout.parameters[i];
    return NULL;
}

static ng_status normalize(ng_model_state *m, ng_part gamma, ng_part beta, int layer, const ng_tensor *x, const ng_tensor *mean, const ng_tensor *rstd,
                           const ng_tensor *dy, const ng_tensor *dx, ng_error *error) {
    const ng_parameter *g = find(m, gamma, layer), *b = find(m, beta, layer);
    ng_problem p = ng_model_problem(m, m->kernels.norm_backward, x->rows, x->columns, 0);
    p.scalars[NG_EPSILON] = 1e-5;
    return NG_LAUNCH(m->engine, m->kernels.norm_backward, &p, error, {NG_IN, x}, {NG_GRADIENT, dy}, {NG_PARAMETER, &g->master}, {NG_PARAMETER_2, b ? &b->master : NULL},
                     {NG_MEAN, b ? mean : NULL}, {NG_RSTD, rstd}, {NG_OUT, dx}, {NG_OUT_2, &g->gradient}, {NG_OUT_3, b ? &b->gradient : NULL});
}

static ng_status add(ng_model_state *m, const ng_tensor *a, const ng_tensor *b, const ng_tensor *sum, ng_error *error) {
    const ng_problem p = ng_model_problem(m, m->kernels.add, a->rows, a->columns, 0);
    return NG_LAUNCH(m->engine, m->kernels.add, &p, error, {NG_IN, a}, {NG_IN_2, b}, {NG_OUT, sum});
}

/* dx of both paths into a gated block's norm. */
static ng_status backward_hidden(ng_model_state *m, ng_block_state *b, ng_error *error) {
    const ng_problem p = ng_model_problem(m, m->kernels.activation_backward, tokens_of(m), m->shape.hidden, 0);
    const bool gated = m->shape.swiglu;
    ng_status status = NG_LAUNCH(m->engine, m->kernels.activation_backward, &p, error, {NG_IN, gated ? &b->gate : &b->up}, {NG_IN_2, gated ? &b->up : NULL},
                                 {NG_GRADIENT, &m->d_hidden}, {NG_OUT, gated ? &m->d_gate : &m->d_up}, {NG_OUT_2, gated ? &m->d_up : NULL});
    if (!status) status = ng_linear_backward(m, &b->up_layer, &m->d_up, gated ? &m->d_attended : &m->d_width, error);
    if (status || !gated) return status;
    status = ng_linear_backward(m, &b->gate_layer, &m->d_gate, &m->d_width_2, error);
    return status ? status : add(m, &m->d_attended, &m->d_width_2, &m->d_width, error);
}

static ng_status backward_attention(ng_model_state *m, ng_block_state *b, ng_error *error) {
    ng_problem p = ng_model_problem(m, m->kernels.attention_backward, tokens_of(m), m->shape.width, 0);
    p.scalars[NG_HEADS] = (double)m->shape.heads;
    p.scalars[NG_SEQUENCE] = (double)m->shape.sequence;
    ng_status status = NG_LAUNCH(m->engine, m->kernels.attention_backward, &p, error, {NG_IN, &b->rotated}, {NG_GRADIENT, &m->d_attended}, {NG_OUT, &m->d_rotated});
    p.op = NG_OP_ROPE;
    return status ? status : NG_LAUNCH(m->engine, m->kernels.rope_inverse, &p, error, {NG_IN, &m->d_rotated}, {NG_PARAMETER, &m->cosines},
                                       {NG_PARAMETER_2, &m->sines}, {NG_OUT, &m->d_qkv});
}

/* The stream's gradient comes in and goes out in m->d_stream. */
static ng_status backward_block(ng_model_state *m, int l, ng_error *error) {
    ng_block_state *b = &m->blocks[l];
    ng_status status = ng_linear_backward(m, &b->down, &m->d_stream, &m->d_hidden, error);
    if (!status) status = backward_hidden(m, b, error);
    if (!status) status = normalize(m, NG_PART_GAMMA_2, NG_PART_BETA_2, l, &b->middle, &b->mean_2, &b->rstd_2, &m->d_width, &m->d_branch, error);
    if (!status) status = add(m, &m->d_stream, &m->d_branch, &m->d_stream_2, error);
    if (!status) status = ng_linear_backward(m, &b->projection, &m->d_stream_2, &m->d_attended, error);
    if (!status) status = backward_attention(m, b, error);
    if (!status) status = ng_linear_backward(m, &b->qkv, &m->d_qkv, &m->d_width, error);
    if (!status) status = normalize(m, NG_PART_GAMMA_1, NG_PART_BETA_1, l, &b->input, &b->mean_1, &b->rstd_1, &m->d_width, &m->d_branch, error);
    return status ? status : add(m, &m->d_stream_2, &m->d_branch, &m->d_stream, error);
}

/* Under loss scaling the gradient of a token's loss is the scale, which lies in the device's memory and has 1 / T in it. */
static ng_status begin(ng_model_state *m, ng_error *error) {
    ng_status status = ng_engine_clear(m->engine, &m->gradient, error);
    if (status || !m->scaled) return status;
    const ng_problem p = ng_model_problem(m, m->kernels.gather_unit, tokens_of(m), 1, 1);
    return NG_LAUNCH(m->engine, m->kernels.gather_unit, &p, error, {NG_TOKENS, &m->zeros}, {NG_PARAMETER, &m->loss_scale}, {NG_OUT, &m->row_gradient});
}

ng_status ng_model_backward(ng_model_state *m, const ng_tensor *tokens, const ng_tensor *targets, ng_error *error) {
    const ng_model_kernels *k = &m->kernels;
    ng_status status = begin(m, error);
    const ng_problem p = ng_model_problem(m, k->loss_backward, tokens_of(m), m->shape.vocabulary, 0);
    if (!status)
        status = NG_LAUNCH(m->engine, k->loss_backward, &p, error, {NG_IN, &m->logits}, {NG_LABELS, targets}, {NG_ROW_MAX, &m->row_max},
                           {NG_ROW_SUM, &m->row_sum}, {NG_GRADIENT, &m->row_gradient}, {NG_OUT, &m->d_logits});
    if (!status) status = ng_linear_backward(m, &m->head, &m->d_logits, &m->d_width, error);
    if (!status) status = normalize(m, NG_PART_GAMMA, NG_PART_BETA, -1, &m->last, &m->mean, &m->rstd, &m->d_width, &m->d_stream, error);
    for (int l = (int)m->shape.layers - 1; l >= 0 && !status; l--)
        status = backward_block(m, l, error);
    if (status) return status;
    const ng_problem e = ng_model_problem(m, k->embedding_backward, tokens_of(m), m->shape.width, m->shape.vocabulary);
    return NG_LAUNCH(m->engine, k->embedding_backward, &e, error, {NG_TOKENS, tokens}, {NG_GRADIENT, &m->d_stream}, {NG_OUT, &m->head.weight->gradient});
}
