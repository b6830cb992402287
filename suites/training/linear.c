/* Linear layers: an operand is quantized along the rows of its product, and, transposed, along the rows of another one, by the kernels that the
 * recipe names; products take what they made. */
#include "suites/training/model.h"

#include "kernels/common/scale_layout.h"

static const ng_quantization *made_by(const ng_kernel *quantizer) { return &quantizer->contract.quantization; }
static bool is_columns(int place) { return place == NG_X_COLUMNS || place == NG_W_COLUMNS || place == NG_DY_COLUMNS; }

/* Which operand a product reads, and whether it reads it as it lies, whatever the operand is called. */
static bool reads_transposed(const ng_product_rules *rules, int place) {
    if (place == NG_W_COLUMNS) return rules->products[NG_DGRAD]->contract.b_transposed;
    if (place == NG_DY_COLUMNS) return rules->products[NG_WGRAD]->contract.a_transposed;
    return rules->products[NG_WGRAD]->contract.b_transposed;
}

static int64_t blocks(uint32_t block, int64_t extent) { return block ? (extent + block - 1) / block : 1; }

static bool repeats(const ng_product_rules *rules, int place) {
    const ng_kernel *product = rules->products[place == NG_W ? NG_FPROP : NG_DGRAD], *quantizer = rules->quantizers[place];
    return (place == NG_W || place == NG_W_COLUMNS) && quantizer && quantizer->op == NG_OP_QUANTIZE && made_by(quantizer)->blocks.rows > 1 &&
           product->contract.b.blocks.rows == 1;
}

/* ---- memory -------------------------------------------------------------------------------------------------------*/
static ng_status create_operand(ng_model_state *m, const ng_product_rules *rules, int place, int64_t rows, int64_t columns, ng_operand_memory *o, ng_error *error) {
    const ng_kernel *quantizer = rules->quantizers[place];
    const int64_t r = is_columns(place) ? columns : rows, c = is_columns(place) ? rows : columns;
    ng_status status = NG_OK;
    if (!quantizer && is_columns(place) && !reads_transposed(rules, place)) status = ng_pool_tensor(&m->pool, m->format, r, c, &o->codes, error);
    if (!status && ((rules->rotation && place == NG_DY_COLUMNS) || rules->dequantizers[place])) status = ng_pool_tensor(&m->pool, m->format, r, c, &o->converted, error);
    if (!quantizer || status) return status;
    status = ng_pool_tensor(&m->pool, quantizer->out, r, c, &o->codes, error);
    if (quantizer->op == NG_OP_CAST) return status || !is_columns(place) ? status : ng_pool_tensor(&m->pool, quantizer->out, rows, columns, &o->converted, error);
    const ng_quantization *q = made_by(quantizer);
    const int64_t down = blocks(q->blocks.rows, r), across = blocks(q->blocks.columns, c);
    if (!status) status = ng_pool_tensor(&m->pool, q->scale, ng_scale_rows(q->layout, down, across), ng_scale_columns(q->layout, down, across), &o->scales, error);
    if (!status && q->tensor_scale) status = ng_pool_tensor(&m->pool, NG_FP32, 1, 1, &o->tensor_scale, error);
    if (!status && repeats(rules, place)) status = ng_pool_tensor(&m->pool, q->scale, r, across, &o->repeated, error);
    return status;
}

void ng_linear_choose(ng_model_state *m, ng_linear *l, bool quantized) {
    l->rules = quantized ? &m->quantized : &m->plain;
    l->operands = l->memory[quantized];
}

ng_status ng_linear_create(ng_model_state *m, ng_part part, int layer, ng_linear *l, ng_error *error) {
    const int64_t tokens = m->shape.batch * m->shape.sequence;
    ng_status status = NG_OK;
    *l = (ng_linear){.index = -1};
    for (size_t i = 0; i < m->layout.count; i++)
        if (m->layout.parameters[i].part == part && m->layout.parameters[i].layer == layer) l->weight = &m->layout.parameters[i];
    if (!l->weight) return ng_fail(error, NG_INTERNAL, "no parameter %s", ng_part_names[part]);
    l->inputs = l->weight->columns;
    l->outputs = l->weight->rows;
    if (layer >= 0) l->index = m->linear_count++;
    const int64_t extents[NG_OPERANDS][2] = {{tokens, l->inputs}, {tokens, l->inputs}, {l->outputs, l->inputs}, {l->outputs, l->inputs},
                                             {tokens, l->outputs}, {tokens, l->outputs}};
    for (int quantized = 0; quantized < (layer < 0 ? 1 : 2) && !status; quantized++)
        for (int place = 0; place < NG_OPERANDS && !status; place++)
            status = create_operand(m, quantized ? &m->quantized : &m->plain, place, extents[place][0], extents[place][1], &l->memory[quantized][place], error);
    ng_linear_choose(m, l, layer >= 0);
    return status;
}

/* ---- delayed scaling ----------------------------------------------------------------------------------------------*/
static ng_delayed *delayed_of(ng_model_state *m, int place, int index, int64_t *slot) {
    *slot = place < NG_DY ? 2 * index + (place >= NG_W) : index;
    return &m->delayed[place >= NG_DY];
}

ng_status ng_delayed_create(ng_model_state *m, ng_error *error) {
    ng_status status = NG_OK;
    for (int i = 0; i < 2 && !status; i++) {
        ng_delayed *d = &m->delayed[i];
        const int64_t slots = (i ? 1 : 2) * m->linear_count;
        status = ng_engine_find(m->engine, NG_OP_SCALE_UPDATE, &d->update, error, "scale-update/%s/*/max", i ? "e5m2" : "e4m3");
        if (!status) status = ng_engine_find(m->engine, NG_OP_QUANTIZE, &d->own, error, "quantize/bf16->%s/*/max-over-amax", i ? "e5m2" : "e4m3");
        if (!status) status = ng_pool_tensor(&m->pool, NG_FP32, NG_HISTORY, slots, &d->history, error);
        if (!status) status = ng_pool_tensor(&m->pool, NG_FP32, NG_HISTORY, slots, &d->rolled, error);
        if (!status) status = ng_pool_tensor(&m->pool, NG_FP32, 1, slots, &d->scales, error);
        if (!status) status = ng_pool_tensor(&m->pool, NG_FP32, 1, slots, &d->next, error);
        if (!status) status = ng_pool_tensor(&m->pool, NG_FP32, 1, slots, &d->decode, error);
        if (!status) status = ng_pool_tensor(&m->pool, NG_FP32, 1, 1, &d->found, error);
    }
    return status;
}

ng_status ng_delayed_begin(ng_model_state *m, ng_error *error) {
    ng_status status = NG_OK;
    for (int i = 0; i < 2 && !status && m->delayed[i].update; i++) {
        status = ng_engine_clear(m->engine, &m->delayed[i].history, error);
        if (!status) status = ng_engine_clear(m->engine, &m->delayed[i].scales, error);
    }
    return status;
}

/* The step's row of the history holds the decoding scales 1 / (max / amax) that a quantizer by the tensor's own maximum gave; times max
 * they are the maxima, and the update turns these into the next step's scales. */
ng_status ng_delayed_update(ng_model_state *m, ng_error *error) {
    ng_status status = NG_OK;
    for (int i = 0; i < 2 && !status && m->delayed[i].update; i++) {
        ng_delayed *d = &m->delayed[i];
        const ng_tensor now = ng_tensor_view(&d->history, 0, 1, d->scales.columns);
        ng_problem p = ng_model_problem(m, m->kernels.unscale, 1, now.columns, 0), u = ng_model_problem(m, d->update, NG_HISTORY, now.columns, 0);
        p.scalars[NG_GRADIENT_SCALE] = 1 / (i ? 57344.0 : 448.0);
        status = NG_LAUNCH(m->engine, m->kernels.unscale, &p, error, {NG_GRADIENT, &now}, {NG_FOUND_INF, &d->found});
        if (!status)
            status = NG_LAUNCH(m->engine, d->update, &u, error, {NG_IN, &d->history}, {NG_IN_2, &d->scales}, {NG_OUT, &d->rolled},
                               {NG_OUT_2, &d->next}, {NG_OUT_3, &d->decode});
        if (!status) status = ng_engine_copy(m->engine, &d->rolled, &d->history, error);
        if (!status) status = ng_engine_copy(m->engine, &d->next, &d->scales, error);
    }
    return status;
}

/* ---- operands -----------------------------------------------------------------------------------------------------*/
static ng_status transpose(ng_model_state *m, const ng_kernel *kernel, const ng_tensor *from, const ng_tensor *to, ng_error *error) {
    const ng_problem p = ng_model_problem(m, kernel, from->rows, from->columns, 0);
    return NG_LAUNCH(m->engine, kernel, &p, error, {NG_IN, from}, {NG_OUT_T, to});
}

/* The transform alone, or the values that codes stand for. */
static ng_status unary(ng_model_state *m, const ng_kernel *kernel, const ng_tensor *from, const ng_operand_memory *o, const ng_tensor *to, ng_error *error) {
    const ng_problem p = ng_model_problem(m, kernel, from->rows, from->columns, 0);
    return NG_LAUNCH(m->engine, kernel, &p, error, {NG_IN, from}, {NG_IN_SCALES, &o->scales}, {NG_IN_TENSOR_SCALE, &o->tensor_scale}, {NG_OUT, to});
}

static ng_status convert(ng_model_state *m, const ng_kernel *kernel, const ng_tensor *x, ng_operand_memory *o, bool columns, ng_error *error) {
    const ng_problem p = ng_model_problem(m, kernel, x->rows, x->columns, 0);
    ng_status status = NG_LAUNCH(m->engine, kernel, &p, error, {NG_IN, x}, {NG_OUT, columns ? &o->converted : &o->codes});
    return status || !columns ? status : transpose(m, m->kernels.transpose_cast, &o->converted, &o->codes, error);
}

static ng_status quantize(ng_model_state *m, const ng_kernel *kernel, const ng_tensor *x, const ng_operand_memory *row, const ng_operand_memory *columns,
                          const ng_tensor *given, const ng_tensor *scale_to, ng_error *error) {
    const ng_problem p = ng_model_problem(m, kernel, x->rows, x->columns, 0);
    const bool rotated = kernel->contract.hadamard.size;
    return NG_LAUNCH(m->engine, kernel, &p, error, {NG_IN, x}, {NG_OUT, row ? &row->codes : NULL}, {NG_OUT_SCALES, row ? scale_to ? scale_to : &row->scales : NULL},
                     {NG_OUT_T, columns ? &columns->codes : NULL}, {NG_OUT_T_SCALES, columns ? &columns->scales : NULL},
                     {NG_OUT_TENSOR_SCALE, row ? &row->tensor_scale : rotated ? NULL : &columns->tensor_scale},
                     {NG_OUT_T_TENSOR_SCALE, columns && rotated ? &columns->tensor_scale : NULL}, {NG_SCALE_GIVEN_IN, given});
}

/* The first step's scales are the tensors' own; later ones only record them. */
static ng_status quantize_delayed(ng_model_state *m, ng_linear *l, int place, const ng_tensor *x, bool columns_too, ng_error *error) {
    int64_t slot;
    ng_delayed *d = delayed_of(m, place, l->index, &slot);
    const ng_kernel *given = l->rules->quantizers[place], *own = d->own;
    ng_operand_memory *row = &l->operands[place], *columns = columns_too ? &l->operands[place + 1] : NULL;
    const ng_tensor scale = ng_tensor_view(&d->scales, slot, 1, 1), record = ng_tensor_view(&d->history, slot, 1, 1);
    ng_status status = quantize(m, own, x, row, NULL, NULL, columns_too ? &record : NULL, error); /* an evaluation records nothing */
    if (!status && m->step == 0) return quantize(m, own, x, row, columns, NULL, NULL, error);
    return status ? status : quantize(m, given, x, row, columns, &scale, NULL, error);
}

static ng_status repeat_scales(ng_model_state *m, const ng_operand_memory *o, ng_error *error) {
    if (!o->repeated.data) return NG_OK;
    /* Two 8-bit scales pass for one 16-bit element: the same codes are what a gather promises. */
    const ng_kernel *kernel = m->kernels.gather_scales;
    ng_tensor from = o->scales, to = o->repeated;
    from.format = to.format = NG_BF16;
    from.columns /= 2;
    to.columns /= 2;
    const ng_tensor index = ng_tensor_view(&m->sixteenths, 0, to.rows, 1);
    const ng_problem p = ng_model_problem(m, kernel, to.rows, to.columns, from.rows);
    return NG_LAUNCH(m->engine, kernel, &p, error, {NG_TOKENS, &index}, {NG_PARAMETER, &from}, {NG_OUT, &to});
}

/* x as the products take it: `place` along its rows, and the place after it along its columns, where that is wanted. */
static ng_status prepare(ng_model_state *m, ng_linear *l, int place, const ng_tensor *x, bool row, bool columns, ng_error *error) {
    const ng_kernel *one = l->rules->quantizers[place], *other = l->rules->quantizers[place + 1];
    ng_operand_memory *o = &l->operands[place], *t = &l->operands[place + 1];
    ng_status status = NG_OK;
    if (!one) {
        o->codes = *x;
        if (!columns) return NG_OK;
        if (reads_transposed(l->rules, place + 1)) t->codes = *x;
        else if (!l->rules->rotation) status = transpose(m, m->kernels.transpose, x, &t->codes, error);
        else {
            status = transpose(m, m->kernels.transpose, x, &t->converted, error);
            if (!status) status = unary(m, l->rules->rotation, &t->converted, t, &t->codes, error);
        }
        return status;
    }
    if (one->op == NG_OP_CAST) {
        if (row) status = convert(m, one, x, o, false, error);
        return status || !columns ? status : convert(m, other, x, t, true, error);
    }
    if (m->delayed[0].update && l->index >= 0) status = quantize_delayed(m, l, place, x, columns, error);
    else if (one == other && row && columns) status = quantize(m, one, x, o, t, NULL, NULL, error);
    else {
        if (row) status = quantize(m, one, x, o, NULL, NULL, NULL, error);
        if (!status && columns) status = quantize(m, other, x, NULL, t, NULL, NULL, error);
    }
    if (!status && one == other && row && columns && !other->contract.hadamard.size && o->tensor_scale.data) t->tensor_scale = o->tensor_scale;
    if (!status && row) status = repeat_scales(m, o, error);
    if (!status && columns) status = repeat_scales(m, t, error);
    if (!status && columns && l->rules->dequantizers[place + 1]) status = unary(m, l->rules->dequantizers[place + 1], &t->codes, t, &t->converted, error);
    return status;
}

/* ---- products -----------------------------------------------------------------------------------------------------*/
static const ng_tensor *scales_of(const ng_operand_memory *o) { return o->repeated.data ? &o->repeated : &o->scales; }

static ng_status multiply(ng_model_state *m, const ng_linear *l, ng_phase phase, int a_place, int b_place, const ng_tensor *out, ng_error *error) {
    const ng_kernel *kernel = l->rules->products[phase];
    const ng_operand_memory *a = &l->operands[a_place], *b = &l->operands[b_place];
    const int64_t k = kernel->contract.a_transposed ? a->codes.rows : a->codes.columns;
    ng_problem p = ng_model_problem(m, kernel, out->rows, out->columns, k);
    p.phase = phase;
    if (!l->rules->quantizers[a_place])
        return NG_LAUNCH(m->engine, kernel, &p, error, {NG_A, &a->codes}, {NG_B, l->rules->dequantizers[b_place] ? &b->converted : &b->codes}, {NG_OUT, out});
    return NG_LAUNCH(m->engine, kernel, &p, error, {NG_A, &a->codes}, {NG_A_SCALES, scales_of(a)}, {NG_A_TENSOR_SCALE, &a->tensor_scale},
                     {NG_B, &b->codes}, {NG_B_SCALES, scales_of(b)}, {NG_B_TENSOR_SCALE, &b->tensor_scale}, {NG_OUT, out});
}

ng_status ng_linear_forward(ng_model_state *m, ng_linear *l, const ng_tensor *x, bool training, const ng_tensor *y, ng_error *error) {
    ng_status status = prepare(m, l, NG_X, x, true, training, error);
    if (!status) status = prepare(m, l, NG_W, &l->weight->working, true, training, error);
    return status ? status : multiply(m, l, NG_FPROP, NG_X, NG_W, y, error);
}

ng_status ng_linear_backward(ng_model_state *m, ng_linear *l, const ng_tensor *dy, const ng_tensor *dx, ng_error *error) {
    ng_status status = prepare(m, l, NG_DY, dy, dx != NULL, true, error);
    if (!status && dx) status = multiply(m, l, NG_DGRAD, NG_DY, NG_W_COLUMNS, dx, error);
    return status ? status : multiply(m, l, NG_WGRAD, NG_DY_COLUMNS, NG_X_COLUMNS, &l->weight->gradient, error);
}
