/* The course of one case over the runs of one machine: what changed for certain, and what changed by statistics.
 *
 * Results are deterministic: a case with other bits, another error or another status than in the run before it has changed, and no
 * statistics is needed. Time is not, nor are the results of a kernel that says so of itself: there, steps (harness/steps.h). */
#ifndef NG_HARNESS_TREND_H
#define NG_HARNESS_TREND_H

#include "harness/history.h"
#include "harness/json.h"
#include "harness/steps.h"

typedef enum ng_turn_kind { NG_TURN_STATUS, NG_TURN_ERROR, NG_TURN_BITS, NG_TURN_TIME, NG_TURN_DRIFT, NG_TURNS } ng_turn_kind;
extern const char *const ng_turn_names[NG_TURNS]; /* "status", "error", "bits", "time", "error (nondeterministic)" */

typedef struct ng_turn {
    ng_turn_kind kind;
    size_t at;             /* the first point that is different */
    double before, after;  /* seconds; error over bound; of a status the ng_verdict; of bits 0 */
} ng_turn;

typedef struct ng_trend {
    const ng_history_point *points; /* belong to the caller */
    size_t count;
    ng_turn *turns;                 /* in order of time */
    size_t turn_count;
} ng_trend;

/* false_alarms, least: of ng_find_steps. */
ng_status ng_trend_find(const ng_history_point *points, size_t count, double false_alarms, double least, ng_trend *trend, ng_error *error);
void ng_trend_free(ng_trend *trend);

/* "time 12.3 us -> 13.1 us (+6.5 %)" */
enum { NG_TURN_BYTES = 160 };
void ng_turn_text(const ng_turn *turn, char text[NG_TURN_BYTES]);

/* One object: id, points, turns. */
void ng_trend_json(ng_json *json, const char *id, const ng_trend *trend);

#endif
