/* What is learned: a generated language whose entropy is computed, or the bytes of a file.
 *
 * The language is an n-gram source: the next symbol depends on the last symbol a and on the class (b mod classes) of the one before it, so
 * that a model must look back with attention to reach the floor. Each context has a few successors with integer weights out of 2^16;
 * everything is drawn by Philox from (seed, stream, place), with no state between batches. Its entropy rate is
 *     H = - sum over contexts pi(context) sum over symbols p log p     (nats; pi: stationary, by power iteration),
 * exact but for binary64's rounding, since the context determines the distribution of the next symbol. A window of S + 1 symbols does
 * not show what came before it: the floor of its mean loss is (H1 + (S - 1) H) / S, H1 the entropy of the next symbol given one. */
#ifndef NG_SUITES_TRAINING_SOURCE_H
#define NG_SUITES_TRAINING_SOURCE_H

#include "harness/error.h"

typedef struct ng_source_options {
    const char *corpus; /* a file, read as bytes; NULL: the generated language */
    uint64_t seed;      /* of the language */
    int32_t vocabulary; /* 2..4096; a corpus has 256 */
    int32_t classes;    /* 1..vocabulary: 1 is a bigram source */
    int32_t successors; /* 1..32, at most the vocabulary */
} ng_source_options;

typedef struct ng_source_text {
    int32_t vocabulary, classes, successors;
    double entropy;       /* H, nats a symbol; NaN for a corpus */
    double first_entropy; /* H1 */
    int32_t *next;        /* [vocabulary * classes][successors] */
    uint32_t *up_to;      /* cumulated weights, the last 2^16 */
    uint8_t *bytes;       /* of the corpus */
    int64_t byte_count, held_out; /* the last bytes, which training never sees */
} ng_source_text;

ng_status ng_source_create(const ng_source_options *options, ng_source_text *source, ng_error *error);
void ng_source_free(ng_source_text *source);

/* The floor of the mean loss over windows of `sequence` predictions; NaN for a corpus. */
double ng_source_floor(const ng_source_text *source, int64_t sequence);

/* Batch number `index` of a run: tokens[i] is followed by targets[i]; [batch][sequence]. evaluation: other text than any batch of training. */
void ng_source_batch(const ng_source_text *source, uint64_t seed, uint64_t index, bool evaluation, int64_t batch, int64_t sequence,
                     int32_t *tokens, int32_t *targets);

#endif
