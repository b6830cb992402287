/* Kernels in binary64 throughout: every element against MPFR and the bound that a running error analysis in the kernel's unit leaves
 * (reference/fp64.h). They stand for the exact side of a training run, so their cases are small and their checks whole. */
#include "harness/judge_internal.h"
#include "reference/fp64.h"
#include "reference/round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    ng_session session;
    ng_tensor in[NG_ROLES];    /* inputs and what outputs hold before; owned */
    ng_values truth[NG_ROLES]; /* of outputs */
    ng_tallies tallies;
} subject;

/* Rows of the exact results: done(s, i) fills what the i-th of `tasks` decides. */
typedef ng_status (*truth_maker)(subject *s, int64_t i);

/* ---- inputs and outputs -------------------------------------------------------------------------------------------*/
static ng_status make(subject *s, ng_role role, const ng_data_spec *spec, int64_t rows, int64_t columns, ng_error *error) {
    ng_data_spec mine = *spec;
    mine.target = NG_BF16; /* of distributions that are made for a format */
    ng_status status = ng_tensor_create(NG_FP64, rows, columns, &s->in[role], error);
    if (!status) status = ng_data_fill(&mine, 0, 0, &s->in[role], s->judge->threads, error);
    if (!status) ng_fill_low_digits(&s->in[role], spec->seed + spec->stream);
    return status;
}

/* Normal numbers beside those of the case. */
static ng_status make_other(subject *s, ng_role role, uint32_t stream, int64_t rows, int64_t columns, ng_error *error) {
    const ng_data_spec spec = {.distribution = NG_NORMAL, .seed = s->one->data.seed, .stream = stream, .whole_rows = rows, .whole_columns = columns};
    return make(s, role, &spec, rows, columns, error);
}

static ng_status give(subject *s, ng_role role, ng_error *error) { return ng_session_input(&s->session, role, &s->in[role], error); }

static ng_status want(subject *s, ng_role role, int64_t rows, int64_t columns, ng_error *error) {
    ng_status status = ng_session_output(&s->session, role, NG_FP64, rows, columns, error);
    if (s->in[role].data) s->session.initial[role] = &s->in[role];
    return status ? status : ng_values_create(rows * columns, &s->truth[role], error);
}

static double *row_of(const subject *s, ng_role role, int64_t row) {
    return s->in[role].data ? (double *)s->in[role].data + row * s->in[role].columns : NULL;
}

static void put(subject *s, ng_role role, int64_t at, const ng_triple *t) {
    s->truth[role].high[at] = t->high;
    s->truth[role].low[at] = t->low;
    s->truth[role].bound[at] = t->bound;
}
static void put_row(subject *s, ng_role role, int64_t row, const ng_triple *t, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        put(s, role, row * n + j, &t[j]);
}

/* ---- products -----------------------------------------------------------------------------------------------------*/
/* The kernel gets a copy as it stores it. */
static ng_status give_operand(subject *s, ng_role role, bool transposed, ng_error *error) {
    const ng_tensor *t = &s->in[role];
    ng_tensor turned;
    if (!transposed) return give(s, role, error);
    ng_status status = ng_tensor_create(NG_FP64, t->columns, t->rows, &turned, error);
    if (status) return status;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            ((double *)turned.data)[j * t->rows + i] = ((const double *)t->data)[i * t->columns + j];
    status = ng_session_input(&s->session, role, &turned, error);
    ng_tensor_free(&turned);
    return status;
}

static ng_status prepare_gemm(subject *s, ng_error *error) {
    const ng_problem *p = &s->one->problem;
    const ng_contract *c = &s->kernel->contract;
    ng_status status = make(s, NG_A, &s->one->data, p->m, p->k, error);
    if (!status) status = make(s, NG_B, &s->one->data_b, p->n, p->k, error);
    if (!status && c->accumulate_into) status = make_other(s, NG_OUT, 7, p->m, p->n, error);
    if (!status) status = give_operand(s, NG_A, c->a_transposed, error);
    if (!status) status = give_operand(s, NG_B, c->b_transposed, error);
    return status ? status : want(s, NG_OUT, p->m, p->n, error);
}

static ng_status truth_of_gemm(subject *s, int64_t i) {
    ng_status status = NG_OK;
    for (int64_t j = 0; j < s->one->problem.n && !status; j++) {
        ng_triple t;
        const double *before = row_of(s, NG_OUT, i);
        status = ng_fp64_dot(row_of(s, NG_A, i), row_of(s, NG_B, j), s->one->problem.k, before ? before + j : NULL, &t);
        if (!status) put(s, NG_OUT, i * s->one->problem.n + j, &t);
    }
    return status;
}

/* ---- norms --------------------------------------------------------------------------------------------------------*/
static bool is_centered(const subject *s) { return s->kernel->contract.norm.kind == NG_LAYER_NORM; }

static ng_status norm_row(subject *s, int64_t i, ng_triple *y, ng_triple statistics[2]) {
    return ng_fp64_norm(&s->kernel->contract, row_of(s, NG_IN, i), row_of(s, NG_PARAMETER, 0), row_of(s, NG_PARAMETER_2, 0), s->one->problem.n,
                        s->one->problem.scalars[NG_EPSILON], y, statistics);
}

/* The statistics that a backward kernel gets are the exact ones, rounded once. */
static ng_status make_statistics(subject *s, ng_error *error) {
    const int64_t m = s->one->problem.m, n = s->one->problem.n;
    ng_triple *y = malloc(sizeof *y * (size_t)n), statistics[2];
    ng_status status =
        y ? ng_tensor_create(NG_FP64, m, 1, &s->in[NG_RSTD], error) : ng_fail(error, NG_NO_MEMORY, "no memory for a row of %lld", (long long)n);
    if (!status && is_centered(s)) status = ng_tensor_create(NG_FP64, m, 1, &s->in[NG_MEAN], error);
    for (int64_t i = 0; i < m && !status; i++) {
        status = norm_row(s, i, y, statistics);
        if (is_centered(s)) *row_of(s, NG_MEAN, i) = statistics[0].high;
        *row_of(s, NG_RSTD, i) = statistics[1].high;
    }
    free(y);
    return status;
}

static ng_status prepare_norm(subject *s, ng_error *error) {
    const int64_t m = s->one->problem.m, n = s->one->problem.n;
    const bool backward = s->kernel->op == NG_OP_NORM_BACKWARD;
    ng_status status = make(s, NG_IN, &s->one->data, m, n, error);
    if (!status) status = make_other(s, NG_PARAMETER, 3, 1, n, error);
    if (!status) status = make_other(s, NG_PARAMETER_2, 4, 1, n, error);
    if (!status && backward) status = make_other(s, NG_GRADIENT, 2, m, n, error);
    if (!status && backward) status = make_statistics(s, error);
    const ng_role inputs[] = {NG_IN, NG_PARAMETER, NG_GRADIENT, NG_RSTD, NG_MEAN};
    for (int i = 0; i < 5 && !status; i++)
        if (s->in[inputs[i]].data) status = give(s, inputs[i], error);
    if (!status && !backward && is_centered(s)) status = give(s, NG_PARAMETER_2, error);
    if (!status) status = want(s, NG_OUT, m, n, error);
    if (!status && backward) status = want(s, NG_OUT_2, 1, n, error);
    if (!status && backward && is_centered(s)) status = want(s, NG_OUT_3, 1, n, error);
    if (!status && !backward) status = want(s, NG_RSTD, m, 1, error);
    return !status && !backward && is_centered(s) ? want(s, NG_MEAN, m, 1, error) : status;
}

static ng_status truth_of_norm(subject *s, int64_t i) {
    const int64_t n = s->one->problem.n;
    ng_triple *y = malloc(sizeof *y * (size_t)n), statistics[2];
    if (!y) return NG_NO_MEMORY;
    ng_status status = norm_row(s, i, y, statistics);
    if (!status) {
        put_row(s, NG_OUT, i, y, n);
        put(s, NG_RSTD, i, &statistics[1]);
        if (is_centered(s)) put(s, NG_MEAN, i, &statistics[0]);
    }
    free(y);
    return status;
}

/* Tasks: rows, then columns. */
static ng_status truth_of_norm_backward(subject *s, int64_t task) {
    const int64_t m = s->one->problem.m, n = s->one->problem.n, j = task - m;
    ng_triple *y = malloc(sizeof *y * (size_t)(n > 2 ? n : 2));
    double *column = malloc(sizeof *column * (size_t)(2 * m));
    ng_status status = y && column ? NG_OK : NG_NO_MEMORY;
    if (!status && task < m) {
        status = ng_fp64_norm_backward(&s->kernel->contract, row_of(s, NG_IN, task), row_of(s, NG_GRADIENT, task), row_of(s, NG_PARAMETER, 0), n,
                                       is_centered(s) ? *row_of(s, NG_MEAN, task) : 0, *row_of(s, NG_RSTD, task), y);
        if (!status) put_row(s, NG_OUT, task, y, n);
    } else if (!status) {
        for (int64_t i = 0; i < m; i++) {
            column[i] = row_of(s, NG_IN, i)[j];
            column[m + i] = row_of(s, NG_GRADIENT, i)[j];
        }
        status = ng_fp64_norm_column(&s->kernel->contract, column, column + m, row_of(s, NG_MEAN, 0), row_of(s, NG_RSTD, 0), m, y);
        if (!status) put(s, NG_OUT_2, j, &y[0]);
        if (!status && is_centered(s)) put(s, NG_OUT_3, j, &y[1]);
    }
    free(column);
    free(y);
    return status;
}

/* ---- activations --------------------------------------------------------------------------------------------------*/
static ng_status prepare_activation(subject *s, ng_error *error) {
    const int64_t m = s->one->problem.m, n = s->one->problem.n;
    const bool backward = s->kernel->op == NG_OP_ACTIVATION_BACKWARD, gated = s->kernel->contract.activation.kind == NG_SWIGLU;
    ng_status status = make(s, NG_IN, &s->one->data, m, n, error);
    if (!status && gated) status = make_other(s, NG_IN_2, 3, m, n, error);
    if (!status && backward) status = make_other(s, NG_GRADIENT, 2, m, n, error);
    const ng_role inputs[] = {NG_IN, NG_IN_2, NG_GRADIENT};
    for (int i = 0; i < 3 && !status; i++)
        if (s->in[inputs[i]].data) status = give(s, inputs[i], error);
    if (!status) status = want(s, NG_OUT, m, n, error);
    return !status && gated && backward ? want(s, NG_OUT_2, m, n, error) : status;
}

static ng_status truth_of_activation(subject *s, int64_t i) {
    const int64_t n = s->one->problem.n;
    const bool backward = s->kernel->op == NG_OP_ACTIVATION_BACKWARD, gated = s->kernel->contract.activation.kind == NG_SWIGLU;
    ng_triple *y = malloc(sizeof *y * 2 * (size_t)n);
    if (!y) return NG_NO_MEMORY;
    ng_status status = backward ? ng_fp64_activation_backward(&s->kernel->contract, row_of(s, NG_IN, i), row_of(s, NG_IN_2, i),
                                                              row_of(s, NG_GRADIENT, i), n, y, y + n)
                                : ng_fp64_activation(&s->kernel->contract, row_of(s, NG_IN, i), row_of(s, NG_IN_2, i), n, y);
    if (!status) put_row(s, NG_OUT, i, y, n);
    if (!status && backward && gated) put_row(s, NG_OUT_2, i, y + n, n);
    free(y);
    return status;
}

/* ---- cross-entropy ------------------------------------------------------------------------------------------------*/
static int32_t label_of(const subject *s, int64_t row) { return ((const int32_t *)s->in[NG_LABELS].data)[row]; }

static ng_status prepare_loss(subject *s, ng_error *error) {
    const int64_t m = s->one->problem.m, n = s->one->problem.n;
    const bool backward = s->kernel->op == NG_OP_LOSS_BACKWARD;
    ng_status status = make(s, NG_IN, &s->one->data, m, n, error);
    if (!status) status = ng_tensor_create(NG_FP32, m, 1, &s->in[NG_LABELS], error);
    for (int64_t i = 0; i < m && !status; i++) /* one in eleven is ignored */
        ((int32_t *)s->in[NG_LABELS].data)[i] = i % 11 == 5 ? -1 : (int32_t)(ng_word(s->one->data.seed, (uint64_t)i) % (uint64_t)n);
    if (!status) status = give(s, NG_IN, error);
    if (!status) status = give(s, NG_LABELS, error);
    if (!status) status = want(s, NG_OUT, m, backward ? n : 1, error);
    if (backward) {
        const ng_role roles[] = {NG_ROW_MAX, NG_ROW_SUM, NG_GRADIENT};
        for (int r = 0; r < 3 && !status; r++)
            status = make_other(s, roles[r], 2, m, 1, error);
        for (int64_t i = 0; i < m && !status; i++) {
            ng_triple t[3];
            status = ng_fp64_loss(&s->kernel->contract, row_of(s, NG_IN, i), n, label_of(s, i), t);
            *row_of(s, NG_ROW_MAX, i) = t[1].high;
            *row_of(s, NG_ROW_SUM, i) = t[2].high;
        }
        for (int r = 0; r < 3 && !status; r++)
            status = give(s, roles[r], error);
        return status;
    }
    if (!status) status = want(s, NG_ROW_MAX, m, 1, error);
    return status ? status : want(s, NG_ROW_SUM, m, 1, error);
}

static ng_status truth_of_loss(subject *s, int64_t i) {
    const int64_t n = s->one->problem.n;
    ng_triple three[3];
    if (s->kernel->op == NG_OP_LOSS) {
        ng_status status = ng_fp64_loss(&s->kernel->contract, row_of(s, NG_IN, i), n, label_of(s, i), three);
        if (status) return status;
        put(s, NG_OUT, i, &three[0]);
        put(s, NG_ROW_MAX, i, &three[1]);
        put(s, NG_ROW_SUM, i, &three[2]);
        return NG_OK;
    }
    ng_triple *dx = malloc(sizeof *dx * (size_t)n);
    if (!dx) return NG_NO_MEMORY;
    ng_status status = ng_fp64_loss_backward(&s->kernel->contract, row_of(s, NG_IN, i), n, label_of(s, i), *row_of(s, NG_ROW_MAX, i),
                                             *row_of(s, NG_ROW_SUM, i), *row_of(s, NG_GRADIENT, i), dx);
    if (!status) put_row(s, NG_OUT, i, dx, n);
    free(dx);
    return status;
}

/* ---- optimizer ----------------------------------------------------------------------------------------------------*/
static ng_status prepare_optimizer(subject *s, ng_error *error) {
    const int64_t m = s->one->problem.m, n = s->one->problem.n;
    const ng_optimizer_kind kind = s->kernel->contract.optimizer.kind;
    ng_status status = make(s, NG_GRADIENT, &s->one->data, m, n, error);
    if (status) return status;
    if (kind == NG_NORM2) {
        status = give(s, NG_GRADIENT, error);
        return status ? status : want(s, NG_OUT, 1, 1, error);
    }
    if (kind == NG_CLIP) { /* the norm of twice the gradient will do */
        status = make_other(s, NG_OUT, 3, 1, 1, error);
        if (!status) *row_of(s, NG_OUT, 0) = 2 * sqrt((double)(m * n));
        if (!status) status = give(s, NG_OUT, error);
        return status ? status : want(s, NG_GRADIENT, m, n, error);
    }
    const ng_role state[] = {NG_PARAMETER, NG_MOMENT_1, NG_MOMENT_2};
    for (uint32_t r = 0; r < 3 && !status; r++)
        status = make_other(s, state[r], 3 + r, m, n, error);
    for (int64_t i = 0; i < m * n && !status; i++)
        row_of(s, NG_MOMENT_2, 0)[i] *= row_of(s, NG_MOMENT_2, 0)[i];
    if (!status) status = give(s, NG_GRADIENT, error);
    for (int r = 0; r < 3 && !status; r++)
        status = want(s, state[r], m, n, error);
    return status;
}

static ng_status truth_of_optimizer(subject *s, int64_t i) {
    const int64_t n = s->one->problem.n;
    const ng_optimizer_kind kind = s->kernel->contract.optimizer.kind;
    ng_triple *y = malloc(sizeof *y * 3 * (size_t)n), *out[3] = {y, y + n, y + 2 * n}; /* only formed where y is */
    if (!y) return NG_NO_MEMORY;
    ng_status status = NG_OK;
    if (kind == NG_NORM2) {
        if (i == 0) status = ng_fp64_norm2(row_of(s, NG_GRADIENT, 0), s->one->problem.m * n, y);
        if (i == 0 && !status) put(s, NG_OUT, 0, y);
    } else if (kind == NG_CLIP) {
        status = ng_fp64_clip(row_of(s, NG_GRADIENT, i), n, *row_of(s, NG_OUT, 0), s->one->problem.scalars[NG_MAX_NORM], y);
        if (!status) put_row(s, NG_GRADIENT, i, y, n);
    } else {
        status = ng_fp64_adamw(s->one->problem.scalars, row_of(s, NG_PARAMETER, i), row_of(s, NG_GRADIENT, i), row_of(s, NG_MOMENT_1, i),
                               row_of(s, NG_MOMENT_2, i), n, out);
        const ng_role state[] = {NG_PARAMETER, NG_MOMENT_1, NG_MOMENT_2};
        for (int r = 0; r < 3 && !status; r++)
            put_row(s, state[r], i, out[r], n);
    }
    free(y);
    return status;
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
static const struct {
    ng_status (*prepare)(subject *s, ng_error *error);
    truth_maker truth;
    bool columns_too; /* tasks: rows and columns, not rows alone */
} operations[NG_OPS] = {
    [NG_OP_GEMM] = {prepare_gemm, truth_of_gemm, false},
    [NG_OP_NORM_FORWARD] = {prepare_norm, truth_of_norm, false},
    [NG_OP_NORM_BACKWARD] = {prepare_norm, truth_of_norm_backward, true},
    [NG_OP_ACTIVATION] = {prepare_activation, truth_of_activation, false},
    [NG_OP_ACTIVATION_BACKWARD] = {prepare_activation, truth_of_activation, false},
    [NG_OP_LOSS] = {prepare_loss, truth_of_loss, false},
    [NG_OP_LOSS_BACKWARD] = {prepare_loss, truth_of_loss, false},
    [NG_OP_OPTIMIZER] = {prepare_optimizer, truth_of_optimizer, false},
};

static ng_status make_truth(subject *s, ng_error *error) {
    const int64_t tasks = s->one->problem.m + (operations[s->kernel->op].columns_too ? s->one->problem.n : 0);
    ng_status status = NG_OK;
#pragma omp parallel for num_threads(s->judge->threads) schedule(dynamic)
    for (int64_t i = 0; i < tasks; i++) {
        const ng_status mine = operations[s->kernel->op].truth(s, i);
        if (mine) {
#pragma omp atomic write
            status = mine;
        }
    }
    return status ? ng_fail(error, status, "no memory for the exact results") : NG_OK;
}

static ng_status compare(subject *s, ng_result *result, ng_error *error) {
    ng_power power;
    ng_status status = make_truth(s, error);
    ng_tallies_begin(&s->tallies);
    for (int role = 0; role < NG_ROLES && !status; role++) {
        if (!s->truth[role].high) continue;
        const ng_tensor *out = &s->session.first[role];
        status = ng_tallies_add(s->judge, s->one, &s->tallies, (ng_role)role, out, &nearest, &s->truth[role], 0);
        s->tallies.by_tier[NG_TIER_MPFR] += out->rows * out->columns;
    }
    if (status) return status;
    ng_tallies_publish(&s->tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    return NG_OK;
}

ng_status ng_judge_fp64(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    subject s = {.judge = judge, .one = one, .kernel = one->kernel};
    bool launched = false;
    ng_status status = NG_OK;
    if (!operations[one->kernel->op].prepare) return ng_fail(error, NG_UNSUPPORTED, "%s: no judge for this operation in binary64", one->id);
    if (!ng_session_begin(&s.session, judge, one->kernel, &one->problem, result)) goto done;
    status = operations[one->kernel->op].prepare(&s, error);
    if (!status) status = ng_session_run(&s.session, one->repeats, false, result, &launched, error);
    if (status || !launched) goto done;
    const double start = ng_now_s();
    status = compare(&s, result, error);
    if (status) goto done;
    const ng_problem *p = &one->problem;
    status = ng_session_conclude(&s.session, one, start, p->op == NG_OP_GEMM ? 2.0 * (double)p->m * (double)p->n * (double)p->k : 0, result, error);
done:
    ng_session_end(&s.session);
    for (int role = 0; role < NG_ROLES; role++) {
        ng_tensor_free(&s.in[role]);
        ng_values_free(&s.truth[role]);
    }
    return status;
}
