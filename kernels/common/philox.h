/* Random words of stochastic rounding: Philox4x32-10 (Salmon et al., SC'11) through Random123, the same on both sides.
 * Word of an element: counter = {element / 4 low, high, offset low, high}, key = {seed low, high}, lane = element % 4.
 * The element is its row-major index in the tensor; a transposed copy continues after the row-wise one's last element. */
#ifndef NG_KERNELS_COMMON_PHILOX_H
#define NG_KERNELS_COMMON_PHILOX_H

#include "kernels/common/target.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-function"
#include <Random123/philox.h>
#pragma GCC diagnostic pop

typedef struct ng_random4 {
    uint32_t word[4];
} ng_random4;

NG_HD ng_random4 ng_philox4(uint64_t seed, uint64_t offset, uint64_t group) {
    philox4x32_ctr_t counter = {{(uint32_t)group, (uint32_t)(group >> 32), (uint32_t)offset, (uint32_t)(offset >> 32)}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t out = philox4x32_R(10, counter, key);
    ng_random4 words = {{out.v[0], out.v[1], out.v[2], out.v[3]}};
    return words;
}

NG_HD uint32_t ng_philox(uint64_t seed, uint64_t offset, uint64_t element) {
    return ng_philox4(seed, offset, element / 4).word[element % 4];
}

/* Eight bits an element, sixteen elements a call: byte e % 4 of word e / 4 % 4 of group e / 16. What quantizers behind a Hadamard
 * transform draw, where one word an element would cost more than everything else. */
NG_HD uint32_t ng_philox_byte_of(ng_random4 words, uint64_t element) { return words.word[element / 4 % 4] >> 8 * (uint32_t)(element % 4) & 0xFFu; }

NG_HD uint32_t ng_philox_byte(uint64_t seed, uint64_t offset, uint64_t element) {
    return ng_philox_byte_of(ng_philox4(seed, offset, element / 16), element);
}

#endif
