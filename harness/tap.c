#include "harness/tap.h"

#include <math.h>

void ng_tap_begin(FILE *out, size_t count) {
    fprintf(out, "TAP version 13\n1..%zu\n", count);
    fflush(out);
}

/* A test line's description ends at '#', a directive's text at the line's end. */
static void print_text(FILE *out, const char *text) {
    for (; *text; text++)
        fputc(*text == '#' ? '_' : (unsigned char)*text < 0x20 ? ' ' : *text, out);
}

static bool is_ok(ng_verdict verdict) {
    return verdict == NG_PASS || verdict == NG_SKIP || verdict == NG_FLAKE || verdict == NG_XPASS;
}

static const char *directive(ng_verdict verdict) {
    if (verdict == NG_SKIP) return " # SKIP ";
    return verdict == NG_XFAIL || verdict == NG_XPASS ? " # TODO " : NULL;
}

static void print_member(FILE *out, const char *name, const char *value) {
    fprintf(out, "  %s: ", name);
    ng_json_quote(out, value); /* a JSON string is a YAML scalar */
    fputc('\n', out);
}

static void print_diagnostics(FILE *out, const ng_run_record *run, size_t i) {
    const ng_result *result = &run->results[i];
    char repro[NG_REPRO_BYTES];
    ng_repro(run, i, repro, sizeof repro);
    fprintf(out, "  ---\n  status: %s\n", ng_verdict_names[result->verdict]);
    print_member(out, "reason", result->reason);
    fprintf(out, "  seed: %llu\n", (unsigned long long)run->seed);
    if (result->error.present && isfinite(result->error.bound_ratio))
        fprintf(out, "  bound_ratio: %.17g\n", result->error.bound_ratio);
    if (result->prediction.present)
        fprintf(out, "  prediction_differ: %lld\n", (long long)result->prediction.differ);
    print_member(out, "repro", repro);
    fprintf(out, "  ...\n");
}

void ng_tap_case(FILE *out, const ng_run_record *run, size_t i) {
    const ng_result *result = &run->results[i];
    fprintf(out, "%s %zu - ", is_ok(result->verdict) ? "ok" : "not ok", i + 1);
    print_text(out, run->list->cases[i].id);
    if (directive(result->verdict)) {
        fputs(directive(result->verdict), out);
        print_text(out, result->reason);
    }
    fputc('\n', out);
    if (result->verdict != NG_PASS && result->verdict != NG_SKIP) print_diagnostics(out, run, i);
    fflush(out);
}

void ng_tap_bail_out(FILE *out, const char *reason) {
    fputs("Bail out! ", out);
    print_text(out, reason);
    fputc('\n', out);
}
