/* What changed between two sides, each the records of one or more runs of the same cases.
 *
 * Numerics are deterministic, so one record a side is enough and any difference is real. Speed is not: a slowdown counts only
 * where at least NG_REPEATS runs of either side agree (compare_speed.c). */
#ifndef NG_HARNESS_COMPARE_H
#define NG_HARNESS_COMPARE_H

#include "harness/record_read.h"

enum { NG_REPEATS = 3 };

/* In order of weight: those that a reader must see come first. */
typedef enum ng_change {
    NG_CHANGE_BOUND,       /* an error outside its bound, or any other failure, that was none */
    NG_CHANGE_CRASH,       /* a case that crashes or exceeds its time */
    NG_CHANGE_CONVERGENCE, /* a recipe's training that fails where it did not */
    NG_CHANGE_DETERMINISM, /* other bits from run to run where they were the same */
    NG_CHANGE_LOST,        /* a case that ran and is not there, or is skipped */
    NG_CHANGE_SLOWER,      /* confirmed */
    NG_CHANGE_MOVED,       /* other bits, inside the bound */
    NG_CHANGE_VACUOUS,     /* a check that can no longer fail */
    NG_CHANGE_XPASS,       /* an expected failure that is none any more */
    /* what does not gate */
    NG_CHANGE_FLAKE,       /* failed once and passed when run again */
    NG_CHANGE_STILL,       /* fails on both sides */
    NG_CHANGE_FIXED,       /* failed before, passes */
    NG_CHANGE_GREW,        /* error / bound larger by a tenth or more */
    NG_CHANGE_SHRANK,
    NG_CHANGE_FASTER,
    NG_CHANGE_AMBIGUOUS,   /* time may have changed: no verdict from these samples */
    NG_CHANGE_APPEARED,
    NG_CHANGES,
} ng_change;

typedef struct ng_change_word {
    const char *word, *title; /* "slower", "Slower, confirmed" */
    bool gates;
} ng_change_word;
extern const ng_change_word ng_change_words[NG_CHANGES];

typedef struct ng_finding {
    ng_change change;
    const char *id;     /* of the case; "" for what concerns all */
    char detail[400];   /* one line */
    double size;        /* the larger the worse, within a change */
    const char *repro;
} ng_finding;

typedef struct ng_fact_change {
    char name[96];      /* "driver" */
    char a[160], b[160];
} ng_fact_change;

typedef enum ng_pace { NG_SAME, NG_FASTER, NG_SLOWER, NG_AMBIGUOUS, NG_PACES } ng_pace;
extern const char *const ng_pace_names[NG_PACES];

typedef struct ng_side {
    const ng_record_file *records;
    size_t count;
} ng_side;

typedef struct ng_comparison {
    ng_side a, b;
    ng_fact_change *facts;
    size_t fact_count;
    ng_finding *findings;       /* by change, then by size */
    size_t finding_count;
    size_t counts[NG_CHANGES];
    size_t cases[2], common, same_bits, timed;
    size_t paces[NG_PACES];
    size_t suspects;            /* cases that look slower, unconfirmed */
    char speed_note[300];       /* why no slowdown could be confirmed; "" */
} ng_comparison;

typedef struct ng_compare_options {
    bool across_builds;         /* kernels of different builds */
    bool allow_moved;           /* moved bits do not gate */
    double slowdown;            /* least ratio of times that counts, 1.05 */
} ng_compare_options;

/* NG_BAD_ARGUMENT: cannot be compared, with the reason (another architecture, level, seed, build of the kernels). */
ng_status ng_compare(const ng_side *a, const ng_side *b, const ng_compare_options *options, ng_comparison *comparison,
                     ng_error *error);
void ng_comparison_free(ng_comparison *comparison);

/* Whether a finding makes the comparison a regression. */
bool ng_finding_gates(const ng_finding *finding, const ng_compare_options *options);
size_t ng_gating(const ng_comparison *comparison, const ng_compare_options *options);

/* The finding of that kind about that case; NULL: none. */
const ng_finding *ng_finding_of(const ng_comparison *comparison, ng_change change, const char *id);
ng_status ng_add_finding(ng_comparison *comparison, ng_change change, const char *id, const char *repro, double size,
                         ng_error *error, const char *format, ...) __attribute__((format(printf, 7, 8)));
void ng_sort_findings(ng_comparison *comparison);

/* Reads records: each path is one. The side's records belong to the caller. */
ng_status ng_side_read(const char *const *paths, size_t count, ng_side *side, ng_error *error);
void ng_side_free(ng_side *side);

/* ---- training: compare_training.c ------------------------------------------------------------------------------------*/
ng_status ng_compare_training(ng_comparison *comparison, ng_error *error);

/* ---- speed: compare_speed.c ---------------------------------------------------------------------------------------*/
ng_status ng_compare_speed(ng_comparison *comparison, const ng_compare_options *options, ng_error *error);

/* ---- output: compare_print.c --------------------------------------------------------------------------------------*/
void ng_comparison_print(FILE *out, const ng_comparison *comparison, const ng_compare_options *options, size_t most);
void ng_comparison_json(ng_json *json, const ng_comparison *comparison, const ng_compare_options *options);
void ng_comparison_markdown(FILE *out, const ng_comparison *comparison, const ng_compare_options *options, const char *title);

#endif
