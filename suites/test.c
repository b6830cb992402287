/* Runs a program's ng_tests through Criterion and prints numbered TAP 13.
 *
 * Why not TEST() and --tap: Criterion 2.4 prints unnumbered TAP lines in reverse order with the elapsed time in the name,
 * gives parametrised cases one shared name, and re-executes the program for each test, so that rows are found again
 * through criterion_current_test->name. */
#include "suites/test.h"

#include <criterion/hooks.h>
#include <criterion/internal/test.h>
#include <criterion/options.h>
#include <criterion/output.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_current(void) {
    for (size_t i = 0; i < ng_test_count; i++)
        if (!strcmp(ng_tests[i].name, criterion_current_test->name) &&
            !strcmp(ng_tests[i].suite, criterion_current_suite->name)) {
            ng_tests[i].run();
            return;
        }
    cr_assert_fail("no row named %s/%s", criterion_current_suite->name, criterion_current_test->name);
}

static void wrapped(void) {
    criterion_internal_test_setup();
    criterion_internal_test_main(run_current);
    criterion_internal_test_teardown();
}

/* ---- TAP output ---------------------------------------------------------------------------------------------------*/
static void print_line(FILE *out, const char *text) {
    for (; *text && *text != '\n'; text++)
        fputc(*text == '#' ? ' ' : *text, out); /* a test line's name or reason ends at '#' */
}

static void print_failures(FILE *out, const struct criterion_test_stats *test) {
    fprintf(out, "  ---\n  messages:\n");
    for (const struct criterion_assert_stats *a = test->asserts; a; a = a->next) {
        if (a->passed) continue;
        const char *message = a->message ? a->message : "assertion failed";
        fprintf(out, "    - |\n      %s:%u: ", a->file ? a->file : "?", a->line);
        for (; *message; message++) {
            fputc(*message, out);
            if (*message == '\n') fputs("      ", out);
        }
        fputc('\n', out);
    }
    fprintf(out, "  ...\n");
}

static const struct criterion_test_stats *find_stats(const struct criterion_global_stats *stats, const ng_test *row) {
    for (const struct criterion_suite_stats *s = stats->suites; s; s = s->next) {
        if (strcmp(s->suite->name, row->suite)) continue;
        for (const struct criterion_test_stats *t = s->tests; t; t = t->next)
            if (!strcmp(t->test->name, row->name)) return t;
    }
    return NULL;
}

static void print_tap(FILE *out, struct criterion_global_stats *stats) {
    fprintf(out, "TAP version 13\n1..%zu\n", ng_test_count);
    for (size_t i = 0; i < ng_test_count; i++) {
        const ng_test *row = &ng_tests[i];
        const struct criterion_test_stats *t = find_stats(stats, row);
        bool skipped = t && t->test_status == CR_STATUS_SKIPPED;
        bool passed = t && !skipped && t->test_status == CR_STATUS_PASSED;
        fprintf(out, "%s %zu - %s/", passed || skipped ? "ok" : "not ok", i + 1, row->suite);
        print_line(out, row->name);
        if (skipped) {
            fputs(" # SKIP ", out);
            print_line(out, t->message ? t->message : "filtered out");
        }
        fputc('\n', out);
        if (passed || skipped) continue;
        if (!t) fputs("  ---\n  messages: [\"the test did not report\"]\n  ...\n", out);
        else if (t->timed_out) fputs("  ---\n  messages: [\"timed out\"]\n  ...\n", out);
        else if (t->crashed) fprintf(out, "  ---\n  messages: [\"crashed with signal %d\"]\n  ...\n", t->signal);
        else print_failures(out, t);
    }
    fflush(out);
}

int main(int argc, char **argv) {
    /* static: Criterion keeps pointers to them where no leak checker looks */
    static struct criterion_test_extra_data *data;
    static struct criterion_test *tests;
    struct criterion_test_set *set = criterion_initialize();
    data = calloc(ng_test_count, sizeof *data);
    tests = calloc(ng_test_count, sizeof *tests);
    if (!data || !tests) return 2;
    for (size_t i = 0; i < ng_test_count; i++) {
        data[i].lang_ = CR_LANG_C;
        data[i].kind_ = CR_TEST_NORMAL;
        data[i].file_ = __FILE__;
        data[i].line_ = __LINE__;
        data[i].timeout = ng_tests[i].timeout_s > 0 ? ng_tests[i].timeout_s : 60;
        tests[i].name = ng_tests[i].name;
        tests[i].category = ng_tests[i].suite;
        tests[i].test = wrapped;
        tests[i].data = &data[i];
        criterion_register_test(set, &tests[i]);
    }
    criterion_register_output_provider("ngtap", print_tap);
    criterion_add_output("ngtap", "-");
    criterion_options.jobs = 1;
    int result = 0;
    if (criterion_handle_args(argc, argv, true)) result = !criterion_run_all_tests(set);
    criterion_finalize(set);
    return result;
}
