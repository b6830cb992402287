/* What a person reads: one line a case, a summary, the first failures with the line that reproduces them. Nothing moves
 * and nothing is coloured in a pipe; on a terminal nothing wraps. */
#ifndef NG_HARNESS_TERMINAL_H
#define NG_HARNESS_TERMINAL_H

#include "harness/record.h"

typedef struct ng_terminal {
    FILE *out;
    int columns;        /* 0: not a terminal, as wide as need be */
    bool colour;
    bool tensors;       /* quantized tensors of files: what the recipe costs in place of error and bound */
    bool progress;      /* standard error is a terminal */
    bool progress_shown;
    double started_s;   /* monotonic */
    size_t first;       /* cases that were done before this process began */
} ng_terminal;

void ng_terminal_open(FILE *out, ng_terminal *terminal);
void ng_terminal_header(ng_terminal *terminal);
void ng_terminal_case(ng_terminal *terminal, const ng_run_record *run, size_t i);
void ng_terminal_progress(ng_terminal *terminal, size_t done, size_t count);
void ng_terminal_clear_progress(ng_terminal *terminal);
void ng_terminal_failures(const ng_terminal *terminal, const ng_run_record *run);
void ng_terminal_summary(ng_terminal *terminal, const ng_run_record *run, double seconds);

/* Pieces that the model table shares. "-" stands for what is not there. */
enum { NG_FIGURE_BYTES = 32 };
void ng_figure_ratio(double value, char *text);                     /* 0.123 */
void ng_figure_small(double value, char *text);                     /* 1.2e-03 */
void ng_figure_time(double seconds, char *text);                    /* 12.3 us */
void ng_figure_count(double count, char *text);                     /* 65.5k */
void ng_figure_checked(const ng_error_figures *error, char *text);  /* 65.5k/2.10M */
/* Writes text in at most `width` columns, ".." in the middle where it is cut. width <= 0: whole. */
void ng_print_elided(FILE *out, const char *text, int width);
double ng_monotonic_s(void);

/* True for statuses that make a run fail. */
bool ng_verdict_gates(ng_verdict verdict);

#endif
