#include "harness/terminal.h"
#include "harness/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FAILURES_SHOWN = 10, REASONS_SHOWN = 5, NARROW = 110, LEAST_ID = 24 };

/* ---- figures ------------------------------------------------------------------------------------------------------*/
void ng_figure_ratio(double value, char *text) {
    if (isnan(value)) strcpy(text, "-");
    else if (value < 1000) snprintf(text, NG_FIGURE_BYTES, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
    else snprintf(text, NG_FIGURE_BYTES, "%.0e", value);
}

void ng_figure_small(double value, char *text) {
    if (isnan(value)) strcpy(text, "-");
    else if (value == 0) strcpy(text, "0");
    else snprintf(text, NG_FIGURE_BYTES, "%.1e", value);
}

/* Three digits and a unit, each a thousand times the one before. */
static void print_scaled(double value, const char *const *units, int count, char *text) {
    int u = 0;
    while (u + 1 < count && value >= 999.5)
        value /= 1000, u++;
    snprintf(text, NG_FIGURE_BYTES, value >= 99.95 ? "%.0f%s" : value >= 9.995 ? "%.1f%s" : "%.2f%s", value, units[u]);
}

void ng_figure_time(double seconds, char *text) {
    static const char *const units[] = {" ns", " us", " ms", " s"};
    if (!isfinite(seconds) || seconds < 0) strcpy(text, "-");
    else print_scaled(seconds * 1e9, units, 4, text);
}

void ng_figure_count(double count, char *text) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    if (!isfinite(count)) strcpy(text, "-");
    else if (count < 1000) snprintf(text, NG_FIGURE_BYTES, "%.0f", count);
    else print_scaled(count, units, 5, text);
}

void ng_figure_checked(const ng_error_figures *error, char *text) {
    char checked[NG_FIGURE_BYTES], elements[NG_FIGURE_BYTES];
    if (!error->present) {
        strcpy(text, "-");
        return;
    }
    ng_figure_count((double)error->checked, checked);
    ng_figure_count((double)error->elements, elements);
    snprintf(text, NG_FIGURE_BYTES, "%.14s/%.14s", checked, elements);
}

/* Columns of a UTF-8 text, one a code point; ids and reasons hold no wide characters but a tensor's name may. */
static int columns_of(const char *text) {
    int columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

static const char *skip_columns(const char *text, int columns) {
    for (; *text && columns > 0; columns--) {
        size_t length = ng_utf8_length(text);
        text += length ? length : 1;
    }
    return text;
}

static void print_clean(FILE *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i], out); /* no escape reaches a terminal */
}

void ng_print_elided(FILE *out, const char *text, int width) {
    int columns = columns_of(text);
    if (width <= 0 || columns <= width) {
        print_clean(out, text, strlen(text));
        return;
    }
    int head = (width - 2) / 2, tail = width - 2 - head;
    const char *cut = skip_columns(text, head), *rest = skip_columns(text, columns - tail);
    print_clean(out, text, (size_t)(cut - text));
    fputs("..", out);
    print_clean(out, rest, strlen(rest));
}

double ng_monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool ng_verdict_gates(ng_verdict verdict) {
    static const bool gates[NG_VERDICTS] = {[NG_FAIL] = true,    [NG_MOVED] = true, [NG_CRASH] = true,
                                            [NG_TIMEOUT] = true, [NG_XPASS] = true, [NG_VACUOUS] = true};
    return gates[verdict];
}

/* ---- columns ------------------------------------------------------------------------------------------------------*/
static void figure_ratio(const ng_result *r, char *text) { ng_figure_ratio(r->error.present ? r->error.bound_ratio : NAN, text); }
static void figure_relative(const ng_result *r, char *text) { ng_figure_small(r->error.present ? r->error.max_rel : NAN, text); }
static void figure_time(const ng_result *r, char *text) { ng_figure_time(r->speed.present ? r->speed.median_s : NAN, text); }

static void figure_differ(const ng_result *r, char *text) {
    ng_figure_count(r->prediction.present ? (double)r->prediction.differ : NAN, text);
}

/* How much was checked and the dearest tier that it took. */
static void figure_tier(const ng_result *r, char *text) {
    static const char *const names[NG_TIERS] = {"-", "int", "split", "dd", "fp64", "mpfr"};
    int tier = NG_TIERS - 1;
    while (tier > 0 && !r->error.by_tier[tier])
        tier--;
    if (!r->error.present || !r->error.elements) strcpy(text, "-");
    else if (r->error.checked == r->error.elements) snprintf(text, NG_FIGURE_BYTES, "all %s", names[tier]);
    else
        snprintf(text, NG_FIGURE_BYTES, "%.2g%% %s", 100.0 * (double)r->error.checked / (double)r->error.elements,
                 names[tier]);
}

static void figure_rate(const ng_result *r, char *text) {
    char rate[NG_FIGURE_BYTES];
    ng_figure_count(r->speed.present ? r->speed.rate : NAN, rate);
    snprintf(text, NG_FIGURE_BYTES, "%.16s%s", rate, *rate == '-' ? "" : r->speed.flop > 0 ? "F/s" : "B/s");
}

static void figure_sqnr(const ng_result *r, char *text) {
    const ng_error_figures *e = r->recipe_error.present ? &r->recipe_error : &r->error;
    if (!e->present || isnan(e->sqnr_db)) strcpy(text, "-");
    else if (isinf(e->sqnr_db)) strcpy(text, "exact");
    else snprintf(text, NG_FIGURE_BYTES, "%.1f", e->sqnr_db);
}

static void print_percent(double fraction, char *text) {
    if (isnan(fraction)) strcpy(text, "-");
    else snprintf(text, NG_FIGURE_BYTES, fraction == 0 || fraction >= 1e-4 ? "%.2f%%" : "%.0e%%", 100 * fraction);
}

static void figure_saturated(const ng_result *r, char *text) { print_percent(r->saturated, text); }
static void figure_flushed(const ng_result *r, char *text) { print_percent(r->flushed, text); }

enum { EVERY_CASE = 1, TENSORS = 2 };

static const struct column {
    const char *title;
    int width;
    unsigned views; /* EVERY_CASE, TENSORS */
    bool narrow;    /* shown on a narrow terminal too */
    void (*figure)(const ng_result *, char *);
} columns[] = {
    {"ratio", 6, EVERY_CASE | TENSORS, true, figure_ratio},
    {"max rel", 7, EVERY_CASE, false, figure_relative},
    {"differ", 6, EVERY_CASE, true, figure_differ},
    {"SQNR dB", 7, TENSORS, true, figure_sqnr},
    {"saturated", 9, TENSORS, false, figure_saturated},
    {"flushed", 8, TENSORS, true, figure_flushed},
    {"checked", 10, EVERY_CASE | TENSORS, false, figure_tier},
    {"time", 7, EVERY_CASE, true, figure_time},
    {"rate", 8, EVERY_CASE, false, figure_rate},
};
enum { COLUMNS = sizeof columns / sizeof *columns, STATUS_WIDTH = 7 };

static bool shows(const ng_terminal *terminal, const struct column *column) {
    return (column->views & (terminal->tensors ? TENSORS : EVERY_CASE)) &&
           (column->narrow || !terminal->columns || terminal->columns >= NARROW);
}

static int id_width(const ng_terminal *terminal) {
    int width = terminal->columns - STATUS_WIDTH - 1;
    if (!terminal->columns) return 0;
    for (int c = 0; c < COLUMNS; c++)
        if (shows(terminal, &columns[c])) width -= columns[c].width + 1;
    return width < LEAST_ID ? LEAST_ID : width;
}

/* ---- lines --------------------------------------------------------------------------------------------------------*/
void ng_terminal_open(FILE *out, ng_terminal *terminal) {
    struct winsize size;
    bool terminal_out = isatty(fileno(out));
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
    *terminal = (ng_terminal){.out = out, .started_s = ng_monotonic_s()};
    terminal->colour = terminal_out && !(no_colour && *no_colour) && !(kind && !strcmp(kind, "dumb"));
    terminal->progress = isatty(STDERR_FILENO) && !(kind && !strcmp(kind, "dumb"));
    if (!terminal_out) return;
    terminal->columns = !ioctl(fileno(out), TIOCGWINSZ, &size) && size.ws_col >= 40 ? size.ws_col : 80;
}

static void print_status(const ng_terminal *terminal, ng_verdict verdict) {
    const char *colour = ng_verdict_gates(verdict) ? "\033[1;31m" : verdict == NG_PASS ? "\033[32m" : "\033[33m";
    if (terminal->colour) fputs(colour, terminal->out);
    fprintf(terminal->out, "%-*s", STATUS_WIDTH, ng_verdict_names[verdict]);
    if (terminal->colour) fputs("\033[0m", terminal->out);
}

void ng_terminal_header(ng_terminal *terminal) {
    fprintf(terminal->out, "%-*s", STATUS_WIDTH, "status");
    for (int c = 0; c < COLUMNS; c++)
        if (shows(terminal, &columns[c])) fprintf(terminal->out, " %*s", columns[c].width, columns[c].title);
    fputs(" case\n", terminal->out);
}

void ng_terminal_case(ng_terminal *terminal, const ng_run_record *run, size_t i) {
    char text[NG_FIGURE_BYTES];
    ng_terminal_clear_progress(terminal);
    print_status(terminal, run->results[i].verdict);
    for (int c = 0; c < COLUMNS; c++) {
        if (!shows(terminal, &columns[c])) continue;
        columns[c].figure(&run->results[i], text);
        fprintf(terminal->out, " %*s", columns[c].width, text);
    }
    fputc(' ', terminal->out);
    ng_print_elided(terminal->out, run->list->cases[i].id, id_width(terminal));
    fputc('\n', terminal->out);
}

void ng_terminal_progress(ng_terminal *terminal, size_t done, size_t count) {
    if (!terminal->progress) return;
    double elapsed = ng_monotonic_s() - terminal->started_s;
    size_t since = done - terminal->first;
    fflush(terminal->out);
    fprintf(stderr, "\r\033[Kcase %zu of %zu", done + 1, count);
    if (since >= 3) {
        double left = elapsed / (double)since * (double)(count - done);
        if (left < 100) fprintf(stderr, ", %.0f s left", left);
        else fprintf(stderr, ", %.0f min left", left / 60);
    }
    fflush(stderr);
    terminal->progress_shown = true;
}

void ng_terminal_clear_progress(ng_terminal *terminal) {
    if (!terminal->progress_shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    terminal->progress_shown = false;
}

/* A text broken between words at the terminal's width, each line indented. */
static void print_wrapped(const ng_terminal *terminal, const char *text, int indent) {
    int room = terminal->columns - indent, used = 0;
    while (terminal->columns && columns_of(text) > room) {
        const char *end = skip_columns(text, room);
        while (end > text && *end != ' ')
            end--;
        if (end == text) break;
        fprintf(terminal->out, "%s%*s", used++ ? "\n" : "", indent, "");
        print_clean(terminal->out, text, (size_t)(end - text));
        text = end + 1;
    }
    fprintf(terminal->out, "%s%*s", used ? "\n" : "", indent, "");
    print_clean(terminal->out, text, strlen(text));
    fputc('\n', terminal->out);
}

/* ---- summary ------------------------------------------------------------------------------------------------------*/
static void print_failure(const ng_terminal *terminal, const ng_run_record *run, size_t i) {
    char repro[NG_REPRO_BYTES];
    ng_repro(run, i, repro, sizeof repro);
    fputc('\n', terminal->out);
    print_status(terminal, run->results[i].verdict);
    fputc(' ', terminal->out);
    ng_print_elided(terminal->out, run->list->cases[i].id, 0);
    fputc('\n', terminal->out);
    print_wrapped(terminal, run->results[i].reason, 8);
    fputs("        ", terminal->out); /* the command stays one line, to be copied */
    ng_print_elided(terminal->out, repro, 0);
    fputc('\n', terminal->out);
}

void ng_terminal_failures(const ng_terminal *terminal, const ng_run_record *run) {
    size_t shown = 0, more = 0;
    for (size_t i = 0; i < run->list->count; i++) {
        if (!ng_verdict_gates(run->results[i].verdict)) continue;
        if (shown == FAILURES_SHOWN) more++;
        else {
            print_failure(terminal, run, i);
            shown++;
        }
    }
    if (more) fprintf(terminal->out, "\n... and %zu more that failed; --json FILE has them all\n", more);
}

/* Why cases were skipped, or what there is to say of passes, each reason once. */
static void print_reasons(const ng_terminal *terminal, const ng_run_record *run, ng_verdict verdict, const char *word) {
    const char *reasons[REASONS_SHOWN];
    size_t counts[REASONS_SHOWN] = {0}, kinds = 0, others = 0;
    for (size_t i = 0; i < run->list->count; i++) {
        if (run->results[i].verdict != verdict || (verdict == NG_PASS && !*run->results[i].reason)) continue;
        size_t r = 0;
        while (r < kinds && strcmp(reasons[r], run->results[i].reason))
            r++;
        if (r == REASONS_SHOWN) others++;
        else {
            if (r == kinds) reasons[kinds++] = run->results[i].reason;
            counts[r]++;
        }
    }
    for (size_t r = 0; r < kinds; r++) {
        fprintf(terminal->out, "%zu %s:\n", counts[r], word);
        print_wrapped(terminal, reasons[r], 8);
    }
    if (others) fprintf(terminal->out, "%zu %s for other reasons\n", others, word);
}

static void print_worst(const ng_terminal *terminal, const ng_run_record *run) {
    size_t worst = run->list->count;
    for (size_t i = 0; i < run->list->count; i++) {
        const ng_error_figures *e = &run->results[i].error;
        if (e->present && !isnan(e->bound_ratio) &&
            (worst == run->list->count || e->bound_ratio > run->results[worst].error.bound_ratio))
            worst = i;
    }
    if (worst == run->list->count) return;
    fprintf(terminal->out, "largest error / bound: %.4g in ", run->results[worst].error.bound_ratio);
    ng_print_elided(terminal->out, run->list->cases[worst].id, terminal->columns ? terminal->columns - 34 : 0);
    fputc('\n', terminal->out);
}

/* Nothing where no golden applies; "unset" are the cases that none applies to. */
static void print_goldens(const ng_terminal *terminal, const ng_run_record *run) {
    static const char *const words[] = {"match", "differ", "absent", "unset"};
    size_t counts[4] = {0};
    for (size_t i = 0; i < run->list->count; i++)
        for (int w = 0; w < 4; w++)
            counts[w] += !strcmp(run->results[i].golden, words[w]);
    if (counts[0] + counts[1] + counts[2] == 0) return;
    fputs("goldens:", terminal->out);
    for (int w = 0, shown = 0; w < 4; w++)
        if (counts[w]) fprintf(terminal->out, "%s %zu %s", shown++ ? "," : "", counts[w], words[w]);
    fputc('\n', terminal->out);
}

void ng_terminal_summary(ng_terminal *terminal, const ng_run_record *run, double seconds) {
    size_t counts[NG_VERDICTS] = {0};
    int64_t checked = 0, elements = 0, predicted = 0, differ = 0;
    char figure[4][NG_FIGURE_BYTES];
    ng_terminal_clear_progress(terminal);
    for (size_t i = 0; i < run->list->count; i++) {
        const ng_result *r = &run->results[i];
        counts[r->verdict]++;
        checked += r->error.checked;
        elements += r->error.elements;
        predicted += r->prediction.elements;
        differ += r->prediction.differ;
    }
    ng_terminal_failures(terminal, run);
    fprintf(terminal->out, "\n%zu case%s in %.1f s:", run->list->count, run->list->count == 1 ? "" : "s", seconds);
    const char *comma = "";
    for (int v = 0; v < NG_VERDICTS; v++)
        if (counts[v]) {
            fprintf(terminal->out, "%s %zu %s", comma, counts[v], ng_verdict_names[v]);
            comma = ",";
        }
    ng_figure_count((double)checked, figure[0]);
    ng_figure_count((double)elements, figure[1]);
    ng_figure_count((double)predicted, figure[2]);
    ng_figure_count((double)differ, figure[3]);
    if (checked == elements) fprintf(terminal->out, "\nall %s elements checked", figure[1]);
    else fprintf(terminal->out, "\n%s of %s elements checked", figure[0], figure[1]);
    if (predicted) fprintf(terminal->out, "; %s predicted bit for bit, %s differ", figure[2], figure[3]);
    fputc('\n', terminal->out);
    print_worst(terminal, run);
    print_goldens(terminal, run);
    print_reasons(terminal, run, NG_FLAKE, "did not fail again");
    print_reasons(terminal, run, NG_XFAIL, "failed as expected");
    print_reasons(terminal, run, NG_SKIP, "skipped");
    print_reasons(terminal, run, NG_PASS, "passed with a note");
}
