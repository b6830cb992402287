/* One step's gradients under a recipe against those of a reference run, parameter by parameter; what a trained model loses when it is only
 * evaluated under a recipe. */
#ifndef NG_SUITES_TRAINING_GRADIENTS_H
#define NG_SUITES_TRAINING_GRADIENTS_H

#include "suites/training/run.h"

/* Over batches: g the reference's gradient of a batch, h the recipe's, H the mean of h over n draws of the random numbers.
 * |H - g|^2 holds the systematic error and 1 / n of the random one's variance, which the spread of the draws estimates:
 *     bias^2 = |H - g|^2 - (mean |h - g|^2 - |H - g|^2) / (n - 1), without bias itself; n = 1: |h - g|^2.
 * Against the reference of a recipe's own values but for the gradients' quantizers (exact-gradients), it is these quantizers' bias:
 * rounding to nearest keeps all of its error, stochastic rounding only what saturates. */
typedef struct ng_gradient_figures {
    double cosine;    /* mean of <h, g> / |h| |g|; 0 where one is zero */
    double relative;  /* mean of |h - g| / |g| */
    double slope;     /* mean of <H, g> / <g, g> - 1: how much of the gradient is lost (negative) on average */
    double low, high; /* 95 % interval of slope; NaN for one batch */
    double bias;      /* root of the mean of bias^2 / |g|^2 */
    double bias_low, bias_high; /* 95 % interval of bias; NaN for one batch */
} ng_gradient_figures;

/* figures [parameters + 1], the last of all parameters together. weights NULL: the seed's. */
ng_status ng_gradients_compare(ng_runner *runner, ng_runner *reference, const ng_seed_data *data, const float *weights, int batches, int draws,
                               ng_gradient_figures *figures, ng_error *error);

typedef struct ng_loss_change { /* of a trained model's mean loss, evaluated under a recipe */
    double loss, change, low, high; /* change: minus the reference's loss, with its 95 % interval over batches */
} ng_loss_change;

/* before, after: losses of the same batches [count]. */
ng_loss_change ng_loss_change_of(const double *before, const double *after, int count);

#endif
