/* Whether a case takes longer, from several runs of either side.
 *
 * The observation is a run, not a sample: what varies from process to process (where memory lies, the machine's state) does
 * not show inside one (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013). A run gives an interval
 * around its median, the notch +-1.57 IQR / sqrt n (McGill, Tukey and Larsen, Variations of Box Plots, 1978).
 *
 * A case is slower if all intervals of B lie above all of A, by the stated ratio at least, in every space there is: seconds;
 * seconds over the run's own index (how slow all its cases were, so that a busy machine accuses nobody); GPU cycles, where the
 * clock is known. If sides were drawn at random from the same runs, a case whose runs fall into two equal groups would be
 * split so with probability 1 / C(a + b, a) (the permutation behind Wilcoxon's rank test, 1945): nothing for one case, but
 * there are thousands. So the comparison is its own control. Cases with as wide a gap in the middle of their pooled runs, but
 * not between the sides, are decoys; a gap counts only if as many decoys let expect fewer than FALSE_SPLITS by chance. With few
 * runs, it must also exceed what runs of one side differ by in all but a few cases (`noise`).
 *
 * All cases being slower is seen in the indices, and must hold against the machine's ceilings of the same runs too. */
#include "harness/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double FALSE_SPLITS = 0.005;
enum { CONTROLS = 8 }; /* as few cases say nothing of a machine */

/* Noise that a gap must exceed: the quantile of the spreads of all cases' runs of one side, times the factor. Chosen on 72 runs
 * of one program on one machine (1,165 cases, two cores of an EPYC; some cases have two speeds from process to process):
 * of 500 random pairs of disjoint sides with 3, 4, 5 and 6 runs each, 0, 0, 1 and 0 saw a slowdown. */
static const struct {
    size_t runs; /* of the smaller side, at most */
    double quantile, factor;
} noise_rules[] = {{3, 0.99, 2}, {4, 0.99, 1.25}, {5, 0.95, 1}, {SIZE_MAX, 0.9, 1}};

typedef struct runs {
    size_t a, all, cases;
    const ng_recorded_case **first; /* [cases] on side B */
    double *median, *half, *mhz, *ceiling; /* [cases][all]: A's runs, then B's. ceiling: median over the ceiling's time; NaN unknown */
    double *index, *ceiling_index;  /* [all] */
    double *spread;                 /* [2 cases] of one side's runs, sorted */
    double *decoy;                  /* [cases] middle gaps of cases that are not split between the sides, sorted */
    size_t decoys, spreads;
    bool has_ceilings;
} runs;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, size_t count) {
    qsort(values, count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* ---- observations -------------------------------------------------------------------------------------------------*/
static const ng_record_file *record_at(const ng_comparison *c, size_t r) {
    return r < c->a.count ? &c->a.records[r] : &c->b.records[r - c->a.count];
}

static bool observe(const ng_comparison *c, const char *id, runs *u) {
    size_t row = u->cases * u->all;
    for (size_t r = 0; r < u->all; r++) {
        const ng_recorded_case *one = ng_record_find(record_at(c, r), id);
        const ng_speed *s = one ? &one->result.speed : NULL;
        if (!s || !s->present || !(s->median_s > 0) || !(s->q3_s >= s->q1_s) || s->samples < 3) return false;
        u->median[row + r] = s->median_s;
        u->half[row + r] = 1.57 * (s->q3_s - s->q1_s) / sqrt(s->samples);
        u->mhz[row + r] = s->sm_mhz_before > 0 && s->sm_mhz_after > 0 ? 0.5 * (s->sm_mhz_before + s->sm_mhz_after) : (double)NAN;
        u->ceiling[row + r] = s->roofline > 0 ? 1 / s->roofline : (double)NAN;
        u->first[u->cases] = one;
    }
    u->cases++;
    return true;
}

static void free_runs(runs *u) {
    free(u->first);
    free(u->median);
    free(u->half);
    free(u->mhz);
    free(u->ceiling);
    free(u->index);
    free(u->ceiling_index);
    free(u->spread);
    free(u->decoy);
}

static ng_status make_runs(const ng_comparison *c, const char *backend, runs *u, ng_error *error) {
    const ng_record_file *a = &c->a.records[0];
    *u = (runs){.a = c->a.count, .all = c->a.count + c->b.count};
    size_t cells = (a->count + 1) * u->all;
    u->first = calloc(a->count + 1, sizeof *u->first);
    u->median = calloc(cells, sizeof(double));
    u->half = calloc(cells, sizeof(double));
    u->mhz = calloc(cells, sizeof(double));
    u->ceiling = calloc(cells, sizeof(double));
    u->index = calloc(u->all, sizeof(double));
    u->ceiling_index = calloc(u->all, sizeof(double));
    u->spread = calloc(2 * a->count + 1, sizeof(double));
    u->decoy = calloc(a->count + 1, sizeof(double));
    if (!u->first || !u->median || !u->half || !u->mhz || !u->ceiling || !u->index || !u->ceiling_index || !u->spread || !u->decoy)
        return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < a->count; i++)
        if (!strcmp(a->cases[i].backend, backend)) observe(c, a->cases[i].id, u);
    return NG_OK;
}

/* How slow a run was: the median over its cases of log(value / the case's median over all runs). Cases without a value in some
 * run are left out; the number of those that count is returned. */
static size_t make_index(const runs *u, const double *values, double *work, double *index) {
    size_t used = 0;
    double *logs = work + u->all; /* [all][cases] */
    for (size_t i = 0; i < u->cases; i++) {
        bool known = true;
        for (size_t r = 0; r < u->all; r++) {
            work[r] = values[i * u->all + r];
            known = known && work[r] == work[r];
        }
        if (!known) continue;
        double middle = median_of(work, u->all);
        for (size_t r = 0; r < u->all; r++)
            logs[r * u->cases + used] = log(values[i * u->all + r] / middle);
        used++;
    }
    for (size_t r = 0; r < u->all && used; r++)
        index[r] = median_of(logs + r * u->cases, used);
    return used;
}

/* ---- gaps ---------------------------------------------------------------------------------------------------------*/
typedef enum space { SECONDS, RELATIVE, CYCLES, SPACES } space;

/* log of what a run's seconds are divided by; NaN: this space does not apply. */
static double log_scale(const runs *u, size_t i, size_t r, space s) {
    if (s == RELATIVE) return u->cases >= CONTROLS ? u->index[r] : (double)NAN;
    return s == CYCLES ? -log(u->mhz[i * u->all + r]) : 0;
}

/* log(least of the slow side / largest of the fast side), the runs' intervals counted; NaN where the space does not apply. */
static double gap_in(const runs *u, size_t i, bool slower, space s) {
    double low = INFINITY, high = -INFINITY;
    for (size_t r = 0; r < u->all; r++) {
        double t = u->median[i * u->all + r], h = u->half[i * u->all + r], scale = log_scale(u, i, r, s);
        if (isnan(scale)) return NAN;
        bool slow_side = (r >= u->a) == slower;
        if (slow_side) low = fmin(low, (t > h ? log(t - h) : -INFINITY) - scale);
        else high = fmax(high, log(t + h) - scale);
    }
    return low - high;
}

/* The least over all spaces. */
static double gap_of(const runs *u, size_t i, bool slower) {
    double least = INFINITY;
    for (int s = 0; s < SPACES; s++) {
        double gap = gap_in(u, i, slower, (space)s);
        if (!isnan(gap)) least = fmin(least, gap);
    }
    return least;
}

/* Spreads of each side's runs, and the middle gaps of cases that are no split between the sides. */
static void make_controls(runs *u, double *work) {
    space s = u->cases >= CONTROLS ? RELATIVE : SECONDS;
    for (size_t i = 0; i < u->cases; i++) {
        double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
        for (size_t r = 0; r < u->all; r++) {
            double x = log(u->median[i * u->all + r]) - log_scale(u, i, r, s);
            int side = r >= u->a;
            low[side] = fmin(low[side], x);
            high[side] = fmax(high[side], x);
            work[r] = x;
        }
        for (int side = 0; side < 2; side++)
            u->spread[u->spreads++] = high[side] - low[side];
        if (low[1] > high[0] || low[0] > high[1]) continue;
        qsort(work, u->all, sizeof *work, ascending);
        u->decoy[u->decoys++] = work[u->a] - work[u->a - 1];
    }
    if (u->spreads) qsort(u->spread, u->spreads, sizeof *u->spread, ascending);
    if (u->decoys) qsort(u->decoy, u->decoys, sizeof *u->decoy, ascending);
}

static double noise_of(const runs *u) {
    size_t fewer = u->a < u->all - u->a ? u->a : u->all - u->a, rule = 0;
    if (!u->spreads) return 0;
    while (fewer > noise_rules[rule].runs)
        rule++;
    return noise_rules[rule].factor * u->spread[(size_t)(noise_rules[rule].quantile * (double)(u->spreads - 1))];
}

/* How many false splits with such a gap the decoys let expect. C(all, a) - 2 is how often a decoy is a decoy. */
static double expected_splits(const runs *u, double gap) {
    double ways = 1;
    size_t as_wide = u->decoys;
    for (size_t k = 1; k <= u->a; k++)
        ways = ways * (double)(u->all - u->a + k) / (double)k;
    for (size_t i = 0; i < u->decoys && u->decoy[i] < gap; i++)
        as_wide--;
    return (double)as_wide / fmax(ways - 2, 1);
}

static bool is_confirmed(const runs *u, double gap, double least, double noise) {
    return u->a >= NG_REPEATS && u->all - u->a >= NG_REPEATS && gap > least && gap > noise && expected_splits(u, gap) <= FALSE_SPLITS;
}

/* ---- verdicts -----------------------------------------------------------------------------------------------------*/
/* Median over a side's runs of a case's medians. */
static double side_median(const runs *u, size_t i, bool b, double *work) {
    size_t count = b ? u->all - u->a : u->a;
    memcpy(work, u->median + i * u->all + (b ? u->a : 0), count * sizeof *work);
    return median_of(work, count);
}

/* A change beyond `least` squared either way is excluded. */
static bool is_same(const runs *u, size_t i, double least) {
    return gap_in(u, i, true, SECONDS) > -2 * least && gap_in(u, i, false, SECONDS) > -2 * least;
}

static void print_time(double seconds, char text[32]) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    int unit = 0;
    for (seconds *= 1e9; seconds >= 999.5 && unit < 3; unit++)
        seconds /= 1000;
    snprintf(text, 32, "%.3g %s", seconds, units[unit]);
}

typedef struct doubts {
    size_t unconfirmed, within_noise;
} doubts;

static ng_status judge_case(ng_comparison *c, const runs *u, size_t i, double least, double noise, double *work, doubts *d, ng_error *error) {
    double before = side_median(u, i, false, work), after = side_median(u, i, true, work), ratio = after / before;
    double slower = gap_of(u, i, true), faster = gap_of(u, i, false), beyond = fabs(log(ratio));
    ng_pace pace = is_confirmed(u, slower, least, noise) ? NG_SLOWER : is_confirmed(u, faster, least, noise) ? NG_FASTER
                   : beyond < least && is_same(u, i, least) ? NG_SAME : NG_AMBIGUOUS;
    char from[32], to[32];
    c->paces[pace]++;
    c->timed++;
    if (pace == NG_SAME || (pace == NG_AMBIGUOUS && beyond < least)) return NG_OK;
    if (pace == NG_AMBIGUOUS && slower > least) {
        if (u->a < NG_REPEATS || u->all - u->a < NG_REPEATS) d->unconfirmed++;
        else d->within_noise++;
    }
    print_time(before, from);
    print_time(after, to);
    ng_change change = pace == NG_SLOWER ? NG_CHANGE_SLOWER : pace == NG_FASTER ? NG_CHANGE_FASTER : NG_CHANGE_AMBIGUOUS;
    return ng_add_finding(c, change, u->first[i]->id, u->first[i]->repro, beyond, error, "%s -> %s, %.3g times as long", from, to, ratio);
}

/* log(least of B / largest of A) of indices. */
static double index_gap(const runs *u, const double *index) {
    double low = INFINITY, high = -INFINITY;
    for (size_t r = 0; r < u->all; r++)
        if (r < u->a) high = fmax(high, index[r]);
        else low = fmin(low, index[r]);
    return low - high;
}

/* All cases together: the machine, its clock or its driver. */
static ng_status judge_all(ng_comparison *c, const runs *u, const char *backend, double least, ng_error *error) {
    double gap = index_gap(u, u->index), against = u->has_ceilings ? index_gap(u, u->ceiling_index) : gap;
    bool enough = u->a >= NG_REPEATS && u->all - u->a >= NG_REPEATS;
    if (gap <= least || u->cases < CONTROLS) return NG_OK;
    const char *why = !enough ? "not confirmed: three records of either side are needed"
                      : against <= least ? "the machine's own ceilings went with it" : "its ceilings did not go with it";
    ng_change change = enough && against > least ? NG_CHANGE_SLOWER : NG_CHANGE_AMBIGUOUS;
    return ng_add_finding(c, change, "", "", 10 + gap, error, "the median %s case takes at least %.3g times as long (%zu cases): %s", backend,
                          exp(gap), u->cases, why);
}

static void note(ng_comparison *c, const doubts *d) {
    c->suspects = d->unconfirmed + d->within_noise;
    if (d->unconfirmed)
        snprintf(c->speed_note, sizeof c->speed_note, "%zu cases look slower; at least %d records of either side confirm that or not (A has %zu, B %zu)",
                 d->unconfirmed, NG_REPEATS, c->a.count, c->b.count);
    else if (d->within_noise)
        snprintf(c->speed_note, sizeof c->speed_note, "%zu cases look slower, by no more than what runs of one side differ by; more records of either side would tell",
                 d->within_noise);
}

static ng_status compare_backend(ng_comparison *c, const char *backend, double least, doubts *d, ng_error *error) {
    runs u;
    double *work = NULL;
    ng_status status = make_runs(c, backend, &u, error);
    if (status || !u.cases) goto done;
    work = calloc(u.all * (u.cases + 1), sizeof *work);
    if (!work) {
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
        goto done;
    }
    make_index(&u, u.median, work, u.index);
    u.has_ceilings = 2 * make_index(&u, u.ceiling, work, u.ceiling_index) > u.cases;
    make_controls(&u, work);
    double noise = noise_of(&u);
    for (size_t i = 0; i < u.cases && !status; i++)
        status = judge_case(c, &u, i, least, noise, work, d, error);
    if (!status) status = judge_all(c, &u, backend, least, error);
done:
    free(work);
    free_runs(&u);
    return status;
}

ng_status ng_compare_speed(ng_comparison *c, const ng_compare_options *options, ng_error *error) {
    double least = log(options->slowdown);
    doubts d = {0};
    ng_status status = NG_OK;
    for (int b = 0; b < NG_BACKENDS && !status; b++)
        status = compare_backend(c, ng_backend_names[b], least, &d, error);
    if (!status) note(c, &d);
    return status;
}
