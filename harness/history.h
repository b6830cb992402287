/* The history of all runs: an SQLite file to which records are added and from which the course of a case is read.
 *
 * A run appears whole or not at all, and once ng_history_add has returned it is on disk: one transaction a run, rollback
 * journal, synchronous=EXTRA. No write-ahead log: it needs shared memory between all who have the file open, which a network file
 * system, where nightly runs of a cluster meet, does not give. Writers wait for each other. */
#ifndef NG_HARNESS_HISTORY_H
#define NG_HARNESS_HISTORY_H

#include "harness/record_read.h"

typedef struct ng_history ng_history;

typedef enum ng_history_access {
    NG_HISTORY_READ,  /* a file that is not there is NG_IO */
    NG_HISTORY_WRITE, /* makes it */
} ng_history_access;

/* wait_s: how long to wait for another who writes. NG_IO: locked, read-only, no disk; NG_BAD_ARGUMENT: no history, or a newer one. */
ng_status ng_history_open(const char *path, ng_history_access access, double wait_s, ng_history **history, ng_error *error);
void ng_history_close(ng_history *history);

/* *added false: the run was there already. */
ng_status ng_history_add(ng_history *history, const ng_record_file *record, bool *added, ng_error *error);

/* A run as the history knows it. Texts are "" where the record had none. */
typedef struct ng_history_run {
    int64_t id, machine;            /* rows of the file */
    char run[33], started[32], level[16];
    uint64_t seed;
    char host[33], cpu[96], gpu[96], uuid[64];
    char driver[48], cublaslt[48], commit[48], kernels[33];
    bool dirty;
    int64_t cases, statuses[NG_VERDICTS];
} ng_history_run;

/* All runs by the time that they started; to be freed. */
ng_status ng_history_runs(ng_history *history, ng_history_run **runs, size_t *count, ng_error *error);

/* The machine that a record is of, as its runs have it; 0: the history has none. */
ng_status ng_history_machine(ng_history *history, const ng_record_file *record, int64_t *machine, ng_error *error);

/* What a case came to in one run. Figures that do not apply are NaN. */
typedef struct ng_history_point {
    const ng_history_run *run;
    int64_t outcome;                /* equal in runs whose result is equal in everything but time */
    ng_verdict verdict;
    char digest[33];
    bool nondeterministic;
    double bound_ratio, bias, sqnr_db, recipe_sqnr_db; /* of the kernel's error, and of the recipe's */
    double median_s, q1_s, q3_s;
} ng_history_point;

/* Calls `each` with the points, in order of time, of every case whose name is `pattern` or matches it as a glob: those on
 * one machine and seed, which are `machine` and `seed` (machine 0: those of the case's newest run). */
typedef struct ng_history_query {
    const char *pattern;
    int64_t machine;
    uint64_t seed;
    size_t last;                    /* the newest so many points; 0: all */
} ng_history_query;
typedef ng_status (*ng_history_visit)(void *context, const char *id, const ng_history_point *points, size_t count, ng_error *error);
ng_status ng_history_each(ng_history *history, const ng_history_query *query, const ng_history_run *runs, size_t run_count,
                          ng_history_visit each, void *context, size_t *matches, ng_error *error);

#endif
