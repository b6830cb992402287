/* The table of recipes: for each layer and phase how wrong each recipe is and what it takes, and the choice within a budget. */
#include "harness/recipe.h"
#include "harness/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 22 };

/* ---- figures ------------------------------------------------------------------------------------------------------*/
/* The time of the whole product where a sample of its rows and columns ran: each part grows with the operand that it reads. */
static double whole_time(const ng_case *one, const ng_result *r) {
    const ng_problem *p = &one->problem;
    double down = one->sample.rows ? (double)p->m / (double)one->sample.rows : 1;
    double across = one->sample.columns ? (double)p->n / (double)one->sample.columns : 1, time = 0;
    if (!r->speed.present) return NAN;
    if (!r->speed.part_count) return r->speed.median_s * down * across;
    for (int i = 0; i < r->speed.part_count; i++) {
        const char *name = r->speed.parts[i].name;
        time += r->speed.parts[i].median_s * (!strcmp(name, "quantize a") ? down : !strcmp(name, "quantize b") ? across : down * across);
    }
    return time;
}

static bool is_baseline(const ng_case *one) { return one->recipe && !one->quantizers[0] && !one->quantizers[1]; }

static bool same_product(const ng_case *a, const ng_case *b) {
    return a->problem.phase == b->problem.phase && a->data.distribution == b->data.distribution && !strcmp(a->layer, b->layer) &&
           a->problem.m == b->problem.m && a->problem.n == b->problem.n && a->problem.k == b->problem.k && a->kernel->backend == b->kernel->backend;
}

/* The unquantized product beside case i; -1: none ran. */
static int64_t baseline_of(const ng_run_record *run, size_t i) {
    for (size_t k = 0; k < run->list->count; k++)
        if (is_baseline(&run->list->cases[k]) && same_product(&run->list->cases[k], &run->list->cases[i])) return (int64_t)k;
    return -1;
}

static double gain_of(const ng_run_record *run, size_t i) {
    int64_t k = baseline_of(run, i);
    return k < 0 ? NAN : whole_time(&run->list->cases[k], &run->results[k]) / whole_time(&run->list->cases[i], &run->results[i]);
}

static double sqnr_of(const ng_result *r) { return r->recipe_error.present ? r->recipe_error.sqnr_db : NAN; }

static void print_db(FILE *out, double db) {
    if (isnan(db)) fprintf(out, " %7s", "-");
    else if (isinf(db)) fprintf(out, " %7s", db > 0 ? "exact" : "-inf");
    else fprintf(out, " %7.1f", db);
}

static void print_gain(FILE *out, double gain) {
    if (isnan(gain)) fprintf(out, " %6s", "-");
    else fprintf(out, " %5.2fx", gain);
}

static void print_figures(FILE *out, const ng_run_record *run, size_t i) {
    const ng_result *r = &run->results[i];
    char text[NG_FIGURE_BYTES];
    if (!r->error.present) {
        fprintf(out, " %-31.31s", ng_verdict_names[r->verdict]);
        return;
    }
    print_db(out, sqnr_of(r));
    ng_figure_ratio(r->error.bound_ratio, text);
    fprintf(out, " %6s", text);
    ng_figure_time(whole_time(&run->list->cases[i], r), text);
    fprintf(out, " %8s", text);
    print_gain(out, gain_of(run, i));
    fputc(r->verdict == NG_PASS ? ' ' : '!', out);
}

/* ---- the table ----------------------------------------------------------------------------------------------------*/
/* One layer's line of one recipe: the same recipe, backend and data, in three phases. */
static bool same_line(const ng_case *a, const ng_case *b) {
    return a->recipe == b->recipe && a->kernel->backend == b->kernel->backend && a->data.distribution == b->data.distribution &&
           !strcmp(a->layer, b->layer);
}

static bool is_first(const ng_run_record *run, size_t i, bool (*same)(const ng_case *, const ng_case *)) {
    for (size_t k = 0; k < i; k++)
        if (run->list->cases[k].recipe && same(&run->list->cases[k], &run->list->cases[i])) return false;
    return run->list->cases[i].recipe != NULL;
}

static bool same_layer(const ng_case *a, const ng_case *b) {
    return !strcmp(a->layer, b->layer) && a->kernel->backend == b->kernel->backend && a->data.distribution == b->data.distribution;
}

static void print_line(FILE *out, const ng_run_record *run, size_t first) {
    fprintf(out, "  %-*.*s", NAME - 2, NAME - 2, run->list->cases[first].recipe->name);
    for (int phase = NG_FPROP; phase < NG_PHASES; phase++) {
        size_t i = first;
        while (i < run->list->count && !(same_line(&run->list->cases[i], &run->list->cases[first]) && run->list->cases[i].recipe &&
                                         run->list->cases[i].problem.phase == (ng_phase)phase))
            i++;
        if (i < run->list->count) print_figures(out, run, i);
        else fprintf(out, " %-31s", "");
    }
    fputc('\n', out);
}

static void print_layer(FILE *out, const ng_run_record *run, size_t first) {
    const ng_case *head = &run->list->cases[first];
    fprintf(out, "\n%s, %s%s%s\n%-*s", *head->layer ? head->layer : "one weight", ng_backend_names[head->kernel->backend], head->data.distribution == NG_NORMAL ? "" : ", ",
            head->data.distribution == NG_NORMAL ? "" : ng_distribution_names[head->data.distribution], NAME, "");
    for (int phase = NG_FPROP; phase < NG_PHASES; phase++)
        fprintf(out, " %-30s ", ng_phase_names[phase]);
    fprintf(out, "\n%-*s", NAME, "  recipe");
    for (int phase = NG_FPROP; phase < NG_PHASES; phase++)
        fprintf(out, " %7s %6s %8s %6s ", "SQNR dB", "ratio", "time", "gain");
    fputc('\n', out);
    for (size_t i = first; i < run->list->count; i++)
        if (same_layer(&run->list->cases[i], head) && is_first(run, i, same_line)) print_line(out, run, i);
}

/* ---- the choice within a budget -----------------------------------------------------------------------------------*/
static bool within(const ng_run_record *run, size_t i, double budget_db) {
    const ng_result *r = &run->results[i];
    return r->verdict == NG_PASS && sqnr_of(r) >= budget_db && !isnan(whole_time(&run->list->cases[i], r));
}

/* The fastest case of the product of case i that keeps the budget; -1: none does. */
static int64_t fastest(const ng_run_record *run, size_t i, double budget_db) {
    int64_t best = -1;
    for (size_t k = 0; k < run->list->count; k++) {
        const ng_case *one = &run->list->cases[k];
        if (!one->recipe || !same_product(one, &run->list->cases[i]) || !within(run, k, budget_db)) continue;
        if (best < 0 || whole_time(one, &run->results[k]) < whole_time(&run->list->cases[best], &run->results[best])) best = (int64_t)k;
    }
    return best;
}

typedef struct total {
    double before_s, after_s, worst_db;
    int64_t products, quantized, without; /* without: none keeps the budget */
} total;

static void print_choice(FILE *out, const ng_run_record *run, size_t i, double budget_db, total *sum) {
    const ng_case *one = &run->list->cases[i];
    int64_t best = fastest(run, i, budget_db), base = baseline_of(run, i), taken = best < 0 ? base : best;
    double before = base < 0 ? NAN : whole_time(&run->list->cases[base], &run->results[base]);
    double count = one->count ? (double)one->count : 1;
    char time[NG_FIGURE_BYTES] = "-", old[NG_FIGURE_BYTES];
    ng_figure_time(before, old);
    fprintf(out, "  %-10.10s %-5s  %-*.*s", *one->layer ? one->layer : "one weight", ng_phase_names[one->problem.phase], NAME, NAME,
            taken < 0 ? "-" : run->list->cases[taken].recipe->name);
    print_db(out, taken < 0 ? NAN : sqnr_of(&run->results[taken]));
    if (taken >= 0) ng_figure_time(whole_time(&run->list->cases[taken], &run->results[taken]), time);
    fprintf(out, " %8s %8s", time, old);
    print_gain(out, taken < 0 ? NAN : gain_of(run, (size_t)taken));
    fprintf(out, " %8.0f%s\n", count, best < 0 ? "  none keeps the budget" : "");
    sum->products++;
    sum->without += best < 0;
    if (taken < 0 || base < 0) return;
    sum->quantized += !is_baseline(&run->list->cases[taken]);
    sum->before_s += count * before;
    sum->after_s += count * whole_time(&run->list->cases[taken], &run->results[taken]);
    if (!(sqnr_of(&run->results[taken]) >= sum->worst_db)) sum->worst_db = sqnr_of(&run->results[taken]);
}

static void print_budget(FILE *out, const ng_run_record *run, double budget_db, size_t first) {
    const ng_case *head = &run->list->cases[first];
    char before[NG_FIGURE_BYTES], after[NG_FIGURE_BYTES];
    total sum = {0, 0, INFINITY, 0, 0, 0};
    fprintf(out, "\nwithin %g dB, %s: the fastest recipe of each product\n  %-10s %-5s  %-*s %7s %8s %8s %6s %8s\n", budget_db,
            ng_backend_names[head->kernel->backend], "layer", "phase", NAME, "recipe", "SQNR dB", "time", "bf16", "gain", "a step");
    for (size_t i = first; i < run->list->count; i++) {
        const ng_case *one = &run->list->cases[i];
        if (one->recipe && one->kernel->backend == head->kernel->backend && one->data.distribution == head->data.distribution && is_first(run, i, same_product))
            print_choice(out, run, i, budget_db, &sum);
    }
    ng_figure_time(sum.before_s, before);
    ng_figure_time(sum.after_s, after);
    fprintf(out, "products of one training step: bf16 %s, chosen %s, %.2f times as fast; %lld of %lld products quantized; lowest SQNR", before, after,
            sum.before_s / sum.after_s, (long long)sum.quantized, (long long)sum.products);
    print_db(out, sum.worst_db);
    fprintf(out, " dB%s\n", sum.without ? "; where none keeps the budget, bf16" : "");
}

static bool same_choice(const ng_case *a, const ng_case *b) {
    return a->kernel->backend == b->kernel->backend && a->data.distribution == b->data.distribution;
}

void ng_recipe_table(const ng_terminal *terminal, const ng_run_record *run, double budget_db) {
    bool sampled = false;
    for (size_t i = 0; i < run->list->count; i++) {
        sampled |= run->list->cases[i].sample.rows > 0;
        if (is_first(run, i, same_layer)) print_layer(terminal->out, run, i);
    }
    for (size_t i = 0; budget_db > 0 && i < run->list->count; i++)
        if (is_first(run, i, same_choice)) print_budget(terminal->out, run, budget_db, i);
    fprintf(terminal->out, "\nSQNR: against the exact product of the operands before quantization. ratio: kernel\n"
            "error over its bound. time: quantization of both operands and the product. gain: over bf16.\n%s",
            sampled ? "Times are those of the sampled rows and columns, scaled to the whole product.\n" : "");
}
