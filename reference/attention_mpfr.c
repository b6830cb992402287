/* Attention by MPFR, operation by operation as the contract has it, each with what it may be off by. */
#include "reference/attention.h"
#include "reference/wide.h"

#include <math.h>
#include <stdlib.h>

typedef struct work {
    const ng_attention_head *head;
    ng_unit unit;
    ng_wide scale, m, l, r, t, x, y;
    ng_wide *p, *a;         /* [s]: weights, then probabilities; g . v */
    ng_wide_sum sum;
    ng_wide_sum *columns;   /* [2][s][d]: dk, dv */
} work;

static ng_wide *const *scalars_of(work *w, ng_wide *all[7]) {
    ng_wide *const list[7] = {&w->scale, &w->m, &w->l, &w->r, &w->t, &w->x, &w->y};
    for (int i = 0; i < 7; i++)
        all[i] = list[i];
    return all;
}

static void release(work *w, bool backward) {
    ng_wide *all[7];
    for (int i = 0; i < 7; i++)
        mpfr_clear(scalars_of(w, all)[i]->x);
    ng_wide_sum_end(&w->sum);
    ng_wide_free(w->p, (size_t)w->head->s);
    ng_wide_free(w->a, (size_t)w->head->s);
    for (int64_t i = 0; w->columns && backward && i < 2 * w->head->s * w->head->d; i++)
        ng_wide_sum_end(&w->columns[i]);
    free(w->columns);
}

static ng_status begin(const ng_attention_head *head, bool backward, work *w) {
    ng_wide *all[7];
    const size_t s = (size_t)head->s, count = backward ? 2 * s * (size_t)head->d : 0;
    *w = (work){.head = head, .unit = ng_unit_of(head->layer->compute, (double)head->layer->exp_error)};
    for (int i = 0; i < 7; i++)
        mpfr_init2(scalars_of(w, all)[i]->x, NG_WIDE_BITS);
    ng_wide_sum_begin(&w->sum);
    w->p = ng_wide_create(s);
    w->a = ng_wide_create(s);
    w->columns = malloc(sizeof *w->columns * (count + 1));
    for (size_t i = 0; w->columns && i < count; i++)
        ng_wide_sum_begin(&w->columns[i]);
    if (!w->p || !w->a || !w->columns) {
        release(w, backward);
        return NG_NO_MEMORY;
    }
    ng_wide_set(&w->scale, (double)head->d);
    ng_wide_sqrt(&w->unit, &w->scale, &w->scale);
    ng_wide_set(&w->x, 1);
    ng_wide_div(&w->unit, &w->x, &w->scale, &w->scale);
    return NG_OK;
}

/* *out = x . y */
static void dot(work *w, const double *x, const double *y, ng_wide *out) {
    ng_wide_sum_zero(&w->sum);
    for (int64_t c = 0; c < w->head->d; c++) {
        ng_wide_set(&w->x, x[c]);
        ng_wide_set(&w->y, y[c]);
        ng_wide_sum_add_product(&w->unit, &w->sum, &w->x, &w->y);
    }
    ng_wide_sum_done(&w->unit, &w->sum, out);
}

/* p_j = exp(s_ij - m_i), l their sum. m stands for the kernel's own maximum, which is off by no more than the largest error of a score; that
 * error belongs to every weight alike and divides out, but it is counted here, and the sum is only larger for it. */
static void weights(work *w, int64_t i, int64_t n) {
    const ng_attention_head *h = w->head;
    double off = 0;
    bool nan = false;
    for (int64_t j = 0; j < n; j++) {
        dot(w, h->q + i * h->d, h->k + j * h->d, &w->p[j]);
        ng_wide_mul(&w->unit, &w->scale, &w->p[j], &w->p[j]);
        nan = nan || mpfr_nan_p(w->p[j].x);
        off = fmax(off, w->p[j].e);
        if (j == 0 || mpfr_cmp(w->p[j].x, w->m.x) > 0) mpfr_set(w->m.x, w->p[j].x, MPFR_RNDN);
    }
    if (nan) mpfr_set_nan(w->m.x);
    w->m.e = mpfr_number_p(w->m.x) ? off : 0;
    ng_wide_sum_zero(&w->sum);
    for (int64_t j = 0; j < n; j++) {
        ng_wide_sub(&w->unit, &w->p[j], &w->m, &w->p[j]);
        ng_wide_exp(&w->unit, &w->p[j], &w->p[j]);
        ng_wide_sum_add(&w->sum, &w->p[j]);
    }
    ng_wide_sum_done(&w->unit, &w->sum, &w->l);
}

static void take(const ng_wide *a, int64_t at, double *high, double *low, double *bound) {
    double mine;
    high[at] = ng_wide_get(a, &low[at], &mine);
    if (bound) bound[at] = mine;
}

static void forward_row(work *w, int64_t i, int64_t n, double *high, double *low, double *bound) {
    const ng_attention_head *h = w->head;
    weights(w, i, n);
    for (int64_t c = 0; c < h->d; c++) {
        ng_wide_sum_zero(&w->sum);
        for (int64_t j = 0; j < n; j++) {
            ng_wide_set(&w->x, h->v[j * h->d + c]);
            ng_wide_sum_add_product(&w->unit, &w->sum, &w->p[j], &w->x);
        }
        ng_wide_sum_done(&w->unit, &w->sum, &w->t);
        ng_wide_div(&w->unit, &w->t, &w->l, &w->t);
        take(&w->t, i * h->d + c, high, low, bound);
    }
}

static void backward_row(work *w, int64_t i, int64_t n, double *high, double *low, double *bound) {
    const ng_attention_head *h = w->head;
    weights(w, i, n);
    for (int64_t j = 0; j < n; j++) {
        ng_wide_div(&w->unit, &w->p[j], &w->l, &w->p[j]);
        dot(w, h->g + i * h->d, h->v + j * h->d, &w->a[j]);
    }
    ng_wide_sum_zero(&w->sum);
    for (int64_t j = 0; j < n; j++)
        ng_wide_sum_add_product(&w->unit, &w->sum, &w->p[j], &w->a[j]);
    ng_wide_sum_done(&w->unit, &w->sum, &w->r);
    for (int64_t j = 0; j < n; j++) { /* a becomes t */
        ng_wide_sub(&w->unit, &w->a[j], &w->r, &w->a[j]);
        ng_wide_mul(&w->unit, &w->p[j], &w->a[j], &w->a[j]);
        ng_wide_mul(&w->unit, &w->a[j], &w->scale, &w->a[j]);
        for (int64_t c = 0; c < h->d; c++) {
            ng_wide_set(&w->x, h->q[i * h->d + c]);
            ng_wide_sum_add_product(&w->unit, &w->columns[j * h->d + c], &w->a[j], &w->x);
            ng_wide_set(&w->x, h->g[i * h->d + c]);
            ng_wide_sum_add_product(&w->unit, &w->columns[(h->s + j) * h->d + c], &w->p[j], &w->x);
        }
    }
    for (int64_t c = 0; c < h->d; c++) {
        ng_wide_sum_zero(&w->sum);
        for (int64_t j = 0; j < n; j++) {
            ng_wide_set(&w->x, h->k[j * h->d + c]);
            ng_wide_sum_add_product(&w->unit, &w->sum, &w->a[j], &w->x);
        }
        ng_wide_sum_done(&w->unit, &w->sum, &w->t);
        take(&w->t, i * h->d + c, high, low, bound);
    }
}

ng_status ng_attention_mpfr(const ng_attention_head *head, bool backward, double *high, double *low, double *bound) {
    work w;
    ng_status status = begin(head, backward, &w);
    if (status) return status;
    if (head->layer->products != NG_ATTENTION_CHAIN) bound = NULL;
    for (int64_t i = 0; i < head->s; i++) {
        const int64_t n = head->layer->causal ? i + 1 : head->s;
        if (backward) backward_row(&w, i, n, high, low, bound);
        else forward_row(&w, i, n, high, low, bound);
    }
    for (int64_t at = 0; backward && at < 2 * head->s * head->d; at++) {
        ng_wide_sum_done(&w.unit, &w.columns[at], &w.t);
        take(&w.t, head->s * head->d + at, high, low, bound);
    }
    release(&w, backward);
    return NG_OK;
}
