/* `history`: add, list, trend. */
#include "harness/command.h"
#include "harness/output.h"
#include "harness/terminal.h"
#include "harness/trend.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct history_words {
    const char *file, *json, *machine;
    double wait_s;
    int64_t last, least;
    const char *false_alarms;
} history_words;

#define AT(member) .offset = offsetof(history_words, member)

static const ng_option rows[] = {
    {"file", 'd', NG_TEXT, "FILE", "the history (default narrowgauge-history.db)", AT(file)},
    {"last", 'n', NG_COUNT, "N", "the newest N runs (list: default 20; trend: all)", AT(last), .least = 1, .most = 1000000},
    {"machine", 'm', NG_TEXT, "TEXT", "trend: runs of that machine: a part of the name or id of its GPU, of its CPU's or its host's (default: of the\n"
                                      "newest run)", AT(machine)},
    {"least", 0, NG_COUNT, "PERCENT", "trend: steps of time smaller than that are left out (default 2)", AT(least), .least = 1, .most = 1000},
    {"false-alarms", 0, NG_TEXT, "P", "trend: probability of a step of time being named where there is none, all cases that are looked at together\n"
                                      "(default 0.01)", AT(false_alarms)},
    {"wait", 'w', NG_SECONDS, "S", "how long to wait for another who writes (default 60)", AT(wait_s)},
    {"json", 'o', NG_TEXT, "FILE|-", "list, trend: as JSON", AT(json)},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- add ----------------------------------------------------------------------------------------------------------*/
/* A record a transaction; its line appears when it is on disk. */
static ng_status add(const history_words *w, const ng_texts *files, ng_error *error) {
    ng_history *history = NULL;
    if (files->count < 2) return ng_fail(error, NG_BAD_ARGUMENT, "which record? history add RECORD.json...");
    ng_status status = ng_history_open(w->file, NG_HISTORY_WRITE, w->wait_s, &history, error);
    for (size_t i = 1; i < files->count && !status; i++) {
        ng_record_file record;
        bool added;
        status = ng_record_read(files->items[i], &record, error);
        if (status) break;
        status = ng_history_add(history, &record, &added, error);
        if (!status) {
            printf("%s %s: run %.12s of %s, %zu cases\n", added ? "added" : "was there:", files->items[i], record.run, record.started, record.count);
            fflush(stdout);
        }
        ng_record_free(&record);
    }
    ng_history_close(history);
    return status;
}

/* ---- list ---------------------------------------------------------------------------------------------------------*/
static const char *device_of(const ng_history_run *r) { return *r->gpu ? r->gpu : r->cpu; }

static void print_statuses(FILE *out, const ng_history_run *r) {
    for (int v = 0, shown = 0; v < NG_VERDICTS; v++)
        if (r->statuses[v]) fprintf(out, "%s%lld %s", shown++ ? ", " : "", (long long)r->statuses[v], ng_verdict_names[v]);
}

static void print_run(FILE *out, const ng_history_run *r) {
    fprintf(out, "%-20s %.12s %-7s seed %-4llu %.10s%s  %s%s%s  ", r->started, r->run, r->level, (unsigned long long)r->seed,
            *r->commit ? r->commit : "-", r->dirty ? "+" : "", device_of(r), *r->driver ? ", driver " : "", r->driver);
    print_statuses(out, r);
    fputc('\n', out);
}

static void write_run(ng_json *json, const ng_history_run *r) {
    ng_json_object(json, NULL);
    ng_json_text(json, "run", r->run);
    ng_json_text(json, "started", r->started);
    ng_json_text(json, "level", r->level);
    ng_json_unsigned(json, "seed", r->seed);
    ng_json_text(json, "host", *r->host ? r->host : NULL);
    ng_json_text(json, "cpu", *r->cpu ? r->cpu : NULL);
    ng_json_text(json, "gpu", *r->gpu ? r->gpu : NULL);
    ng_json_text(json, "uuid", *r->uuid ? r->uuid : NULL);
    ng_json_text(json, "driver", *r->driver ? r->driver : NULL);
    ng_json_text(json, "cublaslt", *r->cublaslt ? r->cublaslt : NULL);
    ng_json_text(json, "commit", *r->commit ? r->commit : NULL);
    ng_json_bool(json, "dirty", r->dirty);
    ng_json_integer(json, "cases", r->cases);
    ng_json_object(json, "statuses");
    for (int v = 0; v < NG_VERDICTS; v++)
        if (r->statuses[v]) ng_json_integer(json, ng_verdict_names[v], r->statuses[v]);
    ng_json_end_object(json);
    ng_json_end_object(json);
}

/* A history that is open, its runs, and where the answer goes. */
typedef struct session {
    const history_words *words;
    ng_history *history;
    ng_history_run *runs;
    size_t run_count;
    ng_output output;
    ng_json json;
    double false_alarms;
    size_t matches, shown;
    bool single;
} session;

static ng_status open_session(session *s, const char *document, ng_error *error) {
    ng_status status = ng_history_open(s->words->file, NG_HISTORY_READ, s->words->wait_s, &s->history, error);
    if (!status) status = ng_history_runs(s->history, &s->runs, &s->run_count, error);
    if (!status) status = ng_output_open(s->words->json, &s->output, error);
    if (status || !s->output.stream) return status;
    s->json = (ng_json){.out = s->output.stream, .break_depth = 2};
    ng_json_object(&s->json, NULL);
    ng_json_text(&s->json, "schema", document);
    return NG_OK;
}

static ng_status end_session(session *s, ng_status status, ng_error *error) {
    if (!status && s->output.stream) {
        ng_json_end_object(&s->json);
        fputc('\n', s->output.stream);
        status = ng_output_commit(&s->output, error);
    }
    ng_output_discard(&s->output);
    ng_history_close(s->history);
    free(s->runs);
    return status;
}

static ng_status list(const history_words *w, const ng_texts *operands, ng_error *error) {
    session s = {.words = w};
    if (operands->count > 1) return ng_fail(error, NG_BAD_ARGUMENT, "list takes no operand; what is '%.100s'?", operands->items[1]);
    ng_status status = open_session(&s, "narrowgauge.runs/1", error);
    size_t last = w->last ? (size_t)w->last : s.output.stream ? s.run_count : 20;
    size_t first = s.run_count > last ? s.run_count - last : 0;
    if (!status && s.output.stream) ng_json_array(&s.json, "runs");
    for (size_t i = first; i < s.run_count && !status; i++)
        if (s.output.stream) write_run(&s.json, &s.runs[i]);
        else print_run(stdout, &s.runs[i]);
    if (!status && s.output.stream) ng_json_end_array(&s.json);
    if (!status && !s.output.stream) printf("%zu runs%s\n", s.run_count, first ? "; --last N shows more" : "");
    return end_session(&s, status, error);
}

/* ---- trend --------------------------------------------------------------------------------------------------------*/
static void print_point(FILE *out, const ng_history_point *p) {
    char ratio[NG_FIGURE_BYTES], time[NG_FIGURE_BYTES], q1[NG_FIGURE_BYTES], q3[NG_FIGURE_BYTES], recipe[NG_FIGURE_BYTES] = "-";
    ng_figure_ratio(p->bound_ratio, ratio);
    ng_figure_time(p->median_s, time);
    ng_figure_time(p->q1_s, q1);
    ng_figure_time(p->q3_s, q3);
    if (isfinite(p->recipe_sqnr_db)) snprintf(recipe, sizeof recipe, "%.1f", p->recipe_sqnr_db);
    fprintf(out, "%-20s  %-10.10s  %-12s  %-7s  %6s  %7s  %9s  %9s  %9s\n", p->run->started, *p->run->commit ? p->run->commit : "-",
            *p->run->driver ? p->run->driver : "-", ng_verdict_names[p->verdict], ratio, recipe, time, q1, q3);
}

/* One case: all of its runs. */
static void print_course(const char *id, const ng_trend *t) {
    const ng_history_run *newest = t->points[t->count - 1].run;
    char text[NG_TURN_BYTES];
    printf("%s\non %s%s%s, seed %llu\n\n", id, device_of(newest), *newest->uuid ? " " : "", newest->uuid, (unsigned long long)newest->seed);
    printf("%-20s  %-10s  %-12s  %-7s  %6s  %7s  %9s  %9s  %9s\n", "started", "commit", "driver", "status", "ratio", "SQNR dB", "time", "q1", "q3");
    for (size_t i = 0, turn = 0; i < t->count; i++) {
        for (; turn < t->turn_count && t->turns[turn].at == i; turn++) {
            ng_turn_text(&t->turns[turn], text);
            printf("  -- %s\n", text);
        }
        print_point(stdout, &t->points[i]);
    }
    printf("\n%zu runs, %zu changes\n", t->count, t->turn_count);
}

static void print_turns(const char *id, const ng_trend *t) {
    char text[NG_TURN_BYTES];
    for (size_t i = 0; i < t->turn_count; i++) {
        const ng_history_run *run = t->points[t->turns[i].at].run;
        ng_turn_text(&t->turns[i], text);
        printf("%-20s %.10s  %s\n    %s\n", run->started, *run->commit ? run->commit : "-", id, text);
    }
}

static ng_status count_case(void *context, const char *id, const ng_history_point *points, size_t count, ng_error *error) {
    (void)context, (void)id, (void)points, (void)count, (void)error;
    return NG_OK;
}

static ng_status show_case(void *context, const char *id, const ng_history_point *points, size_t count, ng_error *error) {
    session *s = context;
    ng_trend trend;
    ng_status status = ng_trend_find(points, count, s->false_alarms / (double)s->matches, 0.01 * (double)s->words->least, &trend, error);
    if (status) return status;
    s->shown += trend.turn_count > 0;
    if (s->output.stream) ng_trend_json(&s->json, id, &trend);
    else if (s->single) print_course(id, &trend);
    else print_turns(id, &trend);
    ng_trend_free(&trend);
    return NG_OK;
}

static bool is_machine(const ng_history_run *r, const char *text) {
    return strcasestr(r->gpu, text) || strcasestr(r->uuid, text) || strcasestr(r->cpu, text) || strcasestr(r->host, text);
}

/* The newest run of the machine that --machine names says which machine and seed it is. */
static ng_status choose_machine(const session *s, ng_history_query *query, ng_error *error) {
    if (!s->words->machine) return NG_OK;
    for (size_t i = s->run_count; i-- > 0;)
        if (is_machine(&s->runs[i], s->words->machine)) {
            query->machine = s->runs[i].machine;
            query->seed = s->runs[i].seed;
            return NG_OK;
        }
    return ng_fail(error, NG_BAD_ARGUMENT, "--machine '%.100s': no run is of such a machine; history list names them", s->words->machine);
}

static ng_status trend(const history_words *w, const ng_texts *operands, ng_error *error) {
    session s = {.words = w};
    ng_history_query query = {.last = (size_t)w->last};
    size_t again;
    char *end = NULL;
    s.false_alarms = w->false_alarms ? strtod(w->false_alarms, &end) : 0.01;
    if ((end && (*end || end == w->false_alarms)) || !(s.false_alarms > 0 && s.false_alarms <= 1))
        return ng_fail(error, NG_BAD_ARGUMENT, "--false-alarms '%.100s': expected a probability above 0, at most 1", w->false_alarms);
    if (operands->count != 2) return ng_fail(error, NG_BAD_ARGUMENT, "which case? history trend CASE, or a glob: history trend 'gemm/*'");
    query.pattern = operands->items[1];
    ng_status status = open_session(&s, "narrowgauge.trend/1", error);
    if (!status) status = choose_machine(&s, &query, error);
    if (!status) status = ng_history_each(s.history, &query, s.runs, s.run_count, count_case, NULL, &s.matches, error);
    if (!status && !s.matches)
        status = ng_fail(error, NG_BAD_ARGUMENT, "%s: no case '%.200s'%s", w->file, query.pattern, w->machine ? " on that machine" : "");
    s.single = s.matches == 1;
    if (!status && s.output.stream) ng_json_array(&s.json, "cases");
    if (!status) status = ng_history_each(s.history, &query, s.runs, s.run_count, show_case, &s, &again, error);
    if (!status && s.output.stream) ng_json_end_array(&s.json);
    else if (!status && !s.single) printf("%zu cases, %zu with changes\n", s.matches, s.shown);
    return end_session(&s, status, error);
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
static const struct {
    const char *name;
    ng_status (*run)(const history_words *words, const ng_texts *operands, ng_error *error);
} verbs[] = {{"add", add}, {"list", list}, {"trend", trend}};

static ng_status dispatch(const history_words *w, const ng_args *args, ng_error *error) {
    const char *verb = args->operands.count ? args->operands.items[0] : "";
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verb, verbs[i].name)) return verbs[i].run(w, &args->operands, error);
    return ng_fail(error, NG_BAD_ARGUMENT, "%s%.100s%s: expected add, list or trend", *verb ? "'" : "what to do", verb, *verb ? "'" : "");
}

int ng_command_history(const ng_program *program, int argc, char **argv) {
    history_words words = {.file = "narrowgauge-history.db", .wait_s = 60, .least = 2};
    ng_args args = {.takes_operands = true};
    ng_error error = {0};
    ng_status status = ng_args_parse(rows, ROWS, argc, argv, &words, &args, &error);
    if (!status && args.help) {
        ng_command_usage(stdout, program, "history add RECORD.json... | list | trend CASE|GLOB",
                         "Keeps the results of all runs in one SQLite file.\n"
                         "  add    adds the records of `run --json`; a run that is there already is left alone\n"
                         "  list   the runs\n"
                         "  trend  a case over the runs of one machine: where its status, bits, error or time changed. A glob: only those that\n"
                         "         changed. Results are exact, so any change of them is one; steps of time are found by ranks (harness/steps.c)");
        ng_args_help(stdout, rows, ROWS);
    } else if (!status) status = dispatch(&words, &args, &error);
    ng_args_free(rows, ROWS, &words, &args);
    return status ? ng_no_verdict(program, "history", error.text) : NG_EXIT_OK;
}
