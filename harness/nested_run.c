#include "harness/nested_run.h"
#include "harness/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_among(const char *name, const ng_option *options, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(options[i].name, name)) return true;
    return false;
}

ng_status ng_nested_options(const ng_option *own, size_t own_count, const char *const *without, ng_option **table, size_t *count,
                            ng_error *error) {
    *count = 0;
    *table = calloc(own_count + ng_run_option_count, sizeof **table);
    if (!*table) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < own_count; i++)
        (*table)[(*count)++] = own[i];
    for (size_t i = 0; i < ng_run_option_count; i++) {
        size_t w = 0;
        while (without[w] && strcmp(without[w], ng_option_rows[i].name))
            w++;
        if (!without[w] && !is_among(ng_option_rows[i].name, own, own_count)) (*table)[(*count)++] = ng_option_rows[i];
    }
    return NG_OK;
}

/* What a nested run prints goes to standard error: the command's own result has standard output for itself. */
static int run_aside(const ng_program *program, int argc, char **argv) {
    fflush(stdout);
    int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    int exit_status = ng_command_run(program, argc, argv);
    fflush(stdout);
    if (kept >= 0) {
        dup2(kept, STDOUT_FILENO);
        close(kept);
    }
    return exit_status;
}

ng_status ng_nested_run(const ng_program *program, const ng_option *own, size_t own_count, const ng_args *args,
                        const char *const *words, int *exit_status, ng_error *error) {
    size_t more = 0, n = 0;
    while (words[more])
        more++;
    char **argv = calloc(args->count + more + 3, sizeof *argv);
    if (!argv) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = NG_OK;
    argv[n++] = strdup(program->name);
    argv[n++] = strdup("run");
    for (size_t i = 0; i < args->count; i++) {
        const ng_given *given = &args->given[i];
        if (is_among(given->option->name, own, own_count)) continue;
        char *word = NULL;
        if (asprintf(&word, "--%s%s%s", given->option->name, given->value ? "=" : "", given->value ? given->value : "") < 0)
            word = NULL;
        argv[n++] = word;
    }
    for (size_t w = 0; w < more; w++)
        argv[n++] = strdup(words[w]);
    for (size_t i = 0; i < n; i++)
        if (!argv[i]) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!status) *exit_status = run_aside(program, (int)n - 1, argv + 1);
    for (size_t i = 0; i < n; i++)
        free(argv[i]);
    free(argv);
    return status;
}

ng_status ng_make_scratch(char **folder, ng_error *error) {
    const char *base = getenv("TMPDIR");
    if (asprintf(folder, "%s/narrowgauge-XXXXXX", base && *base ? base : "/tmp") < 0) {
        *folder = NULL;
        return ng_fail(error, NG_NO_MEMORY, "out of memory");
    }
    if (mkdtemp(*folder)) return NG_OK;
    ng_status status = ng_fail(error, NG_IO, "%s: cannot be made: %s", *folder, strerror(errno));
    free(*folder);
    *folder = NULL;
    return status;
}

void ng_remove_scratch(char *folder) {
    char **names, *path = NULL;
    size_t count;
    if (!folder) return;
    if (!ng_list_folder(folder, "", &names, &count, NULL)) {
        for (size_t i = 0; i < count; i++) {
            const char *ending = strrchr(names[i], '.');
            if ((ending && !strcmp(ending, ".journal")) || asprintf(&path, "%s/%s", folder, names[i]) < 0) continue;
            unlink(path);
            free(path);
        }
        ng_free_names(names, count);
    }
    rmdir(folder);
    free(folder);
}
