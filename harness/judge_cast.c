/* Casts: every code must be the one that one rounding of the contract gives. Stochastic rounding is judged three ways: with
 * given words bit for bit, over all words of chosen values, and by the statistics of the words that the kernel draws itself. */
#include "harness/judge_internal.h"
#include "reference/round.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_stochastic(const ng_kernel *kernel) { return kernel->contract.cast.rounding == NG_R_STOCHASTIC; }

static ng_status make_words(uint64_t seed, int64_t rows, int64_t columns, ng_tensor *words, ng_error *error) {
    ng_status status = ng_tensor_create(NG_FP32, rows, columns, words, error);
    uint32_t *w = words->data;
    for (int64_t i = 0; !status && i < rows * columns; i++)
        w[i] = ng_word(seed, (uint64_t)i);
    return status;
}

/* What the contract makes of the source; words NULL: not stochastic. */
static ng_status round_all(const ng_tensor *source, const ng_cast *cast, const ng_tensor *words, int threads, ng_tensor *out,
                           ng_error *error) {
    int64_t columns = source->columns;
    ng_status status = NG_OK;
#pragma omp parallel num_threads(threads)
    {
        double *values = malloc(sizeof *values * (size_t)(columns + 1));
        if (!values) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for
        for (int64_t i = 0; i < source->rows; i++) {
            if (!values) continue;
            ng_decode_row(source, i, 0, columns, values);
            for (int64_t j = 0; j < columns; j++) {
                uint32_t random = words ? ((const uint32_t *)words->data)[i * columns + j] : 0;
                ng_set_code(out, i, j, ng_round(out->format, values[j], cast, random));
            }
        }
        free(values);
    }
    return status ? ng_fail(error, status, "no memory to round a row of %lld", (long long)columns) : NG_OK;
}

/* SQNR and the like against the source, and what saturated or was flushed. */
static ng_status recipe_figures(ng_judge *judge, const ng_tensor *source, const ng_tensor *out, const ng_cast *cast,
                                ng_result *result, ng_error *error) {
    size_t count = (size_t)(source->rows * source->columns);
    double *exact = malloc(sizeof *exact * (count + 1));
    if (!exact) return ng_fail(error, NG_NO_MEMORY, "no memory for source values");
    for (int64_t i = 0; i < source->rows; i++)
        ng_decode_row(source, i, 0, source->columns, exact + i * source->columns);
    ng_truth truth = {exact, NULL, NULL, NULL};
    ng_status status = ng_measure(out, cast, &truth, judge->threads, &result->recipe_error, NULL);
    free(exact);
    ng_operand as_operand = {.codes = *out, .tensor_scale = 1};
    ng_count_losses(source, &as_operand, judge->threads, &result->saturated, &result->flushed);
    result->saturated /= (double)count;
    result->flushed /= (double)count;
    return status;
}

/* Launches on the source and words (NULL: none) and compares. *launched false: no outputs, the reason is in the result. */
static ng_status cast_and_compare(ng_judge *judge, const ng_case *one, const ng_tensor *source, const ng_tensor *words,
                                  bool quiet, ng_session *session, ng_result *result, ng_power *power, bool *launched,
                                  ng_error *error) {
    ng_tensor expected = {0};
    ng_problem problem = one->problem;
    problem.m = source->rows;
    problem.n = source->columns;
    *launched = false;
    memset(session, 0, sizeof *session);
    if (!ng_session_begin(session, judge, one->kernel, &problem, result)) return NG_OK;
    ng_status status = ng_session_input(session, NG_IN, source, error);
    if (!status && words) status = ng_session_input(session, NG_RANDOM_WORDS, words, error);
    if (!status) status = ng_session_output(session, NG_OUT, one->kernel->out, source->rows, source->columns, error);
    if (!status) status = ng_session_run(session, one->repeats, quiet, result, launched, error);
    if (status || !*launched || (is_stochastic(one->kernel) && !words)) return status;
    status = ng_tensor_create(one->kernel->out, source->rows, source->columns, &expected, error);
    if (!status) status = round_all(source, &one->kernel->contract.cast, words, judge->threads, &expected, error);
    if (!status) ng_observe(judge, one, NG_OUT, &session->first[NG_OUT], &expected, NULL);
    if (!status) status = ng_measure_codes(&session->first[NG_OUT], &expected, false, judge->threads, &result->error, power);
    ng_tensor_free(&expected);
    if (status) return status;
    result->error.by_tier[NG_TIER_INTEGER] = result->error.checked;
    ng_accuse_figures(result, "OUT", &result->error);
    return NG_OK;
}

/* ---- stochastic rounding ------------------------------------------------------------------------------------------*/
enum { CHOSEN = 64, MOST_ENUMERATED_BITS = 16, MOST_COMPARED = 1 << 14 };

/* Every word for chosen values: [CHOSEN][2^r] (one value where r is large), word j in column j; the high bits, which do not count, are set. */
static ng_status enumerate(ng_judge *judge, const ng_case *one, const ng_tensor *source, ng_result *result, ng_error *error) {
    int64_t columns = (int64_t)1 << one->kernel->contract.cast.random_bits, count = source->rows * source->columns;
    int64_t chosen = columns > 1024 ? 1 : CHOSEN, rows = count < chosen ? count : chosen;
    ng_tensor values, words = {0};
    ng_session session = {0};
    ng_result apart = *result; /* its figures are not the case's */
    ng_power power;
    bool launched;
    apart.error.present = false;
    ng_status status = ng_tensor_create(source->format, rows, columns, &values, error);
    if (!status) status = ng_tensor_create(NG_FP32, rows, columns, &words, error);
    if (status) goto done;
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = i * (count / rows);
        uint64_t code = ng_get_code(source, from / source->columns, from % source->columns);
        for (int64_t j = 0; j < columns; j++) {
            ng_set_code(&values, i, j, code);
            ((uint32_t *)words.data)[i * columns + j] = (uint32_t)j | ~(uint32_t)(columns - 1);
        }
    }
    status = cast_and_compare(judge, one, &values, &words, true, &session, &apart, &power, &launched, error);
    if (!status && apart.error.present && (apart.error.beyond_bound || apart.error.nonfinite_mismatch))
        ng_accuse(result, NG_FAIL, "over all words of %lld values, %lld of %lld results are wrong", (long long)rows,
                  (long long)(apart.error.beyond_bound + apart.error.nonfinite_mismatch), (long long)apart.error.checked);
    else if (apart.verdict == NG_FAIL && result->verdict != NG_FAIL) ng_accuse(result, NG_FAIL, "%s", apart.reason);
done:
    ng_session_end(&session);
    ng_tensor_free(&values);
    ng_tensor_free(&words);
    return status;
}

/* One launch with words of the kernel's own, for that seed and that step. */
static ng_status launch_own(ng_judge *judge, const ng_case *one, const ng_tensor *source, uint64_t seed, uint64_t offset, ng_session *session,
                            ng_result *result, bool *launched, ng_error *error) {
    ng_case again = *one;
    ng_power power;
    again.problem.seed = seed;
    again.problem.offset = offset;
    return cast_and_compare(judge, &again, source, NULL, false, session, result, &power, launched, error);
}

static void compare_draws(const ng_case *one, const ng_tensor *source, const ng_session *first, const ng_session *other, double randomness,
                          const char *what, ng_draw *draws, ng_result *result) {
    int64_t count = source->rows * source->columns;
    const ng_cast *cast = &one->kernel->contract.cast;
    if (randomness > 64 && ng_tensor_equal(&first->first[NG_OUT], &other->first[NG_OUT])) {
        ng_accuse(result, NG_FAIL, "%s gives the same bits: the random words do not depend on it", what);
        return;
    }
    ng_draws_of_cast(source, &first->first[NG_OUT], cast, draws, result);
    ng_draws_of_cast(source, &other->first[NG_OUT], cast, draws + count, result);
    ng_check_draw_lists(draws, draws + count, count, what, result);
}

/* The kernel's own words: the same for the same seed (the session has seen to it), independent ones for another seed and for
 * another step, and with the stated probabilities. */
static ng_status judge_own_words(ng_judge *judge, const ng_case *one, const ng_tensor *source, ng_result *result, ng_error *error) {
    const uint64_t seed = one->problem.seed, offset = one->problem.offset;
    const struct { uint64_t seed, offset; const char *what; } others[] = {
        {seed ^ 0x5DEECE66Du, offset, "another seed"}, {seed, offset + 1, "the next offset"}, {0, offset, "seed 0"}, {UINT64_MAX, offset, "seed 2^64 - 1"},
        {seed ^ (uint64_t)1 << 32, offset, "a seed whose upper half is another"}, {seed, offset ^ (uint64_t)1 << 32, "an offset whose upper half is another"},
        {seed, offset + 64, "an offset 64 steps on"}};
    ng_session session = {0};
    double randomness;
    bool launched;
    ng_draw *draws = calloc((size_t)(source->rows * source->columns) * 2 + 1, sizeof *draws);
    if (!draws) return ng_fail(error, NG_NO_MEMORY, "no memory to look at random draws");
    ng_status status = launch_own(judge, one, source, seed, offset, &session, result, &launched, error);
    if (status || !launched) goto done;
    status = ng_check_draws(source, &session.first[NG_OUT], &one->kernel->contract.cast, result, &randomness, error);
    const size_t count = source->rows * source->columns > MOST_COMPARED ? 1 : sizeof others / sizeof *others;
    for (size_t i = 0; i < count && !status && launched; i++) {
        ng_session other = {0};
        status = launch_own(judge, one, source, others[i].seed, others[i].offset, &other, result, &launched, error);
        if (!status && launched) compare_draws(one, source, &session, &other, randomness, others[i].what, draws, result);
        ng_session_end(&other);
    }
done:
    ng_session_end(&session);
    free(draws);
    return status;
}

static ng_status judge_stochastic(ng_judge *judge, const ng_case *one, const ng_tensor *source, ng_session *session,
                                  ng_result *result, ng_power *power, bool *launched, ng_error *error) {
    ng_tensor words = {0};
    ng_status status = make_words(one->problem.seed, source->rows, source->columns, &words, error);
    if (!status) status = cast_and_compare(judge, one, source, &words, true, session, result, power, launched, error);
    if (!status && *launched && one->kernel->contract.cast.random_bits <= MOST_ENUMERATED_BITS)
        status = enumerate(judge, one, source, result, error);
    if (!status) status = judge_own_words(judge, one, source, result, error);
    ng_tensor_free(&words);
    return status;
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
ng_status ng_judge_cast(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = one->kernel;
    const ng_tensor *source;
    ng_session session = {0};
    ng_power power = {0, 0};
    ng_key key;
    bool launched;
    double start = ng_now_s();
    ng_status status = ng_source(judge, &one->data, kernel->in, 0, 0, one->problem.m, one->problem.n, &source, &key, error);
    if (status) return status;
    if (is_stochastic(kernel)) status = judge_stochastic(judge, one, source, &session, result, &power, &launched, error);
    else status = cast_and_compare(judge, one, source, NULL, false, &session, result, &power, &launched, error);
    if (status || !launched) goto done;
    status = recipe_figures(judge, source, &session.first[NG_OUT], &kernel->contract.cast, result, error);
    if (status) goto done;
    ng_accuse_powerless(result, &result->error, &power);
    status = ng_session_conclude(&session, one, start, 0, result, error);
done:
    ng_session_end(&session);
    return status;
}

/* ---- every input --------------------------------------------------------------------------------------------------*/
/* All 65,536 codes of a 16-bit format, as one tensor. */
static ng_status every_code(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    uint32_t codes = ng_format_codes(one->kernel->in);
    int64_t columns = codes < 256 ? codes : 256;
    ng_tensor source = {0};
    ng_session session = {0};
    ng_power power = {0, 0};
    bool launched;
    ng_status status = ng_tensor_create(one->kernel->in, codes / columns, columns, &source, error);
    for (int64_t i = 0; !status && i < source.rows; i++)
        for (int64_t j = 0; j < columns; j++)
            ng_set_code(&source, i, j, (uint64_t)(i * columns + j));
    if (!status) status = cast_and_compare(judge, one, &source, NULL, false, &session, result, &power, &launched, error);
    if (!status && launched) {
        ng_accuse_powerless(result, &result->error, &power);
        ng_session_digest(&session, result);
    }
    ng_session_end(&session);
    ng_tensor_free(&source);
    return status;
}

/* A magnitude, the binary32 or binary64 on either side, and the three negated. */
static void put_around(const ng_tensor *source, int64_t *at, double x) {
    bool wide = source->format == NG_FP64;
    const double around[] = {x, wide ? nextafter(x, 0) : (double)nextafterf((float)x, 0),
                             wide ? nextafter(x, INFINITY) : (double)nextafterf((float)x, INFINITY)};
    for (int i = 0; i < 6; i++, ++*at) {
        double y = i < 3 ? around[i] : -around[i - 3];
        float narrow = (float)y;
        char *to = (char *)source->data + *at * (wide ? 8 : 4);
        if (wide) memcpy(to, &y, sizeof y);
        else memcpy(to, &narrow, sizeof narrow);
    }
}

/* Every finite magnitude of the result's format, every midpoint between two, the one above the largest, and what is no
 * finite number: a rounding of any mode changes at these, or between one and its neighbour in the input's format. */
static ng_status every_threshold(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    enum { COLUMNS = 256 };
    const ng_kernel *kernel = one->kernel;
    const ng_format *to = &ng_formats[kernel->out];
    int64_t magnitudes = ng_format_codes(kernel->out) >> to->is_signed, at = 0;
    ng_tensor source = {0};
    ng_session session = {0};
    ng_power power = {0, 0};
    bool launched;
    if (kernel->in != NG_FP32 && kernel->in != NG_FP64) return ng_fail(error, NG_BAD_ARGUMENT, "%s: thresholds are for fp32 and fp64", one->id);
    ng_status status = ng_tensor_create(kernel->in, (12 * (magnitudes + 1) + 18) / COLUMNS + 1, COLUMNS, &source, error);
    double below = 0, step = 0;
    for (int64_t code = 0; !status && code < magnitudes; code++) {
        double x = ng_decode(kernel->out, (uint64_t)code);
        if (!isfinite(x)) continue;
        put_around(&source, &at, x);
        put_around(&source, &at, below + (x - below) / 2);
        step = x - below;
        below = x;
    }
    if (!status) {
        put_around(&source, &at, isfinite((float)(below + step / 2)) ? below + step / 2 : FLT_MAX);
        put_around(&source, &at, INFINITY);
        put_around(&source, &at, NAN);
        status = cast_and_compare(judge, one, &source, NULL, false, &session, result, &power, &launched, error);
    }
    if (!status && launched) {
        ng_accuse_powerless(result, &result->error, &power);
        ng_session_digest(&session, result);
    }
    ng_session_end(&session);
    ng_tensor_free(&source);
    return status;
}

ng_status ng_judge_every_input(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    if (is_stochastic(one->kernel)) {
        result->verdict = NG_SKIP;
        strcpy(result->reason, "stochastic rounding is judged word by word, on chosen values");
        return NG_OK;
    }
    if (one->thresholds) return every_threshold(judge, one, result, error);
    if (ng_format_codes(one->kernel->in)) return every_code(judge, one, result, error);
    return ng_judge_sweep(judge, one, result, error);
}
