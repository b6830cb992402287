/* The history: steps found and none invented; runs added whole, once, by several writers, and through kills; bad files named. */
#include "harness/steps.h"
#include "suites/test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name, char path[256]) {
    if (!*folder) {
        snprintf(folder, sizeof folder, "/tmp/ng-history-XXXXXX");
        cr_assert_not_null(mkdtemp(folder));
    }
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

/* ---- steps --------------------------------------------------------------------------------------------------------*/
static uint64_t state;
static double uniform(void) { /* splitmix64, Steele, Lea and Flood 2014 */
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}
static double noise(void) { return uniform() + uniform() + uniform() - 1.5; } /* deviation 1/2 */

static size_t steps_of(const double *values, size_t count, size_t *first) {
    ng_error error = {0};
    ng_step *steps = NULL;
    size_t found = 0;
    cr_assert_eq(ng_find_steps(values, count, 0.01, 0.02, &steps, &found, &error), NG_OK, "%s", error.text);
    *first = found ? steps[0].at : 0;
    free(steps);
    return found;
}

/* At most one series in a hundred; more than 9 of 200 have a probability below 10^-4 then. */
static void no_steps_in_noise(void) {
    size_t accused = 0, first;
    double values[80];
    state = 1;
    for (int series = 0; series < 200; series++) {
        for (int i = 0; i < 80; i++)
            values[i] = 1 + 0.06 * noise();
        accused += steps_of(values, 80, &first) > 0;
    }
    cr_assert_leq(accused, 9, "%zu of 200 series without a step accused", accused);
}

static void steps_are_found(void) {
    double values[60];
    size_t first;
    state = 2;
    for (int series = 0; series < 50; series++) {
        size_t at = 15 + (size_t)(uniform() * 30);
        for (size_t i = 0; i < 60; i++)
            values[i] = (i < at ? 1 : 1.05) + 0.02 * noise();
        cr_assert_eq(steps_of(values, 60, &first), 1, "series %d: no single step", series);
        cr_assert(first + 1 >= at && first <= at + 1, "series %d: a step at %zu, found at %zu", series, at, first);
    }
}

/* Mann and Whitney's U of 4 and 4 values: 2 of 70 arrangements have |U - 8| >= 8 (Mann and Whitney 1947, table I). */
static void rank_sums(void) {
    double p = ng_rank_sum_tail(4, 4, 8);
    cr_assert(p >= 2.0 / 70 - 1e-12 && p < 0.2, "%g", p);
    cr_assert_leq(ng_rank_sum_tail(30, 30, 450), 1e-9);
}

/* ---- the program ----------------------------------------------------------------------------------------------------*/
static int run_quietly(const char *arguments, char *output, size_t bytes) {
    char command[2048];
    snprintf(command, sizeof command, "%s %s 2>&1", NG_PROGRAM, arguments);
    FILE *pipe = popen(command, "r");
    size_t used = 0;
    cr_assert_not_null(pipe);
    for (int c; (c = fgetc(pipe)) != EOF;)
        if (output && used + 1 < bytes) output[used++] = (char)c;
    if (output) output[used] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static char *contents(const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    char *text = calloc(1, (size_t)size + 1);
    rewind(file);
    cr_assert(text && fread(text, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    return text;
}

enum { RUNS = 24 };

/* RUNS records: one real run under as many ids. */
static void make_records(void) {
    char base[256], path[256], arguments[512];
    snprintf(arguments, sizeof arguments, "run --filter 'cast/fp32->e4m3/cpu/*' --no-speed --quiet --json %s", in_folder("base.json", base));
    cr_assert_eq(run_quietly(arguments, NULL, 0), 0);
    char *text = contents(base), *id = strstr(text, "\"id\"");
    cr_assert_not_null(id);
    id = strchr(strchr(id, ':'), '"') + 1;
    for (int i = 0; i < RUNS; i++) {
        char name[32];
        snprintf(name, sizeof name, "r%d.json", i);
        FILE *file = fopen(in_folder(name, path), "wb");
        cr_assert_not_null(file);
        id[0] = "0123456789abcdef"[i % 16];
        id[1] = "0123456789abcdef"[i / 16];
        cr_assert_eq(fputs(text, file) >= 0, 1);
        cr_assert_eq(fclose(file), 0);
    }
    free(text);
}

static void add_arguments(const char *database, int from, int to, char *arguments, size_t bytes) {
    int used = snprintf(arguments, bytes, "history add -d %s/%s", folder, database);
    for (int i = from; i < to; i++)
        used += snprintf(arguments + used, bytes - (size_t)used, " %s/r%d.json", folder, i);
}

static int listed(const char *database) {
    char arguments[256], output[16384];
    int runs = -1;
    snprintf(arguments, sizeof arguments, "history list -n 1000 -d %s/%s", folder, database);
    cr_assert_eq(run_quietly(arguments, output, sizeof output), 0, "%s", output);
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n"))
        sscanf(line, "%d runs", &runs);
    return runs;
}

static int count(const char *text, const char *word) {
    int found = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        found++;
    return found;
}

static void once_each(void) {
    char arguments[2048], output[8192];
    make_records();
    add_arguments("once.db", 0, 6, arguments, sizeof arguments);
    cr_assert_eq(run_quietly(arguments, output, sizeof output), 0, "%s", output);
    cr_assert_eq(count(output, "added "), 6);
    cr_assert_eq(run_quietly(arguments, output, sizeof output), 0);
    cr_assert_eq(count(output, "was there"), 6);
    cr_assert_eq(listed("once.db"), 6);
    snprintf(arguments, sizeof arguments, "history trend -d %s/once.db 'cast/*'", folder);
    cr_assert_eq(run_quietly(arguments, output, sizeof output), 0);
    cr_assert_not_null(strstr(output, "0 with changes"), "%s", output);
}

static void two_writers(void) {
    char arguments[2048];
    make_records();
    pid_t other = fork();
    cr_assert_geq(other, 0);
    add_arguments("two.db", other ? 0 : RUNS / 2, other ? RUNS / 2 : RUNS, arguments, sizeof arguments);
    int rc = run_quietly(arguments, NULL, 0), status = 0;
    if (!other) _exit(rc);
    cr_assert_eq(waitpid(other, &status, 0), other);
    cr_assert(rc == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(listed("two.db"), RUNS);
}

/* What was acknowledged before the kill is there after it, and the file is sound. */
static void kills_lose_nothing(void) {
    char arguments[2048], path[256];
    make_records();
    add_arguments("killed.db", 0, RUNS, arguments, sizeof arguments);
    for (int round = 0; round < 8; round++) {
        in_folder("acknowledged", path);
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (!child) {
            char command[2560];
            snprintf(command, sizeof command, "exec %s %s > %s 2>&1", NG_PROGRAM, arguments, path);
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
            _exit(127);
        }
        usleep((useconds_t)(5000 + 12000 * round));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        char *text = contents(path);
        int acknowledged = count(text, "added ") + count(text, "was there");
        free(text);
        if (access(in_folder("killed.db", path), F_OK) == 0 && acknowledged) cr_assert_geq(listed("killed.db"), acknowledged);
    }
    cr_assert_eq(run_quietly(arguments, NULL, 0), 0);
    cr_assert_eq(listed("killed.db"), RUNS);
}

static void expect_refusal(const char *arguments) {
    char output[4096];
    cr_assert_eq(run_quietly(arguments, output, sizeof output), 2, "%s: %s", arguments, output);
    cr_assert_eq(count(output, "\n"), 1, "%s: not one line: %s", arguments, output);
}

static void bad_files(void) {
    char arguments[2048], path[256];
    make_records();
    FILE *file = fopen(in_folder("foreign.db", path), "wb");
    cr_assert(file && fputs("this is not a database", file) >= 0 && fclose(file) == 0);
    add_arguments("foreign.db", 0, 1, arguments, sizeof arguments);
    expect_refusal(arguments);
    snprintf(arguments, sizeof arguments, "history list -d %s/absent.db", folder);
    expect_refusal(arguments);
    snprintf(arguments, sizeof arguments, "history add -d %s/none/x.db %s/r0.json", folder, folder);
    expect_refusal(arguments);
    file = fopen(in_folder("cut.json", path), "wb");
    cr_assert(file && fputs("{\"schema\": \"narrowgauge.report/1\", \"run\": {", file) >= 0 && fclose(file) == 0);
    snprintf(arguments, sizeof arguments, "history add -d %s/cut.db %s/cut.json", folder, folder);
    expect_refusal(arguments);
}

const ng_test ng_tests[] = {
    {"history", "no steps in noise", no_steps_in_noise, 0},
    {"history", "steps are found", steps_are_found, 0},
    {"history", "rank sums", rank_sums, 0},
    {"history", "each run once", once_each, 0},
    {"history", "two writers", two_writers, 0},
    {"history", "kills lose nothing", kills_lose_nothing, 120},
    {"history", "bad files are named", bad_files, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
