#include "suites/training/session.h"

#include "harness/terminal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_CPU = 5, CHUNK_GPU = 20 };

/* ---- runs ---------------------------------------------------------------------------------------------------------*/
static ng_status checkpoint(ng_training *s, ng_runner *runner, ng_error *error) {
    const double every_s = 10;
    if (!s->checkpoint || (!s->settings.checkpoint_every && ng_monotonic_s() - s->written_s < every_s)) return NG_OK;
    s->state_bytes = ng_runner_state_bytes(runner);
    free(s->state);
    if (!(s->state = malloc(s->state_bytes))) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = ng_runner_save(runner, s->state, error);
    return status ? status : ng_checkpoint_write(s, error);
}

static int64_t chunk_end(const ng_training *s, int64_t step) {
    const int64_t every = s->settings.checkpoint_every, size = s->engine.device.backend == NG_BACKEND_CPU ? CHUNK_CPU : CHUNK_GPU;
    const int64_t end = step + (every && every < size ? every : size);
    return end < s->settings.steps ? end : s->settings.steps;
}

static ng_status finish(ng_training *s, size_t seed, size_t recipe, ng_runner *runner, ng_error *error) {
    ng_curve *curve = NG_CURVE_OF(s, seed, recipe);
    float scale = 0;
    ng_status status = ng_runner_evaluate(runner, curve->final_losses, error);
    if (!status && runner->model.scaled) status = ng_engine_read(runner->model.engine, &runner->model.loss_scale, &scale, error);
    curve->scale = (double)scale * (double)(s->settings.shape.batch * s->settings.shape.sequence);
    if (!status && recipe == 0) {
        s->weights[seed] = malloc((size_t)s->layout.total * sizeof(float));
        status = s->weights[seed] ? ng_runner_weights(runner, s->weights[seed], error) : ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    curve->finished = !status;
    return status;
}

static ng_status restore(ng_training *s, ng_runner *runner, ng_curve *curve, const char *name, ng_error *error) {
    ng_status status = NG_OK;
    if (!s->state || !curve->done) curve->done = 0, curve->time_s = 0;
    else if (s->state_bytes != ng_runner_state_bytes(runner))
        status = ng_fail(error, NG_BAD_ARGUMENT, "%s: the state of %s has another size", s->checkpoint, name);
    else status = ng_runner_restore(runner, s->state, curve->done, error);
    return status;
}

static void forget_state(ng_training *s) {
    free(s->state);
    s->state = NULL;
    s->state_bytes = 0;
}

typedef struct one_run {
    size_t seed, recipe;
    const ng_seed_data *data;
    ng_engine *engine;
    bool alone; /* no other run beside it: checkpoints are written */
} one_run;

static void show(const ng_training *s, const ng_training_events *events, const one_run *run, int64_t step) {
    if (!events->progress) return;
#pragma omp critical(ng_training_progress)
    events->progress(events->context, run->seed * s->recipe_count + run->recipe, s->seed_count * s->recipe_count, step, s->settings.steps);
}

static ng_status run_one(ng_training *s, const one_run *run, const ng_training_events *events, ng_error *error) {
    ng_curve *curve = NG_CURVE_OF(s, run->seed, run->recipe);
    const ng_recipe_choice *choice = &s->recipes[run->recipe].choice;
    ng_runner runner;
    ng_status status = ng_runner_create(run->engine, choice, &s->settings, &runner, error);
    if (status) return status;
    status = ng_runner_begin(&runner, run->data, NULL, error);
    if (!status && run->alone) {
        status = restore(s, &runner, curve, choice->name, error);
        forget_state(s);
    }
    while (!status && curve->done < s->settings.steps) {
        status = ng_runner_advance(&runner, chunk_end(s, curve->done), curve, error);
        if (!status) show(s, events, run, curve->done);
        if (!status && run->alone && curve->done < s->settings.steps) status = checkpoint(s, &runner, error);
    }
    if (!status) status = finish(s, run->seed, run->recipe, &runner, error);
    if (run->alone) forget_state(s);
    if (!status && run->alone) status = ng_checkpoint_write(s, error);
    ng_runner_destroy(&runner);
    return status;
}

/* A recipe without kernels on this backend is skipped; the baseline is not. */
static ng_status run_or_skip(ng_training *s, const one_run *run, const ng_training_events *events, ng_error *error) {
    ng_recipe_result *r = &s->recipes[run->recipe];
    ng_error why = {0};
    if (NG_CURVE_OF(s, run->seed, run->recipe)->finished) return NG_OK;
    ng_status status = run_one(s, run, events, &why);
    if (status == NG_UNSUPPORTED && run->recipe > 0) {
#pragma omp critical(ng_training_skip)
        snprintf(r->skipped, sizeof r->skipped, "%.255s", why.text);
        return NG_OK;
    }
    return status ? ng_fail(error, status, "%.300s, seed %llu: %.600s", r->choice.name, (unsigned long long)run->data->seed, why.text) : NG_OK;
}

/* Runs side by side, one a core, since a small model's kernels are too small to share. No run sees another. */
static ng_status run_beside(ng_training *s, const ng_seed_data *data, const ng_training_events *events, ng_error *error) {
    const size_t runs = s->seed_count * s->recipe_count;
    ng_status first = NG_OK;
#pragma omp parallel for num_threads(s->engine.device.threads) schedule(dynamic, 1)
    for (size_t i = 0; i < runs; i++) {
        ng_error why = {0};
        ng_engine engine;
        ng_status status, before;
#pragma omp atomic read
        before = first;
        if (before) continue;
        status = ng_engine_open(NG_BACKEND_CPU, 0, 1, &s->engine.catalogue, &engine, &why);
        engine.substitutions = s->engine.substitutions;
        engine.substitution_count = s->engine.substitution_count;
        const one_run run = {i / s->recipe_count, i % s->recipe_count, &data[i / s->recipe_count], &engine, false};
        if (!status) status = run_or_skip(s, &run, events, &why);
        ng_engine_close(&engine);
        if (!status) continue;
#pragma omp critical(ng_training_failure)
        if (!first) {
            *error = why;
            first = status;
        }
    }
    return first;
}

ng_status ng_training_run(ng_training *s, const ng_training_events *events, ng_error *error) {
    const bool beside = s->engine.device.backend == NG_BACKEND_CPU && s->engine.device.threads > 1 && !s->checkpoint;
    ng_seed_data *data = calloc(s->seed_count, sizeof *data);
    ng_status status = data ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t seed = 0; seed < s->seed_count && !status; seed++)
        status = ng_seed_data_create(&s->settings, &s->layout, &s->source, s->first_seed + seed, &data[seed], error);
    if (!status && beside) status = run_beside(s, data, events, error);
    for (size_t i = 0; i < s->seed_count * s->recipe_count && !status && !beside; i++) {
        const one_run run = {i / s->recipe_count, i % s->recipe_count, &data[i / s->recipe_count], &s->engine, true};
        if (!*s->recipes[run.recipe].skipped) status = run_or_skip(s, &run, events, error);
    }
    for (size_t seed = 0; seed < s->seed_count && data; seed++)
        ng_seed_data_free(&data[seed]);
    free(data);
    return status;
}

/* ---- verdicts -----------------------------------------------------------------------------------------------------*/
static double mean(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

static void judge_curves(ng_training *s, size_t recipe) {
    ng_recipe_result *r = &s->recipes[recipe];
    const double tokens = (double)(s->settings.shape.batch * s->settings.shape.sequence * s->settings.steps);
    r->diverged = 0;
    r->loss = r->time_s = 0;
    for (size_t seed = 0; seed < s->seed_count; seed++) {
        ng_curve *c = NG_CURVE_OF(s, seed, recipe);
        c->final_loss = mean(c->final_losses, s->settings.evaluations);
        c->area = mean(c->losses, s->settings.steps);
        ng_health_of(c->losses, c->norms, (int)s->settings.steps, &c->health);
        if (!isfinite(c->final_loss)) c->health.divergence = NG_LOSS_NOT_FINITE;
        r->diverged += c->health.divergence != NG_CONVERGES;
        r->loss += c->final_loss / (double)s->seed_count;
        r->time_s += c->time_s / (double)s->seed_count;
    }
    r->tokens_per_s = tokens / r->time_s;
}

/* Gaps of the seeds where both losses are finite. */
static void gaps_of(const ng_training *s, size_t recipe, double *final, double *area, int *count) {
    *count = 0;
    for (size_t seed = 0; seed < s->seed_count; seed++) {
        const ng_curve *c = NG_CURVE_OF(s, seed, recipe), *b = NG_CURVE_OF(s, seed, 0);
        if (!isfinite(c->final_loss) || !isfinite(b->final_loss) || !isfinite(c->area) || !isfinite(b->area)) continue;
        final[*count] = (c->final_loss - b->final_loss) / b->final_loss;
        area[(*count)++] = (c->area - b->area) / b->area;
    }
}

/* A recipe under which a run diverges that the baseline's run of the same seed survives has failed, whatever the others say. */
static bool diverges(const ng_training *s, size_t recipe) {
    for (size_t seed = 0; seed < s->seed_count; seed++)
        if (NG_CURVE_OF(s, seed, recipe)->health.divergence != NG_CONVERGES && NG_CURVE_OF(s, seed, 0)->health.divergence == NG_CONVERGES) return true;
    return false;
}

void ng_training_judge(ng_training *s) {
    enum { MOST = 64 };
    ng_gap *finals[MOST], *areas[MOST];
    double final[NG_MOST_SEEDS], area[NG_MOST_SEEDS], fp32_s = NAN;
    size_t tested = 0;
    for (size_t i = 0; i < s->recipe_count; i++) {
        ng_recipe_result *r = &s->recipes[i];
        int count;
        if (*r->skipped) continue;
        judge_curves(s, i);
        if (!strcmp(r->choice.name, "fp32")) fp32_s = r->time_s;
        if (i == 0 || tested == MOST) continue;
        gaps_of(s, i, final, area, &count);
        ng_gap_of(final, count, r->delta, s->alpha, s->power, &r->final);
        ng_gap_of(area, count, r->delta, s->alpha, s->power, &r->area);
        areas[tested] = &r->area;
        finals[tested++] = &r->final;
    }
    ng_holm(finals, tested, s->alpha);
    ng_holm(areas, tested, s->alpha);
    for (size_t i = 0; i < s->recipe_count; i++) {
        ng_recipe_result *r = &s->recipes[i];
        if (*r->skipped) continue;
        r->speed_up = fp32_s / r->time_s;
        r->verdict = i == 0 ? NG_GAP_PASS : diverges(s, i) ? NG_GAP_FAIL : r->final.verdict;
    }
}

size_t ng_training_seeds_needed(const ng_training *s) {
    size_t needed = s->seed_count;
    for (size_t i = 1; i < s->recipe_count; i++) {
        const ng_recipe_result *r = &s->recipes[i];
        if (*r->skipped || r->verdict != NG_GAP_INCONCLUSIVE) continue;
        const size_t own = r->final.seeds_needed ? (size_t)r->final.seeds_needed : s->seed_capacity;
        needed = own > needed ? own : needed;
    }
    return needed < s->seed_capacity ? needed : s->seed_capacity;
}

/* ---- gradients ----------------------------------------------------------------------------------------------------*/
static void find_worst(ng_recipe_result *r, size_t count) {
    for (size_t j = 1; j < count; j++)
        if (!(r->gradients[j].relative <= r->gradients[r->worst].relative)) r->worst = j;
}

static ng_status gradients_of(ng_training *s, ng_recipe_result *r, ng_runner *reference, const ng_seed_data *data, int batches, int draws, ng_error *error) {
    const size_t count = s->layout.count + 1;
    const bool random = r->choice.recipe->dy.random && !r->choice.no_random, own = ng_recipe_quantizes(r->choice.recipe) && !r->choice.exact;
    ng_runner runner, exact;
    ng_recipe_choice choice = r->choice;
    r->gradients = calloc(count, sizeof *r->gradients);
    if (own) r->systematic = calloc(count, sizeof *r->systematic);
    if (!r->gradients || (own && !r->systematic)) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    choice.exact = true;
    ng_status status = ng_runner_create(&s->engine, &r->choice, &s->settings, &runner, error);
    if (status) return status;
    status = ng_gradients_compare(&runner, reference, data, s->weights[0], batches, random ? draws : 1, r->gradients, error);
    if (!status && own) {
        status = ng_runner_create(&s->engine, &choice, &s->settings, &exact, error);
        if (!status) {
            status = ng_gradients_compare(&runner, &exact, data, s->weights[0], batches, random ? draws : 1, r->systematic, error);
            ng_runner_destroy(&exact);
        } else if (status == NG_UNSUPPORTED) {
            free(r->systematic);
            r->systematic = NULL;
            status = NG_OK;
        }
    }
    ng_runner_destroy(&runner);
    if (!status) find_worst(r, s->layout.count);
    return status;
}

/* Binary64 where the engine has it, else the baseline. */
static ng_status open_reference(ng_training *s, ng_runner *reference, ng_error *error) {
    ng_recipe_choice exact;
    ng_status status = ng_recipe_parse("fp64", &exact, error);
    if (!status) status = ng_runner_create(&s->engine, &exact, &s->settings, reference, error);
    if (status == NG_UNSUPPORTED) {
        exact = s->recipes[0].choice;
        status = ng_runner_create(&s->engine, &exact, &s->settings, reference, error);
    }
    snprintf(s->gradient_reference, sizeof s->gradient_reference, "%s", exact.name);
    return status;
}

ng_status ng_training_gradients(ng_training *s, int batches, int draws, ng_error *error) {
    ng_seed_data data;
    ng_runner reference;
    if (batches > s->settings.steps) batches = (int)s->settings.steps;
    ng_status status = ng_seed_data_create(&s->settings, &s->layout, &s->source, s->first_seed, &data, error);
    if (status) return status;
    status = open_reference(s, &reference, error);
    if (!status) {
        for (size_t i = 1; i < s->recipe_count && !status; i++)
            if (!*s->recipes[i].skipped) status = gradients_of(s, &s->recipes[i], &reference, &data, batches, draws, error);
        ng_runner_destroy(&reference);
    }
    ng_seed_data_free(&data);
    return status;
}

/* ---- trained models under a recipe --------------------------------------------------------------------------------*/
/* after [1 + layers][count]: all blocks, then one at a time; count: seeds times evaluation batches. */
static ng_status evaluate_seed(ng_training *s, size_t recipe, size_t seed, const ng_seed_data *data, bool alone, double *after, ng_error *error) {
    const int64_t evaluations = s->settings.evaluations, count = (int64_t)s->seed_count * evaluations;
    ng_runner runner;
    ng_status status = ng_runner_create(&s->engine, &s->recipes[recipe].choice, &s->settings, &runner, error);
    if (status) return status;
    status = ng_runner_begin(&runner, data, s->weights[seed], error);
    for (int64_t l = -1; l < (alone ? s->settings.shape.layers : 0) && !status; l++) {
        ng_model_quantize_blocks(&runner.model, (int)l);
        status = ng_runner_evaluate(&runner, after + (l + 1) * count + (int64_t)seed * evaluations, error);
    }
    ng_runner_destroy(&runner);
    return status;
}

static ng_status evaluate_all(ng_training *s, ng_seed_data *data, double *losses, ng_error *error) {
    const int64_t layers = s->settings.shape.layers, count = (int64_t)s->seed_count * s->settings.evaluations;
    double *const before = losses, *const after = losses + count;
    ng_status status = NG_OK;
    for (size_t i = 0; i < s->recipe_count && !status; i++) {
        ng_recipe_result *r = &s->recipes[i];
        const bool alone = i > 0 && ng_recipe_quantizes(r->choice.recipe);
        if (*r->skipped) continue;
        for (size_t seed = 0; seed < s->seed_count && !status; seed++)
            status = evaluate_seed(s, i, seed, &data[seed], alone, i ? after : before, error);
        if (status || i == 0) continue;
        r->evaluated = ng_loss_change_of(before, after, (int)count);
        if (!alone) continue;
        if (!(r->alone = calloc((size_t)layers, sizeof *r->alone))) return ng_fail(error, NG_NO_MEMORY, "out of memory");
        for (int64_t l = 0; l < layers; l++)
            r->alone[l] = ng_loss_change_of(before, after + (l + 1) * count, (int)count);
    }
    return status;
}

ng_status ng_training_evaluate(ng_training *s, ng_error *error) {
    const size_t count = s->seed_count * (size_t)s->settings.evaluations, layers = (size_t)s->settings.shape.layers;
    double *losses = calloc((layers + 2) * count, sizeof *losses);
    ng_seed_data *data = calloc(s->seed_count, sizeof *data);
    ng_status status = losses && data ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->seed_count && !status; i++)
        status = ng_seed_data_create(&s->settings, &s->layout, &s->source, s->first_seed + i, &data[i], error);
    if (!status) status = evaluate_all(s, data, losses, error);
    for (size_t i = 0; i < s->seed_count && data; i++)
        ng_seed_data_free(&data[i]);
    free(data);
    free(losses);
    return status;
}

void ng_training_free(ng_training *s) {
    for (size_t i = 0; i < s->recipe_count && s->recipes; i++) {
        free(s->recipes[i].gradients);
        free(s->recipes[i].systematic);
        free(s->recipes[i].alone);
    }
    for (size_t i = 0; i < s->recipe_count * s->seed_capacity && s->curves; i++)
        ng_curve_free(&s->curves[i]);
    for (size_t i = 0; i < s->seed_capacity && s->weights; i++)
        free(s->weights[i]);
    free(s->recipes);
    free(s->curves);
    free(s->weights);
    free(s->state);
    ng_layout_free(&s->layout);
    ng_source_free(&s->source);
    ng_engine_close(&s->engine);
}
