/* Norms, activations and cross-entropy in binary64 throughout: what a run in binary64 is built from (contract_layer.h). Rows, or columns for
 * sums over rows, are the unit of parallel work. */
#include "kernels/catalogue.h"
#include "kernels/common/fp64.h"
#include "kernels/common/fp64_rows.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

static ng_f64 *row_of(const ng_launch *launch, ng_role role, int64_t row) { return (ng_f64 *)(void *)ng_cpu_row(&launch->tensors[role], row); }
static bool is_there(const ng_launch *launch, ng_role role) { return launch->tensors[role].data; }

static ng_status check_64(const ng_launch *launch, const ng_role *roles, int count, int64_t rows, int64_t columns) {
    ng_status status = NG_OK;
    for (int i = 0; i < count && !status; i++)
        status = ng_cpu_check(launch, roles[i], NG_FP64, rows, columns);
    return status;
}
#define CHECK(launch, rows, columns, ...) \
    check_64(launch, (const ng_role[]){__VA_ARGS__}, (int)(sizeof((const ng_role[]){__VA_ARGS__}) / sizeof(ng_role)), rows, columns)

/* ---- sums: the order of common/fp64.h -------------------------------------------------------------------------------*/
static double halve(double *s, int n) {
    for (int h = n / 2; h; h /= 2)
        for (int k = 0; k < h; k++)
            s[k] += s[k + h];
    return s[0];
}

/* ---- norms --------------------------------------------------------------------------------------------------------*/
static bool is_centered(const ng_kernel *kernel) { return kernel->contract.norm.kind == NG_LAYER_NORM; }

static void norm_row(const ng_kernel *kernel, const ng_launch *launch, int64_t row) {
    const int64_t n = launch->problem->n;
    const bool centered = is_centered(kernel), zero_centered = kernel->contract.norm.zero_centered;
    const ng_f64 *x = row_of(launch, NG_IN, row), *gamma = row_of(launch, NG_PARAMETER, 0),
                 *beta = centered ? row_of(launch, NG_PARAMETER_2, 0) : NULL;
    ng_f64 *y = row_of(launch, NG_OUT, row);
    double sums[NG_FP64_LANES] = {0}, squares[NG_FP64_LANES] = {0};
    for (int64_t j = 0; j < n && centered; j++)
        sums[j % NG_FP64_LANES] += x[j];
    const double mean = halve(sums, NG_FP64_LANES) / (double)n;
    for (int64_t j = 0; j < n; j++)
        squares[j % NG_FP64_LANES] += (x[j] - mean) * (x[j] - mean);
    const double rstd = 1 / ng_sqrt64(halve(squares, NG_FP64_LANES) / (double)n + launch->problem->scalars[NG_EPSILON]);
    for (int64_t j = 0; j < n; j++) {
        const double scaled = ng_norm_hat64(true, x[j], mean, rstd) * ng_norm_weight64(zero_centered, gamma[j]);
        y[j] = centered ? scaled + beta[j] : scaled;
    }
    if (centered && is_there(launch, NG_MEAN)) *row_of(launch, NG_MEAN, row) = mean;
    if (is_there(launch, NG_RSTD)) *row_of(launch, NG_RSTD, row) = rstd;
}

static ng_status launch_norm(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, n = launch->problem->n;
    const bool centered = is_centered(kernel);
    ng_status status = CHECK(launch, rows, n, NG_IN, NG_OUT);
    if (!status) status = CHECK(launch, 1, n, NG_PARAMETER);
    if (!status && centered) status = CHECK(launch, 1, n, NG_PARAMETER_2);
    if (!status && centered && is_there(launch, NG_MEAN)) status = CHECK(launch, rows, 1, NG_MEAN);
    if (!status && is_there(launch, NG_RSTD)) status = CHECK(launch, rows, 1, NG_RSTD);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, rows * n)) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        norm_row(kernel, launch, row);
    return NG_OK;
}

static void norm_gradient_row(const ng_kernel *kernel, const ng_launch *launch, int64_t row) {
    const int64_t n = launch->problem->n;
    const bool centered = is_centered(kernel), zero_centered = kernel->contract.norm.zero_centered;
    const ng_f64 *x = row_of(launch, NG_IN, row), *dy = row_of(launch, NG_GRADIENT, row), *gamma = row_of(launch, NG_PARAMETER, 0);
    const double mean = centered ? *row_of(launch, NG_MEAN, row) : 0, rstd = *row_of(launch, NG_RSTD, row);
    ng_f64 *dx = row_of(launch, NG_OUT, row);
    double s1[NG_FP64_LANES] = {0}, s2[NG_FP64_LANES] = {0};
    for (int64_t j = 0; j < n; j++) {
        const double g = dy[j] * ng_norm_weight64(zero_centered, gamma[j]);
        if (centered) s1[j % NG_FP64_LANES] += g;
        s2[j % NG_FP64_LANES] += g * ng_norm_hat64(centered, x[j], mean, rstd);
    }
    const double c1 = halve(s1, NG_FP64_LANES) / (double)n, c2 = halve(s2, NG_FP64_LANES) / (double)n;
    for (int64_t j = 0; j < n; j++)
        dx[j] = rstd * (dy[j] * ng_norm_weight64(zero_centered, gamma[j]) - c1 - ng_norm_hat64(centered, x[j], mean, rstd) * c2);
}

enum { STRIP = 64 };
static void norm_parameter_gradients(const ng_launch *launch, bool centered, int64_t from, int64_t count) {
    double dgamma[NG_FP64_GROUPS][STRIP] = {{0}}, dbeta[NG_FP64_GROUPS][STRIP] = {{0}};
    for (int64_t row = 0; row < launch->problem->m; row++) {
        const ng_f64 *x = row_of(launch, NG_IN, row) + from, *dy = row_of(launch, NG_GRADIENT, row) + from;
        const double mean = centered ? *row_of(launch, NG_MEAN, row) : 0, rstd = *row_of(launch, NG_RSTD, row);
        const int64_t group = row % NG_FP64_GROUPS;
        for (int64_t j = 0; j < count; j++) {
            dgamma[group][j] += dy[j] * ng_norm_hat64(centered, x[j], mean, rstd);
            dbeta[group][j] += dy[j];
        }
    }
    for (int group = 1; group < NG_FP64_GROUPS; group++)
        for (int64_t j = 0; j < count; j++) {
            dgamma[0][j] += dgamma[group][j];
            dbeta[0][j] += dbeta[group][j];
        }
    memcpy(row_of(launch, NG_OUT_2, 0) + from, dgamma[0], (size_t)count * sizeof *dgamma[0]);
    if (centered) memcpy(row_of(launch, NG_OUT_3, 0) + from, dbeta[0], (size_t)count * sizeof *dbeta[0]);
}

static ng_status launch_norm_backward(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, n = launch->problem->n;
    const bool centered = is_centered(kernel);
    ng_status status = CHECK(launch, rows, n, NG_IN, NG_GRADIENT, NG_OUT);
    if (!status) status = CHECK(launch, 1, n, NG_PARAMETER, NG_OUT_2);
    if (!status) status = CHECK(launch, rows, 1, NG_RSTD);
    if (!status && centered) status = CHECK(launch, rows, 1, NG_MEAN);
    if (!status && centered) status = CHECK(launch, 1, n, NG_OUT_3);
    if (status) return status;
    const int threads = ng_cpu_team(launch->device, rows * n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        norm_gradient_row(kernel, launch, row);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t from = 0; from < n; from += STRIP)
        norm_parameter_gradients(launch, centered, from, ng_cpu_min(STRIP, n - from));
    return NG_OK;
}

/* ---- activations --------------------------------------------------------------------------------------------------*/
static ng_status launch_activation(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, n = launch->problem->n;
    const ng_activation_kind kind = kernel->contract.activation.kind;
    const bool gated = kind == NG_SWIGLU, backward = kernel->op == NG_OP_ACTIVATION_BACKWARD;
    ng_status status = CHECK(launch, rows, n, NG_IN, NG_OUT);
    if (!status && gated) status = CHECK(launch, rows, n, NG_IN_2);
    if (!status && backward) status = CHECK(launch, rows, n, NG_GRADIENT);
    if (!status && gated && backward) status = CHECK(launch, rows, n, NG_OUT_2);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, rows * n)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const ng_f64 *x = row_of(launch, NG_IN, row), *u = gated ? row_of(launch, NG_IN_2, row) : x;
        ng_f64 *out = row_of(launch, NG_OUT, row);
        for (int64_t j = 0; j < n; j++) {
            double du = 0;
            out[j] = backward ? ng_activate_backward64(kind, x[j], u[j], row_of(launch, NG_GRADIENT, row)[j], &du) : ng_activate64(kind, x[j], u[j]);
            if (gated && backward) row_of(launch, NG_OUT_2, row)[j] = du;
        }
    }
    return NG_OK;
}

/* ---- cross-entropy ------------------------------------------------------------------------------------------------*/
static int32_t label_of(const ng_launch *launch, int64_t row) {
    return (int32_t)*(const ng_u32 *)(const void *)ng_cpu_row(&launch->tensors[NG_LABELS], row);
}

static void loss_row(const ng_launch *launch, int64_t row) {
    const ng_f64 *x = row_of(launch, NG_IN, row);
    double max = x[0], sums[NG_FP64_LANES] = {0};
    for (int64_t j = 1; j < launch->problem->n; j++)
        max = x[j] > max || x[j] != x[j] ? x[j] : max;
    max += 0.0;
    for (int64_t j = 0; j < launch->problem->n; j++)
        sums[j % NG_FP64_LANES] += ng_exp64(x[j] - max);
    const double sum = halve(sums, NG_FP64_LANES);
    const int32_t label = label_of(launch, row);
    *row_of(launch, NG_OUT, row) = label < 0 ? 0 : max - x[label] + ng_log(sum);
    if (is_there(launch, NG_ROW_MAX)) *row_of(launch, NG_ROW_MAX, row) = max;
    if (is_there(launch, NG_ROW_SUM)) *row_of(launch, NG_ROW_SUM, row) = sum;
}

static void loss_gradient_row(const ng_launch *launch, int64_t row) {
    const ng_f64 *x = row_of(launch, NG_IN, row);
    ng_f64 *dx = row_of(launch, NG_OUT, row);
    const double max = *row_of(launch, NG_ROW_MAX, row), r = 1 / *row_of(launch, NG_ROW_SUM, row), d = *row_of(launch, NG_GRADIENT, row);
    const int32_t label = label_of(launch, row);
    for (int64_t j = 0; j < launch->problem->n; j++)
        dx[j] = label < 0 ? 0 : d * (ng_exp64(x[j] - max) * r - (j == label));
}

static ng_status launch_loss(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, n = launch->problem->n;
    const bool backward = kernel->op == NG_OP_LOSS_BACKWARD;
    ng_status status = CHECK(launch, rows, n, NG_IN);
    if (!status) status = CHECK(launch, rows, backward ? n : 1, NG_OUT);
    if (!status) status = ng_cpu_check(launch, NG_LABELS, NG_FP32, rows, 1);
    if (!status && (backward || is_there(launch, NG_ROW_MAX))) status = CHECK(launch, rows, 1, NG_ROW_MAX);
    if (!status && (backward || is_there(launch, NG_ROW_SUM))) status = CHECK(launch, rows, 1, NG_ROW_SUM);
    if (!status && backward) status = CHECK(launch, rows, 1, NG_GRADIENT);
    for (int64_t row = 0; row < rows && !status; row++)
        if (label_of(launch, row) >= n)
            status = ng_cpu_fail(launch, NG_BAD_ARGUMENT, "label %d of row %lld, of %lld classes", (int)label_of(launch, row), (long long)row,
                                 (long long)n);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, rows * n)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        if (backward) loss_gradient_row(launch, row);
        else loss_row(launch, row);
    }
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_FP64(name_, OPERATION, variant, ...)                                                                      \
    {.name = name_ "/cpu/" variant, .op = OPERATION, .backend = NG_BACKEND_CPU, .in = NG_FP64, .in_b = NG_NO_FORMAT, .out = NG_FP64, \
     .contract = NG_FP64_CONTRACT(__VA_ARGS__), .supports = ng_cpu_supports, .launch = NG_FP64_LAUNCH_##OPERATION},
#define NG_FP64_LAUNCH_NG_OP_NORM_FORWARD launch_norm
#define NG_FP64_LAUNCH_NG_OP_NORM_BACKWARD launch_norm_backward
#define NG_FP64_LAUNCH_NG_OP_ACTIVATION launch_activation
#define NG_FP64_LAUNCH_NG_OP_ACTIVATION_BACKWARD launch_activation
#define NG_FP64_LAUNCH_NG_OP_LOSS launch_loss
#define NG_FP64_LAUNCH_NG_OP_LOSS_BACKWARD launch_loss

static const ng_kernel kernels[] = {NG_FP64_ROWS};

const ng_kernel_list ng_cpu_fp64 = {kernels, sizeof kernels / sizeof *kernels};
