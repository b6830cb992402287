/* The bits of a norm whose order the contract fixes, element by element from the text of kernels/contract_norm.h: a chain is
 * found by its index, a halving by recursion. */
#include "reference/norm.h"

#include "reference/round.h"

#include <math.h>
#include <stdlib.h>

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

static float at(const ng_tensor *t, int64_t i, int64_t j) { return (float)ng_get_value(t, i, j); }

static void set(const ng_tensor *t, const ng_cast *cast, int64_t i, int64_t j, float x) {
    if (t && t->data) ng_set_code(t, i, j, ng_round(t->format, (double)x, cast, 0));
}

static float halve(const float *s, int64_t n, int64_t stride) {
    if (n == 1) return s[0];
    return halve(s, n / 2, 2 * stride) + halve(s + stride, n / 2, 2 * stride);
}

/* (s_k + s_(k + n/2)) until one is left joins elements whose indices agree in their low bits first: even and odd halves last. */
static float halved(const float *s, int64_t n) { return halve(s, n, 1); }

static int64_t lanes_of(int64_t columns) {
    for (int64_t lanes = 32; lanes < 1024; lanes *= 2)
        if (columns <= 32 * lanes) return lanes;
    return 1024;
}

/* The row's sum, `a[j]` or, with b, a[j] b[j] by fma. */
static float row_sum(const float *a, const float *b, int64_t n) {
    int64_t lanes = lanes_of(n), chains = 8 * lanes;
    float of_lane[1024], of_warp[32];
    for (int64_t lane = 0; lane < lanes; lane++) {
        float eight[8];
        for (int64_t e = 0; e < 8; e++) {
            eight[e] = 0;
            for (int64_t j = 8 * lane + e; j < n; j += chains)
                eight[e] = b ? fmaf(a[j], b[j], eight[e]) : eight[e] + a[j];
        }
        of_lane[lane] = halved(eight, 8);
    }
    for (int64_t warp = 0; warp < lanes / 32; warp++)
        of_warp[warp] = halved(of_lane + 32 * warp, 32);
    return halved(of_warp, lanes / 32);
}

static float weight(const ng_norm *norm, const ng_norm_operands *o, int64_t j) {
    return norm->zero_centered ? 1.0f + at(o->gamma, 0, j) : at(o->gamma, 0, j);
}

static void forward_row(const ng_norm *norm, const ng_norm_operands *o, int64_t row, float *d, const ng_tensor *y, const ng_tensor *mean,
                        const ng_tensor *rstd) {
    int64_t n = o->in->columns;
    bool centered = norm->kind == NG_LAYER_NORM;
    ng_decode_row_float(o->in, row, 0, n, d);
    if (centered) {
        float m = row_sum(d, NULL, n) / (float)n;
        set(mean, &nearest, row, 0, m);
        for (int64_t j = 0; j < n; j++)
            d[j] -= m;
    }
    float r = 1.0f / sqrtf(row_sum(d, d, n) / (float)n + (float)o->epsilon);
    set(rstd, &nearest, row, 0, r);
    for (int64_t j = 0; j < n; j++) {
        float t = d[j] * r;
        set(y, &nearest, row, j, centered ? fmaf(t, weight(norm, o, j), at(o->beta, 0, j)) : t * weight(norm, o, j));
    }
}

static float hat(const ng_norm *norm, const ng_norm_operands *o, int64_t row, int64_t j) {
    bool centered = norm->kind == NG_LAYER_NORM;
    float x = at(o->in, row, j), e = (float)o->epsilon;
    if (!norm->from_output) return (centered ? x - at(o->mean, row, 0) : x) * at(o->rstd, row, 0);
    float c = weight(norm, o, j);
    if (fabsf(c) < e) c = copysignf(e, c);
    return (centered ? x - at(o->beta, 0, j) : x) / c;
}

static void backward_row(const ng_norm *norm, const ng_cast *cast, const ng_norm_operands *o, int64_t row, float *h, const ng_tensor *dx) {
    int64_t n = o->in->columns;
    float *g = h + n, r = at(o->rstd, row, 0), c1 = 0;
    for (int64_t j = 0; j < n; j++) {
        h[j] = hat(norm, o, row, j);
        g[j] = at(o->gradient, row, j) * weight(norm, o, j);
    }
    if (norm->kind == NG_LAYER_NORM) c1 = row_sum(g, NULL, n) / (float)n;
    float c2 = row_sum(g, h, n) / (float)n;
    for (int64_t j = 0; j < n; j++)
        set(dx, cast, row, j, r * fmaf(-h[j], c2, g[j] - c1));
}

static float column_sum(const ng_norm *norm, const ng_norm_operands *o, int which, int64_t column) {
    int64_t rows = o->in->rows, lanes = lanes_of(o->in->columns), groups = lanes < 256 ? 256 / lanes : 1;
    int64_t blocks = lanes <= 256 ? 264 : lanes == 512 ? 132 : 64;
    float chains[16] = {0};
    for (int64_t block = 0; block < blocks && block * groups < rows; block++) {
        float sum = 0;
        for (int64_t group = 0; group < groups; group++) {
            float chain = 0;
            for (int64_t row = block * groups + group; row < rows; row += blocks * groups) {
                float dy = at(o->gradient, row, column);
                chain = which ? chain + dy : fmaf(dy, hat(norm, o, row, column), chain);
            }
            sum = group ? sum + chain : chain;
        }
        chains[block % 16] += sum;
    }
    return halved(chains, 16);
}

ng_status ng_predict_norm_forward(const ng_norm *norm, const ng_norm_operands *o, int threads, ng_tensor *y, ng_tensor *mean,
                                  ng_tensor *rstd) {
    ng_status status = NG_OK;
    if (norm->order != NG_NORM_LANES) return NG_UNSUPPORTED;
#pragma omp parallel num_threads(threads)
    {
        float *d = malloc(sizeof *d * (size_t)o->in->columns);
        if (!d) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < o->in->rows; row++)
            if (d) forward_row(norm, o, row, d, y, mean, rstd);
        free(d);
    }
    return status;
}

ng_status ng_predict_norm_backward(const ng_norm *norm, const ng_cast *cast, const ng_norm_operands *o, int threads, ng_tensor *dx,
                                   ng_tensor *dgamma, ng_tensor *dbeta) {
    ng_status status = NG_OK;
    if (norm->order != NG_NORM_LANES) return NG_UNSUPPORTED;
#pragma omp parallel num_threads(threads)
    {
        float *h = malloc(sizeof *h * 2 * (size_t)o->in->columns);
        if (!h) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < o->in->rows; row++)
            if (h) backward_row(norm, cast, o, row, h, dx);
#pragma omp for schedule(static)
        for (int64_t j = 0; j < o->in->columns; j++) {
            set(dgamma, &nearest, 0, j, column_sum(norm, o, 0, j));
            if (norm->kind == NG_LAYER_NORM) set(dbeta, &nearest, 0, j, column_sum(norm, o, 1, j));
        }
        free(h);
    }
    return status;
}
