/* A session of `train`: recipes times seeds, each recipe against the baseline of the same seed, and what they come to. */
#ifndef NG_SUITES_TRAINING_SESSION_H
#define NG_SUITES_TRAINING_SESSION_H

#include "harness/json.h"
#include "suites/training/gradients.h"

typedef struct ng_recipe_result {
    ng_recipe_choice choice;
    double delta;             /* relative loss that may be lost */
    char skipped[256];        /* why it could not run; "": it ran */
    ng_gap final, area;       /* relative gaps to the baseline: of the final loss (which decides), of the mean training loss */
    int diverged;             /* seeds whose loss is not finite or explodes */
    double loss, time_s, tokens_per_s, speed_up; /* means over seeds; speed_up: over fp32, NaN where that did not run */
    ng_gap_verdict verdict;
    ng_gradient_figures *gradients, *systematic; /* [parameters + 1]: against the reference's; against its own with exact gradients. NULL: not asked */
    size_t worst;             /* parameter of the largest relative error */
    ng_loss_change evaluated; /* the baseline's trained model under this recipe; loss 0: not asked */
    ng_loss_change *alone;    /* [layers]: one block alone quantized; NULL: not asked */
} ng_recipe_result;

enum { NG_MOST_SEEDS = 256 };

typedef struct ng_training {
    ng_run_settings settings;
    ng_source_text source;
    ng_layout layout;
    ng_engine engine;
    ng_recipe_result *recipes; /* [recipe_count]; the first is the baseline */
    size_t recipe_count, seed_count, seed_capacity; /* runs so far asked for; that there is room for */
    uint64_t first_seed;
    ng_curve *curves;          /* [seed_capacity][recipe_count] */
    float **weights;           /* [seed_capacity]: the baseline's at the end */
    double alpha, power;
    char gradient_reference[96]; /* the recipe that gradients are compared with; "": they are not */
    double floor;              /* of the mean loss; NaN for a corpus */
    /* checkpoint */
    const char *checkpoint;    /* NULL: none */
    uint64_t identity;         /* of everything that decides the bits */
    void *state;               /* of the run in flight, as a checkpoint holds it */
    size_t state_bytes;
    double written_s;          /* monotonic: when a checkpoint was last written */
} ng_training;

#define NG_CURVE_OF(session, seed, recipe) (&(session)->curves[(seed) * (session)->recipe_count + (recipe)])

/* checkpoint.c: every curve, and `state` of the one in flight (NULL: none). Written whole or not at all, synced. */
ng_status ng_checkpoint_write(ng_training *session, ng_error *error);
/* A file that is not there begins a session. NG_BAD_ARGUMENT: of another session, or damaged. */
ng_status ng_checkpoint_read(ng_training *session, ng_error *error);

/* session.c */
typedef struct ng_training_events {
    void *context;
    void (*progress)(void *context, size_t run, size_t runs, int64_t step, int64_t steps);
} ng_training_events;
/* Runs what is not finished. A recipe that the engine has no kernels for is skipped with the reason. */
ng_status ng_training_run(ng_training *session, const ng_training_events *events, ng_error *error);
/* Gaps, corrected for their number, and verdicts. */
void ng_training_judge(ng_training *session);
/* After a judgement: seeds that the recipes without a verdict need for the stated power, by the spread of their pairs; at most seed_capacity.
 * The number follows from the spread alone and is chosen once (Stein 1945), so that the test stays what it was. */
size_t ng_training_seeds_needed(const ng_training *session);
/* Gradients of `batches` steps at the baseline's trained weights of the first seed; the trained models evaluated under each recipe. */
ng_status ng_training_gradients(ng_training *session, int batches, int draws, ng_error *error);
ng_status ng_training_evaluate(ng_training *session, ng_error *error);
void ng_training_free(ng_training *session);

/* table.c */
void ng_training_print(FILE *out, const ng_training *session);
void ng_training_write(ng_json *json, const void *session); /* the record's member "training" */

#endif
