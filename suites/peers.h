/* How other projects compare a computed tensor with a reference, written from their published rules. What they are asked is
 * what narrowgauge's own judge is asked: this output, against the exact result rounded to the output's format. */
#ifndef NG_SUITES_PEERS_H
#define NG_SUITES_PEERS_H

#include "harness/judge.h"

typedef enum ng_peer {
    NG_PEER_ASSERT_CLOSE, /* torch.testing.assert_close */
    NG_PEER_TE_CPP,       /* TransformerEngine tests/cpp/test_common.cu */
    NG_PEER_TE_PYTHON,    /* TransformerEngine tests/pytorch/utils.py dtype_tols, through torch.allclose */
    NG_PEER_HIPBLASLT,    /* relative Frobenius norm */
    NG_PEER_CUTLASS,      /* profiler: relatively_equal */
    NG_PEER_DEEPGEMM,     /* calc_diff */
    NG_PEER_SQNR,         /* signal to quantization noise of at least 25 dB (torchao) */
    NG_PEER_COSINE,       /* cosine similarity above 0.99 */
    NG_PEERS,
} ng_peer;

typedef struct ng_peer_rule {
    const char *name, *rule; /* "te-cpp"; what passes, in words */
} ng_peer_rule;

extern const ng_peer_rule ng_peer_rules[NG_PEERS];

/* Bit per ng_peer: set where the peer rejects computed. A peer that has no rule for the format does not judge. */
unsigned ng_peers_reject(const ng_observation *observation);

#endif
