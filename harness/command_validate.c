/* `validate`: the one command for a new driver, library or GPU. Checks that what is in use is what is to be tested, runs the
 * level, compares with goldens and a baseline, and ends in ACCEPT, REVIEW, REJECT or NO VERDICT. */
#include "harness/baseline.h"
#include "harness/expectation.h"
#include "harness/nested_run.h"
#include "harness/nvml.h"
#include "harness/output.h"
#include "harness/validate.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_REPEATS = 2 * NG_REPEATS };

typedef struct validate_options {
    ng_options run; /* first: run's own rows fill it */
    const char *baseline, *store, *save_baseline, *driver, *cublaslt, *records, *json, *markdown;
    int64_t repeats, lock_mhz, slowdown, most;
    bool allow_moved, across_builds;
} validate_options;

#define AT(member) .offset = offsetof(validate_options, member)

static const ng_option own_rows[] = {
    {"baseline", 'a', NG_TEXT, "NAME", "compare with the records of that name, with one record or with a folder of them", AT(baseline)},
    {"baselines", 0, NG_TEXT, "DIR", "where names are kept (default " NG_BASELINE_STORE ")", AT(store)},
    {"save-baseline", 0, NG_TEXT, "NAME", "keep these runs under that name, unless they are rejected", AT(save_baseline)},
    {"expect-driver", 0, NG_TEXT, "VERSION", "the driver under test: 580.159.04, 580, or a range such as '>=580 <590'. Another one: no verdict", AT(driver)},
    {"expect-cublaslt", 0, NG_TEXT, "VERSION", "the same of cuBLASLt", AT(cublaslt)},
    {"lock-clocks", 0, NG_COUNT, "MHZ", "hold the GPU's clock there while this runs (takes administrator's rights)", AT(lock_mhz), .least = 1, .most = 100000},
    {"repeats", 0, NG_COUNT, "N", "runs (default 1, 5 with --save-baseline; up to 6 where something looks slower than the baseline)", AT(repeats),
     .least = 1, .most = 64},
    {"records", 0, NG_TEXT, "DIR", "keep the runs' records there", AT(records)},
    {"json", 'o', NG_TEXT, "FILE|-", "verdict and findings as JSON", AT(json)},
    {"markdown", 0, NG_TEXT, "FILE|-", "the same for a pull request", AT(markdown)},
    {"allow-moved", 0, NG_FLAG, NULL, "bits that moved inside their bounds need no review", AT(allow_moved)},
    {"across-builds", 0, NG_FLAG, NULL, "the baseline is of another build of the kernels", AT(across_builds)},
    {"slowdown", 0, NG_COUNT, "PERCENT", "the least change of time that counts (default 5)", AT(slowdown), .least = 1, .most = 1000},
    {"most", 0, NG_COUNT, "N", "lines printed of each kind of finding (default 10)", AT(most), .least = 1, .most = 1000000},
};
enum { OWN_ROWS = sizeof own_rows / sizeof *own_rows };
static const char *const not_taken[] = {"junit", "tap", "journal", "resume", "save", "save-dir", "dry-run", "quiet", NULL};

typedef struct session {
    const ng_program *program;
    validate_options options;
    ng_args args;
    ng_compare_options compare;
    ng_side baseline;
    char *folder;         /* of the runs' records */
    bool scratch;         /* to be removed */
    char *goldens;
    char *paths[64];
    size_t runs;
    ng_side side;
    ng_validation validation;
    ng_nvml nvml;
    bool locked;
} session;

/* ---- before the first run -----------------------------------------------------------------------------------------*/
/* A range, or a version that the one in use equals or begins with: 580 is 580.159.04 but not 5801. */
static bool is_expected(const char *expected, const char *version) {
    size_t length = strlen(expected);
    if (ng_range_is_sound(expected)) return ng_range_holds(expected, version);
    return !strncmp(expected, version, length) && (!version[length] || version[length] == '.');
}

static ng_status check_version(const char *option, const char *what, const char *expected, const char *version, ng_error *error) {
    if (!expected || is_expected(expected, version)) return NG_OK;
    return ng_fail(error, NG_UNSUPPORTED, "--%s %s: %s in use%s%s", option, expected, what, *version ? " is " : " is unknown, or there is none", version);
}

static ng_status check_machine(session *s, ng_error *error) {
    const validate_options *o = &s->options;
    ng_fingerprint f;
    ng_error why = {0};
    ng_fingerprint_collect(s->program->build, NULL, s->program->gpu_probe, (int)o->run.device, &f);
    const ng_gpu_info *gpu = &f.gpu;
    ng_status status = check_version("expect-driver", "the driver", o->driver, gpu->driver, error);
    if (!status) status = check_version("expect-cublaslt", "the cuBLASLt", o->cublaslt, gpu->cublaslt, error);
    if (status || !o->lock_mhz) return status;
    if (!gpu->present || ng_nvml_open(gpu->pci, &s->nvml)) return ng_fail(error, NG_UNSUPPORTED, "--lock-clocks: no GPU whose driver answers");
    if (ng_nvml_lock_sm(&s->nvml, (unsigned)o->lock_mhz))
        return ng_fail(error, NG_UNSUPPORTED, "--lock-clocks %lld: the driver refuses (it takes administrator's rights)%s", (long long)o->lock_mhz, why.text);
    s->locked = true;
    fprintf(stderr, "validate: clock held at %lld MHz; should this be killed, nvidia-smi --reset-gpu-clocks lets it go\n", (long long)o->lock_mhz);
    return NG_OK;
}

static ng_status prepare(session *s, ng_error *error) {
    const validate_options *o = &s->options;
    s->compare = (ng_compare_options){o->across_builds, o->allow_moved, 1 + 0.01 * (double)o->slowdown};
    if (o->json && o->markdown && !strcmp(o->json, o->markdown)) return ng_fail(error, NG_BAD_ARGUMENT, "two outputs cannot both go to %s", o->json);
    ng_status status = o->baseline ? ng_baseline_read(o->store, o->baseline, &s->baseline, error) : NG_OK;
    if (!status) status = ng_data_folder(o->run.full ? "none" : o->run.goldens, "goldens", &s->goldens, error);
    if (!status) status = check_machine(s, error);
    if (status) return status;
    s->scratch = !o->records;
    if (s->scratch) return ng_make_scratch(&s->folder, error);
    s->folder = strdup(o->records);
    if (!s->folder) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    return mkdir(s->folder, 0777) && errno != EEXIST ? ng_fail(error, NG_IO, "%s: cannot be made: %s", s->folder, strerror(errno)) : NG_OK;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------*/
static ng_status run_once(session *s, ng_error *error) {
    char *json = NULL;
    int exit_status = NG_EXIT_OK;
    if (asprintf(&s->paths[s->runs], "%s/run%zu.json", s->folder, s->runs + 1) < 0) {
        s->paths[s->runs] = NULL;
        return ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    s->runs++;
    if (asprintf(&json, "--json=%s", s->paths[s->runs - 1]) < 0) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    fprintf(stderr, "validate: run %zu of level %s\n", s->runs, ng_level_names[s->options.run.level]);
    const char *const words[] = {json, "--quiet", NULL};
    ng_status status = ng_nested_run(s->program, own_rows, OWN_ROWS, &s->args, words, &exit_status, error);
    free(json);
    if (!status && exit_status == NG_EXIT_NO_VERDICT) status = ng_fail(error, NG_UNSUPPORTED, "the run gave none (its reason is above)");
    return status;
}

/* Runs until there are so many records, then looks at them all. */
static ng_status look(session *s, size_t repeats, ng_error *error) {
    ng_status status = NG_OK;
    while (!status && s->runs < repeats)
        status = run_once(s, error);
    if (status) return status;
    ng_validation_free(&s->validation);
    ng_side_free(&s->side);
    status = ng_side_read((const char *const *)s->paths, s->runs, &s->side, error);
    return status ? status : ng_validate(&s->side, s->baseline.count ? &s->baseline : NULL, s->goldens, &s->compare, &s->validation, error);
}

static bool looks_slower(const session *s) {
    return s->validation.comparison.suspects || s->validation.comparison.counts[NG_CHANGE_SLOWER];
}

/* Where the baseline can tell and something looks slower, more runs confirm or clear it. */
static ng_status run_all(session *s, ng_error *error) {
    size_t repeats = (size_t)s->options.repeats;
    if (!repeats) repeats = s->options.save_baseline ? 5 : 1;
    ng_status status = look(s, repeats, error);
    bool tells = s->baseline.count >= NG_REPEATS && !s->options.run.no_speed;
    for (repeats = NG_REPEATS; !status && tells && repeats <= MOST_REPEATS && looks_slower(s); repeats += NG_REPEATS)
        if (s->runs < repeats) status = look(s, repeats, error);
    return status;
}

/* ---- afterwards ---------------------------------------------------------------------------------------------------*/
static ng_status save_baseline(session *s, ng_error *error) {
    const validate_options *o = &s->options;
    if (!o->save_baseline) return NG_OK;
    if (s->validation.acceptance == NG_REJECT) {
        fprintf(stderr, "validate: rejected, so not kept as baseline %s\n", o->save_baseline);
        return NG_OK;
    }
    ng_status status = ng_baseline_save(o->store, o->save_baseline, &s->side, error);
    if (!status) fprintf(stderr, "validate: kept %zu records as baseline %s in %s\n", s->side.count, o->save_baseline, o->store);
    return status;
}

static ng_status write_outputs(session *s, ng_error *error) {
    const validate_options *o = &s->options;
    ng_output json = {0}, markdown = {0};
    char line[800];
    ng_status status = ng_output_open(o->json, &json, error);
    if (!status) status = ng_output_open(o->markdown, &markdown, error);
    if (!status && json.stream) ng_validation_json(json.stream, &s->validation, &s->compare);
    if (!status && markdown.stream) {
        ng_validation_line(&s->validation, &s->compare, line, sizeof line);
        ng_comparison_markdown(markdown.stream, &s->validation.comparison, &s->compare, line);
    }
    if (!status) status = ng_output_commit(&json, error);
    if (!status) status = ng_output_commit(&markdown, error);
    ng_output_discard(&json);
    ng_output_discard(&markdown);
    return status;
}

static ng_status conclude(session *s, int *exit_status, ng_error *error) {
    const validate_options *o = &s->options;
    bool taken = (o->json && !strcmp(o->json, "-")) || (o->markdown && !strcmp(o->markdown, "-"));
    ng_status status = write_outputs(s, error);
    if (!status) status = save_baseline(s, error);
    if (status) return status;
    ng_validation_print(taken ? stderr : stdout, &s->validation, &s->compare, (size_t)o->most);
    *exit_status = s->validation.acceptance == NG_ACCEPT ? NG_EXIT_OK : s->validation.acceptance == NG_NO_VERDICT ? NG_EXIT_NO_VERDICT : NG_EXIT_REGRESSION;
    return NG_OK;
}

static void end_session(session *s) {
    if (s->locked && ng_nvml_unlock_sm(&s->nvml)) fputs("validate: the clock is still held; nvidia-smi --reset-gpu-clocks lets it go\n", stderr);
    ng_nvml_close(&s->nvml);
    ng_validation_free(&s->validation);
    ng_side_free(&s->side);
    ng_side_free(&s->baseline);
    for (size_t i = 0; i < s->runs; i++)
        free(s->paths[i]);
    if (s->scratch) ng_remove_scratch(s->folder);
    else free(s->folder);
    free(s->goldens);
}

int ng_command_validate(const ng_program *program, int argc, char **argv) {
    ng_error error = {0};
    ng_option *table = NULL;
    size_t count = 0;
    int exit_status = NG_EXIT_OK;
    char line[sizeof error.text + 32];
    session *s = calloc(1, sizeof *s);
    if (!s) return ng_no_verdict(program, "validate", "out of memory");
    s->program = program;
    s->options = (validate_options){.run = ng_default_options(), .store = NG_BASELINE_STORE, .slowdown = 5, .most = 10};
    ng_status status = ng_nested_options(own_rows, OWN_ROWS, not_taken, &table, &count, &error);
    if (!status) status = ng_args_parse(table, count, argc, argv, &s->options, &s->args, &error);
    if (!status && s->args.help) {
        ng_command_usage(stdout, program, "validate",
                         "Accepts or rejects a driver, a library or a GPU: runs a level, compares bits with goldens and with a baseline, errors with\n"
                         "their bounds, time with the baseline's. The last line is ACCEPT (exit 0), REVIEW (1: bits moved inside their bounds),\n"
                         "REJECT (1) or NO VERDICT (2), each with its reasons.");
        ng_args_help(stdout, table, count);
        goto done;
    }
    if (!status) status = prepare(s, &error);
    if (!status) status = run_all(s, &error);
    if (!status) status = conclude(s, &exit_status, &error);
done:
    end_session(s);
    ng_args_free(table, count, &s->options, &s->args);
    free(table);
    free(s);
    if (!status) return exit_status;
    snprintf(line, sizeof line, "NO VERDICT: %s", error.text);
    return ng_no_verdict(program, "validate", line);
}
