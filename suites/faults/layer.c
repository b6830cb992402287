/* Attention, rotary position, embedding and the other operations of a Transformer that are almost right; and binary64 that is not. Attention is
 * computed here in binary64 and rounded once, which no bound can tell from a right kernel: what is accused is the deviation. */
#include "fault.h"

#include "kernels/common/fp64.h"

#include <math.h>
#include <stdlib.h>

enum {
    RIGHT,
    /* both directions */
    SEES_NEXT,
    SEES_ALL,
    SEES_ONLY_BEFORE,
    SEES_BATCH,
    SCALE_MISSING,
    SCALE_OF_WIDTH,
    MAXIMUM_MISSING,
    BASE_2,
    KEYS_OF_NEXT_HEAD,
    VALUES_FOR_KEYS,
    HEADS_INTERLEAVED,
    /* forward */
    SUM_NOT_RESCALED,
    PROBABILITIES_BF16,
    LAST_KEY_LOST,
    LAST_QUERY_LOST,
    EXP_OF_8_BITS,
    /* backward */
    ROW_SUM_MISSING,
    ROW_SUM_OF_WEIGHTS,
    GRADIENT_UNSCALED,
    DQ_FOR_DK,
    DV_OF_WEIGHTS,
    DIAGONAL_LOST,
    DK_OF_LAST_QUERY,
    SOFTMAX_SLOPE_MISSING,
    DV_BF16_SUM,
};

static float to_bf16(double x) { return ng_float((ng_bits((float)x) + 0x7FFFu + (ng_bits((float)x) >> 16 & 1)) & 0xFFFF0000u); }

typedef struct attention {
    const ng_launch *launch;
    int64_t sequence, heads, d, width, row0, head;
    int twist;
    double *p, *a;         /* [tokens]: weights, then probabilities; g . v */
    double *part[3], *g;   /* [tokens][d]: the head's queries, keys, values; gradients */
} attention;

/* Element c of query, key or value (part) of a token, as the fault finds it. */
static double find(const attention *x, int part, int64_t token, int64_t c) {
    int64_t head = x->head;
    if (x->twist == KEYS_OF_NEXT_HEAD && part == 1) head = (head + 1) % x->heads;
    if (x->twist == VALUES_FOR_KEYS && part > 0) part = 3 - part;
    const int64_t column = x->twist == HEADS_INTERLEAVED ? c * x->heads + head : head * x->d + c;
    return ng_element_double(&x->launch->tensors[NG_IN], token, part * x->width + column);
}

static void gather(const attention *x, bool backward) {
    for (int64_t i = 0; i < x->launch->problem->m; i++)
        for (int64_t c = 0; c < x->d; c++) {
            for (int part = 0; part < 3; part++)
                x->part[part][i * x->d + c] = find(x, part, i, c);
            if (backward) x->g[i * x->d + c] = ng_element_double(&x->launch->tensors[NG_GRADIENT], i, x->head * x->d + c);
        }
}

static double element(const attention *x, int part, int64_t token, int64_t c) { return x->part[part][token * x->d + c]; }
static double gradient(const attention *x, int64_t token, int64_t c) { return x->g[token * x->d + c]; }

/* Tokens that query i (of the whole tensor) sees: [*from, *to). */
static void seen(const attention *x, int64_t i, int64_t *from, int64_t *to) {
    *from = x->twist == SEES_BATCH ? 0 : x->row0;
    *to = i + 1;
    if (x->twist == SEES_NEXT && i + 1 < x->row0 + x->sequence) *to = i + 2;
    if (x->twist == SEES_ALL) *to = x->row0 + x->sequence;
    if ((x->twist == SEES_ONLY_BEFORE || x->twist == DIAGONAL_LOST) && i > x->row0) *to = i;
    if (x->twist == LAST_KEY_LOST && *to == x->row0 + x->sequence && *to > *from + 1) --*to;
}

static double dot(const attention *x, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < x->d; c++)
        sum += element(x, 0, i, c) * element(x, 1, j, c);
    const double scale = x->twist == SCALE_MISSING ? 1 : 1 / sqrt((double)(x->twist == SCALE_OF_WIDTH ? x->width : x->d));
    return sum * scale;
}

/* Weights of the seen tokens; their sum. */
static double weights(const attention *x, int64_t i, int64_t from, int64_t to) {
    double most = -INFINITY, running = -INFINITY, sum = 0;
    for (int64_t j = from; j < to; j++) {
        x->p[j] = dot(x, i, j);
        most = x->p[j] > most || x->p[j] != x->p[j] ? x->p[j] : most;
    }
    for (int64_t j = from; j < to; j++) {
        running = fmax(running, x->p[j]);
        const double argument = x->p[j] - (x->twist == MAXIMUM_MISSING ? 0 : most);
        sum += x->twist == SUM_NOT_RESCALED ? ng_exp64(x->p[j] - running) : 0;
        x->p[j] = x->twist == MAXIMUM_MISSING ? (double)(float)ng_exp64(argument)
                                              : ng_exp64(x->twist == BASE_2 ? argument * 0x1.62e42fefa39efp-1 : argument);
        if (x->twist == EXP_OF_8_BITS) x->p[j] = (double)ng_float(ng_bits((float)x->p[j]) & 0xFFFF8000u);
        if (x->twist == MAXIMUM_MISSING && x->p[j] > FLT_MAX) x->p[j] = INFINITY;
        if (x->twist != SUM_NOT_RESCALED) sum += x->p[j];
    }
    return sum;
}

static void forward_row(const attention *x, int64_t i, double *out) {
    int64_t from, to;
    seen(x, i, &from, &to);
    const double sum = weights(x, i, from, to);
    for (int64_t c = 0; c < x->d; c++) {
        double o = 0;
        for (int64_t j = from; j < to; j++)
            o += (x->twist == PROBABILITIES_BF16 ? (double)to_bf16(x->p[j] / sum) * sum : x->p[j]) * element(x, 2, j, c);
        out[c] = o / sum;
    }
}

/* out: dq, dk, dv of the head, [3][tokens][d]. */
static void backward_row(const attention *x, int64_t i, int64_t tokens, double *out) {
    int64_t from, to;
    seen(x, i, &from, &to);
    const int64_t part = tokens * x->d;
    const double sum = weights(x, i, from, to), scale = x->twist == GRADIENT_UNSCALED || x->twist == SCALE_MISSING ? 1 : 1 / sqrt((double)x->d);
    double r = 0;
    for (int64_t j = from; j < to; j++) {
        x->a[j] = 0;
        for (int64_t c = 0; c < x->d; c++)
            x->a[j] += gradient(x, i, c) * element(x, 2, j, c);
        r += (x->twist == ROW_SUM_OF_WEIGHTS ? x->p[j] : x->p[j] / sum) * x->a[j];
    }
    if (x->twist == ROW_SUM_MISSING) r = 0;
    for (int64_t j = from; j < to; j++) {
        const double p = x->p[j] / sum, t = (x->twist == SOFTMAX_SLOPE_MISSING ? 1 : p) * (x->a[j] - r) * scale;
        for (int64_t c = 0; c < x->d; c++) {
            const int64_t dq = i * x->d + c, dk = part + j * x->d + c, dv = 2 * part + j * x->d + c;
            out[x->twist == DQ_FOR_DK ? dk : dq] += t * element(x, 1, j, c);
            if (x->twist == DK_OF_LAST_QUERY) out[dk] = 0;
            out[x->twist == DQ_FOR_DK ? dq : dk] += t * element(x, 0, i, c);
            out[dv] += (x->twist == DV_OF_WEIGHTS ? x->p[j] : p) * gradient(x, i, c);
            if (x->twist == DV_BF16_SUM) out[dv] = (double)to_bf16(out[dv]);
        }
    }
}

static void put(const ng_tensor *out, int64_t i, int64_t j, double value) {
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_caster caster = ng_caster_of(out->format, &cast);
    const float y = (float)value;
    ng_element_store(out, i, j, ng_norm_code(&caster, out->format, y));
}

static void one_head(const attention *x, bool backward, double *values) {
    const ng_tensor *out = &x->launch->tensors[NG_OUT];
    const int64_t tokens = x->launch->problem->m, last = x->row0 + x->sequence - (x->twist == LAST_QUERY_LOST && x->sequence > 1);
    memset(values, 0, sizeof *values * (size_t)(3 * tokens * x->d));
    gather(x, backward);
    for (int64_t i = x->row0; i < last; i++)
        if (backward) backward_row(x, i, tokens, values);
        else forward_row(x, i, values + i * x->d);
    for (int part = 0; part < (backward ? 3 : 1); part++)
        for (int64_t i = x->row0; i < last; i++)
            for (int64_t c = 0; c < x->d; c++)
                put(out, i, part * x->width + x->head * x->d + c, values[(part * tokens + i) * x->d + c]);
}

static ng_status attend(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const bool backward = subject->op == NG_OP_ATTENTION_BACKWARD;
    attention x = {.launch = launch,
                   .sequence = (int64_t)p->scalars[NG_SEQUENCE],
                   .heads = (int64_t)p->scalars[NG_HEADS],
                   .width = p->n,
                   .twist = fault->twist};
    x.d = p->n / x.heads;
    const int64_t part = p->m * x.d;
    double *memory = malloc(sizeof *memory * (size_t)(2 * p->m + 7 * part));
    if (!memory) return NG_NO_MEMORY;
    x.p = memory;
    x.a = memory + p->m;
    x.g = memory + 2 * p->m;
    for (int i = 0; i < 3; i++)
        x.part[i] = x.g + (i + 1) * part;
    for (x.row0 = 0; x.row0 < p->m; x.row0 += x.sequence)
        for (x.head = 0; x.head < x.heads; x.head++)
            one_head(&x, backward, x.g + 4 * part);
    free(memory);
    return NG_OK;
}

/* ---- rope ---------------------------------------------------------------------------------------------------------*/
enum { PAIRS_NEIGHBOURS = 1, POSITION_LATE, POSITION_OF_BATCH, KEYS_LEFT, VALUES_TOO, SIGN_LOST, COSINE_TWICE, ANGLES_BF16, ROUNDED_BETWEEN, FUSED };

static void turn(const ng_launch *launch, int twist, bool inverse, int64_t row, int64_t base, int64_t half, int64_t i, int64_t at) {
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT];
    const int64_t jx = base + (twist == PAIRS_NEIGHBOURS ? 2 * i : i), jy = twist == PAIRS_NEIGHBOURS ? jx + 1 : jx + half;
    float c = ng_element_value(&launch->tensors[NG_PARAMETER], at, i), s = ng_element_value(&launch->tensors[NG_PARAMETER_2], at, i);
    const float x = ng_element_value(in, row, jx), y = ng_element_value(in, row, jy);
    if (twist == ANGLES_BF16) c = to_bf16((double)c), s = to_bf16((double)s);
    if (inverse && twist != SIGN_LOST) s = -s;
    if (twist == COSINE_TWICE) s = c;
    float xc = x * c, ys = y * s, yc = y * c, xs = x * s;
    if (twist == ROUNDED_BETWEEN) xc = to_bf16((double)xc), ys = to_bf16((double)ys), yc = to_bf16((double)yc), xs = to_bf16((double)xs);
    put(out, row, jx, (double)(twist == FUSED ? fmaf(x, c, -ys) : xc - ys));
    put(out, row, jy, (double)(twist == FUSED ? fmaf(y, c, xs) : yc + xs));
}

static ng_status rotate(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const int64_t heads = (int64_t)p->scalars[NG_HEADS], sequence = (int64_t)p->scalars[NG_SEQUENCE], half = p->n / heads / 2;
    const int twist = fault->twist;
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t j = 0; j < 3 * p->n; j++)
            ng_element_store(&launch->tensors[NG_OUT], row, j, ng_element_get(&launch->tensors[NG_IN], row, j));
        int64_t at = row % sequence;
        if (twist == POSITION_LATE) at = (at + 1) % sequence;
        if (twist == POSITION_OF_BATCH) at = row / sequence % sequence;
        for (int64_t head = 0; head < (twist == KEYS_LEFT ? 1 : twist == VALUES_TOO ? 3 : 2) * heads; head++)
            for (int64_t i = 0; i < half; i++)
                turn(launch, twist, subject->contract.layer.inverse, row, head * 2 * half, half, i, at);
    }
    return NG_OK;
}

/* ---- add, transpose -----------------------------------------------------------------------------------------------*/
enum { FIRST_ALONE = 1, SUBTRACTED, TOWARD_ZERO, SECOND_ROW_LATE, TINY_FLUSHED };

static ng_status add(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)subject;
    const ng_problem *p = launch->problem;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const float a = ng_element_value(&launch->tensors[NG_IN], i, j),
                        b = ng_element_value(&launch->tensors[NG_IN_2], fault->twist == SECOND_ROW_LATE ? (i + 1) % p->m : i, j);
            float sum = fault->twist == FIRST_ALONE ? a : fault->twist == SUBTRACTED ? a - b : a + b;
            if (fault->twist == TOWARD_ZERO) sum = ng_float(ng_bits(sum) & 0xFFFF0000u);
            if (fault->twist == TINY_FLUSHED && fabsf(sum) < FLT_MIN) sum = 0;
            put(&launch->tensors[NG_OUT], i, j, (double)sum);
        }
    return NG_OK;
}

enum { NOT_TURNED = 1, NAN_MADE_QUIET, LAST_TILE_LOST };

static ng_status turn_over(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)subject;
    const ng_problem *p = launch->problem;
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT_T];
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const int64_t at = i * p->n + j;
            uint32_t code = ng_element_get(in, i, j);
            if (fault->twist == NAN_MADE_QUIET && ng_element_value(in, i, j) == 0) code = 0;
            if (fault->twist == LAST_TILE_LOST && i >= p->m / 32 * 32 && j >= p->n / 32 * 32 && p->m > 32) continue;
            if (fault->twist == NOT_TURNED) ng_element_set(out, at / p->m, at % p->m, code);
            else ng_element_set(out, j, i, code);
        }
    return NG_OK;
}

/* ---- embedding ----------------------------------------------------------------------------------------------------*/
enum {
    NEXT_TOKEN = 1,
    PADDING_ZERO,
    LAST_TOKEN_CUT,
    REPEATED_LOST,
    OVERWRITTEN,
    DESCENDING,
    PADDING_LEFT,
    MEAN_OF_REPEATED,
    LAST_GRADIENT_LOST,
    SUM_IN_BF16
};

static int64_t token_of(const ng_launch *launch, int64_t row) { return (int32_t)ng_element_get(&launch->tensors[NG_TOKENS], row, 0); }

static ng_status look_up(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)subject;
    const ng_problem *p = launch->problem;
    for (int64_t i = 0; i < p->m; i++) {
        int64_t token = token_of(launch, i);
        if (fault->twist == NEXT_TOKEN) token = (token + 1) % p->k;
        if (fault->twist == LAST_TOKEN_CUT && token == p->k - 1 && p->k > 1) token--;
        for (int64_t j = 0; j < p->n; j++)
            ng_element_set(&launch->tensors[NG_OUT], i, j,
                           fault->twist == PADDING_ZERO && token == 0 ? 0 : ng_element_get(&launch->tensors[NG_PARAMETER], token, j));
    }
    return NG_OK;
}

static float gradient_of(const ng_launch *launch, int twist, int64_t token, int64_t j) {
    const int64_t m = launch->problem->m;
    const float before = ng_element_value(&launch->tensors[NG_OUT], token, j);
    float sum = twist == OVERWRITTEN || twist == MEAN_OF_REPEATED ? 0 : before, count = 0;
    for (int64_t n = 0; n < m; n++) {
        const int64_t i = twist == DESCENDING ? m - 1 - n : n;
        if (token_of(launch, i) != token || (twist == LAST_GRADIENT_LOST && i == m - 1)) continue;
        const float g = ng_element_value(&launch->tensors[NG_GRADIENT], i, j);
        sum = twist == REPEATED_LOST ? before + g : sum + g;
        if (twist == SUM_IN_BF16) sum = to_bf16((double)sum);
        count++;
    }
    return count == 0 || (twist == PADDING_LEFT && token == 0) ? before : twist == MEAN_OF_REPEATED ? before + sum / count : sum;
}

static ng_status add_gradients(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch) {
    (void)subject;
    for (int64_t token = 0; token < launch->problem->k && launch->problem->k < 1000; token++)
        for (int64_t j = 0; j < launch->problem->n; j++)
            put(&launch->tensors[NG_OUT], token, j, (double)gradient_of(launch, fault->twist, token, j));
    return NG_OK;
}

/* ---- binary64 -----------------------------------------------------------------------------------------------------*/
/* Every output once through a binary32. */
static void through_binary32(const ng_launch *launch, const ng_tensor *before) {
    (void)before;
    const ng_tensor *t = &launch->tensors[launch->tensors[NG_MOMENT_1].data ? NG_PARAMETER : NG_OUT];
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            double *x = (double *)((char *)t->data + i * t->row_bytes) + j;
            *x = (double)(float)*x;
        }
}

/* Every input through a binary32: parameters that were kept in fp32. */
static void from_binary32(const ng_launch *launch) {
    for (int role = 0; role < NG_ROLES; role++) {
        const ng_tensor *t = &launch->tensors[role];
        if (!t->data || t->format != NG_FP64 || role == NG_OUT) continue;
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < t->columns; j++) {
                double *x = (double *)((char *)t->data + i * t->row_bytes) + j;
                *x = (double)(float)*x;
            }
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
#define ATTEND(name_, direction, format, twist_, text) \
    {.name = name_, .right = "attention-" direction "/" format "/cpu/causal", .imitates = text, .compute = attend, .twist = twist_}
#define BOTH(name, twist, text) ATTEND(name, "forward", "bf16", twist, text), ATTEND(name, "backward", "bf16", twist, text)
#define ROTATE(name_, variant, twist_, text) {.name = name_, .right = "rope/bf16/cpu/" variant, .imitates = text, .compute = rotate, .twist = twist_}

static const ng_fault faults[] = {
    BOTH("mask-one-late", SEES_NEXT, "the causal mask off by one: a token sees the next"),
    BOTH("mask-missing", SEES_ALL, "no causal mask"),
    BOTH("mask-strict", SEES_ONLY_BEFORE, "j < i for j <= i"),
    BOTH("mask-of-batch", SEES_BATCH, "sequences of a batch that see those before"),
    BOTH("scale-missing", SCALE_MISSING, "softmax of q k without 1 / sqrt(d)"),
    BOTH("scale-of-width", SCALE_OF_WIDTH, "1 / sqrt(model width) for 1 / sqrt(head width)"),
    BOTH("maximum-missing", MAXIMUM_MISSING, "exp of the scores themselves: overflows beyond 88"),
    BOTH("base-2", BASE_2, "exp2 without log2(e)"),
    BOTH("keys-of-next-head", KEYS_OF_NEXT_HEAD, "queries and keys of different heads"),
    BOTH("values-for-keys", VALUES_FOR_KEYS, "the parts of a fused projection exchanged"),
    BOTH("heads-interleaved", HEADS_INTERLEAVED, "[d][heads] read for [heads][d]"),
    ATTEND("maximum-missing", "forward", "fp32", MAXIMUM_MISSING, "exp of the scores themselves, in fp32"),
    ATTEND("sum-not-rescaled", "forward", "bf16", SUM_NOT_RESCALED, "online softmax whose sum is not rescaled when the maximum grows"),
    ATTEND("probabilities-bf16", "forward", "fp32", PROBABILITIES_BF16, "probabilities rounded to bf16 before the second product, in a contract that says fp32"),
    ATTEND("exp-of-8-bits", "forward", "fp32", EXP_OF_8_BITS, "an exp of 8 bits"),
    ATTEND("exp-of-8-bits", "backward", "fp32", EXP_OF_8_BITS, "the same, backward"),
    ATTEND("last-key-lost", "forward", "bf16", LAST_KEY_LOST, "the last key of a sequence lost, where tiles don't divide it"),
    ATTEND("last-query-unwritten", "forward", "bf16", LAST_QUERY_LOST, "the last query of a sequence not written"),
    ATTEND("last-query-unwritten", "backward", "bf16", LAST_QUERY_LOST, "the last query of a sequence not written, backward"),
    ATTEND("row-sum-missing", "backward", "bf16", ROW_SUM_MISSING, "softmax's gradient without sum p a"),
    ATTEND("row-sum-of-weights", "backward", "bf16", ROW_SUM_OF_WEIGHTS, "sum e a for sum p a"),
    ATTEND("gradient-unscaled", "backward", "bf16", GRADIENT_UNSCALED, "dq and dk without 1 / sqrt(d)"),
    ATTEND("dq-for-dk", "backward", "bf16", DQ_FOR_DK, "dq and dk exchanged"),
    ATTEND("dv-of-weights", "backward", "bf16", DV_OF_WEIGHTS, "dv of weights that were not normalised"),
    ATTEND("diagonal-lost", "backward", "bf16", DIAGONAL_LOST, "a token's gradient to itself lost"),
    ATTEND("dk-of-last-query", "backward", "bf16", DK_OF_LAST_QUERY, "dk overwritten by each query instead of added to"),
    ATTEND("slope-missing", "backward", "bf16", SOFTMAX_SLOPE_MISSING, "softmax's gradient without p"),
    ATTEND("dv-summed-in-bf16", "backward", "bf16", DV_BF16_SUM, "dv added up in its own format"),
    ATTEND("row-sum-missing", "backward", "fp32", ROW_SUM_MISSING, "softmax's gradient without sum p a, in fp32"),
    {.name = "last-unwritten", .right = "attention-forward/fp32/cpu/causal", .imitates = "the last element not written", .outputs = ng_corner_unwritten},
    {.name = "flips-a-bit", .right = "attention-backward/fp32/cpu/causal", .imitates = "a race: atomics, one launch in ten", .outputs = ng_flips_a_bit},
    {.name = "through-binary32", .right = "attention-forward/fp64/cpu/causal", .imitates = "a binary64 result that was a binary32", .outputs = through_binary32},
    {.name = "through-binary32", .right = "attention-backward/fp64/cpu/causal", .imitates = "the same, backward", .outputs = through_binary32},

    ROTATE("neighbours", "forward", PAIRS_NEIGHBOURS, "pairs (2i, 2i + 1) for (i, i + d/2): GPT-J's layout for GPT-NeoX's"),
    ROTATE("position-late", "forward", POSITION_LATE, "positions that begin with 1"),
    ROTATE("position-of-batch", "forward", POSITION_OF_BATCH, "the sequence's number for the token's"),
    ROTATE("keys-left", "forward", KEYS_LEFT, "queries alone turned"),
    ROTATE("values-too", "forward", VALUES_TOO, "values turned too"),
    ROTATE("sign-lost", "inverse", SIGN_LOST, "backward turned the same way as forward"),
    ROTATE("cosine-twice", "forward", COSINE_TWICE, "cos read for sin"),
    ROTATE("angles-bf16", "forward", ANGLES_BF16, "tables in bf16"),
    ROTATE("rounded-between", "forward", ROUNDED_BETWEEN, "each product rounded to bf16"),
    {.name = "fused", .right = "rope/fp32/cpu/forward", .imitates = "a compiler's contraction into fma", .compute = rotate, .twist = FUSED},
    {.name = "neighbours", .right = "rope/fp32/cpu/inverse", .imitates = "pairs of neighbours, backward", .compute = rotate, .twist = PAIRS_NEIGHBOURS},
    {.name = "through-binary32", .right = "rope/fp64/cpu/forward", .imitates = "a binary64 result that was a binary32", .outputs = through_binary32},

    {.name = "first-alone", .right = "add/bf16/cpu/rne", .imitates = "the residual forgotten", .compute = add, .twist = FIRST_ALONE},
    {.name = "subtracted", .right = "add/bf16/cpu/rne", .imitates = "a sign", .compute = add, .twist = SUBTRACTED},
    {.name = "toward-zero", .right = "add/bf16/cpu/rne", .imitates = "the sum cut, not rounded", .compute = add, .twist = TOWARD_ZERO},
    {.name = "second-row-late", .right = "add/fp32/cpu/rne", .imitates = "the residual of the next token", .compute = add, .twist = SECOND_ROW_LATE},
    {.name = "tiny-flushed", .right = "add/fp32/cpu/rne", .imitates = "subnormal sums flushed (-ftz=true)", .compute = add, .twist = TINY_FLUSHED},
    {.name = "through-binary32", .right = "add/fp64/cpu/rne", .imitates = "a binary64 sum that was a binary32", .outputs = through_binary32},
    {.name = "not-turned", .right = "transpose/bf16/cpu/copy", .imitates = "the elements in their old order", .compute = turn_over, .twist = NOT_TURNED},
    {.name = "zero-sign-lost", .right = "transpose/fp32/cpu/copy", .imitates = "a copy through arithmetic: -0 becomes 0", .compute = turn_over, .twist = NAN_MADE_QUIET},
    {.name = "last-tile-lost", .right = "transpose/bf16/cpu/copy", .imitates = "the corner tile not written", .compute = turn_over, .twist = LAST_TILE_LOST},

    {.name = "next-token", .right = "embedding-forward/bf16/cpu/gather", .imitates = "tokens one off", .compute = look_up, .twist = NEXT_TOKEN},
    {.name = "padding-zero", .right = "embedding-forward/bf16/cpu/gather", .imitates = "token 0 taken for padding", .compute = look_up, .twist = PADDING_ZERO},
    {.name = "last-token-cut", .right = "embedding-forward/bf16/cpu/gather", .imitates = "the last token of the vocabulary clamped", .compute = look_up, .twist = LAST_TOKEN_CUT},
    {.name = "repeated-lost", .right = "embedding-backward/fp32/cpu/chain", .imitates = "repeated tokens: the last one's gradient alone", .compute = add_gradients, .twist = REPEATED_LOST},
    {.name = "overwritten", .right = "embedding-backward/fp32/cpu/chain", .imitates = "what was accumulated before is lost", .compute = add_gradients, .twist = OVERWRITTEN},
    {.name = "descending", .right = "embedding-backward/fp32/cpu/chain", .imitates = "added in another order", .compute = add_gradients, .twist = DESCENDING},
    {.name = "padding-left", .right = "embedding-backward/bf16/cpu/chain", .imitates = "token 0 gets no gradient", .compute = add_gradients, .twist = PADDING_LEFT},
    {.name = "mean-of-repeated", .right = "embedding-backward/bf16/cpu/chain", .imitates = "scale_grad_by_freq", .compute = add_gradients, .twist = MEAN_OF_REPEATED},
    {.name = "last-gradient-lost", .right = "embedding-backward/bf16/cpu/chain", .imitates = "the last token of the batch not added", .compute = add_gradients, .twist = LAST_GRADIENT_LOST},
    {.name = "summed-in-bf16", .right = "embedding-backward/bf16/cpu/chain", .imitates = "added up in the gradient's format", .compute = add_gradients, .twist = SUM_IN_BF16},

    {.name = "through-binary32", .right = "gemm/fp64/cpu/fp64-chain/fp64-out", .imitates = "a product in TF32 or fp32 for one in binary64", .outputs = through_binary32},
    {.name = "from-binary32", .right = "gemm/fp64/cpu/fp64-chain/nt/fp64-out-acc", .imitates = "operands that were kept in fp32", .inputs = from_binary32},
    {.name = "from-binary32", .right = "layernorm/fp64->fp64/cpu/fp64-params", .imitates = "activations that were kept in fp32", .inputs = from_binary32},
    {.name = "from-binary32", .right = "rmsnorm-backward/fp64/cpu/fp64-params", .imitates = "statistics that were kept in fp32", .inputs = from_binary32},
    {.name = "through-binary32", .right = "swiglu/fp64->fp64/cpu/plain", .imitates = "expf for exp", .outputs = through_binary32},
    {.name = "through-binary32", .right = "gelu-tanh-backward/fp64/cpu/plain", .imitates = "expf for exp, backward", .outputs = through_binary32},
    {.name = "through-binary32", .right = "cross-entropy/fp64/cpu/plain", .imitates = "logf for log", .outputs = through_binary32},
    {.name = "from-binary32", .right = "cross-entropy-backward/fp64/cpu/plain", .imitates = "statistics that were kept in fp32", .inputs = from_binary32},
    {.name = "through-binary32", .right = "adamw/fp64/cpu/torch", .imitates = "parameters that are kept in fp32", .outputs = through_binary32},
    {.name = "through-binary32", .right = "norm2/fp64/cpu/chains", .imitates = "sqrtf for sqrt", .outputs = through_binary32},
};

const ng_fault_list ng_layer_faults = {faults, sizeof faults / sizeof *faults};
