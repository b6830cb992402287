/* BLAS products and the test that they are exact where they must be.
 *
 * A BLAS may cut k and use fma as it likes: exact partial sums leave it no choice of result. What would break this is an
 * algorithm that is not a sum of products (Strassen), a narrower emulation, or a defective kernel for edge tiles. */
#include "reference/blas.h"
#include "reference/gemm.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>

void ng_blas_dgemm(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, 1.0, a, (int)k, b, (int)k, 0.0, c, (int)n);
}

void ng_blas_sgemm(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, 1.0f, a, (int)k, b, (int)k, 0.0f, c, (int)n);
}

int ng_useful_threads(int threads, int64_t m, int64_t n, int64_t k) {
    if ((double)m * (double)n * (double)k < 0x1p18) return 1; /* less than a millisecond */
    return threads > 0 ? threads : omp_get_max_threads();
}

int ng_blas_set_threads(int threads) {
    int before = openblas_get_num_threads();
    openblas_set_num_threads(threads > 0 ? threads : 1);
    return before;
}

/* Shapes around the register and cache tiles of current kernels (2 to 24 rows or columns, k unrolled by up to 16, cache
 * blocks of 192 to 512), each m with each n with each k of its class. */
static const int16_t small[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 23, 25};
static const int16_t small_k[] = {1, 2, 3, 5, 8, 15, 17, 33};
static const int16_t large[][3] = {{1, 300, 700}, {300, 1, 700},  {65, 67, 1025}, {129, 130, 257},
                                   {31, 33, 4099}, {257, 49, 515}, {50, 321, 321}, {200, 200, 100}};

enum { COUNT = sizeof small / sizeof *small, COUNT_K = sizeof small_k / sizeof *small_k };
enum { LARGE = sizeof large / sizeof *large, ELEMENTS = 300000 };

/* Integers of at most `bits` bits and a sign from a 64-bit linear congruential generator (Knuth's MMIX constants). */
static int64_t draw(uint64_t *state, int bits) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    int64_t magnitude = (int64_t)(*state >> 32) & ((INT64_C(1) << bits) - 1);
    return *state >> 31 & 1 ? -magnitude : magnitude;
}

/* Largest b with k (2^b)^2 <= 2^total. */
static int operand_bits(int total, int64_t k) {
    int log_k = 0;
    while (INT64_C(1) << log_k < k)
        log_k++;
    return (total - log_k) / 2;
}

/* The products' true sums, in 64-bit integers. The first rows are the largest value of one sign and end in an odd one, so
 * that a sum needs all of its 53 (24) bits: the last bit is the first to go. */
static void fill(int64_t *x, int64_t rows, int64_t k, int bits, uint64_t *state) {
    for (int64_t i = 0; i < rows * k; i++)
        x[i] = i < k ? (INT64_C(1) << bits) - (i == k - 1) : draw(state, bits);
}

typedef struct buffers {
    int64_t *a, *b;
    double *da, *db, *dc;
    float *fa, *fb, *fc;
} buffers;

static int64_t true_sum(const int64_t *a, const int64_t *b, int64_t k) {
    int64_t sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool exact_double(ng_dgemm *dgemm, const buffers *x, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m * k; i++)
        x->da[i] = (double)x->a[i];
    for (int64_t i = 0; i < n * k; i++)
        x->db[i] = (double)x->b[i];
    dgemm(m, n, k, x->da, x->db, x->dc);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            if (x->dc[i * n + j] != (double)true_sum(x->a + i * k, x->b + j * k, k)) return false;
    return true;
}

static bool exact_float(ng_sgemm *sgemm, const buffers *x, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m * k; i++)
        x->fa[i] = (float)x->a[i];
    for (int64_t i = 0; i < n * k; i++)
        x->fb[i] = (float)x->b[i];
    sgemm(m, n, k, x->fa, x->fb, x->fc);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            if ((double)x->fc[i * n + j] != (double)true_sum(x->a + i * k, x->b + j * k, k)) return false;
    return true;
}

static bool exact_shape(ng_dgemm *dgemm, ng_sgemm *sgemm, const buffers *x, int64_t m, int64_t n, int64_t k,
                        uint64_t *state) {
    int bits = operand_bits(53, k);
    fill(x->a, m, k, bits, state);
    fill(x->b, n, k, bits, state);
    if (!exact_double(dgemm, x, m, n, k)) return false;
    bits = operand_bits(24, k);
    fill(x->a, m, k, bits, state);
    fill(x->b, n, k, bits, state);
    return exact_float(sgemm, x, m, n, k);
}

ng_status ng_blas_self_test_of(ng_dgemm *dgemm, ng_sgemm *sgemm) {
    ng_status status = NG_NO_MEMORY;
    uint64_t state = 1;
    buffers x = {
        .a = malloc(ELEMENTS * sizeof *x.a),   .b = malloc(ELEMENTS * sizeof *x.b),   .da = malloc(ELEMENTS * sizeof *x.da),
        .db = malloc(ELEMENTS * sizeof *x.db), .dc = malloc(ELEMENTS * sizeof *x.dc), .fa = malloc(ELEMENTS * sizeof *x.fa),
        .fb = malloc(ELEMENTS * sizeof *x.fb), .fc = malloc(ELEMENTS * sizeof *x.fc),
    };
    if (!x.a || !x.b || !x.da || !x.db || !x.dc || !x.fa || !x.fb || !x.fc) goto done;
    status = NG_INTERNAL;
    for (int i = 0; i < COUNT * COUNT * COUNT_K; i++)
        if (!exact_shape(dgemm, sgemm, &x, small[i / COUNT % COUNT], small[i % COUNT], small_k[i / COUNT / COUNT], &state))
            goto done;
    for (int i = 0; i < LARGE; i++)
        if (!exact_shape(dgemm, sgemm, &x, large[i][0], large[i][1], large[i][2], &state)) goto done;
    status = NG_OK;
done:
    free(x.a), free(x.b), free(x.da), free(x.db), free(x.dc), free(x.fa), free(x.fb), free(x.fc);
    return status;
}

ng_status ng_blas_self_test(void) { return ng_blas_self_test_of(ng_blas_dgemm, ng_blas_sgemm); }
