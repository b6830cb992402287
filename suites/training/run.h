/* Training runs: a recipe, a seed, a number of steps. Everything that a seed fixes (weights, batches) is the same for every recipe, so that
 * their losses are pairs; everything that a run did can be written to a checkpoint and goes on from it with the same bits. */
#ifndef NG_SUITES_TRAINING_RUN_H
#define NG_SUITES_TRAINING_RUN_H

#include "suites/training/model.h"
#include "suites/training/source.h"
#include "suites/training/statistics.h"

typedef struct ng_run_settings {
    ng_model_shape shape;
    int64_t steps, evaluations; /* updates; batches of other text after them */
    double rate, loss_weight;   /* highest learning rate; see ng_model_state */
    double beta_1, beta_2, epsilon, decay, max_norm;
    int64_t checkpoint_every;   /* steps; 0: every 10 s */
    bool no_replay;             /* a GPU's steps are launched kernel by kernel */
} ng_run_settings;

/* What one run came to. */
typedef struct ng_curve {
    int recipe, seed;        /* places in the session's lists */
    int64_t done;            /* steps; equal to settings.steps and `finished` when it has ended */
    bool finished;
    double *losses, *norms;  /* [steps]: mean loss, norm of the gradients */
    double *final_losses;    /* [evaluations] */
    double final_loss, area; /* means of them, and of losses */
    double time_s;           /* of the training steps */
    double scale;            /* the loss scale at the end; 0: none */
    ng_health health;
} ng_curve;
ng_status ng_curve_create(const ng_run_settings *settings, ng_curve *curve, ng_error *error);
void ng_curve_free(ng_curve *curve);

/* What a seed fixes: [total] weights, batches [steps + evaluations][T]. */
typedef struct ng_seed_data {
    uint64_t seed;
    float *weights;
    int32_t *tokens, *targets;
} ng_seed_data;
ng_status ng_seed_data_create(const ng_run_settings *settings, const ng_layout *layout, const ng_source_text *source, uint64_t seed, ng_seed_data *data, ng_error *error);
void ng_seed_data_free(ng_seed_data *data);

/* A model with the memory of a run: batches, losses, norms. */
typedef struct ng_runner {
    ng_model_state model;
    const ng_run_settings *settings;
    ng_tensor tokens, targets, losses; /* [(steps + evaluations) T][1] */
    ng_tensor norms;                   /* [1][steps] */
    /* A GPU's forward and backward pass are recorded once and replayed, where no launch draws random numbers of its own. */
    bool replays;
    ng_tensor step_tokens, step_targets, step_losses; /* [T][1]: where the recorded step finds and leaves them */
    void *replay;                      /* NULL: not recorded yet */
    int64_t steps_here;                /* updates of this runner */
} ng_runner;
ng_status ng_runner_create(ng_engine *engine, const ng_recipe_choice *choice, const ng_run_settings *settings, ng_runner *runner, ng_error *error);
void ng_runner_destroy(ng_runner *runner);
/* Batches of a seed to the device, weights as at first (or given, [total]). */
ng_status ng_runner_begin(ng_runner *runner, const ng_seed_data *data, const float *weights, ng_error *error);
/* Runs steps until `to`; losses and norms up to there are in the curve. */
ng_status ng_runner_advance(ng_runner *runner, int64_t to, ng_curve *curve, ng_error *error);
/* Mean loss of each evaluation batch. */
ng_status ng_runner_evaluate(ng_runner *runner, double *losses, ng_error *error);
/* Gradients of batch `index` at the present weights [total], as binary64 and of the mean loss. */
ng_status ng_runner_gradient(ng_runner *runner, int64_t index, uint64_t seed, double *gradient, ng_error *error);
ng_status ng_runner_weights(ng_runner *runner, float *weights, ng_error *error);

/* The state that a run goes on from: bytes of masters, moments, scales. */
size_t ng_runner_state_bytes(const ng_runner *runner);
ng_status ng_runner_save(ng_runner *runner, void *state, ng_error *error);
ng_status ng_runner_restore(ng_runner *runner, const void *state, int64_t step, ng_error *error);

#endif
