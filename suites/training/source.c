#include "suites/training/source.h"

#include "kernels/common/fp64.h"
#include "kernels/common/philox.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = 1 << 16, BURN_IN = 64, MOST_SUCCESSORS = 32, LEAST_CORPUS = 4096 };

/* Streams of the generator, in the offset's high word. */
typedef enum stream { LANGUAGE = 1, TRAINING = 2, EVALUATION = 3 } stream;

static uint32_t word(uint64_t seed, stream s, uint64_t index, uint64_t place) {
    return ng_philox(seed, (uint64_t)s << 56 ^ index, place);
}

static uint32_t below(uint32_t random, uint32_t bound) { return (uint32_t)((uint64_t)random * bound >> 32); }

/* ---- the language -------------------------------------------------------------------------------------------------*/
static int32_t context_of(const ng_source_text *s, int32_t before, int32_t last) { return last * s->classes + before % s->classes; }

static void make_context(ng_source_text *s, uint64_t seed, int32_t context) {
    int32_t *next = s->next + (int64_t)context * s->successors;
    uint32_t *up_to = s->up_to + (int64_t)context * s->successors, weights[MOST_SUCCESSORS], sum = 0, run = 0;
    for (int32_t i = 0; i < s->successors; i++) {
        uint32_t symbol = below(word(seed, LANGUAGE, (uint64_t)context, (uint64_t)(2 * i)), (uint32_t)s->vocabulary);
        for (int32_t j = 0; j < i; j++)
            if (next[j] == (int32_t)symbol) symbol = (symbol + 1) % (uint32_t)s->vocabulary, j = -1;
        next[i] = (int32_t)symbol;
        weights[i] = 1 + (below(word(seed, LANGUAGE, (uint64_t)context, (uint64_t)(2 * i + 1)), 256) >> (i < 6 ? i : 6));
        sum += weights[i];
    }
    for (int32_t i = 0; i < s->successors; i++) {
        run += weights[i];
        up_to[i] = (uint32_t)((uint64_t)run * WHOLE / sum);
    }
}

static double probability(const ng_source_text *s, int32_t context, int32_t i) {
    const uint32_t *up_to = s->up_to + (int64_t)context * s->successors;
    return (double)(up_to[i] - (i ? up_to[i - 1] : 0)) / WHOLE;
}

static double minus_p_log_p(double p) { return p > 0 ? -p * ng_log(p) : 0; }

/* The chain of contexts averaged with staying put, whose stationary distribution is the same and which no period keeps from converging. */
static ng_status stationary(const ng_source_text *s, double *pi, ng_error *error) {
    const int32_t contexts = s->vocabulary * s->classes;
    double *after = malloc((size_t)contexts * sizeof *after), moved = 1;
    if (!after) return ng_fail(error, NG_NO_MEMORY, "no memory for the language");
    for (int32_t c = 0; c < contexts; c++)
        pi[c] = 1.0 / contexts;
    for (int round = 0; round < 20000 && moved > 1e-14; round++) {
        for (int32_t c = 0; c < contexts; c++)
            after[c] = 0.5 * pi[c];
        for (int32_t c = 0; c < contexts; c++)
            for (int32_t i = 0; i < s->successors; i++)
                after[context_of(s, c / s->classes, s->next[(int64_t)c * s->successors + i])] += 0.5 * pi[c] * probability(s, c, i);
        moved = 0;
        for (int32_t c = 0; c < contexts; c++)
            moved += fabs(after[c] - pi[c]), pi[c] = after[c];
    }
    free(after);
    return moved <= 1e-12 ? NG_OK : ng_fail(error, NG_INTERNAL, "the language has no stationary distribution that iteration finds");
}

/* Entropy of the next symbol when only the last one is known: the mixture over its classes. */
static void add_first_entropy(ng_source_text *s, const double *pi, double *mixture) {
    for (int32_t last = 0; last < s->vocabulary; last++) {
        double mass = 0;
        memset(mixture, 0, (size_t)s->vocabulary * sizeof *mixture);
        for (int32_t c = last * s->classes; c < (last + 1) * s->classes; c++) {
            mass += pi[c];
            for (int32_t i = 0; i < s->successors; i++)
                mixture[s->next[(int64_t)c * s->successors + i]] += pi[c] * probability(s, c, i);
        }
        for (int32_t symbol = 0; symbol < s->vocabulary && mass > 0; symbol++)
            s->first_entropy += mass * minus_p_log_p(mixture[symbol] / mass);
    }
}

static ng_status make_language(const ng_source_options *o, ng_source_text *s, ng_error *error) {
    if (o->vocabulary < 2 || o->vocabulary > 4096 || o->classes < 1 || o->classes > o->vocabulary || o->successors < 1 ||
        o->successors > MOST_SUCCESSORS || o->successors > o->vocabulary)
        return ng_fail(error, NG_BAD_ARGUMENT, "a language has 2..4096 symbols, 1..symbols classes, 1..%d successors", MOST_SUCCESSORS);
    *s = (ng_source_text){.vocabulary = o->vocabulary, .classes = o->classes, .successors = o->successors};
    const size_t contexts = (size_t)o->vocabulary * (size_t)o->classes;
    s->next = malloc(contexts * (size_t)o->successors * sizeof *s->next);
    s->up_to = malloc(contexts * (size_t)o->successors * sizeof *s->up_to);
    double *pi = malloc((contexts + (size_t)o->vocabulary) * sizeof *pi);
    ng_status status = s->next && s->up_to && pi ? NG_OK : ng_fail(error, NG_NO_MEMORY, "no memory for the language");
    for (size_t c = 0; !status && c < contexts; c++)
        make_context(s, o->seed, (int32_t)c);
    if (!status) status = stationary(s, pi, error);
    for (size_t c = 0; !status && c < contexts; c++)
        for (int32_t i = 0; i < s->successors; i++)
            s->entropy += pi[c] * minus_p_log_p(probability(s, (int32_t)c, i));
    if (!status) add_first_entropy(s, pi, pi + contexts);
    free(pi);
    return status;
}

static int32_t draw(const ng_source_text *s, int32_t context, uint32_t random) {
    const uint32_t *up_to = s->up_to + (int64_t)context * s->successors, mark = random >> 16;
    int32_t i = 0;
    while (up_to[i] <= mark)
        i++;
    return s->next[(int64_t)context * s->successors + i];
}

/* ---- a corpus -----------------------------------------------------------------------------------------------------*/
static ng_status read_corpus(const char *path, ng_source_text *s, ng_error *error) {
    *s = (ng_source_text){.vocabulary = 256, .entropy = NAN, .first_entropy = NAN};
    FILE *file = fopen(path, "rb");
    ng_status status = NG_OK;
    if (!file) return ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
    for (size_t capacity = 1 << 16; !status; capacity *= 2) {
        uint8_t *more = realloc(s->bytes, capacity);
        if (!more) {
            status = ng_fail(error, NG_NO_MEMORY, "%s: no memory for %zu bytes", path, capacity);
            break;
        }
        s->bytes = more;
        s->byte_count += (int64_t)fread(s->bytes + s->byte_count, 1, capacity - (size_t)s->byte_count, file);
        if (ferror(file)) status = ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
        if ((size_t)s->byte_count < capacity) break;
    }
    fclose(file);
    if (!status && s->byte_count < LEAST_CORPUS)
        status = ng_fail(error, NG_BAD_ARGUMENT, "%s: %lld bytes; a corpus has %d or more", path, (long long)s->byte_count, LEAST_CORPUS);
    s->held_out = s->byte_count / 10;
    return status;
}

/* ---- both ---------------------------------------------------------------------------------------------------------*/
ng_status ng_source_create(const ng_source_options *options, ng_source_text *source, ng_error *error) {
    ng_status status = options->corpus ? read_corpus(options->corpus, source, error) : make_language(options, source, error);
    if (status) ng_source_free(source);
    return status;
}

void ng_source_free(ng_source_text *source) {
    free(source->next);
    free(source->up_to);
    free(source->bytes);
    *source = (ng_source_text){0};
}

double ng_source_floor(const ng_source_text *source, int64_t sequence) {
    return (source->first_entropy + (double)(sequence - 1) * source->entropy) / (double)sequence;
}

static void language_window(const ng_source_text *s, uint64_t seed, stream from, uint64_t index, int64_t row, int64_t sequence,
                            int32_t *tokens, int32_t *targets) {
    const uint64_t first = (uint64_t)row * (uint64_t)(sequence + 1 + BURN_IN + 2);
    int32_t before = (int32_t)below(word(seed, from, index, first), (uint32_t)s->vocabulary);
    int32_t last = (int32_t)below(word(seed, from, index, first + 1), (uint32_t)s->vocabulary);
    for (int64_t i = -BURN_IN; i <= sequence; i++) {
        int32_t next = draw(s, context_of(s, before, last), word(seed, from, index, first + 2 + (uint64_t)(i + BURN_IN)));
        if (i >= 0 && i < sequence) tokens[i] = next;
        if (i > 0) targets[i - 1] = next;
        before = last;
        last = next;
    }
}

static void corpus_window(const ng_source_text *s, uint64_t seed, stream from, uint64_t index, int64_t row, int64_t sequence,
                          int32_t *tokens, int32_t *targets) {
    const int64_t begin = from == EVALUATION ? s->byte_count - s->held_out : 0;
    const int64_t count = from == EVALUATION ? s->held_out : s->byte_count - s->held_out, room = count > sequence + 1 ? count - sequence : 1;
    const uint64_t random = (uint64_t)word(seed, from, index, (uint64_t)(2 * row)) << 32 | word(seed, from, index, (uint64_t)(2 * row + 1));
    const int64_t at = (int64_t)(random % (uint64_t)room);
    for (int64_t i = 0; i < sequence; i++) {
        tokens[i] = s->bytes[begin + (at + i) % count];
        targets[i] = s->bytes[begin + (at + i + 1) % count];
    }
}

void ng_source_batch(const ng_source_text *source, uint64_t seed, uint64_t index, bool evaluation, int64_t batch, int64_t sequence,
                     int32_t *tokens, int32_t *targets) {
    for (int64_t row = 0; row < batch; row++)
        (source->bytes ? corpus_window : language_window)(source, seed, evaluation ? EVALUATION : TRAINING, index, row, sequence,
                                                         tokens + row * sequence, targets + row * sequence);
}
