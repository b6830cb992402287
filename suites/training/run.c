#include "suites/training/run.h"

#include "harness/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t tokens_of(const ng_run_settings *s) { return s->shape.batch * s->shape.sequence; }

/* ---- what is kept -------------------------------------------------------------------------------------------------*/
ng_status ng_curve_create(const ng_run_settings *s, ng_curve *curve, ng_error *error) {
    curve->losses = calloc((size_t)s->steps + 1, sizeof(double));
    curve->norms = calloc((size_t)s->steps + 1, sizeof(double));
    curve->final_losses = calloc((size_t)s->evaluations + 1, sizeof(double));
    return curve->losses && curve->norms && curve->final_losses ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
}

void ng_curve_free(ng_curve *curve) {
    free(curve->losses);
    free(curve->norms);
    free(curve->final_losses);
    *curve = (ng_curve){0};
}

ng_status ng_seed_data_create(const ng_run_settings *s, const ng_layout *layout, const ng_source_text *source, uint64_t seed, ng_seed_data *data, ng_error *error) {
    const size_t batches = (size_t)(s->steps + s->evaluations), tokens = (size_t)tokens_of(s);
    *data = (ng_seed_data){seed, malloc((size_t)layout->total * sizeof(float)), malloc(batches * tokens * 4), malloc(batches * tokens * 4)};
    if (!data->weights || !data->tokens || !data->targets) {
        ng_seed_data_free(data);
        return ng_fail(error, NG_NO_MEMORY, "no memory for the batches of a run");
    }
    ng_layout_initialize(layout, &s->shape, seed, data->weights);
    for (size_t i = 0; i < batches; i++) {
        const bool evaluation = i >= (size_t)s->steps;
        ng_source_batch(source, seed, evaluation ? i - (size_t)s->steps : i, evaluation, s->shape.batch, s->shape.sequence, data->tokens + i * tokens,
                        data->targets + i * tokens);
    }
    return NG_OK;
}

void ng_seed_data_free(ng_seed_data *data) {
    free(data->weights);
    free(data->tokens);
    free(data->targets);
    *data = (ng_seed_data){0};
}

/* ---- runners ------------------------------------------------------------------------------------------------------*/
static ng_status create_step(ng_runner *r, ng_error *error) {
    ng_pool *pool = &r->model.pool;
    const int64_t tokens = tokens_of(r->settings);
    ng_status status = ng_pool_tensor(pool, NG_FP32, tokens, 1, &r->step_tokens, error);
    if (!status) status = ng_pool_tensor(pool, NG_FP32, tokens, 1, &r->step_targets, error);
    return status ? status : ng_pool_tensor(pool, r->model.wide, tokens, 1, &r->step_losses, error);
}

ng_status ng_runner_create(ng_engine *engine, const ng_recipe_choice *choice, const ng_run_settings *s, ng_runner *r, ng_error *error) {
    const int64_t rows = (s->steps + s->evaluations) * tokens_of(s);
    *r = (ng_runner){.settings = s};
    ng_status status = ng_model_create(engine, choice, &s->shape, s->loss_weight, &r->model, error);
    if (status) return status;
    status = ng_pool_tensor(&r->model.pool, NG_FP32, rows, 1, &r->tokens, error);
    if (!status) status = ng_pool_tensor(&r->model.pool, NG_FP32, rows, 1, &r->targets, error);
    if (!status) status = ng_pool_tensor(&r->model.pool, r->model.wide, rows, 1, &r->losses, error);
    if (!status) status = ng_pool_tensor(&r->model.pool, r->model.wide, 1, s->steps ? s->steps : 1, &r->norms, error);
    r->replays = engine->device.backend == NG_BACKEND_CUDA && !s->no_replay && !(choice->recipe->dy.random && !choice->no_random);
    if (!status && r->replays) status = create_step(r, error);
    if (status) ng_runner_destroy(r);
    return status;
}

void ng_runner_destroy(ng_runner *r) {
    ng_engine_forget(r->model.engine, r->replay);
    r->replay = NULL;
    ng_model_destroy(&r->model);
}

ng_status ng_runner_begin(ng_runner *r, const ng_seed_data *data, const float *weights, ng_error *error) {
    ng_status status = ng_engine_write(r->model.engine, &r->tokens, data->tokens, error);
    if (!status) status = ng_engine_write(r->model.engine, &r->targets, data->targets, error);
    return status ? status : ng_model_begin(&r->model, weights ? weights : data->weights, data->seed, error);
}

static ng_tensor batch(const ng_runner *r, const ng_tensor *whole, int64_t index) {
    const int64_t tokens = tokens_of(r->settings);
    return ng_tensor_view(whole, index * tokens, tokens, 1);
}

static double real(const ng_tensor *of, const void *values, int64_t i) {
    return of->format == NG_FP64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* Means of the losses of batches [from, to). */
static ng_status mean_losses(ng_runner *r, int64_t from, int64_t to, double *means, ng_error *error) {
    const int64_t tokens = tokens_of(r->settings);
    const ng_tensor part = ng_tensor_view(&r->losses, from * tokens, (to - from) * tokens, 1);
    void *values = malloc((size_t)(part.rows * part.row_bytes) + 1);
    ng_status status = values ? ng_engine_read(r->model.engine, &part, values, error) : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int64_t b = 0; b < to - from && !status; b++) {
        double sum = 0;
        for (int64_t i = 0; i < tokens; i++)
            sum += real(&part, values, b * tokens + i);
        means[b] = sum / (double)tokens;
    }
    free(values);
    return status;
}

/* Rises over the first tenth of the steps, then falls to a tenth of itself. */
static double rate_of(const ng_run_settings *s, int64_t step) {
    const int64_t rise = s->steps / 10 > 0 ? s->steps / 10 : 1;
    if (step < rise) return s->rate * (double)(step + 1) / (double)rise;
    return s->rate * (1 - 0.9 * (double)(step - rise) / (double)(s->steps - rise > 0 ? s->steps - rise : 1));
}

static ng_status both_passes(ng_runner *r, const ng_tensor *tokens, const ng_tensor *targets, const ng_tensor *losses, ng_error *error) {
    ng_status status = ng_model_forward(&r->model, tokens, targets, true, losses, error);
    return status ? status : ng_model_backward(&r->model, tokens, targets, error);
}

static ng_status record(ng_runner *r, ng_error *error) {
    ng_error other = {0};
    ng_status status = ng_engine_record(r->model.engine, error);
    if (status) return status;
    status = both_passes(r, &r->step_tokens, &r->step_targets, &r->step_losses, error);
    const ng_status ended = ng_engine_recorded(r->model.engine, &r->replay, &other);
    return status ? status : ended ? ng_fail(error, ended, "%.900s", other.text) : NG_OK;
}

enum { FIRST_RECORDED = 2 }; /* of this runner: step 0 of delayed scaling is another, and by then workspace has its size */

static ng_status replay(ng_runner *r, const ng_tensor *tokens, const ng_tensor *targets, const ng_tensor *losses, ng_error *error) {
    ng_engine *engine = r->model.engine;
    ng_status status = ng_engine_copy(engine, tokens, &r->step_tokens, error);
    if (!status) status = ng_engine_copy(engine, targets, &r->step_targets, error);
    if (!status && !r->replay && r->steps_here >= FIRST_RECORDED) status = record(r, error);
    if (!status) status = r->replay ? ng_engine_replay(engine, r->replay, error) : both_passes(r, &r->step_tokens, &r->step_targets, &r->step_losses, error);
    return status ? status : ng_engine_copy(engine, &r->step_losses, losses, error);
}

static ng_status one_step(ng_runner *r, ng_error *error) {
    const ng_run_settings *s = r->settings;
    const int64_t step = r->model.step;
    const ng_tensor tokens = batch(r, &r->tokens, step), targets = batch(r, &r->targets, step), losses = batch(r, &r->losses, step);
    const ng_tensor norm = ng_tensor_view(&r->norms, step, 1, 1);
    const ng_update_options update = {rate_of(s, step), s->beta_1, s->beta_2, s->epsilon, s->decay, s->max_norm};
    ng_status status = r->replays ? replay(r, &tokens, &targets, &losses, error) : both_passes(r, &tokens, &targets, &losses, error);
    if (!status) status = ng_model_update(&r->model, &update, &norm, error);
    r->steps_here++;
    return status;
}

ng_status ng_runner_advance(ng_runner *r, int64_t to, ng_curve *curve, ng_error *error) {
    const int64_t from = r->model.step;
    const double start = ng_monotonic_s();
    ng_status status = NG_OK;
    while (r->model.step < to && !status)
        status = one_step(r, error);
    if (!status) status = ng_engine_wait(r->model.engine, error);
    curve->time_s += ng_monotonic_s() - start;
    if (!status) status = mean_losses(r, from, to, curve->losses + from, error);
    const ng_tensor part = ng_tensor_view(&r->norms, from, 1, to - from);
    void *values = malloc((size_t)part.row_bytes + 1);
    if (!status) status = values ? ng_engine_read(r->model.engine, &part, values, error) : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int64_t i = from; i < to && !status; i++)
        curve->norms[i] = real(&part, values, i - from);
    free(values);
    curve->done = to;
    return status;
}

ng_status ng_runner_evaluate(ng_runner *r, double *means, ng_error *error) {
    const int64_t from = r->settings->steps, to = from + r->settings->evaluations;
    ng_status status = NG_OK;
    for (int64_t b = from; b < to && !status; b++) {
        const ng_tensor tokens = batch(r, &r->tokens, b), targets = batch(r, &r->targets, b), losses = batch(r, &r->losses, b);
        status = ng_model_forward(&r->model, &tokens, &targets, false, &losses, error);
    }
    return status ? status : mean_losses(r, from, to, means, error);
}

ng_status ng_runner_gradient(ng_runner *r, int64_t index, uint64_t seed, double *gradient, ng_error *error) {
    ng_model_state *m = &r->model;
    const int64_t total = m->layout.total;
    const ng_tensor tokens = batch(r, &r->tokens, index), targets = batch(r, &r->targets, index), losses = batch(r, &r->losses, index);
    float scale = 0;
    m->seed = seed;
    ng_status status = ng_model_forward(m, &tokens, &targets, true, &losses, error);
    if (!status) status = ng_model_backward(m, &tokens, &targets, error);
    if (!status) status = ng_engine_read(m->engine, &m->loss_scale, &scale, error);
    float *narrow = m->wide == NG_FP64 ? NULL : malloc((size_t)total * sizeof *narrow);
    if (!status && m->wide != NG_FP64 && !narrow) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!status) status = ng_engine_read(m->engine, &m->gradient, narrow ? (void *)narrow : gradient, error);
    const double factor = m->scaled ? 1 / ((double)scale * (double)tokens_of(r->settings)) : 1 / m->loss_weight;
    for (int64_t i = 0; i < total && !status; i++)
        gradient[i] = factor * (narrow ? (double)narrow[i] : gradient[i]);
    free(narrow);
    return status;
}

ng_status ng_runner_weights(ng_runner *r, float *weights, ng_error *error) {
    ng_model_state *m = &r->model;
    if (m->wide == NG_FP32) return ng_engine_read(m->engine, &m->master, weights, error);
    double *wide = malloc((size_t)m->layout.total * sizeof *wide);
    ng_status status = wide ? ng_engine_read(m->engine, &m->master, wide, error) : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < m->layout.total && !status; i++)
        weights[i] = (float)wide[i];
    free(wide);
    return status;
}

/* ---- state --------------------------------------------------------------------------------------------------------*/
enum { STATE_TENSORS = 10 };

/* Everything that a step changes and a later one reads. */
static int state_of(const ng_runner *r, ng_tensor tensors[STATE_TENSORS]) {
    const ng_model_state *m = &r->model;
    const ng_tensor all[] = {m->master, m->moment_1, m->moment_2, m->loss_scale, m->growth, m->found_inf,
                             m->delayed[0].history, m->delayed[0].scales, m->delayed[1].history, m->delayed[1].scales};
    int count = 0;
    for (int i = 0; i < STATE_TENSORS; i++)
        if (all[i].data) tensors[count++] = all[i];
    return count;
}

size_t ng_runner_state_bytes(const ng_runner *r) {
    ng_tensor tensors[STATE_TENSORS];
    size_t bytes = 0;
    for (int i = 0, count = state_of(r, tensors); i < count; i++)
        bytes += (size_t)(tensors[i].rows * tensors[i].row_bytes);
    return bytes;
}

ng_status ng_runner_save(ng_runner *r, void *state, ng_error *error) {
    ng_tensor tensors[STATE_TENSORS];
    ng_status status = NG_OK;
    char *to = state;
    for (int i = 0, count = state_of(r, tensors); i < count && !status; i++) {
        status = ng_engine_read(r->model.engine, &tensors[i], to, error);
        to += tensors[i].rows * tensors[i].row_bytes;
    }
    return status;
}

ng_status ng_runner_restore(ng_runner *r, const void *state, int64_t step, ng_error *error) {
    ng_tensor tensors[STATE_TENSORS];
    ng_status status = NG_OK;
    const char *from = state;
    for (int i = 0, count = state_of(r, tensors); i < count && !status; i++) {
        status = ng_engine_write(r->model.engine, &tensors[i], from, error);
        from += tensors[i].rows * tensors[i].row_bytes;
    }
    r->model.step = step;
    return status ? status : ng_model_refresh(&r->model, error);
}
