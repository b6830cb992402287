/* Causal attention of one head of one sequence in REAL arithmetic (contract_layer.h); included once a type by attention.c, which defines
 * REAL, EXP, SQRT, FMA and NAME. The loops run so that every chain keeps its order while the compiler vectorises across chains. */

typedef struct NAME(head) {
    REAL *q, *k, *v, *g, *dq, *dk, *dv; /* [s][d] */
    REAL *kt, *vt;                      /* [d][s] */
    REAL *e, *a;                        /* [s] */
    int64_t s, d;
    bool causal;
} NAME(head);

static size_t NAME(head_reals)(int64_t s, int64_t d) { return (size_t)(9 * s * d + 2 * s); }

static NAME(head) NAME(head_of)(REAL *memory, int64_t s, int64_t d, bool causal) {
    NAME(head) h = {.s = s, .d = d, .causal = causal};
    REAL **parts[] = {&h.q, &h.k, &h.v, &h.g, &h.dq, &h.dk, &h.dv, &h.kt, &h.vt};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i] = memory + (int64_t)i * s * d;
    h.e = memory + 9 * s * d;
    h.a = h.e + s;
    return h;
}

NG_ALWAYS_INLINE void NAME(transpose)(const REAL *x, int64_t s, int64_t d, REAL *t) {
    for (int64_t i = 0; i < s; i++)
        for (int64_t c = 0; c < d; c++)
            t[c * s + i] = x[i * d + c];
}

/* out[j] = chain over c of x[c] * columns[c][j] */
NG_ALWAYS_INLINE void NAME(products)(const REAL *x, const REAL *columns, int64_t s, int64_t n, int64_t d, REAL *restrict out) {
    for (int64_t j = 0; j < n; j++)
        out[j] = 0;
    for (int64_t c = 0; c < d; c++)
        for (int64_t j = 0; j < n; j++)
            out[j] = FMA(x[c], columns[c * s + j], out[j]);
}

/* e[j] of row i; returns l. */
NG_ALWAYS_INLINE REAL NAME(softmax)(const NAME(head) *h, int64_t i, int64_t n, REAL scale) {
    REAL *restrict e = h->e, most, l = 0;
    NAME(products)(h->q + i * h->d, h->kt, h->s, n, h->d, e);
    for (int64_t j = 0; j < n; j++)
        e[j] *= scale;
    most = e[0];
    for (int64_t j = 1; j < n; j++)
        most = e[j] > most || e[j] != e[j] ? e[j] : most;
    for (int64_t j = 0; j < n; j++)
        e[j] = EXP(e[j] - most);
    for (int64_t j = 0; j < n; j++)
        l += e[j];
    return l;
}

/* into[c] continues its chain by weight * x[c] */
NG_ALWAYS_INLINE void NAME(add_product)(REAL weight, const REAL *x, int64_t d, REAL *restrict into) {
    for (int64_t c = 0; c < d; c++)
        into[c] = FMA(weight, x[c], into[c]);
}

/* out: h->dq */
NG_ALWAYS_INLINE void NAME(forward_head)(const NAME(head) *h) {
    const REAL scale = (REAL)1 / SQRT((REAL)h->d);
    NAME(transpose)(h->k, h->s, h->d, h->kt);
    for (int64_t i = 0; i < h->s; i++) {
        const int64_t n = h->causal ? i + 1 : h->s;
        REAL *out = h->dq + i * h->d, l = NAME(softmax)(h, i, n, scale);
        memset(out, 0, (size_t)h->d * sizeof *out);
        for (int64_t j = 0; j < n; j++)
            NAME(add_product)(h->e[j], h->v + j * h->d, h->d, out);
        for (int64_t c = 0; c < h->d; c++)
            out[c] /= l;
    }
}

NG_ALWAYS_INLINE void NAME(backward_head)(const NAME(head) *h) {
    const REAL scale = (REAL)1 / SQRT((REAL)h->d);
    const int64_t d = h->d;
    NAME(transpose)(h->k, h->s, d, h->kt);
    NAME(transpose)(h->v, h->s, d, h->vt);
    memset(h->dq, 0, (size_t)(3 * h->s * d) * sizeof *h->dq); /* dq, dk, dv */
    for (int64_t i = 0; i < h->s; i++) {
        const int64_t n = h->causal ? i + 1 : h->s;
        REAL l = NAME(softmax)(h, i, n, scale), r = 0;
        NAME(products)(h->g + i * d, h->vt, h->s, n, d, h->a);
        for (int64_t j = 0; j < n; j++)
            h->e[j] /= l;
        for (int64_t j = 0; j < n; j++)
            r = FMA(h->e[j], h->a[j], r);
        for (int64_t j = 0; j < n; j++) {
            REAL t = h->e[j] * (h->a[j] - r) * scale;
            NAME(add_product)(t, h->k + j * d, d, h->dq + i * d);
            NAME(add_product)(t, h->q + i * d, d, h->dk + j * d);
            NAME(add_product)(h->e[j], h->g + i * d, d, h->dv + j * d);
        }
    }
}
