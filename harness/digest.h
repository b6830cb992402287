/* Digests of results: XXH3 over the elements' bytes, row by row, without padding. */
#ifndef NG_HARNESS_DIGEST_H
#define NG_HARNESS_DIGEST_H

#include "kernels/contract.h"

enum { NG_DIGEST_TEXT = 33 };

uint64_t ng_digest_elements(const ng_tensor *tensor);

/* XXH3-128 over several host tensors in order, as 32 hexadecimal digits. Empty text where memory is short. */
void ng_digest_tensors(const ng_tensor *const *tensors, size_t count, char text[NG_DIGEST_TEXT]);

/* A 64-bit mix of text and numbers, for seeds that depend on names: the same on every machine. */
uint64_t ng_digest_text(const char *text, uint64_t seed);

#endif
