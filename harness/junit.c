#include "harness/junit.h"
#include "harness/text.h"

#include <math.h>
#include <string.h>

/* XML 1.0 (2.2): no control character but tab and line ends, no U+FFFE and U+FFFF; what is not allowed becomes U+FFFD. */
static void print_xml(FILE *out, const char *text) {
    while (*text) {
        size_t length = ng_utf8_length(text);
        unsigned char c = (unsigned char)*text;
        bool forbidden = !length || (c < 0x20 && !strchr("\t\n\r", c)) || !strncmp(text, "\xEF\xBF\xBE", 3) ||
                         !strncmp(text, "\xEF\xBF\xBF", 3);
        if (forbidden) fputs("\xEF\xBF\xBD", out);
        else if (c == '&') fputs("&amp;", out);
        else if (c == '<') fputs("&lt;", out);
        else if (c == '>') fputs("&gt;", out);
        else if (c == '"') fputs("&quot;", out);
        else if (c < 0x20) fprintf(out, "&#%d;", c);
        else fwrite(text, 1, length, out);
        text += length ? length : 1;
    }
}

static void print_attribute(FILE *out, const char *name, const char *value) {
    fprintf(out, " %s=\"", name);
    print_xml(out, value);
    fputc('"', out);
}

static void print_property(FILE *out, const char *name, const char *value) {
    fputs("      <property", out);
    print_attribute(out, "name", name);
    print_attribute(out, "value", value);
    fputs("/>\n", out);
}

static void print_number(FILE *out, const char *name, double value) {
    char text[32];
    if (!isfinite(value)) return;
    snprintf(text, sizeof text, "%.17g", value);
    print_property(out, name, text);
}

static void print_properties(FILE *out, const ng_run_record *run, const ng_result *result) {
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)run->seed);
    fputs("    <properties>\n", out);
    print_property(out, "status", ng_verdict_names[result->verdict]);
    print_property(out, "seed", seed);
    if (result->error.present) print_number(out, "bound_ratio", result->error.bound_ratio);
    if (result->prediction.present) print_number(out, "prediction_differ", (double)result->prediction.differ);
    if (result->speed.present) print_number(out, "median_s", result->speed.median_s);
    if (*result->digest) print_property(out, "digest", result->digest);
    fputs("    </properties>\n", out);
}

typedef enum junit_kind { JUNIT_PASS, JUNIT_SKIPPED, JUNIT_FAILURE, JUNIT_ERROR } junit_kind;

/* JUnit knows four outcomes: an expected failure counts as skipped, whatever gates as failure, a lost process as error. */
static const junit_kind kinds[NG_VERDICTS] = {
    [NG_PASS] = JUNIT_PASS,     [NG_FLAKE] = JUNIT_PASS,     [NG_SKIP] = JUNIT_SKIPPED,    [NG_XFAIL] = JUNIT_SKIPPED,
    [NG_FAIL] = JUNIT_FAILURE,  [NG_MOVED] = JUNIT_FAILURE,  [NG_XPASS] = JUNIT_FAILURE,   [NG_VACUOUS] = JUNIT_FAILURE,
    [NG_CRASH] = JUNIT_ERROR,   [NG_TIMEOUT] = JUNIT_ERROR,
};

static void print_outcome(FILE *out, const ng_run_record *run, size_t i, junit_kind kind) {
    static const char *const elements[] = {"", "skipped", "failure", "error"};
    const ng_result *result = &run->results[i];
    char repro[NG_REPRO_BYTES];
    if (kind == JUNIT_PASS) return;
    fprintf(out, "    <%s", elements[kind]);
    print_attribute(out, "message", result->reason);
    if (kind == JUNIT_SKIPPED) {
        fputs("/>\n", out);
        return;
    }
    ng_repro(run, i, repro, sizeof repro);
    print_attribute(out, "type", ng_verdict_names[result->verdict]);
    fputc('>', out);
    print_xml(out, repro);
    fprintf(out, "</%s>\n", elements[kind]);
}

static double seconds_of(const ng_result *result) { return isfinite(result->verify_s) ? result->verify_s : 0; }

static void print_case(FILE *out, const ng_run_record *run, size_t i) {
    const ng_case *one = &run->list->cases[i];
    const ng_result *result = &run->results[i];
    char classname[128];
    snprintf(classname, sizeof classname, "%.64s/%s", one->suite ? one->suite : "", ng_op_names[one->kernel->op]);
    fputs("  <testcase", out);
    print_attribute(out, "classname", classname);
    print_attribute(out, "name", one->id);
    fprintf(out, " time=\"%.6f\">\n", seconds_of(result));
    print_properties(out, run, result);
    print_outcome(out, run, i, kinds[result->verdict]);
    fputs("  </testcase>\n", out);
}

static void print_counts(FILE *out, const ng_run_record *run) {
    size_t counts[4] = {0};
    double seconds = 0;
    for (size_t i = 0; i < run->list->count; i++) {
        counts[kinds[run->results[i].verdict]]++;
        seconds += seconds_of(&run->results[i]);
    }
    fprintf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\" time=\"%.6f\"", run->list->count,
            counts[JUNIT_FAILURE], counts[JUNIT_ERROR], counts[JUNIT_SKIPPED], seconds);
}

void ng_junit_write(FILE *out, const ng_run_record *run) {
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)run->seed);
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"narrowgauge\"", out);
    print_counts(out, run);
    fputs(">\n<testsuite name=\"narrowgauge\"", out);
    print_counts(out, run);
    fprintf(out, " timestamp=\"%.19s\" hostname=\"%s\">\n", run->started, run->fingerprint->host);
    fputs("    <properties>\n", out);
    print_property(out, "run", run->id);
    print_property(out, "level", ng_level_names[run->level]);
    print_property(out, "seed", seed);
    for (size_t i = 0; run->tags && i < run->tags->count; i++)
        print_property(out, "tag", run->tags->items[i]);
    fputs("    </properties>\n", out);
    for (size_t i = 0; i < run->list->count; i++)
        print_case(out, run, i);
    fputs("</testsuite>\n</testsuites>\n", out);
}
