/* From gradients to weights: loss scaling undone, norm, clipping, AdamW on binary32 masters, and the working copies that products read. */
#include "suites/training/model.h"

ng_status ng_model_refresh(ng_model_state *m, ng_error *error) {
    if (m->format == m->wide) return NG_OK;
    const ng_problem p = ng_model_problem(m, m->kernels.cast, 1, m->layout.total, 0);
    return NG_LAUNCH(m->engine, m->kernels.cast, &p, error, {NG_IN, &m->master}, {NG_OUT, &m->working});
}

/* The scale has loss_weight / T in it, so that dividing by it leaves the gradient of the tokens' sum; a second pass makes the mean of it. */
static ng_status unscale(ng_model_state *m, ng_error *error) {
    const ng_kernel *k = m->kernels.unscale;
    ng_problem p = ng_model_problem(m, k, 1, m->layout.total, 0);
    ng_status status = NG_LAUNCH(m->engine, k, &p, error, {NG_GRADIENT, &m->gradient}, {NG_LOSS_SCALE, &m->loss_scale}, {NG_FOUND_INF, &m->found_inf});
    p.scalars[NG_GRADIENT_SCALE] = (double)(m->shape.batch * m->shape.sequence) / m->loss_weight;
    return status ? status : NG_LAUNCH(m->engine, k, &p, error, {NG_GRADIENT, &m->gradient}, {NG_FOUND_INF, &m->found_inf});
}

static ng_status rescale(ng_model_state *m, ng_error *error) {
    ng_problem p = ng_model_problem(m, m->kernels.scaler, 1, 1, 0);
    p.scalars[NG_GROWTH] = 2;
    p.scalars[NG_BACKOFF] = 0.5;
    p.scalars[NG_GROWTH_INTERVAL] = 200;
    return NG_LAUNCH(m->engine, m->kernels.scaler, &p, error, {NG_LOSS_SCALE, &m->loss_scale}, {NG_GROWTH_COUNT, &m->growth}, {NG_FOUND_INF, &m->found_inf});
}

static ng_status adam(ng_model_state *m, const ng_update_options *o, int64_t at, int64_t count, double decay, ng_error *error) {
    const ng_kernel *k = m->kernels.adam_fused ? m->kernels.adam_fused : m->kernels.adam;
    const ng_tensor master = ng_tensor_view(&m->master, at, 1, count), gradient = ng_tensor_view(&m->gradient, at, 1, count),
                    first = ng_tensor_view(&m->moment_1, at, 1, count), second = ng_tensor_view(&m->moment_2, at, 1, count);
    ng_tensor working = {0};
    if (m->kernels.adam_fused) working = ng_tensor_view(&m->working, at, 1, count);
    ng_problem p = ng_model_problem(m, k, 1, count, 1);
    p.scalars[NG_LEARNING_RATE] = o->rate;
    p.scalars[NG_BETA1] = o->beta_1;
    p.scalars[NG_BETA2] = o->beta_2;
    p.scalars[NG_EPSILON] = o->epsilon;
    p.scalars[NG_WEIGHT_DECAY] = decay;
    p.scalars[NG_STEP] = (double)(m->step + 1);
    return NG_LAUNCH(m->engine, k, &p, error, {NG_PARAMETER, working.data ? &working : &master}, {NG_PARAMETER_2, working.data ? &master : NULL}, {NG_GRADIENT, &gradient},
                     {NG_MOMENT_1, &first}, {NG_MOMENT_2, &second}, {NG_FOUND_INF, m->scaled ? &m->found_inf : NULL});
}

/* In two launches, what decays and what does not; unfused, parameter by parameter. The bits are the same. */
static ng_status optimize(ng_model_state *m, const ng_update_options *o, ng_error *error) {
    const ng_layout *l = &m->layout;
    ng_status status = NG_OK;
    if (!m->choice.unfused) {
        status = adam(m, o, 0, l->decayed, o->decay, error);
        return status ? status : adam(m, o, l->decayed, l->total - l->decayed, 0, error);
    }
    for (size_t i = 0; i < l->count && !status; i++) {
        const int64_t end = i + 1 < l->count ? l->parameters[i + 1].at : l->total;
        status = adam(m, o, l->parameters[i].at, end - l->parameters[i].at, l->parameters[i].part < NG_PART_GAMMA_1 ? o->decay : 0, error);
    }
    return status;
}

ng_status ng_model_update(ng_model_state *m, const ng_update_options *o, const ng_tensor *norm, ng_error *error) {
    const ng_model_kernels *k = &m->kernels;
    ng_status status = m->scaled ? unscale(m, error) : NG_OK;
    ng_problem p = ng_model_problem(m, k->norm2, 1, m->layout.total, 1), c = ng_model_problem(m, k->clip, 1, m->layout.total, 1);
    c.scalars[NG_MAX_NORM] = o->max_norm;
    if (!status) status = NG_LAUNCH(m->engine, k->norm2, &p, error, {NG_GRADIENT, &m->gradient}, {NG_OUT, norm});
    if (!status) status = NG_LAUNCH(m->engine, k->clip, &c, error, {NG_GRADIENT, &m->gradient}, {NG_OUT, norm});
    if (!status) status = optimize(m, o, error);
    if (!status && !k->adam_fused) status = ng_model_refresh(m, error);
    if (!status && m->scaled) status = rescale(m, error);
    if (!status && m->choice.recipe->delayed) status = ng_delayed_update(m, error);
    m->step++;
    return status;
}
