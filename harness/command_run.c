/* `run`: judges cases and writes what came of it. */
#include "harness/journal.h"
#include "harness/junit.h"
#include "harness/output.h"
#include "harness/run.h"
#include "harness/select.h"
#include "harness/table.h"
#include "harness/tap.h"
#include "harness/text.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A run from its options to its end; every part may be absent. */
typedef struct session {
    const ng_program *program;
    ng_options options;
    ng_args args;
    ng_selected selected;
    ng_fingerprint fingerprint;
    ng_goldens goldens;
    ng_expectations expectations;
    ng_settings settings;
    ng_run_record record;
    ng_result *results;
    bool *done;
    size_t done_count, next_tap;
    ng_output json, junit, tap;
    ng_journal journal;
    char *own_journal; /* FILE.journal beside --json FILE: removed when the run has ended */
    ng_journal_past past;
    ng_terminal terminal;
    size_t remarks;    /* deaths that belong to no case */
} session;

/* ---- options ------------------------------------------------------------------------------------------------------*/
static ng_status check_tags(const ng_texts *tags, ng_error *error) {
    for (size_t i = 0; i < tags->count; i++) {
        size_t length = strcspn(tags->items[i], "=");
        if (!length || !tags->items[i][length] || length > 100)
            return ng_fail(error, NG_BAD_ARGUMENT, "--tag '%s': expected KEY=VALUE", tags->items[i]);
        for (size_t j = 0; j < i; j++)
            if (!strncmp(tags->items[i], tags->items[j], length + 1))
                return ng_fail(error, NG_BAD_ARGUMENT, "--tag %.*s is given twice", (int)length, tags->items[i]);
    }
    return NG_OK;
}

static ng_status check_outputs(const ng_options *o, ng_error *error) {
    const char *const paths[] = {o->json, o->junit, o->tap, o->journal};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            if (paths[i] && paths[j] && !strcmp(paths[i], paths[j]))
                return ng_fail(error, NG_BAD_ARGUMENT, "two outputs cannot both go to %s",
                               strcmp(paths[i], "-") ? paths[i] : "standard output");
    if (o->journal && !strcmp(o->journal, "-")) return ng_fail(error, NG_BAD_ARGUMENT, "--journal takes a file");
    if (o->save_directory && o->save == NG_SAVE_NEVER)
        return ng_fail(error, NG_BAD_ARGUMENT, "--save-dir needs --save failing or --save always");
    return NG_OK;
}

/* The options of the run that a journal belongs to come first, those of this command line after them. */
static ng_status take_past(session *s, ng_error *error) {
    ng_options fresh = ng_default_options();
    const char *path = s->options.resume;
    if (s->options.journal) return ng_fail(error, NG_BAD_ARGUMENT, "--resume goes on in its own journal: no --journal");
    ng_status status = ng_journal_read(path, &s->past, error);
    if (status) return status;
    if (s->past.argc < 2 || strcmp(s->past.argv[1], "run"))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is of no run", path);
    ng_args_free(ng_option_rows, ng_run_option_count, &s->options, &s->args);
    s->options = fresh;
    ng_error inner;
    status = ng_args_parse(ng_option_rows, ng_run_option_count, s->past.argc - 1, s->past.argv + 1, &s->options, &s->args,
                           &inner);
    s->options.journal = NULL;
    return status ? ng_fail(error, status, "%s: %.900s", path, inner.text) : NG_OK;
}

static ng_status parse(session *s, int argc, char **argv, ng_error *error) {
    s->options = ng_default_options();
    ng_status status = ng_args_parse(ng_option_rows, ng_run_option_count, argc, argv, &s->options, &s->args, error);
    if (status || s->args.help) return status;
    if (s->options.resume) {
        if (s->options.filters.count)
            return ng_fail(error, NG_BAD_ARGUMENT, "--resume goes on with the cases of its journal: --filter cannot choose among them");
        status = take_past(s, error);
        if (!status)
            status = ng_args_parse(ng_option_rows, ng_run_option_count, argc, argv, &s->options, &s->args, error);
    }
    if (!status) status = check_tags(&s->options.tags, error);
    if (!status) status = check_outputs(&s->options, error);
    if (s->options.full && !ng_args_has(&s->args, "timeout")) s->options.timeout_s = 0;
    return status;
}

/* ---- before the first case ----------------------------------------------------------------------------------------*/
/* Seconds of timing a case may take: enough for 30 samples of a small one where a level must stay within its limit. */
static double timing_budget(const ng_options *o) {
    static const double by_level[NG_LEVELS] = {0.01, 0.01, 0.2};
    return o->model || o->shape[0] || o->tensors || o->x || o->w || o->dy ? 0.3 : by_level[o->level];
}

static ng_status prepare_save(session *s, ng_error *error) {
    if (s->options.save == NG_SAVE_NEVER) return NG_OK;
    const char *folder = s->options.save_directory ? s->options.save_directory : "narrowgauge-saved";
    if (mkdir(folder, 0777) && errno != EEXIST)
        return ng_fail(error, NG_IO, "%s: cannot be made: %s", folder, strerror(errno));
    if (access(folder, W_OK | X_OK)) return ng_fail(error, NG_IO, "%s: cannot be written: %s", folder, strerror(errno));
    s->settings.save_directory = folder;
    s->settings.save_always = s->options.save == NG_SAVE_ALWAYS;
    return NG_OK;
}

/* What results are compared with. Products checked in full are other launches than sampled ones: no golden is theirs. */
static ng_status open_references(session *s, ng_error *error) {
    const ng_options *o = &s->options;
    char *goldens, *expectations = NULL;
    ng_status status = ng_data_folder(o->full ? "none" : o->goldens, "goldens", &goldens, error);
    if (!status) status = ng_data_folder(o->expectations, "expectations", &expectations, error);
    if (!status) status = ng_goldens_open(goldens, &s->selected.list, &s->fingerprint, o->seed, &s->goldens, error);
    if (!status) status = ng_expectations_open(expectations, &s->fingerprint, &s->expectations, error);
    ng_goldens_digest(&s->goldens, s->fingerprint.goldens_digest);
    memcpy(s->fingerprint.expectations_digest, s->expectations.digest, sizeof s->expectations.digest);
    free(goldens);
    free(expectations);
    return status;
}

static ng_status prepare(session *s, int argc, char **argv, ng_error *error) {
    const ng_options *o = &s->options;
    size_t count = s->selected.list.count;
    s->results = calloc(count + 1, sizeof *s->results);
    s->done = calloc(count + 1, sizeof *s->done);
    if (!s->results || !s->done) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    s->settings = (ng_settings){
        .seed = o->seed, .threads = (int)o->threads, .full = o->full, .timing = !o->no_speed,
        .time_limit_s = timing_budget(o), .timeout_s = o->timeout_s, .variants = o->variants, .verify_on_cpu = o->verify == NG_VERIFY_CPU, .warm_cache = o->warm_cache, .device = (int)o->device,
    };
    ng_fingerprint_collect(s->program->build, &s->selected.plugins, o->backend == NG_BACKEND_CPU ? NULL : s->program->gpu_probe,
                           s->settings.device, &s->fingerprint);
    ng_status status = open_references(s, error);
    if (status) return status;
    if (s->past.argc) { /* the command that was broken off is what the record is of */
        argc = s->past.argc;
        argv = s->past.argv;
    }
    s->record = (ng_run_record){
        .argc = argc, .argv = argv, .level = (ng_level)o->level, .seed = o->seed, .device = s->settings.device,
        .tags = &o->tags, .fingerprint = &s->fingerprint, .list = &s->selected.list, .results = s->results,
        .given = s->args.given, .given_count = s->args.count,
    };
    ng_record_id(s->record.id);
    ng_timestamp(s->record.started);
    return prepare_save(s, error);
}

static ng_status open_outputs(session *s, ng_error *error) {
    ng_status status = ng_output_open(s->options.json, &s->json, error);
    if (!status) status = ng_output_open(s->options.junit, &s->junit, error);
    if (!status) status = ng_output_open(s->options.tap, &s->tap, error);
    return status;
}

/* A journal that nobody asked for and that an earlier run left must not stop this one, nor be lost. */
static ng_status clear_own_journal(const char *path, ng_error *error) {
    char *kept = NULL;
    ng_status status = NG_OK;
    if (access(path, F_OK)) return NG_OK;
    if (asprintf(&kept, "%s.old", path) < 0) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (rename(path, kept)) status = ng_fail(error, NG_IO, "%s: cannot be renamed: %s", path, strerror(errno));
    else fprintf(stderr, "narrowgauge run: %s was left by a run that did not end; kept as %s\n", path, kept);
    free(kept);
    return status;
}

/* Going on in the journal beside --json FILE: it goes, too, when the run has ended. */
static ng_status adopt_own_journal(session *s, ng_error *error) {
    const ng_options *o = &s->options;
    size_t length = o->json ? strlen(o->json) : 0;
    if (!s->json.temporary || strncmp(o->resume, o->json, length) || strcmp(o->resume + length, ".journal")) return NG_OK;
    s->own_journal = strdup(o->resume);
    return s->own_journal ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
}

static ng_status open_journal(session *s, ng_error *error) {
    const ng_options *o = &s->options;
    ng_status status = NG_OK;
    if (o->resume) {
        status = ng_journal_match(o->resume, &s->past, &s->record, s->results, s->done, error);
        if (status) return status;
        memcpy(s->record.id, s->past.run, sizeof s->record.id);
        memcpy(s->record.started, s->past.started, sizeof s->record.started);
        status = adopt_own_journal(s, error);
        if (status) return status;
        return ng_journal_reopen(o->resume, &s->past, &s->journal, error);
    }
    if (o->journal) return ng_journal_create(o->journal, &s->record, &s->journal, error);
    if (!s->json.temporary) return NG_OK; /* no --json, or one that is no file */
    if (asprintf(&s->own_journal, "%s.journal", o->json) < 0) {
        s->own_journal = NULL;
        return ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    status = clear_own_journal(s->own_journal, error);
    return status ? status : ng_journal_create(s->own_journal, &s->record, &s->journal, error);
}

/* ---- while it runs ------------------------------------------------------------------------------------------------*/
/* Products of a layer are read as a table, at the end; everything else line by line. */
static bool is_layer(const ng_options *o) { return o->model || o->x || o->w || o->dy; }
static bool shows_lines(const session *s) { return !s->options.quiet && !is_layer(&s->options); }

static void on_started(void *context, size_t index) {
    session *s = context;
    (void)index;
    if (!s->options.quiet) ng_terminal_progress(&s->terminal, s->done_count, s->record.list->count);
}

/* TAP lines come in order, as soon as all before them are there. */
static void flush_tap(session *s) {
    if (!s->tap.stream) return;
    for (; s->next_tap < s->record.list->count && s->done[s->next_tap]; s->next_tap++)
        ng_tap_case(s->tap.stream, &s->record, s->next_tap);
}

static ng_status on_finished(void *context, size_t index, const ng_result *result, ng_error *error) {
    session *s = context;
    s->results[index] = *result;
    ng_status status = ng_journal_append(&s->journal, index, s->record.list->cases[index].id, result, error);
    if (status) return status;
    s->done[index] = true;
    s->done_count++;
    flush_tap(s);
    if (shows_lines(s)) ng_terminal_case(&s->terminal, &s->record, index);
    return NG_OK;
}

static void on_remark(void *context, const char *text) {
    session *s = context;
    s->remarks++;
    ng_terminal_clear_progress(&s->terminal);
    fprintf(stderr, "%s run: %s\n", s->program->name, text);
}

static void begin_terminal(session *s) {
    bool standard_out_taken = s->json.stream == stdout || s->junit.stream == stdout || s->tap.stream == stdout;
    ng_terminal_open(standard_out_taken ? stderr : stdout, &s->terminal);
    s->terminal.tensors = s->options.tensors != NULL;
    for (size_t i = 0; i < s->record.list->count; i++)
        s->done_count += s->done[i];
    s->terminal.first = s->done_count;
    if (s->options.resume)
        fprintf(stderr, "%s run: %zu of %zu cases are done already\n", s->program->name, s->done_count,
                s->record.list->count);
    if (shows_lines(s)) ng_terminal_header(&s->terminal);
    if (s->tap.stream) ng_tap_begin(s->tap.stream, s->record.list->count);
    for (size_t i = 0; shows_lines(s) && i < s->record.list->count; i++)
        if (s->done[i]) ng_terminal_case(&s->terminal, &s->record, i);
    flush_tap(s);
}

/* ---- after the last case ------------------------------------------------------------------------------------------*/
static ng_status write_outputs(session *s, ng_error *error) {
    if (s->json.stream) ng_record_write(s->json.stream, &s->record);
    if (s->junit.stream) ng_junit_write(s->junit.stream, &s->record);
    ng_status status = ng_output_commit(&s->junit, error);
    if (!status) status = ng_output_commit(&s->tap, error);
    if (!status) status = ng_output_commit(&s->json, error);
    return status;
}

static ng_status show(session *s, ng_error *error) {
    ng_status status = NG_OK;
    if (s->options.quiet) {
        ng_terminal_failures(&s->terminal, &s->record);
        return NG_OK;
    }
    ng_terminal_clear_progress(&s->terminal);
    if (is_layer(&s->options) && !s->options.recipe && !s->options.budget) status = ng_model_table(&s->terminal, &s->record, error);
    if (s->options.recipe || s->options.budget) ng_recipe_table(&s->terminal, &s->record, ng_budget_db(&s->options));
    ng_terminal_summary(&s->terminal, &s->record, ng_monotonic_s() - s->terminal.started_s);
    return status;
}

/* The journal of a run that has ended is of use only to whoever asked for it. */
static ng_status close_journal(session *s, ng_error *error) {
    ng_status status = s->past.ended ? NG_OK : ng_journal_end(&s->journal, s->record.finished, error);
    ng_journal_close(&s->journal);
    if (!status && s->own_journal) unlink(s->own_journal);
    return status;
}

/* The part of an exit status that results decide. */
static ng_status verdict(const session *s, int *exit_status, ng_error *error) {
    size_t gating = 0, executed = 0, skipped = s->record.list->count;
    for (size_t i = s->record.list->count; i-- > 0;) {
        gating += ng_verdict_gates(s->results[i].verdict);
        executed += s->results[i].verdict != NG_SKIP;
        if (s->results[i].verdict == NG_SKIP) skipped = i;
    }
    *exit_status = gating || s->remarks ? NG_EXIT_REGRESSION : NG_EXIT_OK;
    if (gating || executed || skipped == s->record.list->count) return NG_OK;
    return ng_fail(error, NG_UNSUPPORTED, "nothing was executed: %s%s", s->results[skipped].reason,
                   skipped + 1 < s->record.list->count ? " (the first of several skips)" : "");
}

static const char *journal_path(const session *s) {
    return s->options.resume ? s->options.resume : s->own_journal ? s->own_journal : s->options.journal;
}

/* Why a run broke off, and how to go on. */
static ng_status broken_off(session *s, int signal_number, ng_error *error) {
    ng_terminal_clear_progress(&s->terminal);
    const char *path = journal_path(s);
    const char *name = signal_number == SIGINT ? "SIGINT" : signal_number == SIGTERM ? "SIGTERM" : "SIGHUP";
    if (s->tap.stream) {
        ng_tap_bail_out(s->tap.stream, name);
        fflush(s->tap.stream);
    }
    if (!path)
        return ng_fail(error, NG_IO, "%s after %zu of %zu cases; without --journal or --json FILE nothing can go on from here",
                       name, s->done_count, s->record.list->count);
    char quoted[800];
    ng_shell_quote(path, quoted, sizeof quoted);
    return ng_fail(error, NG_IO, "%s after %zu of %zu cases; go on with: %s run --resume %s", name, s->done_count,
                   s->record.list->count, s->program->name, quoted);
}

static ng_status add_journal(const session *s, ng_status status, ng_error *error) {
    const char *path = journal_path(s);
    ng_error inner = *error;
    if (!path || s->done_count == 0) return status;
    return ng_fail(error, status, "%.700s; what was done is in %.200s: --resume goes on with it", inner.text, path);
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
static ng_status run_all(session *s, int *exit_status, ng_error *error) {
    const ng_run_plan plan = {&s->selected.list, &s->settings, &s->selected.catalogue, s->program->judge, s->done, &s->goldens,
                              &s->expectations, !s->options.no_retry};
    const ng_run_events events = {s, on_started, on_finished, on_remark};
    int signal_number;
    ng_status status = open_outputs(s, error);
    if (!status) status = open_journal(s, error);
    if (status) return status;
    begin_terminal(s);
    status = ng_run_cases(&plan, &events, &signal_number, error);
    if (!status && signal_number) return broken_off(s, signal_number, error);
    if (status) return add_journal(s, status, error);
    ng_timestamp(s->record.finished);
    status = write_outputs(s, error);
    if (status) return add_journal(s, status, error);
    status = show(s, error);
    if (!status) status = close_journal(s, error);
    return status ? status : verdict(s, exit_status, error);
}

static void print_ids(const ng_case_list *list) {
    for (size_t i = 0; i < list->count; i++)
        puts(list->cases[i].id);
}

int ng_command_run(const ng_program *program, int argc, char **argv) {
    ng_error error = {0};
    int exit_status = NG_EXIT_OK;
    session *s = calloc(1, sizeof *s);
    if (!s) return ng_no_verdict(program, "run", "out of memory");
    s->program = program;
    s->journal.fd = -1;
    ng_status status = parse(s, argc, argv, &error);
    if (!status && s->args.help) {
        ng_command_usage(stdout, program, "run",
                         "Runs kernels against exact references: every result against the bound proved from the kernel's\n"
                         "contract, against predicted bits where the contract fixes them, and timed.");
        ng_args_help(stdout, ng_option_rows, ng_run_option_count);
        goto done;
    }
    if (!status) status = ng_select(program, &s->options, &s->args, &s->selected, &error);
    if (status) goto done;
    if (s->options.dry_run) print_ids(&s->selected.list);
    else {
        /* The whole command line, the program's own name included. */
        status = prepare(s, argc + 1, argv - 1, &error);
        if (!status) status = run_all(s, &exit_status, &error);
    }
done:
    ng_output_discard(&s->json);
    ng_output_discard(&s->junit);
    ng_output_discard(&s->tap);
    ng_journal_close(&s->journal);
    ng_goldens_close(&s->goldens);
    ng_expectations_close(&s->expectations);
    ng_selected_free(&s->selected);
    ng_journal_past_free(&s->past);
    ng_args_free(ng_option_rows, ng_run_option_count, &s->options, &s->args);
    free(s->own_journal);
    free(s->results);
    free(s->done);
    free(s);
    return status ? ng_no_verdict(program, "run", error.text) : exit_status;
}
