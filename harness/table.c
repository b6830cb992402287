#include "harness/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 118, NAME_BYTES = 200 };

/* ---- columns ------------------------------------------------------------------------------------------------------*/
/* What a row says; a sum row is made of several results. */
typedef struct cells {
    double max_error, bound, ratio, rms, bias, recipe_sqnr_db, recipe_rms, time_s;
    ng_error_figures checked;
} cells;

static void print_error(const cells *c, char *text) { ng_figure_small(c->max_error, text); }
static void print_bound(const cells *c, char *text) { ng_figure_small(c->bound, text); }
static void print_ratio(const cells *c, char *text) { ng_figure_ratio(c->ratio, text); }
static void print_rms(const cells *c, char *text) { ng_figure_small(c->rms, text); }
static void print_bias(const cells *c, char *text) { ng_figure_small(c->bias, text); }
static void print_recipe_rms(const cells *c, char *text) { ng_figure_small(c->recipe_rms, text); }
static void print_time(const cells *c, char *text) { ng_figure_time(c->time_s, text); }
static void print_checked(const cells *c, char *text) { ng_figure_checked(&c->checked, text); }

static void print_sqnr(const cells *c, char *text) {
    if (isnan(c->recipe_sqnr_db)) strcpy(text, "-");
    else if (isinf(c->recipe_sqnr_db)) strcpy(text, c->recipe_sqnr_db > 0 ? "exact" : "-inf");
    else snprintf(text, NG_FIGURE_BYTES, "%.1f", c->recipe_sqnr_db);
}

static const struct column {
    const char *group, *title;
    int width;
    bool narrow; /* shown on a narrow terminal too */
    void (*print)(const cells *, char *);
} columns[] = {
    {"kernel", "error", 8, false, print_error}, {"", "bound", 8, false, print_bound},
    {"", "ratio", 6, true, print_ratio},        {"", "rms", 8, true, print_rms},
    {"", "bias", 8, false, print_bias},         {"recipe", "SQNR dB", 7, true, print_sqnr},
    {"", "rms", 8, false, print_recipe_rms},    {"", "time", 7, true, print_time},
    {"", "checked", 11, true, print_checked},
};
enum { COLUMNS = sizeof columns / sizeof *columns, LAYER = 10, PHASE = 5, EXTENTS = 17, LEFT = 2 + LAYER + 1 + PHASE + 1 + EXTENTS };

static bool shows(const ng_terminal *terminal, const struct column *column) {
    return column->narrow || !terminal->columns || terminal->columns >= WIDE;
}

static void print_cells(const ng_terminal *terminal, const cells *c) {
    char text[NG_FIGURE_BYTES];
    for (int i = 0; i < COLUMNS; i++) {
        if (!shows(terminal, &columns[i])) continue;
        columns[i].print(c, text);
        fprintf(terminal->out, " %*s", columns[i].width, text);
    }
    fputc('\n', terminal->out);
}

static void print_titles(const ng_terminal *terminal) {
    fprintf(terminal->out, "  %-*s %-*s %-*s", LAYER, "layer", PHASE, "phase", EXTENTS, "MxNxK");
    for (int i = 0; i < COLUMNS; i++)
        if (shows(terminal, &columns[i])) fprintf(terminal->out, " %*s", columns[i].width, columns[i].title);
    fputc('\n', terminal->out);
}

/* Says over the figures whose error they are: the kernel's or the recipe's. */
static void print_groups(const ng_terminal *terminal) {
    fprintf(terminal->out, "%-*s", LEFT, "");
    for (int i = 0; i < COLUMNS; i++) {
        if (!shows(terminal, &columns[i])) continue;
        const char *group = columns[i].group;
        if (!*group && i > 0 && !shows(terminal, &columns[i - 1])) group = columns[i - 1].group;
        if (!*group && i > 1 && !shows(terminal, &columns[i - 1]) && !shows(terminal, &columns[i - 2]))
            group = columns[i - 2].group;
        fprintf(terminal->out, " %*s", columns[i].width, group);
    }
    fputc('\n', terminal->out);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
/* How far the element nearest to its bound may be off, the rounding of the result included: worst_bound is the sum's alone,
 * the ratio has both. */
static double whole_bound(const ng_error_figures *e, double worst_error) {
    return e->bound_ratio > 0 ? worst_error / e->bound_ratio : e->worst_bound;
}

static cells cells_of(const ng_result *r) {
    const ng_error_figures *e = &r->error, *recipe = &r->recipe_error;
    double worst_error = fabs(e->worst_computed - e->worst_exact);
    return (cells){
        .max_error = e->present ? worst_error : NAN,
        .bound = e->present ? whole_bound(e, worst_error) : NAN,
        .ratio = e->present ? e->bound_ratio : NAN,
        .rms = e->present ? e->rms_rel : NAN,
        .bias = e->present ? e->bias : NAN,
        .recipe_sqnr_db = recipe->present ? recipe->sqnr_db : NAN,
        .recipe_rms = recipe->present ? recipe->rms_rel : NAN,
        .time_s = r->speed.present ? r->speed.median_s : NAN,
        .checked = *e,
    };
}

static void print_row(const ng_terminal *terminal, const ng_case *one, const ng_result *result) {
    char extents[64];
    cells c = cells_of(result);
    snprintf(extents, sizeof extents, "%lldx%lldx%lld", (long long)one->problem.m, (long long)one->problem.n,
             (long long)one->problem.k);
    fprintf(terminal->out, "%c %-*.*s %-*s %-*s", result->verdict == NG_PASS ? ' ' : '!', LAYER, LAYER, one->layer, PHASE,
            ng_phase_names[one->problem.phase], EXTENTS, extents);
    if (result->error.present) print_cells(terminal, &c);
    else {
        fprintf(terminal->out, " %s: ", ng_verdict_names[result->verdict]);
        ng_print_elided(terminal->out, result->reason, terminal->columns ? terminal->columns - LEFT - 10 : 0);
        fputc('\n', terminal->out);
    }
}

/* One recipe's cases, all data and phases of one kernel in one mode. */
typedef struct recipe {
    const ng_kernel *kernel;
    ng_distribution data;
    ng_mode mode;
    size_t not_passed, failed;
    cells layer;                   /* worst ratio, bias and SQNR; sum of times of one layer's products, the head apart */
    double sqnr_db[NG_PHASES];     /* smallest of a phase */
} recipe;

static bool belongs(const recipe *r, const ng_case *one) {
    return *one->layer && r->kernel == one->kernel && r->data == one->data.distribution && r->mode == one->mode;
}

static bool is_head(const ng_case *one) { return !strcmp(one->layer, "lm_head"); }

/* NaN, "not there", gives way to whatever is there. */
static double larger(double a, double b) { return isnan(a) || b > a ? b : a; }
static double smaller(double a, double b) { return isnan(a) || b < a ? b : a; }

static void add_result(recipe *r, const ng_case *one, const ng_result *result) {
    cells c = cells_of(result);
    double *phase_sqnr = &r->sqnr_db[one->problem.phase];
    r->not_passed += result->verdict != NG_PASS;
    r->failed += ng_verdict_gates(result->verdict);
    *phase_sqnr = smaller(*phase_sqnr, c.recipe_sqnr_db);
    r->layer.ratio = larger(r->layer.ratio, c.ratio);
    r->layer.rms = larger(r->layer.rms, c.rms);
    r->layer.recipe_rms = larger(r->layer.recipe_rms, c.recipe_rms);
    r->layer.recipe_sqnr_db = smaller(r->layer.recipe_sqnr_db, c.recipe_sqnr_db);
    if (isnan(r->layer.bias) || fabs(c.bias) > fabs(r->layer.bias)) r->layer.bias = c.bias;
    if (is_head(one)) return;
    if (!isnan(c.time_s)) r->layer.time_s = isnan(r->layer.time_s) ? c.time_s : r->layer.time_s + c.time_s;
    r->layer.checked.present |= c.checked.present;
    r->layer.checked.checked += c.checked.checked;
    r->layer.checked.elements += c.checked.elements;
}

static void print_recipe_name(const ng_terminal *terminal, const recipe *r, int width) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s%s%s%s%s", r->kernel->name, r->data == NG_NORMAL ? "" : ", ",
             r->data == NG_NORMAL ? "" : ng_distribution_names[r->data], r->mode == NG_PREQUANTIZED ? "" : ", ",
             r->mode == NG_PREQUANTIZED ? "" : ng_mode_names[r->mode]);
    ng_print_elided(terminal->out, name, width);
    if (!width) return;
    for (size_t n = strlen(name); n < (size_t)width; n++)
        fputc(' ', terminal->out);
}

static void print_recipe(const ng_terminal *terminal, const ng_run_record *run, recipe *r) {
    fputc('\n', terminal->out);
    print_recipe_name(terminal, r, 0);
    fputc('\n', terminal->out);
    print_groups(terminal);
    print_titles(terminal);
    for (size_t i = 0; i < run->list->count; i++) {
        const ng_case *one = &run->list->cases[i];
        if (!belongs(r, one)) continue;
        print_row(terminal, one, &run->results[i]);
        add_result(r, one, &run->results[i]);
    }
    /* Sums of times and of checked elements; the worst of everything else. Errors of different products have no common
     * unit, so their largest means nothing. */
    fprintf(terminal->out, "  %-*s %-*s %-*s", LAYER, "one layer", PHASE, "", EXTENTS, "(worst, sum)");
    print_cells(terminal, &r->layer);
}

/* ---- one line a recipe --------------------------------------------------------------------------------------------*/
static void print_overview(const ng_terminal *terminal, const recipe *recipes, size_t count) {
    int width = 0, room = terminal->columns ? terminal->columns - 47 : 0;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(recipes[i].kernel->name) + (recipes[i].data == NG_NORMAL ? 0 : 18) +
                     (recipes[i].mode == NG_PREQUANTIZED ? 0 : 10);
        if (length > width) width = length;
    }
    if (room && width > room) width = room;
    fprintf(terminal->out, "\n%*s %6s %8s %21s %7s\n", width, "", "worst", "worst", "recipe SQNR dB", "one");
    fprintf(terminal->out, "%-*s %6s %8s %6s %6s %6s %8s\n", width, "recipe", "ratio", "bias", "fprop", "dgrad", "wgrad", "layer");
    for (size_t i = 0; i < count; i++) {
        const recipe *r = &recipes[i];
        char text[NG_FIGURE_BYTES];
        print_recipe_name(terminal, r, width);
        print_ratio(&r->layer, text);
        fprintf(terminal->out, " %6s", text);
        print_bias(&r->layer, text);
        fprintf(terminal->out, " %8s", text);
        for (int phase = NG_FPROP; phase < NG_PHASES; phase++) {
            print_sqnr(&(cells){.recipe_sqnr_db = r->sqnr_db[phase]}, text);
            fprintf(terminal->out, " %6s", text);
        }
        print_time(&r->layer, text);
        fprintf(terminal->out, " %8s%s\n", text, r->failed ? " !" : "");
    }
}

static size_t find_recipes(const ng_run_record *run, recipe *recipes) {
    size_t count = 0;
    for (size_t i = 0; i < run->list->count; i++) {
        const ng_case *one = &run->list->cases[i];
        size_t r = 0;
        while (r < count && !belongs(&recipes[r], one))
            r++;
        if (r < count || !*one->layer) continue;
        recipes[count++] = (recipe){
            .kernel = one->kernel, .data = one->data.distribution, .mode = one->mode,
            .layer = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, {0}}, .sqnr_db = {NAN, NAN, NAN, NAN},
        };
    }
    return count;
}

ng_status ng_model_table(const ng_terminal *terminal, const ng_run_record *run, ng_error *error) {
    recipe *recipes = malloc((run->list->count + 1) * sizeof *recipes);
    if (!recipes) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    size_t count = find_recipes(run, recipes);
    for (size_t i = 0; i < count; i++)
        print_recipe(terminal, run, &recipes[i]);
    print_overview(terminal, recipes, count);
    fputs("\nkernel: against the exact product of the quantized operands. error and bound:\n"
          "of the element nearest to its bound, which is proved and includes the rounding\n"
          "of the result; ratio: the one over the other, 1 fails; bias: the sum of\n"
          "sgn(c) (computed - c) over the sum of |c|.\n"
          "recipe: against the exact product of the operands before quantization.\n"
          "checked: elements; a part is a seeded set of rows and columns (--full: all).\n",
          terminal->out);
    free(recipes);
    return NG_OK;
}
