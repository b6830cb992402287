/* The history at the size that it is made for: 1,000 runs of 2,000 cases. Floors: 300 MB, one second for a trend.
 *
 * Times differ in every run, results change for all cases once in a hundred runs, and one case in fifty is nondeterministic. */
#include "harness/history.h"
#include "harness/terminal.h"
#include "harness/trend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUNS = 1000, CASES = 2000, EPOCH = 100 };

static uint64_t state = 1;
static double uniform(void) { /* splitmix64, Steele, Lea and Flood 2014 */
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int write_record(const char *path) {
    FILE *out = fopen(path, "w");
    if (!out) return -1;
    fputs("{\"schema\": \"narrowgauge.report/1\", \"run\": {\"id\": \"0\", \"started\": \"\", \"level\": \"nightly\", \"seed\": 1, \"argv\": [], \"tags\": {}},\n"
          "\"fingerprint\": {\"host\": \"0123456789abcdef\", \"gpu\": {\"name\": \"a GPU\", \"sm\": 90, \"uuid\": \"GPU-0\"}, \"driver\": \"1.2\"}, \"cases\": [\n", out);
    for (int c = 0; c < CASES; c++)
        fprintf(out, "%s{\"id\": \"gemm/e4m3/cuda/synthetic-kernel-%d/fprop/some-model.mlp_down/512x4096x14336/normal/prequantized\", \"kernel\": \"k\","
                     " \"status\": \"pass\", \"reason\": \"\", \"digest\": \"00000000000000000000000000000000\", \"golden\": \"match\", \"prediction\": null, \"nondeterministic\": false, \"variants\": [],\n"
                     " \"error\": {\"bound_ratio\": 0.5, \"sqnr_db\": 50, \"tier\": {}}, \"recipe_error\": {\"sqnr_db\": 28.5, \"tier\": {}}, \"speed\": {\"median_s\": 1e-3, \"parts\": {}}}",
                c ? ",\n" : "", c);
    fputs("]}\n", out);
    return fclose(out);
}

static void vary(ng_record_file *record, int run, char id[33], char started[32]) {
    snprintf(id, 33, "%032x", run + 1);
    snprintf(started, 32, "20%02d-%02d-%02dT02:00:00Z", run / 336, run / 28 % 12 + 1, run % 28 + 1);
    record->run = id;
    record->started = started;
    for (size_t c = 0; c < record->count; c++) {
        ng_result *r = &record->cases[c].result;
        unsigned epoch = c % 50 ? (unsigned)(run / EPOCH) : (unsigned)run;
        r->nondeterministic = c % 50 == 0;
        snprintf(r->digest, sizeof r->digest, "%016x%016zx", epoch, c);
        r->error.bound_ratio = 0.5 + 0.001 * epoch;
        r->speed.present = true;
        r->speed.median_s = (1e-3 + 1e-6 * (double)c) * (1 + 0.01 * uniform() + (run > 700 && c == 7 ? 0.05 : 0));
        r->speed.q1_s = r->speed.median_s * (1 - 0.002 * uniform());
        r->speed.q3_s = r->speed.median_s * (1 + 0.002 * uniform());
    }
}

static ng_status count_turns(void *context, const char *id, const ng_history_point *points, size_t count, ng_error *error) {
    size_t *turns = context;
    ng_trend trend;
    (void)id;
    ng_status status = ng_trend_find(points, count, 0.01, 0.02, &trend, error);
    *turns += trend.turn_count;
    ng_trend_free(&trend);
    return status;
}

static ng_status measure(const char *path, const char *pattern, double *seconds, size_t *turns, ng_error *error) {
    ng_history *history = NULL;
    ng_history_run *runs = NULL;
    size_t run_count = 0, matches;
    double began = ng_monotonic_s();
    *turns = 0;
    ng_status status = ng_history_open(path, NG_HISTORY_READ, 1, &history, error);
    if (!status) status = ng_history_runs(history, &runs, &run_count, error);
    const ng_history_query query = {.pattern = pattern};
    if (!status) status = ng_history_each(history, &query, runs, run_count, count_turns, turns, &matches, error);
    *seconds = ng_monotonic_s() - began;
    ng_history_close(history);
    free(runs);
    return status;
}

int main(int argc, char **argv) {
    char folder[] = "/var/tmp/ng-history-XXXXXX", path[64], source[64], id[33], started[32];
    int runs = argc > 1 ? atoi(argv[1]) : RUNS;
    ng_error error = {0};
    ng_history *history = NULL;
    ng_record_file record = {0};
    bool added;
    double one = 0, all = 0, began;
    size_t turns, all_turns;
    struct stat info = {0};
    if (!mkdtemp(folder)) return perror(folder), 1;
    snprintf(path, sizeof path, "%s/history.db", folder);
    snprintf(source, sizeof source, "%s/record.json", folder);
    ng_status status = write_record(source) ? ng_fail(&error, NG_IO, "%s: cannot be written", source) : ng_record_read(source, &record, &error);
    if (!status) status = ng_history_open(path, NG_HISTORY_WRITE, 1, &history, &error);
    began = ng_monotonic_s();
    for (int run = 0; run < runs && !status; run++) {
        vary(&record, run, id, started);
        status = ng_history_add(history, &record, &added, &error);
    }
    double adding = ng_monotonic_s() - began;
    ng_history_close(history);
    if (!status) status = measure(path, "gemm/e4m3/cuda/synthetic-kernel-7/*", &one, &turns, &error);
    if (!status) status = measure(path, "*", &all, &all_turns, &error);
    if (!status && !stat(path, &info)) {
        printf("%d runs of %d cases: %.1f MB, %.1f ms to add one\n", runs, CASES, 1e-6 * (double)info.st_size, 1e3 * adding / runs);
        printf("trend of one case: %.3f s, %zu changes found; of all: %.2f s, %zu changes\n", one, turns, all, all_turns);
        if (1e-6 * (double)info.st_size > 300 || one > 1) status = ng_fail(&error, NG_INTERNAL, "a floor is missed: 300 MB, 1 s");
    }
    if (status) fprintf(stderr, "bench_history: %s\n", error.text);
    ng_record_free(&record);
    unlink(path);
    unlink(source);
    rmdir(folder);
    return status != NG_OK;
}
