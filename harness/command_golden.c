/* `golden`: records the bits that results have, checks them, shows which moved. */
#include "harness/golden.h"
#include "harness/golden_check.h"
#include "harness/golden_diff.h"
#include "harness/nested_run.h"
#include "harness/output.h"
#include "harness/record_read.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct golden_options {
    ng_options run; /* first: run's own rows fill it */
    const char *into;
    ng_texts saved;
    bool list;
} golden_options;

#define AT(member) .offset = offsetof(golden_options, member)

static const ng_option own_rows[] = {
    {"into", 0, NG_TEXT, "DIR", "record: the folder that the files go to (default goldens)", AT(into)},
    {"list", 0, NG_FLAG, NULL, "check: run nothing; which cases have no golden", AT(list)},
    {"saved", 0, NG_TEXTS, "DIR", "diff: what `run --save always` kept, once for A and once for B: element by element", AT(saved)},
};
enum { OWN_ROWS = sizeof own_rows / sizeof *own_rows };
static const char *const not_taken[] = {"json", "junit", "tap", "journal", "resume", "save", "save-dir", "dry-run", "no-speed", "full", NULL};

/* ---- records ------------------------------------------------------------------------------------------------------*/
typedef struct records {
    ng_record_file *items;
    size_t count;
} records;

static ng_status add_record(records *all, const char *path, ng_error *error) {
    ng_record_file *items = realloc(all->items, (all->count + 1) * sizeof *items);
    if (!items) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    all->items = items;
    ng_status status = ng_record_read(path, &items[all->count], error);
    if (!status) all->count++;
    return status;
}

static void free_records(records *all) {
    for (size_t i = 0; i < all->count; i++)
        ng_record_free(&all->items[i]);
    free(all->items);
    *all = (records){0};
}

/* The records named on the command line, or that of a run with its options. */
static ng_status take_records(const ng_program *program, const ng_args *args, bool recording, records *all, ng_error *error) {
    ng_status status = NG_OK;
    for (size_t i = 1; i < args->operands.count && !status; i++)
        status = add_record(all, args->operands.items[i], error);
    if (status || all->count) return status;
    char *folder = NULL, *path = NULL;
    int exit_status = NG_EXIT_OK;
    status = ng_make_scratch(&folder, error);
    if (!status && asprintf(&path, "--json=%s/run.json", folder) < 0) {
        path = NULL;
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    /* What is recorded is compared with nothing; what is checked is compared once, here. */
    const char *const words[] = {path, "--no-speed", "--goldens=none", recording ? "--expectations=none" : NULL, NULL};
    if (!status) status = ng_nested_run(program, own_rows, OWN_ROWS, args, words, &exit_status, error);
    if (!status && exit_status == NG_EXIT_NO_VERDICT) status = ng_fail(error, NG_UNSUPPORTED, "the run gave no verdict");
    if (!status) status = add_record(all, path + strlen("--json="), error);
    free(path);
    ng_remove_scratch(folder);
    return status;
}

/* ---- record -------------------------------------------------------------------------------------------------------*/
/* Only bits that nothing speaks against: a pass, or one that had moved from an older golden alone. */
static bool is_worth_recording(const ng_result *r) {
    bool predicted = !r->prediction.present || r->prediction.differ == 0;
    return *r->digest && !r->nondeterministic &&
           (r->verdict == NG_PASS || (r->verdict == NG_MOVED && !strcmp(r->golden, "differ") && predicted));
}

static void take_figures(const ng_error_figures *e, double figures[NG_GOLDEN_FIGURES]) {
    const double all[NG_GOLDEN_FIGURES] = {e->bound_ratio, e->max_ulp, e->rms_rel, e->bias};
    for (int f = 0; f < NG_GOLDEN_FIGURES; f++)
        figures[f] = e->present ? all[f] : NAN;
}

static ng_status add_case(ng_golden_set *set, const ng_recorded_case *one, ng_error *error) {
    if ((set->count & (set->count - 1)) == 0) { /* grows at powers of two */
        ng_golden_case *cases = realloc(set->cases, (set->count ? 2 * set->count : 1) * sizeof *cases);
        if (!cases) return ng_fail(error, NG_NO_MEMORY, "out of memory");
        set->cases = cases;
    }
    ng_golden_case *golden = &set->cases[set->count++];
    *golden = (ng_golden_case){.id = one->id, .digest = one->result.digest};
    take_figures(&one->result.error, golden->figures);
    return NG_OK;
}

static ng_status write_set(const char *folder, ng_golden_set *set, const ng_record_file *record, ng_error *error) {
    char name[256], *path = NULL;
    ng_output output = {0};
    ng_golden_file_name(&set->key, name, sizeof name);
    if (asprintf(&path, "%s/%s", folder, name) < 0) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    set->level = record->level;
    snprintf(set->recorded, sizeof set->recorded, "%s", record->started);
    ng_record_command(record, set->command, sizeof set->command);
    ng_status status = ng_output_open(path, &output, error);
    if (!status) {
        ng_golden_write(output.stream, set, record->fingerprint);
        status = ng_output_commit(&output, error);
    }
    if (!status) printf("%s: %zu cases\n", path, set->count);
    ng_output_discard(&output);
    free(path);
    return status;
}

/* All cases of one key; what does not pass is left out and said. */
static ng_status record_key(const char *folder, const ng_record_file *record, const ng_golden_key *key, ng_error *error) {
    ng_golden_set set = {.key = *key};
    ng_status status = NG_OK;
    size_t left_out = 0;
    for (size_t i = 0; i < record->count && !status; i++) {
        const ng_recorded_case *one = &record->cases[i];
        ng_golden_key its;
        ng_golden_key_of_record(record, one, &its);
        if (!ng_golden_key_equal(&its, key)) continue;
        if (is_worth_recording(&one->result)) status = add_case(&set, one, error);
        else if (one->result.verdict != NG_SKIP && !one->result.nondeterministic) {
            if (!left_out++) fprintf(stderr, "not recorded: %s is %s\n", one->id, ng_verdict_names[one->result.verdict]);
        }
    }
    if (left_out > 1) fprintf(stderr, "and %zu more that did not pass\n", left_out - 1);
    if (!status && set.count) status = write_set(folder, &set, record, error);
    free(set.cases);
    return status;
}

static ng_status record_goldens(const golden_options *o, const records *all, ng_error *error) {
    const char *folder = o->into ? o->into : "goldens";
    if (mkdir(folder, 0777) && errno != EEXIST) return ng_fail(error, NG_IO, "%s: cannot be made: %s", folder, strerror(errno));
    for (size_t r = 0; r < all->count; r++) {
        const ng_record_file *record = &all->items[r];
        if (ng_record_is_filtered(record))
            return ng_fail(error, NG_BAD_ARGUMENT, "%s: is of some of its cases; a golden holds all of a level: record without --filter", record->path);
        for (size_t i = 0; i < record->count; i++) {
            ng_golden_key key, other;
            size_t before = 0;
            ng_golden_key_of_record(record, &record->cases[i], &key);
            for (; before < i; before++) {
                ng_golden_key_of_record(record, &record->cases[before], &other);
                if (ng_golden_key_equal(&key, &other)) break;
            }
            ng_status status = before == i ? record_key(folder, record, &key, error) : NG_OK;
            if (status) return status;
        }
    }
    return NG_OK;
}

/* ---- check --------------------------------------------------------------------------------------------------------*/
enum { SHOWN = 20 };

typedef struct printed {
    size_t count;
} printed;

static void show(printed *p, const char *word, const char *id, const char *more) {
    if (p->count++ < SHOWN) printf("%-8s %s%s\n", word, id, more);
}

static ng_status on_found(void *context, const ng_golden_finding *f, ng_error *error) {
    char more[256] = "";
    (void)error;
    if (f->kind == NG_GOLDEN_DIFFERS)
        snprintf(more, sizeof more, "  %.8s, golden %.8s; error / bound %.4g, golden %.4g (%s)", f->one->result.digest, f->golden->digest,
                 f->one->result.error.bound_ratio, f->golden->figures[0], ng_verdict_names[f->one->result.verdict]);
    if (f->kind == NG_GOLDEN_LOST) snprintf(more, sizeof more, "  %.200s", f->one->result.reason);
    show(context, ng_golden_words[f->kind], f->id, more);
    return NG_OK;
}

static void print_rest(const printed *p) {
    if (p->count > SHOWN) printf("... and %zu more\n", p->count - SHOWN);
}

static ng_status conclude(const ng_golden_tally *t, const printed *p, int *exit_status, ng_error *error) {
    print_rest(p);
    printf("goldens: %zu match, %zu differ, %zu of these tables lack one, %zu others have none, %zu did not run, %zu of no case any more, "
           "%zu for which there is no file\n", t->match, t->differ, t->lacking, t->elsewhere, t->lost, t->gone, t->unset);
    *exit_status = t->differ || t->lacking || t->lost || t->gone ? NG_EXIT_REGRESSION : NG_EXIT_OK;
    if (t->match + t->differ + t->lacking + t->lost) return NG_OK;
    return ng_fail(error, NG_UNSUPPORTED, "no golden applies: nothing was compared");
}

/* Whether the kernel takes the case's problem, as far as can be said without its device. */
static bool is_supported(const ng_case *one, const ng_fingerprint *fingerprint) {
    const ng_device device = {.backend = one->kernel->backend, .sm = fingerprint->gpu.present ? fingerprint->gpu.sm : 0, .threads = 1,
                              .memory = SIZE_MAX / 2};
    return !one->kernel->supports || !one->kernel->supports(one->kernel, &one->problem, &device);
}

/* Nothing runs: whether each case of the tables has a golden. */
static ng_status check_list(const ng_program *program, const golden_options *o, const ng_args *args, const char *folder,
                            int *exit_status, ng_error *error) {
    ng_selected selected = {0};
    ng_fingerprint fingerprint;
    ng_goldens goldens = {0};
    size_t have = 0, lack = 0, unset = 0;
    printed p = {0};
    ng_status status = ng_select(program, &o->run, args, &selected, error);
    if (status) return status;
    ng_fingerprint_collect(program->build, &selected.plugins, o->run.backend == NG_BACKEND_CPU ? NULL : program->gpu_probe,
                           (int)o->run.device, &fingerprint);
    status = ng_goldens_open(folder, &selected.list, &fingerprint, o->run.seed, &goldens, error);
    for (size_t i = 0; i < selected.list.count && !status; i++) {
        const ng_case *one = &selected.list.cases[i];
        const ng_golden_set *set = ng_goldens_set(&goldens, one);
        if (one->kernel->contract.determinism == NG_NONDETERMINISTIC || !is_supported(one, &fingerprint)) continue;
        if (!set || one->level > set->level) unset += !set;
        else if (ng_golden_find(set, one->id)) have++;
        else {
            lack++;
            show(&p, ng_golden_words[NG_GOLDEN_LACKS], one->id, "");
        }
    }
    if (!status) {
        print_rest(&p);
        printf("%zu cases have a golden, %zu lack one, for %zu there is no file\n", have, lack, unset);
        *exit_status = lack ? NG_EXIT_REGRESSION : NG_EXIT_OK;
        if (!have && !lack) status = ng_fail(error, NG_UNSUPPORTED, "no golden applies");
    }
    ng_goldens_close(&goldens);
    ng_selected_free(&selected);
    return status;
}

static ng_status check(const ng_program *program, const golden_options *o, const ng_args *args, int *exit_status, ng_error *error) {
    char *folder = NULL;
    records all = {0};
    ng_golden_tally t = {0};
    printed p = {0};
    ng_status status = ng_data_folder(o->run.goldens, "goldens", &folder, error);
    if (!status && !folder) status = ng_fail(error, NG_IO, "there are no goldens beside the program; --goldens DIR says where some are");
    if (!status && o->list) {
        status = check_list(program, o, args, folder, exit_status, error);
        goto done;
    }
    if (!status) status = take_records(program, args, false, &all, error);
    for (size_t r = 0; r < all.count && !status; r++)
        status = ng_golden_check(folder, &all.items[r], false, on_found, &p, &t, error);
    if (!status) status = conclude(&t, &p, exit_status, error);
done:
    free_records(&all);
    free(folder);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
static ng_status record(const ng_program *program, const golden_options *o, const ng_args *args, ng_error *error) {
    records all = {0};
    ng_status status = take_records(program, args, true, &all, error);
    if (!status) status = record_goldens(o, &all, error);
    free_records(&all);
    return status;
}

static ng_status dispatch(const ng_program *program, const golden_options *o, const ng_args *args, int *exit_status, ng_error *error) {
    const char *word = args->operands.count ? args->operands.items[0] : "";
    if (!strcmp(word, "record")) return record(program, o, args, error);
    if (!strcmp(word, "check")) return check(program, o, args, exit_status, error);
    if (!strcmp(word, "diff")) {
        if (args->operands.count != 3 || (o->saved.count && o->saved.count != 2))
            return ng_fail(error, NG_BAD_ARGUMENT, "diff takes two files, goldens or records, and --saved DIR twice or not at all");
        return ng_golden_diff(program, args->operands.items[1], args->operands.items[2], o->saved.count ? o->saved.items[0] : NULL,
                              o->saved.count ? o->saved.items[1] : NULL, exit_status, error);
    }
    return ng_fail(error, NG_BAD_ARGUMENT, "golden '%.40s': expected record, check or diff", word);
}

int ng_command_golden(const ng_program *program, int argc, char **argv) {
    golden_options options = {.run = ng_default_options()};
    ng_args args = {.takes_operands = true};
    ng_error error = {0};
    ng_option *table = NULL;
    size_t count = 0;
    int exit_status = NG_EXIT_OK;
    ng_status status = ng_nested_options(own_rows, OWN_ROWS, not_taken, &table, &count, &error);
    if (!status) status = ng_args_parse(table, count, argc, argv, &options, &args, &error);
    if (!status && args.help) {
        ng_command_usage(stdout, program, "golden record|check|diff [FILE...]",
                         "record [RECORD...]  writes the bits of records, or of a run with the options below, one file a backend, architecture,\n"
                         "                    library version and seed\n"
                         "check [RECORD...]   compares records, or a run, with the files that apply; exit 1: bits differ, or a case of the tables\n"
                         "                    has no golden\n"
                         "diff A B            which cases differ between two goldens or records");
        ng_args_help(stdout, table, count);
    } else if (!status) status = dispatch(program, &options, &args, &exit_status, &error);
    ng_args_free(table, count, &options, &args);
    free(table);
    return status ? ng_no_verdict(program, "golden", error.text) : exit_status;
}
