/* What a session came to: tables for people, and the record's member "training". */
#include "suites/training/session.h"

#include "harness/record.h"
#include "harness/terminal.h"
#include "kernels/common/fp64.h"

#include <math.h>
#include <string.h>

/* ---- tables -------------------------------------------------------------------------------------------------------*/
static const char *verdict_of(const ng_recipe_result *r, bool baseline) {
    return *r->skipped ? "skip" : baseline ? "baseline" : ng_gap_verdict_names[r->verdict];
}

static void print_run(FILE *out, const ng_training *s, size_t i, int width) {
    const ng_recipe_result *r = &s->recipes[i];
    char time[NG_FIGURE_BYTES], rate[NG_FIGURE_BYTES], gap[64] = "-", floor[32] = "-", speed[32] = "-";
    if (*r->skipped) {
        fprintf(out, "%-*s  skip: %s\n", width, r->choice.name, r->skipped);
        return;
    }
    ng_figure_time(r->time_s, time);
    ng_figure_count(r->tokens_per_s, rate);
    if (isfinite(s->floor)) snprintf(floor, sizeof floor, "%.4f", r->loss - s->floor);
    if (isfinite(r->speed_up)) snprintf(speed, sizeof speed, "%.2f", r->speed_up);
    if (i) snprintf(gap, sizeof gap, "%+.3f [%+.3f, %+.3f]", 100 * r->final.mean, 100 * r->final.low, 100 * r->final.high);
    fprintf(out, "%-*s  %10s  %9s  %8.4f  %8s  %8s  %26s  %6.2f  %s", width, r->choice.name, time, rate, r->loss, floor, speed, gap, 100 * r->delta, verdict_of(r, !i));
    for (size_t seed = 0; r->diverged && seed < s->seed_count; seed++) {
        const ng_health *h = &NG_CURVE_OF(s, seed, i)->health;
        if (h->divergence == NG_CONVERGES) continue;
        fprintf(out, " (seed %llu, step %d: %s)", (unsigned long long)(s->first_seed + seed), h->step, ng_divergence_names[h->divergence]);
        break;
    }
    fputc('\n', out);
}

/* Why a recipe has no verdict, and what it would take. */
static void print_doubt(FILE *out, const ng_training *s, const ng_recipe_result *r) {
    if (*r->skipped || r->verdict != NG_GAP_INCONCLUSIVE) return;
    fprintf(out, "%s: %d seeds see no gap below %.3f %% of loss (power %.0f %%)", r->choice.name, r->final.n, 100 * (r->delta + r->final.detectable), 100 * s->power);
    if (r->final.seeds_needed) fprintf(out, "; were it half of delta, %d seeds would tell", r->final.seeds_needed);
    fputc('\n', out);
}

static void print_gradients(FILE *out, const ng_training *s, int width) {
    const size_t all = s->layout.count;
    fprintf(out, "\nGradients of one step against %s's:\n%-*s  %8s  %9s  %20s  %26s  %s\n", s->gradient_reference, width, "recipe", "cosine", "error", "slope %",
            "bias of quantizers %", "worst parameter, its error");
    for (size_t i = 1; i < s->recipe_count; i++) {
        const ng_recipe_result *r = &s->recipes[i];
        char own[64] = "-", slope[64] = "-";
        if (!r->gradients) continue;
        const ng_gradient_figures *f = &r->gradients[all];
        snprintf(slope, sizeof slope, "%+.2f [%+.2f, %+.2f]", 100 * f->slope, 100 * f->low, 100 * f->high);
        if (r->systematic) snprintf(own, sizeof own, "%.2f [%.2f, %.2f]", 100 * r->systematic[all].bias, 100 * r->systematic[all].bias_low, 100 * r->systematic[all].bias_high);
        fprintf(out, "%-*s  %8.5f  %9.2e  %20s  %26s  %s, %.2e\n", width, r->choice.name, f->cosine, f->relative, slope, own, s->layout.parameters[r->worst].name,
                r->gradients[r->worst].relative);
    }
}

static void print_evaluations(FILE *out, const ng_training *s, int width) {
    fprintf(out, "\nThe baseline's trained models evaluated under each recipe, and with one block quantized at a time:\n%-*s  %9s  %28s  %12s  %s\n", width, "recipe", "loss",
            "change", "perplexity %", "worst block, its change");
    for (size_t i = 1; i < s->recipe_count; i++) {
        const ng_recipe_result *r = &s->recipes[i];
        const ng_loss_change *e = &r->evaluated;
        int64_t worst = 0;
        if (*r->skipped || !(e->loss != 0)) continue;
        fprintf(out, "%-*s  %9.5f  %+.5f [%+.5f, %+.5f]  %+12.3f", width, r->choice.name, e->loss, e->change, e->low, e->high, 100 * (ng_exp64(e->change) - 1));
        for (int64_t l = 1; l < s->settings.shape.layers && r->alone; l++)
            if (r->alone[l].change > r->alone[worst].change) worst = l;
        if (r->alone) fprintf(out, "  block %lld, %+.5f", (long long)worst, r->alone[worst].change);
        fputc('\n', out);
    }
}

void ng_training_print(FILE *out, const ng_training *s) {
    const ng_model_shape *m = &s->settings.shape;
    int width = 6;
    for (size_t i = 0; i < s->recipe_count; i++)
        width = (int)strlen(s->recipes[i].choice.name) > width ? (int)strlen(s->recipes[i].choice.name) : width;
    fprintf(out, "%lld blocks of width %lld, %lld heads, %s, %s; %.3g M parameters; %lld steps of %lld x %lld tokens; %zu seeds from %llu", (long long)m->layers,
            (long long)m->width, (long long)m->heads, m->rms ? "RMSNorm" : "LayerNorm", m->swiglu ? "SwiGLU" : "GELU", (double)s->layout.elements / 1e6,
            (long long)s->settings.steps, (long long)m->batch, (long long)m->sequence, s->seed_count, (unsigned long long)s->first_seed);
    if (isfinite(s->floor)) fprintf(out, "; floor of the loss %.4f", s->floor);
    fprintf(out, "\n%-*s  %10s  %9s  %8s  %8s  %8s  %26s  %6s  verdict\n", width, "recipe", "time", "tokens/s", "loss", "excess", "speed-up", "gap % [95 %]", "delta");
    for (size_t i = 0; i < s->recipe_count; i++)
        print_run(out, s, i, width);
    for (size_t i = 1; i < s->recipe_count; i++)
        print_doubt(out, s, &s->recipes[i]);
    for (size_t i = 1, shown = 0; i < s->recipe_count && !shown; i++)
        if (s->recipes[i].gradients) print_gradients(out, s, width), shown = 1;
    for (size_t i = 1, shown = 0; i < s->recipe_count && !shown; i++)
        if (s->recipes[i].evaluated.loss != 0) print_evaluations(out, s, width), shown = 1;
    fprintf(out, "pass: not worse than %s by more than delta, one-sided t test of paired seeds at %.2f, corrected for the number of recipes (Holm).\n"
                 "This says something of a model of this size, this data and this many steps, and of no other.\n", s->recipes[0].choice.name, s->alpha);
}

/* ---- the record ---------------------------------------------------------------------------------------------------*/
static void write_doubles(ng_json *json, const char *name, const double *values, int64_t count) {
    const int broken = json->break_depth;
    json->break_depth = 0;
    ng_json_array(json, name);
    for (int64_t i = 0; i < count; i++)
        ng_json_double(json, NULL, values[i]);
    ng_json_end_array(json);
    json->break_depth = broken;
}

static void write_gap(ng_json *json, const char *name, const ng_gap *g) {
    ng_json_object(json, name);
    ng_json_integer(json, "pairs", g->n);
    ng_json_double(json, "mean", g->mean);
    ng_json_double(json, "deviation", g->deviation);
    ng_json_double(json, "low", g->low);
    ng_json_double(json, "high", g->high);
    ng_json_double(json, "p_not_worse", g->p_not_worse_holm);
    ng_json_double(json, "p_worse", g->p_worse_holm);
    ng_json_double(json, "detectable", g->detectable);
    ng_json_integer(json, "seeds_needed", g->seeds_needed);
    ng_json_end_object(json);
}

static void write_seed(ng_json *json, const ng_training *s, size_t seed, size_t recipe) {
    const ng_curve *c = NG_CURVE_OF(s, seed, recipe);
    ng_json_object(json, NULL);
    ng_json_unsigned(json, "seed", s->first_seed + seed);
    ng_json_double(json, "final_loss", c->final_loss);
    ng_json_double(json, "mean_loss", c->area);
    ng_json_double(json, "time_s", c->time_s);
    if (c->scale > 0) ng_json_double(json, "loss_scale", c->scale);
    else ng_json_null(json, "loss_scale");
    ng_json_text(json, "divergence", c->health.divergence == NG_CONVERGES ? NULL : ng_divergence_names[c->health.divergence]);
    ng_json_integer(json, "diverged_step", c->health.step);
    ng_json_integer(json, "gradient_outliers", c->health.gradient_outliers);
    write_doubles(json, "losses", c->losses, s->settings.steps);
    write_doubles(json, "norms", c->norms, s->settings.steps);
    ng_json_end_object(json);
}

static void write_figures(ng_json *json, const char *name, const ng_gradient_figures *f) {
    if (!f) {
        ng_json_null(json, name);
        return;
    }
    ng_json_object(json, name);
    ng_json_double(json, "cosine", f->cosine);
    ng_json_double(json, "relative_error", f->relative);
    ng_json_double(json, "slope", f->slope);
    ng_json_double(json, "bias", f->bias);
    ng_json_double(json, "bias_low", f->bias_low);
    ng_json_double(json, "bias_high", f->bias_high);
    ng_json_end_object(json);
}

static void write_gradients(ng_json *json, const ng_training *s, const ng_recipe_result *r) {
    ng_json_text(json, "gradient_reference", r->gradients ? s->gradient_reference : NULL);
    ng_json_array(json, "gradients");
    for (size_t j = 0; j <= s->layout.count && r->gradients; j++) {
        ng_json_object(json, NULL);
        ng_json_text(json, "parameter", j < s->layout.count ? s->layout.parameters[j].name : "all");
        write_figures(json, "against_reference", &r->gradients[j]);
        write_figures(json, "against_exact_gradients", r->systematic ? &r->systematic[j] : NULL);
        ng_json_end_object(json);
    }
    ng_json_end_array(json);
}

static void write_change(ng_json *json, const char *block, const ng_loss_change *c) {
    ng_json_object(json, NULL);
    ng_json_text(json, "quantized", block);
    ng_json_double(json, "loss", c->loss);
    ng_json_double(json, "change", c->change);
    ng_json_double(json, "low", c->low);
    ng_json_double(json, "high", c->high);
    ng_json_end_object(json);
}

static void write_evaluations(ng_json *json, const ng_training *s, const ng_recipe_result *r) {
    char name[32];
    ng_json_array(json, "evaluation");
    if (r->evaluated.loss != 0) write_change(json, "all", &r->evaluated);
    for (int l = 0; l < s->settings.shape.layers && r->alone; l++) {
        snprintf(name, sizeof name, "block %d", l);
        write_change(json, name, &r->alone[l]);
    }
    ng_json_end_array(json);
}

static void write_model(ng_json *json, const ng_training *s) {
    const ng_model_shape *m = &s->settings.shape;
    ng_json_object(json, "model");
    ng_json_integer(json, "layers", m->layers);
    ng_json_integer(json, "width", m->width);
    ng_json_integer(json, "heads", m->heads);
    ng_json_integer(json, "hidden", m->hidden);
    ng_json_integer(json, "sequence", m->sequence);
    ng_json_integer(json, "batch", m->batch);
    ng_json_integer(json, "vocabulary", m->vocabulary);
    ng_json_text(json, "norm", m->rms ? "rmsnorm" : "layernorm");
    ng_json_text(json, "activation", m->swiglu ? "swiglu" : "gelu");
    ng_json_integer(json, "parameters", s->layout.elements);
    ng_json_end_object(json);
}

static void write_recipe(ng_json *json, const ng_training *s, size_t i) {
    const ng_recipe_result *r = &s->recipes[i];
    ng_json_object(json, NULL);
    ng_json_text(json, "recipe", r->choice.name);
    ng_json_text(json, "baseline", s->recipes[0].choice.name);
    ng_json_text(json, "backend", ng_backend_names[s->engine.device.backend]);
    ng_json_text(json, "status", verdict_of(r, !i));
    ng_json_text(json, "reason", *r->skipped ? r->skipped : NULL);
    write_model(json, s);
    ng_json_integer(json, "steps", s->settings.steps);
    ng_json_double(json, "floor", s->floor);
    ng_json_double(json, "delta", r->delta);
    ng_json_double(json, "alpha", s->alpha);
    ng_json_double(json, "power", s->power);
    ng_json_double(json, "final_loss", *r->skipped ? NAN : r->loss);
    ng_json_double(json, "time_s", *r->skipped ? NAN : r->time_s);
    ng_json_double(json, "tokens_per_s", *r->skipped ? NAN : r->tokens_per_s);
    ng_json_double(json, "speed_up", *r->skipped ? NAN : r->speed_up);
    if (i && !*r->skipped) {
        write_gap(json, "gap", &r->final);
        write_gap(json, "mean_loss_gap", &r->area);
    } else {
        ng_json_null(json, "gap");
        ng_json_null(json, "mean_loss_gap");
    }
    ng_json_array(json, "seeds");
    for (size_t seed = 0; seed < s->seed_count && !*r->skipped; seed++)
        write_seed(json, s, seed, i);
    ng_json_end_array(json);
    write_gradients(json, s, r);
    write_evaluations(json, s, r);
    ng_json_end_object(json);
}

void ng_training_write(ng_json *json, const void *session) {
    const ng_training *s = session;
    ng_json_array(json, "training");
    for (size_t i = 0; i < s->recipe_count; i++)
        write_recipe(json, s, i);
    ng_json_end_array(json);
}
