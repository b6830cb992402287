/* The fast tier of the norms' reference, and the bounds. u = 2^-24, g(k) = k u / (1 - k u); v = 2^-53. */
#include "reference/norm_internal.h"

#include "reference/round.h"

#include <float.h>
#include <string.h>

static const double u = 0x1p-24, v = 0x1p-53, tiny = 0x1p-149, outward = 1 + 0x1p-40, largest = 0x1.fffffep127;

static double gamma_k(double k) { return k * u / (1 - k * u); }

/* ---- memory -------------------------------------------------------------------------------------------------------*/
ng_status ng_norm_truth_create(int64_t rows, int64_t columns, ng_norm_truth *t) {
    memset(t, 0, sizeof *t);
    size_t elements = (size_t)(rows * columns), statistics = (size_t)rows;
    double *at = t->memory = malloc(sizeof *at * (4 * elements + 8 * statistics + 1));
    if (!at) return NG_NO_MEMORY;
    t->rows = rows;
    t->columns = columns;
    ng_norm_values *const values[] = {&t->element, &t->mean, &t->rstd};
    for (int i = 0; i < 3; i++) {
        size_t count = i ? statistics : elements;
        *values[i] = (ng_norm_values){at, at + count, at + 2 * count, at + 3 * count};
        at += 4 * count;
    }
    return NG_OK;
}

void ng_norm_truth_free(ng_norm_truth *t) {
    free(t->memory);
    memset(t, 0, sizeof *t);
}

static void put(const ng_norm_values *to, int64_t i, double high, double low, double remainder, double bound) {
    to->high[i] = high;
    to->low[i] = low;
    to->remainder[i] = remainder;
    to->bound[i] = bound < INFINITY ? (bound + remainder) * outward : INFINITY; /* NaN: nothing is known */
}

static ng_status make_weights(const ng_norm *norm, const ng_norm_operands *o, ng_norm_weights *w) {
    int64_t n = o->in->columns;
    w->w = malloc(sizeof(double) * 3 * (size_t)n);
    if (!w->w) return NG_NO_MEMORY;
    w->beta = w->w + n;
    w->divisor = w->beta + n;
    ng_decode_row(o->gamma, 0, 0, n, w->w);
    memset(w->beta, 0, sizeof(double) * (size_t)n);
    if (norm->kind == NG_LAYER_NORM && o->beta) ng_decode_row(o->beta, 0, 0, n, w->beta);
    for (int64_t j = 0; j < n; j++) {
        if (norm->zero_centered) w->w[j] += 1;
        w->divisor[j] = fabs(w->w[j]) < o->epsilon ? copysign(o->epsilon, w->w[j]) : w->w[j];
    }
    return NG_OK;
}

/* ---- sums ---------------------------------------------------------------------------------------------------------*/
/* Sum2 of Ogita, Rump, Oishi (SIAM J. Sci. Comput. 26, 2005), eight at a time: |sum - (high + low)| <= (n v)^2 sum |x|. */
enum { WAYS = 8 };
typedef struct pair {
    double high[WAYS], low[WAYS], absolute[WAYS];
} pair;

static inline void add_to(pair *p, int k, double x) {
    double s = p->high[k] + x, b = s - p->high[k];
    p->low[k] += (p->high[k] - (s - b)) + (x - b);
    p->high[k] = s;
    p->absolute[k] += fabs(x);
}

static void finish(pair *p, double *high, double *low, double *absolute) {
    for (int k = 1; k < WAYS; k++) {
        add_to(p, 0, p->high[k]);
        p->low[0] += p->low[k];
        p->absolute[0] += p->absolute[k] - fabs(p->high[k]);
    }
    *high = p->high[0] + p->low[0];
    *low = p->low[0] - (*high - p->high[0]);
    *absolute = p->absolute[0] * (1 + 0x1p-30);
}

static void sum_of(const double *x, int64_t n, double *high, double *low, double *absolute) {
    pair p = {0};
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS)
        for (int k = 0; k < WAYS; k++)
            add_to(&p, k, x[i + k]);
    for (int k = 0; i + k < n; k++)
        add_to(&p, k, x[i + k]);
    finish(&p, high, low, absolute);
}

/* (high + low) / n as such a pair; adds less than 4 v^2 of it. */
static void divide(double n, double *high, double *low) {
    double q = *high / n;
    *low = (fma(-q, n, *high) + *low) / n;
    *high = q;
}

/* ---- the kernel's own arithmetic ----------------------------------------------------------------------------------*/
/* Roundings that a term of a row's sum passes through: of the chain that it is in, and of the halving. */
static double row_depth(const ng_norm *norm, int64_t n) {
    double lanes = 32;
    if (norm->order != NG_NORM_LANES) return (double)n + 1; /* one more: products need not be fused */
    while (lanes < 1024 && (double)n > 32 * lanes)
        lanes *= 2;
    return ceil((double)n / (8 * lanes)) + 3 + log2(lanes);
}

static double column_depth(const ng_norm *norm, int64_t rows, int64_t n) {
    double lanes = 32;
    if (norm->order != NG_NORM_LANES) return (double)rows + 1;
    while (lanes < 1024 && (double)n > 32 * lanes)
        lanes *= 2;
    double groups = lanes < 256 ? 256 / lanes : 1, blocks = lanes <= 256 ? 264 : lanes == 512 ? 132 : 64;
    return ceil((double)rows / (blocks * groups)) + groups - 1 + ceil(blocks / 16) + 4;
}

static double unfused(const ng_norm *norm) { return norm->order == NG_NORM_LANES ? 0 : u; }

/* Forward. h = row_depth, m1 = mean |x|, A = V + eps.
 *   |mean^ - mean| <= g(h + 1) m1 =: D (h additions, one division)
 *   d^ = fl(x - mean^): |d^ - d| <= D + u (|d| + D) =: Delta
 *   sum (x - mean^)^2 = C (V + (mean^ - mean)^2), and d^'s two u, h additions, one division:
 *     |V^ - V| <= D^2 + g(h + 3) (V + D^2) + 2^-149 (squares that underflow: 2^-150 each, C of them over C)
 *   e^ = fl(eps), one addition: |A^ / A - 1| <= (|V^ - V| + u eps + 2^-149) / A (1 + u) + u =: a
 *   square root and division: |r^ / r - 1| <= (1 + u) / (sqrt(1 - a) (1 - u)) - 1 =: rho, infinite if a >= 1
 *   t = d r: |t^ - t| <= r (Delta (1 + rho) + |d| rho) (1 + u) + u |t| + 2^-149
 *   y = t w + beta, |w^ - w| <= u |w| if 1 is added: |y^ - y| <= |t^ - t| (1 + u) |w| + |t| |w^ - w| + u |y| (1 + ..) + 2^-149
 * Squares or sums beyond binary32 have no bound. */
typedef struct allowance {
    double D, rho, rho_limit, variance;
    bool overflow, sum_overflow;
} allowance;

static allowance forward_allowance(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_row *r, int64_t n) {
    double h = row_depth(norm, n), C = (double)n, V = r->variance, A = V + o->epsilon;
    allowance a = {.D = norm->kind == NG_LAYER_NORM ? gamma_k(h + 1) * r->absolute + tiny : 0};
    a.variance = a.D * a.D + gamma_k(h + 3) * (V + a.D * a.D) + tiny;
    double relative = (a.variance + u * o->epsilon + tiny) / A * (1 + u) + u;
    a.rho = relative < 1 ? (1 + u) / (sqrt(1 - relative) * (1 - u)) - 1 : INFINITY;
    a.sum_overflow = norm->kind == NG_LAYER_NORM && !(r->absolute * C * (1 + gamma_k(h)) < largest);
    a.overflow = a.sum_overflow || !((V + a.D * a.D) * C * (1 + gamma_k(h + 3)) < largest) || !(A > 0);
    return a;
}

static double element_bound(const ng_norm *norm, const allowance *a, double r, double d, double w, double y) {
    double t = fabs(d) * r, Delta = norm->kind == NG_LAYER_NORM ? a->D + u * (fabs(d) + a->D) : 0;
    double w_error = norm->zero_centered ? u * fabs(w) : 0;
    double t_error = r * (Delta * (1 + a->rho) + fabs(d) * a->rho) * (1 + u) + u * t + tiny;
    double error = t_error * (fabs(w) + w_error) + t * w_error + unfused(norm) * t * fabs(w) * (1 + a->rho);
    return error + u * (fabs(y) + error) + tiny;
}

/* ---- forward, fast ------------------------------------------------------------------------------------------------*/
static bool all_finite(const double *x, int64_t n) {
    double zero = 0;
    for (int64_t j = 0; j < n; j++)
        zero += x[j] * 0;
    return zero == 0;
}

static void forward_statistics(const ng_norm *norm, const ng_norm_operands *o, double *x, int64_t n, ng_norm_row *r) {
    double C = (double)n, low, unused, pairs = C * v * C * v + 4 * v * v;
    if (norm->kind == NG_LAYER_NORM) {
        sum_of(x, n, &r->mean, &r->mean_low, &r->absolute);
        divide(C, &r->mean, &r->mean_low);
        r->absolute /= C;
        r->mean_remainder = pairs * r->absolute;
    }
    for (int64_t j = 0; j < n; j++)
        x[j] = (x[j] - r->mean) - r->mean_low; /* d, off by 2 v |d| and the mean's remainder */
    pair p = {0};
    for (int64_t j = 0; j < n; j++)
        add_to(&p, (int)(j % WAYS), x[j] * x[j]);
    finish(&p, &r->variance, &low, &unused);
    r->variance = (r->variance + low) / C;
    double A = r->variance + o->epsilon, off = 16 * v * r->variance + 2 * sqrt(r->variance) * r->mean_remainder + r->mean_remainder * r->mean_remainder;
    r->rstd = 1 / sqrt(A);
    r->rstd_relative = off / A + 8 * v;
}

/* IEEE 754 on the contract's formulas, where an input is not finite: everything is NaN, or RMSNorm's rstd is 0. */
static void nonfinite_row(const ng_norm *norm, double *x, int64_t n, ng_norm_row *r) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; j++) {
        sum += x[j];
        squares += x[j] * x[j];
    }
    r->mean = norm->kind == NG_LAYER_NORM ? sum : 0;
    r->rstd = norm->kind == NG_LAYER_NORM || isnan(squares) ? NAN : 0;
}

static void forward_row(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, int64_t at, double *x,
                        ng_tier tier, ng_norm_truth *t) {
    int64_t n = o->in->columns;
    double *high = t->element.high + at * n, *low = t->element.low + at * n;
    ng_norm_row r = {0};
    ng_tier used = NG_TIER_DOUBLE_DOUBLE;
    ng_decode_row(o->in, row, 0, n, x);
    if (!all_finite(x, n)) {
        nonfinite_row(norm, x, n, &r);
        for (int64_t j = 0; j < n; j++)
            put(&t->element, at * n + j, r.rstd == 0 ? x[j] * 0 * w->w[j] : NAN, 0, 0, 0);
        put(&t->mean, at, r.mean, 0, 0, 0);
        put(&t->rstd, at, r.rstd, 0, 0, 0);
        goto done;
    }
    bool again = tier == NG_TIER_MPFR;
    if (!again) {
        forward_statistics(norm, o, x, n, &r);
        again = !(r.rstd_relative < 0x1p-44); /* nothing but remainders, as of a variance that is lost in them */
    }
    if (again) {
        ng_norm_mpfr_forward_row(norm, o, w, row, x, &r, high, low);
        used = NG_TIER_MPFR;
    }
    const allowance a = forward_allowance(norm, o, &r, n);
    for (int64_t j = 0; j < n; j++) {
        double product = x[j] * r.rstd * w->w[j], y = again ? high[j] : product + w->beta[j];
        double remainder = again ? 0 : fabs(product) * (r.rstd_relative + 8 * v) + r.rstd * fabs(w->w[j]) * r.mean_remainder + 2 * v * (fabs(y) + fabs(w->beta[j]));
        double bound = a.overflow ? INFINITY : element_bound(norm, &a, r.rstd, x[j], w->w[j], y);
        put(&t->element, at * n + j, y, again ? low[j] : 0, remainder, bound);
    }
    put(&t->mean, at, r.mean, r.mean_low, again ? 0 : r.mean_remainder, a.sum_overflow ? INFINITY : a.D);
    put(&t->rstd, at, r.rstd, r.rstd_low, again ? 0 : r.rstd * r.rstd_relative, a.overflow ? INFINITY : r.rstd * a.rho + tiny);
done:
#pragma omp atomic
    t->by_tier[used] += n;
}

/* ---- backward -----------------------------------------------------------------------------------------------------*/
/* Everything but c1 and c2 is a product or difference of given numbers. With s roundings in h (two; three if 1 is added to the
 * divisor) and q in g (one; two if 1 is added):
 *   |h^ - h| <= g(s + 1) |h| + 2^-148 =: H, |g^ - g| <= g(q) |g| + 2^-149 =: G
 *   |c1^ - c1| <= g(q + depth + 1) mean |g| + 2^-148; |c2^ - c2| <= g(s + q + depth + 2) mean |g h| + 2^-148 (1 + mean |g| + ..)
 *   t = g - c1: T = G + |c1^ - c1| + u (|t| + ...); s = t - h c2: S = T + |h| |c2^ - c2| + (|c2| + |c2^ - c2|) H + u (|s| + ...)
 *   |dx^ - dx| <= rstd S (1 + u) + u |dx| + 2^-149. */
static double hat_roundings(const ng_norm *norm) { return norm->from_output && norm->zero_centered ? 4 : 3; }
static double gradient_roundings(const ng_norm *norm) { return norm->zero_centered ? 2 : 1; }
/* An underflow in h, for what multiplies it: of the division or product, 2^-149 each. */
static const double hat_tiny = 0x1p-148;

static double hat_of(const ng_norm *norm, const ng_norm_weights *w, double x, int64_t j, double mean, double rstd) {
    return norm->from_output ? (x - w->beta[j]) / w->divisor[j] : (x - mean) * rstd;
}

/* Whether h's difference or h itself may be infinite in binary32. */
static bool hat_overflows(const ng_norm *norm, const ng_norm_weights *w, double x, int64_t j, double mean, double h) {
    return !(fabs(x - (norm->from_output ? w->beta[j] : mean)) * 1.0001 < largest) || !(fabs(h) * 1.0001 < largest);
}

typedef struct gradients {
    double mean, rstd;
} gradients;

static gradients statistics_of(const ng_norm *norm, const ng_norm_operands *o, int64_t row) {
    return (gradients){norm->kind == NG_LAYER_NORM && !norm->from_output ? ng_get_value(o->mean, row, 0) : 0, ng_get_value(o->rstd, row, 0)};
}

static double backward_bound(const ng_norm *norm, const ng_norm_row *r, double depth, double h, double g) {
    double s = hat_roundings(norm), q = gradient_roundings(norm), centered = norm->kind == NG_LAYER_NORM;
    double H = gamma_k(s) * fabs(h) + hat_tiny, G = gamma_k(q) * fabs(g) + tiny;
    double c1 = centered * (gamma_k(q + depth + 1) * r->g_absolute + hat_tiny);
    double c2 = gamma_k(s + q + depth + 2) * r->gh_absolute + hat_tiny * (2 + r->g_absolute) + tiny * fabs(h);
    double t = g - r->g, T = G + c1;
    T += u * (fabs(t) + T) * centered;
    double S = T + fabs(h) * c2 + (fabs(r->gh) + c2) * H + unfused(norm) * fabs(h) * (fabs(r->gh) + c2), exact = t - h * r->gh;
    S += u * (fabs(exact) + S) + tiny;
    return r->rstd * S * (1 + u) + u * fabs(r->rstd * exact) + tiny;
}

static void backward_row(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, int64_t at, double *x,
                         ng_tier tier, ng_norm_truth *t) {
    int64_t n = o->in->columns;
    double *h = x, *g = x + n, *gh = x + 2 * n, C = (double)n, depth = row_depth(norm, n);
    double *high = t->element.high + at * n, *low = t->element.low + at * n;
    const gradients given = statistics_of(norm, o, row);
    ng_norm_row r = {.rstd = given.rstd};
    ng_tier used = NG_TIER_DOUBLE_DOUBLE;
    ng_decode_row(o->in, row, 0, n, h);
    ng_decode_row(o->gradient, row, 0, n, g);
    bool finite = all_finite(h, n) && all_finite(g, n) && isfinite(given.mean) && isfinite(given.rstd);
    bool overflow = false;
    for (int64_t j = 0; j < n; j++) {
        double value = h[j];
        h[j] = hat_of(norm, w, value, j, given.mean, given.rstd);
        overflow |= hat_overflows(norm, w, value, j, given.mean, h[j]);
        g[j] *= w->w[j];
        gh[j] = g[j] * h[j];
    }
    if (norm->kind == NG_LAYER_NORM) sum_of(g, n, &r.g, &r.g_low, &r.g_absolute);
    else {
        double unused;
        sum_of(g, n, &unused, &unused, &r.g_absolute);
    }
    sum_of(gh, n, &r.gh, &r.gh_low, &r.gh_absolute);
    overflow |= !(r.g_absolute * 1.0001 < largest) || !(r.gh_absolute * 1.0001 < largest);
    divide(C, &r.g, &r.g_low);
    divide(C, &r.gh, &r.gh_low);
    r.g_absolute /= C;
    r.gh_absolute /= C;
    double c1_off = (C * v * C * v + 4 * v) * r.g_absolute, c2_off = (C * v * C * v + 16 * v) * r.gh_absolute;
    bool again = finite && tier == NG_TIER_MPFR;
    if (again) {
        ng_norm_mpfr_backward_row(norm, o, w, row, x, &r, high, low);
        used = NG_TIER_MPFR;
    }
    for (int64_t j = 0; j < n; j++) {
        double dx = again ? high[j] : r.rstd * (((g[j] - r.g) - r.g_low) - h[j] * r.gh);
        double remainder = again ? 0 : r.rstd * (c1_off + fabs(h[j]) * c2_off + 16 * v * (fabs(g[j]) + fabs(r.g) + fabs(h[j] * r.gh)));
        if (!finite) put(&t->element, at * n + j, norm->kind == NG_LAYER_NORM ? NAN : dx, 0, 0, norm->kind == NG_LAYER_NORM ? 0 : INFINITY);
        else put(&t->element, at * n + j, dx, again ? low[j] : 0, remainder,
                 overflow || !(fabs(g[j]) + fabs(r.g) + fabs(h[j] * r.gh) < largest / 2) ? INFINITY : backward_bound(norm, &r, depth, h[j], g[j]));
    }
#pragma omp atomic
    t->by_tier[used] += n;
}

/* ---- sums over rows -----------------------------------------------------------------------------------------------*/
/* dgamma: |sum^ - sum| <= g(s + depth) sum |dy h| + 2^-149 R + hat_tiny sum |dy|; dbeta: g(depth) sum |dy|. */
static void sum_columns(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int which, int64_t from, int64_t count,
                        pair *pairs, double *x, ng_norm_truth *t) {
    int64_t rows = o->in->rows, n = o->in->columns;
    double *dy = x + count, depth = column_depth(norm, rows, n), R = (double)rows;
    memset(pairs, 0, sizeof *pairs * (size_t)count);
    for (int64_t row = 0; row < rows; row++) {
        const gradients given = statistics_of(norm, o, row);
        ng_decode_row(o->gradient, row, from, count, dy);
        if (which == 0) ng_decode_row(o->in, row, from, count, x);
        for (int64_t j = 0; j < count; j++) {
            double h = which ? 1 : hat_of(norm, w, x[j], from + j, given.mean, given.rstd);
            add_to(&pairs[j], 0, dy[j] * h);
            if (!which && hat_overflows(norm, w, x[j], from + j, given.mean, h)) pairs[j].absolute[2] = INFINITY;
            pairs[j].absolute[1] += fabs(dy[j]);
        }
    }
    for (int64_t j = 0; j < count; j++) {
        double high, low, plain = pairs[j].absolute[1] * (1 + 0x1p-30), absolute;
        bool hat_overflow = pairs[j].absolute[2] > 0;
        pairs[j].absolute[1] = pairs[j].absolute[2] = 0;
        finish(&pairs[j], &high, &low, &absolute);
        double remainder = which ? R * v * R * v * absolute : (R * v * R * v + 8 * v) * absolute;
        double bound = which ? gamma_k(depth) * absolute : gamma_k(hat_roundings(norm) + depth + 1) * absolute + R * tiny + hat_tiny * plain;
        bool finite = isfinite(absolute), overflow = hat_overflow || !(absolute * 1.0001 < largest);
        if (!finite) put(&t->element, from + j, high, 0, 0, isnan(high) ? 0 : INFINITY);
        else put(&t->element, from + j, high, low, remainder, overflow ? INFINITY : bound);
    }
}

ng_status ng_norm_sums(const ng_norm *norm, const ng_norm_operands *o, int which, ng_tier tier, int threads, ng_norm_truth *t) {
    enum { AT_ONCE = 64 };
    int64_t n = o->in->columns;
    ng_norm_weights w;
    ng_status status = make_weights(norm, o, &w);
    if (status) return status;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t from = 0; from < n; from += AT_ONCE) {
        pair pairs[AT_ONCE];
        double x[2 * AT_ONCE];
        int64_t count = n - from < AT_ONCE ? n - from : AT_ONCE;
        sum_columns(norm, o, &w, which, from, count, pairs, x, t);
        for (int64_t j = from; tier == NG_TIER_MPFR && j < from + count; j++)
            if (isfinite(t->element.high[j])) ng_norm_mpfr_sum(norm, o, &w, which, j, &t->element.high[j], &t->element.low[j]);
    }
    t->by_tier[tier] += n;
    free(w.w);
    return NG_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
typedef void row_function(const ng_norm *, const ng_norm_operands *, const ng_norm_weights *, int64_t, int64_t, double *, ng_tier, ng_norm_truth *);

static ng_status for_rows(row_function *function, const ng_norm *norm, const ng_norm_operands *o, int64_t row0, int64_t rows, ng_tier tier,
                          int threads, ng_norm_truth *t) {
    ng_norm_weights w;
    ng_status status = make_weights(norm, o, &w);
    if (status) return status;
#pragma omp parallel num_threads(threads)
    {
        double *x = malloc(sizeof *x * 3 * (size_t)o->in->columns);
        if (!x) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++)
            if (x) function(norm, o, &w, row0 + row, row, x, tier, t);
        free(x);
    }
    free(w.w);
    return status;
}

ng_status ng_norm_forward(const ng_norm *norm, const ng_norm_operands *o, int64_t row0, int64_t rows, ng_tier tier, int threads, ng_norm_truth *t) {
    return for_rows(forward_row, norm, o, row0, rows, tier, threads, t);
}

ng_status ng_norm_backward(const ng_norm *norm, const ng_norm_operands *o, int64_t row0, int64_t rows, ng_tier tier, int threads, ng_norm_truth *t) {
    return for_rows(backward_row, norm, o, row0, rows, tier, threads, t);
}

/* ---- beside the norm itself ---------------------------------------------------------------------------------------*/
void ng_norm_add(const ng_tensor *x, const ng_tensor *residual, int threads, ng_tensor *out) {
    static const ng_cast cast = {.rounding = NG_RN_EVEN};
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++) {
            float sum = (float)ng_get_value(x, i, j) + (float)ng_get_value(residual, i, j);
            ng_set_code(out, i, j, ng_round(out->format, (double)sum, &cast, 0));
        }
}

double ng_norm_encoding(const ng_quantization *q, double scale, double tensor_scale) {
    if (q->scale == NG_E8M0) return 1 / scale;
    if (scale == 0) return 0;
    float encode = 1.0f / ((float)scale * (float)tensor_scale);
    return encode > FLT_MAX ? (double)FLT_MAX : (double)encode;
}
