#include "reference/attention.h"

#include "reference/elementary.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Bounds, u = 2^-24, eta = 2^-150 (what a rounding may lose to underflow), g(n) = n u / (1 - n u); tensor-core steps: g below. Per row i, j <= i:
 *
 *   scores       |s^ - s| <= D_j = sigma (g(d + 5) A_j + 2 d eta) + 2 eta, A = sum |q k|, sigma = 1 / sqrt d: the chain, the scale's two
 *                roundings, its product.
 *   exponents    x^ = fl(s^ - m^) is off s - m^ by at most x_j = D_j + u (|s_j - m| + D_j + max D).
 *   weights      With w_j = exp(s_j - m) and e^ the kernel's: e^ = k (w_j (1 + h_j) + a), k = exp(m - m^) the same for the row and within
 *                exp(max D), |h_j| <= H_j = expm1(x_j) (1 + E u) + E u, E the exponential's error, |a| <= 8 eta.
 *   their sum    l^ = k (l + dl), |dl| <= L = sum (w H + a) + g(n) sum (w (1 + H) + a).
 *   forward      o = N / l: |dN_c| <= sum (w H + a) |v| + g(n) sum (w (1 + H) + a) |v| + 4 n eta, |do| <= (dN + |o| L) / (l - L), and the division's
 *                rounding. k divides out.
 *   backward     p = w / l: P_j = (w H + a + p L) / (l - L) + u (...) + eta. a_j = g . v_j: F_j = g(d) B_j + d eta, B = sum |g v|.
 *                r: R = sum (P |a| + (p + P) F) + g(n) sum (p + P)(|a| + F) + n eta.
 *                t = p (a - r) sigma: y = F_j + R + u (|a - r| + F_j + R), T_j = sigma (1 + 8 u) (P |a - r| + (p + P) y + 5 u (p + P)(|a - r| + y)) +
 *                3 eta.
 *                dq: sum T |k| + g(n) sum (|t| + T) |k| + n eta; dk and dv alike over the rows, with q and g.
 *
 * Tensor cores (NG_ATTENTION_MMA): operands e, p, t are rounded to bf16, 2^-8 of themselves and 2^-134; a step of k = 16 truncates at most 17
 * terms and its result at 2^-24 or less of the largest term, which is at most (1 + g) sum |terms|: g(n) = 22 (ceil(n / 16) + 1) u: 17 terms at
 * 2^-25 on Hopper, twice 9 at 2^-24 on Ampere, and 2 u for each result. */

static const double u = 0x1p-24, eta = 0x1p-150, most = FLT_MAX * (1 - 0x1p-10);

typedef struct row_values {
    double *s, *size, *delta;  /* scores, A, D */
    double *w, *weight_error;  /* w, w H + a */
    double *a, *a_size;        /* g . v, B */
    double *p, *p_error, *t, *t_error;
} row_values;
enum { ROW_ARRAYS = 11 };

typedef struct work {
    const ng_attention_head *head;
    double *kt, *vt;           /* [d][s] */
    row_values row;            /* [s] each */
    double *channels;          /* [d] */
    bool *open;                /* [3][s]: outputs of backward that are promised nothing */
    bool nonfinite;            /* anywhere in the inputs */
    double scale, exp_error, narrow, narrow_tiny;
    bool mma;
} work;

typedef enum row_state { ROW_GOOD, ROW_NAN, ROW_OPEN } row_state;

static double chain_gamma(double n) { return n * u / (1 - n * u); }
static double gamma_of(const work *w, double n) { return chain_gamma(w->mma ? 22 * (ceil(n / 16) + 1) : n); }

/* out[j] = x . columns[.][j] and size[j] = |x| . |columns[.][j]|, j < n. */
static void products(const double *x, const double *columns, int64_t s, int64_t n, int64_t d, double *restrict out, double *restrict size) {
    for (int64_t j = 0; j < n; j++)
        out[j] = size[j] = 0;
    for (int64_t c = 0; c < d; c++) {
        const double *restrict column = columns + c * s, each = x[c], magnitude = fabs(each);
        for (int64_t j = 0; j < n; j++) {
            out[j] += each * column[j];
            size[j] += magnitude * fabs(column[j]);
        }
    }
}

/* The sum of those |x y| that are finite. */
static double finite_size(const double *x, const double *y, int64_t d) {
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        if (isfinite(x[c]) && isfinite(y[c])) sum += fabs(x[c] * y[c]);
    return sum;
}

static row_state scores(const work *w, int64_t i, int64_t n, double *max, double *max_delta) {
    const ng_attention_head *h = w->head;
    const row_values *r = &w->row;
    const double g = gamma_of(w, (double)h->d) + chain_gamma(5);
    bool open = false, nan = false;
    products(h->q + i * h->d, w->kt, h->s, n, h->d, r->s, r->size);
    *max = -INFINITY;
    *max_delta = 0;
    for (int64_t j = 0; j < n; j++) {
        r->s[j] *= w->scale;
        r->delta[j] = isfinite(r->size[j]) ? w->scale * (g * r->size[j] + 40 * (double)h->d * eta) + 2 * eta : 0;
        if ((isfinite(r->size[j]) ? r->size[j] : finite_size(h->q + i * h->d, h->k + j * h->d, h->d)) >= most) open = true;
        if (isnan(r->s[j]) || r->s[j] == INFINITY) nan = true;
        *max = fmax(*max, r->s[j]);
        *max_delta = fmax(*max_delta, r->delta[j]);
    }
    return nan ? ROW_NAN : open ? ROW_OPEN : isinf(*max) ? ROW_NAN : ROW_GOOD;
}

/* w and w H + a of a row; their sum l and what it may be off by. */
static row_state weights(const work *w, int64_t i, int64_t n, double *l, double *l_error) {
    const row_values *r = &w->row;
    double max, max_delta, size = 0;
    const row_state state = scores(w, i, n, &max, &max_delta);
    *l = *l_error = 0;
    if (state != ROW_GOOD) return state;
    for (int64_t j = 0; j < n; j++) {
        const double x = r->s[j] - max, off = isinf(x) ? 0 : r->delta[j] + u * (fabs(x) + r->delta[j] + max_delta);
        if (off > 0.5) return ROW_OPEN;
        const double relative = expm1(off) * (1 + w->exp_error) + w->exp_error;
        r->w[j] = ng_reference_exp(x);
        r->weight_error[j] = isinf(x) ? 0 : r->w[j] * relative + 8 * eta;
        *l += r->w[j];
        *l_error += r->weight_error[j];
        size += r->w[j] + r->weight_error[j];
    }
    *l_error += chain_gamma((double)n) * size;
    return *l_error < *l / 2 ? ROW_GOOD : ROW_OPEN;
}

/* ---- forward ------------------------------------------------------------------------------------------------------*/
static void fill(double *x, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

/* Channels in which an infinity meets a weight that the kernel may have lost. */
static bool meets_lost_weight(const work *w, int64_t n, int64_t c) {
    for (int64_t j = 0; j < n; j++)
        if (isinf(w->head->v[j * w->head->d + c]) && w->row.w[j] > 0 && w->row.w[j] < 0x1p-120) return true;
    return false;
}

static void forward_row(const work *w, int64_t i, int64_t n, double *restrict value, double *restrict bound) {
    const ng_attention_head *h = w->head;
    const double g = gamma_of(w, (double)n);
    double l, l_error;
    const row_state state = weights(w, i, n, &l, &l_error);
    if (state != ROW_GOOD) {
        fill(value, h->d, NAN);
        fill(bound, h->d, state == ROW_NAN ? 0 : INFINITY);
        return;
    }
    fill(value, h->d, 0);
    fill(bound, h->d, 0);
    for (int64_t j = 0; j < n; j++) {
        const double weight = w->row.w[j], off = w->row.weight_error[j], stored = off + (weight + off) * w->narrow + w->narrow_tiny;
        const double each = stored + g * (weight + stored);
        const double *restrict v = h->v + j * h->d;
        for (int64_t c = 0; c < h->d; c++) {
            value[c] += weight * v[c];
            bound[c] += each * fabs(v[c]);
        }
    }
    for (int64_t c = 0; c < h->d; c++) {
        value[c] /= l;
        if (!isfinite(value[c])) {
            bound[c] = meets_lost_weight(w, n, c) ? INFINITY : 0;
            continue;
        }
        if (!(bound[c] < g * most / 4)) { /* the sum of magnitudes is at most bound / g */
            bound[c] = INFINITY;
            continue;
        }
        const double off = (bound[c] + 40 * (double)n * eta + fabs(value[c]) * l_error) / (l - l_error);
        bound[c] = off + u * (fabs(value[c]) + off) + eta;
    }
}

/* ---- backward -----------------------------------------------------------------------------------------------------*/
static void add_product(double weight, const double *restrict x, double size, int64_t d, double *restrict value, double *restrict bound) {
    for (int64_t c = 0; c < d; c++) {
        value[c] += weight * x[c];
        bound[c] += size * fabs(x[c]);
    }
}

/* p, t and what they may be off by. */
static row_state gradients(const work *w, int64_t i, int64_t n) {
    const ng_attention_head *h = w->head;
    const row_values *r = &w->row;
    const double g = gamma_of(w, (double)h->d), gn = chain_gamma((double)n), sigma = w->scale;
    double l, l_error, sum = 0, sum_error = 0, sum_size = 0;
    row_state state = weights(w, i, n, &l, &l_error);
    if (state != ROW_GOOD) return state;
    products(h->g + i * h->d, w->vt, h->s, n, h->d, r->a, r->a_size);
    for (int64_t j = 0; j < n; j++) {
        const double p = r->w[j] / l, off = (r->weight_error[j] + p * l_error) / (l - l_error), f = g * r->a_size[j] + 20 * (double)h->d * eta;
        r->p[j] = p;
        r->p_error[j] = off + u * (p + off) + eta;
        sum += p * r->a[j];
        sum_error += r->p_error[j] * fabs(r->a[j]) + (p + r->p_error[j]) * f;
        sum_size += (p + r->p_error[j]) * (fabs(r->a[j]) + f);
        if (!(r->a_size[j] < most / 4)) state = ROW_OPEN;
    }
    sum_error += gn * sum_size + (double)n * eta;
    if (!(sum_size < most / 4)) state = ROW_OPEN;
    for (int64_t j = 0; j < n; j++) {
        const double y = r->a[j] - sum, f = g * r->a_size[j] + 20 * (double)h->d * eta, off = f + sum_error + u * (fabs(y) + f + sum_error);
        const double p = r->p[j], p_most = p + r->p_error[j];
        r->t[j] = p * y * sigma;
        r->t_error[j] = sigma * (1 + 8 * u) * (r->p_error[j] * fabs(y) + p_most * off + 5 * u * p_most * (fabs(y) + off)) + 3 * eta;
    }
    return state;
}

/* value and bound: [3][s][d]. The row's share in dq_i and in every dk_j, dv_j. What is open stays out of the sums. */
static void backward_row(const work *w, int64_t i, int64_t n, double *value, double *bound) {
    const ng_attention_head *h = w->head;
    const row_values *r = &w->row;
    const int64_t part = h->s * h->d;
    const double gn = gamma_of(w, (double)n), gs = gamma_of(w, (double)h->s);
    const row_state state = gradients(w, i, n);
    bool p_known = state != ROW_OPEN;
    if (state == ROW_NAN) {
        fill(r->p, n, NAN);
        fill(r->t, n, NAN);
    } else if (state == ROW_OPEN && w->nonfinite) { /* what a or r is does not touch p, if the weights are good */
        double l, l_error;
        p_known = weights(w, i, n, &l, &l_error) == ROW_GOOD;
        for (int64_t c = 0; c < h->d; c++)
            p_known = p_known && isfinite(h->g[i * h->d + c]);
    }
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = j * h->d;
        const double t_error = r->t_error[j] + (fabs(r->t[j]) + r->t_error[j]) * w->narrow + w->narrow_tiny;
        const double p_error = r->p_error[j] + (r->p[j] + r->p_error[j]) * w->narrow + w->narrow_tiny;
        if (state != ROW_OPEN) {
            add_product(r->t[j], h->k + at, t_error + gn * (fabs(r->t[j]) + t_error), h->d, value + i * h->d, bound + i * h->d);
            add_product(r->t[j], h->q + i * h->d, t_error + gs * (fabs(r->t[j]) + t_error), h->d, value + part + at, bound + part + at);
        } else w->open[h->s + j] = true;
        if (p_known) add_product(r->p[j], h->g + i * h->d, p_error + gs * (r->p[j] + p_error), h->d, value + 2 * part + at, bound + 2 * part + at);
        else w->open[2 * h->s + j] = true;
    }
    if (state == ROW_OPEN) w->open[i] = true;
}

/* NaN is certain whatever else is added; other infinite sums came of overflow. */
static void finish_backward(const work *w, const double *value, double *bound) {
    const ng_attention_head *h = w->head;
    for (int64_t row = 0; row < 3 * h->s; row++)
        for (int64_t at = row * h->d; at < (row + 1) * h->d; at++) {
            if (isnan(value[at])) bound[at] = 0;
            else if (w->open[row] || !(bound[at] < chain_gamma(1) * most / 4)) bound[at] = INFINITY;
            else bound[at] += 20 * (double)h->s * eta;
        }
}

/* Tensor cores multiply masked zeros by what is masked: where that is not finite, its group of 64 tokens has no promise but NaN. `masked` [s][d] is
 * what a result of token i meets behind it (after: up to the group's end), or before it. */
static void open_group(const ng_attention_head *h, const double *masked, bool after, const double *value, double *bound) {
    for (int64_t i = 0; i < h->s; i++) {
        const int64_t start = i / NG_ATTENTION_GROUP * NG_ATTENTION_GROUP,
                      end = start + NG_ATTENTION_GROUP < h->s ? start + NG_ATTENTION_GROUP : h->s;
        bool met = false;
        for (int64_t j = after ? i + 1 : start; j < (after ? end : i); j++)
            for (int64_t c = 0; c < h->d; c++)
                met = met || !isfinite(masked[j * h->d + c]);
        for (int64_t at = i * h->d; met && at < (i + 1) * h->d; at++)
            if (!isnan(value[at])) bound[at] = INFINITY;
    }
}

static void open_groups(const work *w, bool backward, const double *value, double *bound) {
    const ng_attention_head *h = w->head;
    const int64_t part = h->s * h->d;
    open_group(h, backward ? h->k : h->v, true, value, bound);
    if (!backward) return;
    open_group(h, h->q, false, value + part, bound + part);
    open_group(h, h->g, false, value + 2 * part, bound + 2 * part);
}

/* ---- the head -----------------------------------------------------------------------------------------------------*/
static void transpose(const double *x, int64_t s, int64_t d, double *t) {
    for (int64_t i = 0; i < s; i++)
        for (int64_t c = 0; c < d; c++)
            t[c * s + i] = x[i * d + c];
}

static bool has_nonfinite(const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return true;
    return false;
}

static void release(work *w) {
    free(w->kt);
    free(w->open);
}

static ng_status begin(const ng_attention_head *head, work *w) {
    const size_t s = (size_t)head->s, d = (size_t)head->d;
    *w = (work){.head = head, .scale = 1 / sqrt((double)head->d), .exp_error = (double)head->layer->exp_error * u,
                .mma = head->layer->products == NG_ATTENTION_MMA};
    w->narrow = w->mma ? 0x1p-8 : 0;
    w->narrow_tiny = w->mma ? 0x1p-134 : 0;
    w->kt = malloc(sizeof(double) * (2 * s * d + ROW_ARRAYS * s));
    w->open = calloc(3 * s, sizeof *w->open);
    if (!w->kt || !w->open) {
        release(w);
        return NG_NO_MEMORY;
    }
    w->vt = w->kt + s * d;
    double **const arrays[ROW_ARRAYS] = {&w->row.s, &w->row.size, &w->row.delta, &w->row.w, &w->row.weight_error, &w->row.a, &w->row.a_size,
                                         &w->row.p, &w->row.p_error, &w->row.t, &w->row.t_error};
    for (int i = 0; i < ROW_ARRAYS; i++)
        *arrays[i] = w->vt + s * d + (size_t)i * s;
    transpose(head->k, head->s, head->d, w->kt);
    transpose(head->v, head->s, head->d, w->vt);
    const double *const inputs[] = {head->q, head->k, head->v, head->g};
    for (int i = 0; i < 4; i++)
        w->nonfinite = w->nonfinite || (inputs[i] && has_nonfinite(inputs[i], head->s * head->d));
    return NG_OK;
}

ng_status ng_attention_fast(const ng_attention_head *head, bool backward, double *value, double *bound) {
    work w;
    if (head->layer->compute == NG_FP64) return NG_UNSUPPORTED;
    ng_status status = begin(head, &w);
    if (status) return status;
    if (backward) {
        fill(value, 3 * head->s * head->d, 0);
        fill(bound, 3 * head->s * head->d, 0);
        fill(w.row.t_error, head->s, 0);
        fill(w.row.p_error, head->s, 0);
    }
    for (int64_t i = 0; i < head->s; i++) {
        const int64_t n = head->layer->causal ? i + 1 : head->s;
        if (backward) backward_row(&w, i, n, value, bound);
        else forward_row(&w, i, n, value + i * head->d, bound + i * head->d);
    }
    if (backward) finish_backward(&w, value, bound);
    if (w.mma && w.nonfinite) open_groups(&w, backward, value, bound);
    for (int64_t i = 0; i < (backward ? 3 : 1) * head->s * head->d; i++)
        bound[i] *= 1 + 0x1p-18; /* its own roundings */
    release(&w);
    return NG_OK;
}
