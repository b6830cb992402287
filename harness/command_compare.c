/* `compare`: what changed between runs. */
#include "harness/command.h"
#include "harness/compare.h"
#include "harness/output.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct compare_words {
    ng_texts baselines;
    const char *json, *markdown;
    int64_t slowdown, most;
    bool across_builds, allow_moved, quiet;
} compare_words;

#define AT(member) .offset = offsetof(compare_words, member)

static const ng_option rows[] = {
    {"baseline", 'a', NG_TEXTS, "FILE", "a record of side A; may be given several times. Then all FILEs named without an option are side B's", AT(baselines)},
    {"json", 'o', NG_TEXT, "FILE|-", "everything that was found, as JSON", AT(json)},
    {"markdown", 0, NG_TEXT, "FILE|-", "the same for a pull request", AT(markdown)},
    {"allow-moved", 0, NG_FLAG, NULL, "bits that moved inside their bounds are no regression", AT(allow_moved)},
    {"across-builds", 0, NG_FLAG, NULL, "compare runs of other builds of the kernels", AT(across_builds)},
    {"slowdown", 0, NG_COUNT, "PERCENT", "the least change of time that counts (default 5)", AT(slowdown), .least = 1, .most = 1000},
    {"most", 0, NG_COUNT, "N", "lines printed of each kind of change (default 10)", AT(most), .least = 1, .most = 1000000},
    {"quiet", 'q', NG_FLAG, NULL, "print nothing but errors", AT(quiet)},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* compare A B, or compare --baseline A1 --baseline A2 B1 B2. */
static ng_status read_sides(const compare_words *w, const ng_args *args, ng_side *a, ng_side *b, ng_error *error) {
    const ng_texts *files = &args->operands;
    bool named = w->baselines.count > 0;
    if (!named && files->count != 2)
        return ng_fail(error, NG_BAD_ARGUMENT, "two records are compared, A.json B.json; several of a side: --baseline A1.json --baseline A2.json B1.json B2.json");
    if (named && !files->count) return ng_fail(error, NG_BAD_ARGUMENT, "--baseline names side A; which records are side B?");
    ng_status status = ng_side_read(named ? w->baselines.items : files->items, named ? w->baselines.count : 1, a, error);
    if (!status) status = ng_side_read(named ? files->items : files->items + 1, named ? files->count : 1, b, error);
    return status;
}

static ng_status write_json(const char *path, const ng_comparison *c, const ng_compare_options *o, ng_error *error) {
    ng_output output = {0};
    ng_status status = ng_output_open(path, &output, error);
    if (!status && output.stream) {
        ng_json json = {.out = output.stream, .break_depth = 2};
        ng_json_object(&json, NULL);
        ng_json_text(&json, "schema", "narrowgauge.comparison/1");
        ng_comparison_json(&json, c, o);
        ng_json_end_object(&json);
        fputc('\n', output.stream);
        status = ng_output_commit(&output, error);
    }
    ng_output_discard(&output);
    return status;
}

static ng_status write_markdown(const char *path, const ng_comparison *c, const ng_compare_options *o, ng_error *error) {
    ng_output output = {0};
    ng_status status = ng_output_open(path, &output, error);
    if (!status && output.stream) {
        ng_comparison_markdown(output.stream, c, o, "narrowgauge compare");
        status = ng_output_commit(&output, error);
    }
    ng_output_discard(&output);
    return status;
}

static ng_status compare(const compare_words *w, const ng_args *args, int *exit_status, ng_error *error) {
    const ng_compare_options options = {w->across_builds, w->allow_moved, 1 + 0.01 * (double)w->slowdown};
    ng_side a = {0}, b = {0};
    ng_comparison c = {0};
    bool taken = (w->json && !strcmp(w->json, "-")) || (w->markdown && !strcmp(w->markdown, "-"));
    ng_status status = w->json && w->markdown && !strcmp(w->json, w->markdown)
                           ? ng_fail(error, NG_BAD_ARGUMENT, "two outputs cannot both go to %s", strcmp(w->json, "-") ? w->json : "standard output")
                           : read_sides(w, args, &a, &b, error);
    if (!status) status = ng_compare(&a, &b, &options, &c, error);
    if (!status) status = write_json(w->json, &c, &options, error);
    if (!status) status = write_markdown(w->markdown, &c, &options, error);
    if (!status && !w->quiet) ng_comparison_print(taken ? stderr : stdout, &c, &options, (size_t)w->most);
    if (!status) *exit_status = ng_gating(&c, &options) ? NG_EXIT_REGRESSION : NG_EXIT_OK;
    ng_comparison_free(&c);
    ng_side_free(&a);
    ng_side_free(&b);
    return status;
}

int ng_command_compare(const ng_program *program, int argc, char **argv) {
    compare_words words = {.slowdown = 5, .most = 10};
    ng_args args = {.takes_operands = true};
    ng_error error = {0};
    int exit_status = NG_EXIT_OK;
    ng_status status = ng_args_parse(rows, ROWS, argc, argv, &words, &args, &error);
    if (!status && args.help) {
        ng_command_usage(stdout, program, "compare A.json B.json",
                         "Compares the records of runs of the same cases. Exit 1: a bound, determinism or a case was lost, bits moved, or a\n"
                         "slowdown was confirmed by at least three records of either side. Another driver alone is exit 0.");
        ng_args_help(stdout, rows, ROWS);
    } else if (!status) status = compare(&words, &args, &exit_status, &error);
    ng_args_free(rows, ROWS, &words, &args);
    return status ? ng_no_verdict(program, "compare", error.text) : exit_status;
}
