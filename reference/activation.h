/* Activations and softmax cross-entropy: exact values and the bounds that kernels/contract_activation.h leaves, element by element. */
#ifndef NG_REFERENCE_ACTIVATION_H
#define NG_REFERENCE_ACTIVATION_H

#include "kernels/contract.h"
#include "reference/running.h"

ng_running ng_reference_activation(ng_activation_kind kind, double x, double u);
/* out[0] dx, out[1] du (SwiGLU). */
void ng_reference_activation_backward(ng_activation_kind kind, double x, double u, double d, ng_running out[2]);
/* The same by MPFR: the exact value as high + *low. */
double ng_reference_activation_mpfr(ng_activation_kind kind, double x, double u, double *low);
void ng_reference_activation_backward_mpfr(ng_activation_kind kind, double x, double u, double d, double high[2], double low[2]);

/* A row of logits, label in [0, columns) or negative. */
typedef struct ng_loss_result {
    double max;
    ng_running sum, loss;
} ng_loss_result;
ng_loss_result ng_reference_loss(const double *x, int64_t columns, int32_t label);
/* c of sum and loss exact to 2^-53, low[0 .. 1] the rest. */
ng_loss_result ng_reference_loss_mpfr(const double *x, int64_t columns, int32_t label, double low[2]);
/* One element of the gradient from the row's statistics, taken as exact. */
ng_running ng_reference_loss_gradient(double x, double max, double sum, bool is_label, double d);
double ng_reference_loss_gradient_mpfr(double x, double max, double sum, bool is_label, double d, double *low);

#endif
