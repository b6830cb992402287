/* What one case came to: the record's `cases[]` entry (reports/report.schema.json) before it is JSON. */
#ifndef NG_HARNESS_RESULT_H
#define NG_HARNESS_RESULT_H

#include "harness/case.h"
#include "reference/quantize.h" /* ng_tier */

typedef enum ng_verdict {
    NG_PASS, NG_FAIL, NG_MOVED, NG_CRASH, NG_TIMEOUT, NG_SKIP, NG_XFAIL, NG_XPASS, NG_FLAKE, NG_VACUOUS,
    NG_VERDICTS,
} ng_verdict;

extern const char *const ng_verdict_names[NG_VERDICTS];

typedef struct ng_error_figures {
    bool present;
    double max_abs, max_rel, max_ulp; /* over finite elements; max_rel over non-zero exact values */
    double rms_rel;      /* sqrt(sum e^2 / sum c^2) */
    double bias;         /* sum sgn(c) (computed - c) / sum |c| */
    double sqnr_db;      /* 10 log10(sum c^2 / sum e^2); infinity where there is no error */
    double bound_ratio;  /* max |error| / bound, cast included; >= 1 fails; NaN where there is no bound */
    double expected_ratio; /* the same against the expected bound; NaN: none applies */
    int64_t worst[2];    /* where bound_ratio (or, without one, max_abs) is reached */
    double worst_computed, worst_exact, worst_bound;
    int64_t nonfinite_mismatch; /* NaN, Inf or sign-of-zero results that differ in kind from the exact one */
    int64_t beyond_bound;       /* elements at or beyond the bound */
    int64_t checked, elements;
    int64_t by_tier[NG_TIERS];
} ng_error_figures;

typedef struct ng_prediction {
    bool present;
    int64_t elements, differ;
    int64_t first[2];      /* where the first differing element is */
    char model[96];        /* "hopper-wgmma-fp8, promoted every 128" */
} ng_prediction;

enum { NG_SPEED_PARTS = 6 };
typedef struct ng_speed {
    bool present;
    double median_s, q1_s, q3_s;
    int samples;
    double flop, bytes;    /* of the operation, whole problem as launched */
    double rate;           /* flop/s where flop > 0, else bytes/s */
    double roofline;       /* fraction of the ceiling of the same run; NaN unknown */
    struct { char name[24]; double median_s; } parts[NG_SPEED_PARTS];
    int part_count;
    char algorithm[160];
    char method[64];       /* "graph of 24 launches, 6 sets in turn"; empty on a CPU */
    double sm_mhz_before, sm_mhz_after; /* the GPU's clock around the samples; NaN unknown */
    char throttle[96];     /* why it was not higher: "none", "power cap, thermal"; empty: unknown */
} ng_speed;

/* One of a kernel's algorithms for the problem. */
typedef struct ng_variant_result {
    char algorithm[160];
    int64_t differ;     /* elements that are not as predicted; -1: not predicted */
    double bound_ratio; /* NaN: no bound */
    double median_s;    /* NaN: not timed */
    char digest[33];
} ng_variant_result;
enum { NG_VARIANTS = 16 };

/* How a kernel's own random words rounded, beside the probabilities that its contract states. */
typedef struct ng_draw_figures {
    bool present;
    int64_t draws;            /* elements that may go either way */
    double analytic_bias_ulp; /* mean of P(up) - d, d the exact fraction of a step: what the form and its r bits cost; NaN: not known */
    double measured_bias_ulp; /* mean of up - d */
    double shift;             /* mean of up - P(up): 0 but for chance */
    double alarm;             /* |shift| beyond which the kernel is accused */
    double false_alarm;       /* of a right kernel, over all sums that are looked at: at most */
    double detectable;        /* a shift of every probability by this much is found 999 times in 1,000 */
} ng_draw_figures;

typedef struct ng_result {
    ng_verdict verdict;
    char reason[512];      /* one line; empty for a plain pass */
    ng_error_figures error;        /* kernel error */
    ng_error_figures recipe_error; /* against the unquantized operands */
    ng_prediction prediction;
    ng_speed speed;
    char digest[33];       /* XXH3-128 of the outputs, hexadecimal */
    char golden[8];        /* "match", "differ", "absent", "unset" */
    bool nondeterministic;
    ng_draw_figures stochastic;
    double saturated, flushed; /* fractions of quantized elements; NaN where not measured */
    double verify_s;       /* what checking took */
    ng_variant_result variants[NG_VARIANTS]; /* the first is the one that the other members tell of */
    int variant_count;     /* 0: the kernel has one way only */
} ng_result;

#endif
