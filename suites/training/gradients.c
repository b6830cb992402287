#include "suites/training/gradients.h"

#include <math.h>
#include <stdlib.h>

typedef struct sums { /* of one batch and parameter */
    double gg, hh, hg, dd, mg, mm; /* h: the last draw; d = h - g; m: the mean of draws, mm its distance from g */
} sums;

typedef struct work {
    int batches, draws;
    double *g, *h, *mean;      /* [total] */
    double *spread;            /* [parameters + 1]: mean over draws of |h - g|^2 */
    double *slopes, *biases;   /* [parameters + 1][batches] */
} work;

static double distance(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

static void add(const work *w, int64_t at, int64_t count, sums *s) {
    for (int64_t i = at; i < at + count; i++) {
        s->gg += w->g[i] * w->g[i];
        s->hh += w->h[i] * w->h[i];
        s->hg += w->h[i] * w->g[i];
        s->mg += w->mean[i] * w->g[i];
    }
    s->dd += distance(w->h + at, w->g + at, count);
    s->mm += distance(w->mean + at, w->g + at, count);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* Gradients that vanished say so: cosine 0, error 1, slope -1. */
static void add_figures(const sums *s, size_t j, int batch, work *w, ng_gradient_figures *f) {
    const size_t place = j * (size_t)w->batches + (size_t)batch;
    const double random = w->draws > 1 ? (w->spread[j] - s->mm) / (w->draws - 1) : 0;
    f->cosine += ratio(s->hg, sqrt(s->hh) * sqrt(s->gg));
    f->relative += sqrt(ratio(s->dd, s->gg));
    w->slopes[place] = s->gg > 0 ? s->mg / s->gg - 1 : 0;
    w->biases[place] = ratio(s->mm - random, s->gg);
}

static double root(double x) { return x > 0 ? sqrt(x) : x <= 0 ? 0 : x; }

static void finish(ng_gradient_figures *f, const double *slopes, const double *biases, int batches) {
    ng_gap slope, bias;
    ng_gap_of(slopes, batches, 0, 0.05, 0.8, &slope);
    ng_gap_of(biases, batches, 0, 0.05, 0.8, &bias);
    f->cosine /= batches;
    f->relative /= batches;
    f->slope = slope.mean;
    f->low = slope.low;
    f->high = slope.high;
    f->bias = root(bias.mean);
    f->bias_low = root(bias.low);
    f->bias_high = root(bias.high);
}

static ng_status draw(ng_runner *runner, const ng_layout *layout, int batch, uint64_t seed, work *w, ng_error *error) {
    ng_status status = NG_OK;
    for (int64_t i = 0; i < layout->total; i++)
        w->mean[i] = 0;
    for (size_t j = 0; j <= layout->count; j++)
        w->spread[j] = 0;
    for (int d = 0; d < w->draws && !status; d++) {
        status = ng_runner_gradient(runner, batch, seed + (uint64_t)d * 0x9E3779B97F4A7C15u, w->h, error);
        for (int64_t i = 0; i < layout->total; i++)
            w->mean[i] += w->h[i] / w->draws;
        for (size_t j = 0; j < layout->count; j++) {
            const ng_parameter *p = &layout->parameters[j];
            const double one = distance(w->h + p->at, w->g + p->at, p->rows * p->columns) / w->draws;
            w->spread[j] += one;
            w->spread[layout->count] += one;
        }
    }
    return status;
}

static void measure(const ng_layout *layout, int batch, work *w, ng_gradient_figures *figures) {
    sums all = {0};
    for (size_t j = 0; j < layout->count; j++) {
        const ng_parameter *p = &layout->parameters[j];
        sums one = {0};
        add(w, p->at, p->rows * p->columns, &one);
        add_figures(&one, j, batch, w, &figures[j]);
        all = (sums){all.gg + one.gg, all.hh + one.hh, all.hg + one.hg, all.dd + one.dd, all.mg + one.mg, all.mm + one.mm};
    }
    add_figures(&all, layout->count, batch, w, &figures[layout->count]);
}

ng_status ng_gradients_compare(ng_runner *runner, ng_runner *reference, const ng_seed_data *data, const float *weights, int batches, int draws,
                               ng_gradient_figures *figures, ng_error *error) {
    const ng_layout *layout = &runner->model.layout;
    const size_t total = (size_t)layout->total, all = layout->count + 1;
    double *memory = malloc((3 * total + all * (1 + 2 * (size_t)batches)) * sizeof *memory);
    if (!memory) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    work w = {batches, draws, memory, memory + total, memory + 2 * total, memory + 3 * total, memory + 3 * total + all,
              memory + 3 * total + all * (1 + (size_t)batches)};
    for (size_t j = 0; j < all; j++)
        figures[j] = (ng_gradient_figures){0};
    ng_status status = ng_runner_begin(runner, data, weights, error);
    if (!status) status = ng_runner_begin(reference, data, weights, error);
    for (int b = 0; b < batches && !status; b++) {
        status = ng_runner_gradient(reference, b, data->seed, w.g, error);
        if (!status) status = draw(runner, layout, b, data->seed + (uint64_t)b, &w, error);
        if (!status) measure(layout, b, &w, figures);
    }
    for (size_t j = 0; j < all && !status; j++)
        finish(&figures[j], w.slopes + j * (size_t)batches, w.biases + j * (size_t)batches, batches);
    free(memory);
    return status;
}

ng_loss_change ng_loss_change_of(const double *before, const double *after, int count) {
    ng_loss_change c = {0, NAN, NAN, NAN};
    ng_gap gap;
    double *changes = malloc((size_t)(count + 1) * sizeof *changes);
    for (int i = 0; i < count; i++)
        c.loss += after[i] / count;
    if (!changes) return c;
    for (int i = 0; i < count; i++)
        changes[i] = after[i] - before[i];
    ng_gap_of(changes, count, 0, 0.05, 0.8, &gap);
    c.change = gap.mean;
    c.low = gap.low;
    c.high = gap.high;
    free(changes);
    return c;
}
