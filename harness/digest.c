#include "harness/digest.h"

#include "reference/format.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* The high nibble after an odd last column belongs to nobody. */
static void add_tensor(XXH3_state_t *state, const ng_tensor *tensor) {
    bool half_byte = ng_formats[tensor->format].storage_bits == 4 && tensor->columns % 2;
    size_t bytes = (size_t)ng_row_bytes(tensor->format, tensor->columns) - half_byte;
    for (int64_t i = 0; i < tensor->rows; i++) {
        XXH3_128bits_update(state, (const char *)tensor->data + i * tensor->row_bytes, bytes);
        if (half_byte) {
            unsigned char last = (unsigned char)ng_get_code(tensor, i, tensor->columns - 1);
            XXH3_128bits_update(state, &last, 1);
        }
    }
}

uint64_t ng_digest_elements(const ng_tensor *tensor) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    add_tensor(&state, tensor);
    return XXH3_128bits_digest(&state).low64;
}

void ng_digest_tensors(const ng_tensor *const *tensors, size_t count, char text[NG_DIGEST_TEXT]) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < count; i++)
        add_tensor(&state, tensors[i]);
    XXH128_hash_t digest = XXH3_128bits_digest(&state);
    snprintf(text, NG_DIGEST_TEXT, "%016llx%016llx", (unsigned long long)digest.high64, (unsigned long long)digest.low64);
}

uint64_t ng_digest_text(const char *text, uint64_t seed) { return XXH3_64bits_withSeed(text, strlen(text), seed); }
