#include "suites/training/model.h"

static int64_t tokens_of(const ng_model_state *m) { return m->shape.batch * m->shape.sequence; }

static const ng_tensor *find(const ng_model_state *m, ng_part part, int layer) {
    for (size_t i = 0; i < m->layout.count; i++)
        if (m->layout.parameters[i].part == part && m->layout.parameters[i].layer == layer) return &m->layout.parameters[i].master;
    return NULL;
}

/* sum = base + branch where there is a branch, else base itself; then its norm. One kernel where one does both. */
static ng_status normalize(ng_model_state *m, const ng_tensor *branch, const ng_tensor *base, const ng_tensor *sum, const ng_tensor *gamma,
                           const ng_tensor *beta, const ng_tensor *normed, const ng_tensor *mean, const ng_tensor *rstd, ng_error *error) {
    const ng_kernel *fused = branch ? m->kernels.norm_residual : NULL, *kernel = fused ? fused : m->kernels.norm;
    ng_status status = NG_OK;
    if (branch && !fused) {
        const ng_problem p = ng_model_problem(m, m->kernels.add, base->rows, base->columns, 0);
        status = NG_LAUNCH(m->engine, m->kernels.add, &p, error, {NG_IN, base}, {NG_IN_2, branch}, {NG_OUT, sum});
    }
    ng_problem p = ng_model_problem(m, kernel, base->rows, base->columns, 0);
    p.scalars[NG_EPSILON] = 1e-5;
    const ng_tensor *in = fused ? branch : branch ? sum : base;
    return status ? status : NG_LAUNCH(m->engine, kernel, &p, error, {NG_IN, in}, {NG_IN_2, fused ? base : NULL}, {NG_OUT_2, fused ? sum : NULL},
                                       {NG_PARAMETER, gamma}, {NG_PARAMETER_2, beta}, {NG_OUT, normed}, {NG_MEAN, m->shape.rms ? NULL : mean}, {NG_RSTD, rstd});
}

static ng_status attend(ng_model_state *m, ng_block_state *b, ng_error *error) {
    ng_problem p = ng_model_problem(m, m->kernels.rope, tokens_of(m), m->shape.width, 0);
    p.scalars[NG_HEADS] = (double)m->shape.heads;
    p.scalars[NG_SEQUENCE] = (double)m->shape.sequence;
    ng_status status = NG_LAUNCH(m->engine, m->kernels.rope, &p, error, {NG_IN, &m->qkv}, {NG_PARAMETER, &m->cosines}, {NG_PARAMETER_2, &m->sines}, {NG_OUT, &b->rotated});
    p.op = NG_OP_ATTENTION_FORWARD;
    return status ? status : NG_LAUNCH(m->engine, m->kernels.attention, &p, error, {NG_IN, &b->rotated}, {NG_OUT, &b->attended});
}

static ng_status activate(ng_model_state *m, ng_block_state *b, ng_error *error) {
    const ng_problem p = ng_model_problem(m, m->kernels.activation, tokens_of(m), m->shape.hidden, 0);
    return NG_LAUNCH(m->engine, m->kernels.activation, &p, error, {NG_IN, m->shape.swiglu ? &b->gate : &b->up}, {NG_IN_2, m->shape.swiglu ? &b->up : NULL},
                     {NG_OUT, &b->activated});
}

/* branch: what the block before adds to its middle; NULL: b->input is there. */
static ng_status forward_block(ng_model_state *m, int l, const ng_tensor *branch, const ng_tensor *base, bool training, ng_error *error) {
    ng_block_state *b = &m->blocks[l];
    ng_status status = normalize(m, branch, base, &b->input, find(m, NG_PART_GAMMA_1, l), find(m, NG_PART_BETA_1, l), &b->normed_1, &b->mean_1, &b->rstd_1, error);
    if (!status) status = ng_linear_forward(m, &b->qkv, &b->normed_1, training, &m->qkv, error);
    if (!status) status = attend(m, b, error);
    if (!status) status = ng_linear_forward(m, &b->projection, &b->attended, training, &m->branch, error);
    if (!status)
        status = normalize(m, &m->branch, &b->input, &b->middle, find(m, NG_PART_GAMMA_2, l), find(m, NG_PART_BETA_2, l), &b->normed_2, &b->mean_2, &b->rstd_2, error);
    if (!status && m->shape.swiglu) status = ng_linear_forward(m, &b->gate_layer, &b->normed_2, training, &b->gate, error);
    if (!status) status = ng_linear_forward(m, &b->up_layer, &b->normed_2, training, &b->up, error);
    if (!status) status = activate(m, b, error);
    return status ? status : ng_linear_forward(m, &b->down, &b->activated, training, &m->branch, error);
}

ng_status ng_model_forward(ng_model_state *m, const ng_tensor *tokens, const ng_tensor *targets, bool training, const ng_tensor *losses, ng_error *error) {
    const ng_model_kernels *k = &m->kernels;
    m->draws = 0; /* a step draws the same whatever came before it in this process */
    const ng_problem e = ng_model_problem(m, k->embedding, tokens_of(m), m->shape.width, m->shape.vocabulary);
    const ng_block_state *end = &m->blocks[m->shape.layers - 1];
    ng_status status = NG_LAUNCH(m->engine, k->embedding, &e, error, {NG_TOKENS, tokens}, {NG_PARAMETER, &m->head.weight->working}, {NG_OUT, &m->blocks[0].input});
    for (int l = 0; l < m->shape.layers && !status; l++)
        status = forward_block(m, l, l ? &m->branch : NULL, l ? &m->blocks[l - 1].middle : &m->blocks[0].input, training, error);
    if (!status)
        status = normalize(m, &m->branch, &end->middle, &m->last, find(m, NG_PART_GAMMA, -1), find(m, NG_PART_BETA, -1), &m->normed, &m->mean, &m->rstd, error);
    if (!status) status = ng_linear_forward(m, &m->head, &m->normed, training, &m->logits, error);
    if (status) return status;
    const ng_problem p = ng_model_problem(m, k->loss, tokens_of(m), m->shape.vocabulary, 0);
    return NG_LAUNCH(m->engine, k->loss, &p, error, {NG_IN, &m->logits}, {NG_LABELS, targets}, {NG_OUT, losses}, {NG_ROW_MAX, &m->row_max}, {NG_ROW_SUM, &m->row_sum});
}
