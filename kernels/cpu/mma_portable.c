/* The step kernels with the vectors that every machine of the architecture has, and the careful scalar step. */
#define NG_MMA_BYTES 16
#define NG_MMA_STEPS ng_mma_portable
#include "mma_steps.h"

enum { MOST_TERMS = 256 };

static int raw_exponent(double x, int floor) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52 & 0x7FF) - 1023;
    return e > floor ? e : floor;
}

/* The sum where a NaN or an infinity is among the terms: finite ones do not matter. */
static float special(const double *term, int terms, float c) {
    double sum = isfinite(c) ? 0 : (double)c;
    for (int t = 0; t < terms; t++)
        if (!isfinite(term[t])) sum += term[t];
    return (float)sum;
}

static float group_sum(const ng_mma_job *job, const double *term, const int *exponent, int terms, float c) {
    int e = job->min_exponent;
    bool finite = isfinite(c);
    for (int t = 0; t < terms; t++) {
        finite = finite && isfinite(term[t]);
        if (term[t] != 0 && exponent[t] > e) e = exponent[t];
    }
    if (!finite) return special(term, terms, c);
    if (c != 0 && raw_exponent(c, -126) > e) e = raw_exponent(c, -126);
    double m = ldexp(1, e - job->fraction_bits + 52), signed_m = copysign(m, c);
    double sum = (c + signed_m) - signed_m;
    for (int t = 0; t < terms; t++) {
        signed_m = copysign(m, term[t]);
        sum += (term[t] + signed_m) - signed_m;
    }
    if (fabs(sum) >= 0x1p128) return copysignf(INFINITY, (float)sum);
    float result = (float)sum;
    uint32_t bits;
    memcpy(&bits, &result, sizeof bits);
    bits &= job->mask;
    memcpy(&result, &bits, sizeof bits);
    return result == 0 ? 0 : result;
}

/* The group's terms: products, or dots under their scales. */
static int group_terms(const ng_mma_job *job, int k0, const float *a, int a_floor, const float *b, int b_floor,
                       const double *a_scales, const double *b_scales, int scale_floor, double *term, int *exponent) {
    const int length = job->dot ? job->dot : 1, terms = job->group / length;
    for (int t = 0; t < terms; t++) {
        const int k = k0 + t * length;
        double x = 0, sa = 1, sb = 1;
        for (int l = k; l < k + length; l++)
            x += (double)a[l] * (double)b[l];
        exponent[t] = job->dot ? 0 : raw_exponent(a[k], a_floor) + raw_exponent(b[k], b_floor);
        if (a_scales) {
            sa = a_scales[k / job->scale_block], sb = b_scales[k / job->scale_block];
            exponent[t] += raw_exponent(sa, scale_floor) + raw_exponent(sb, scale_floor);
        }
        term[t] = x * sa * sb;
    }
    return terms;
}

float ng_mma_careful(const ng_mma_job *job, const float *a, int a_floor, const float *b, int b_floor,
                     const double *a_scales, const double *b_scales, int scale_floor, float c) {
    double term[MOST_TERMS];
    int exponent[MOST_TERMS];
    for (int g = 0; g < job->groups; g++) {
        int terms = group_terms(job, g * job->group, a, a_floor, b, b_floor, a_scales, b_scales, scale_floor, term, exponent);
        c = group_sum(job, term, exponent, terms, c);
    }
    return c;
}
