/* What a kernel that applies a random Hadamard transform promises: alone (NG_OP_HADAMARD) or in front of a quantization
 * (NG_OP_QUANTIZE). Part of the plug-in ABI (kernel.h).
 *
 * Columns go in groups of n = size, n in {4, 16, 32, 128}; what is left of a row behind the last whole group stays as it is.
 * fl() is one binary32 rounding to nearest even. Of a group x_0 .. x_(n-1), with s_j = -1 where bit j of signs is set, else 1:
 *     t_j = s_j x_j;  then for b = 0, 1 ... log2 n - 1, for each i without bit b and i' = i + 2^b at once:
 *         t_i, t_i' = fl(t_i + t_i'), fl(t_i - t_i')
 *     y_i = fl(2^-shift t_i), a zero being +0
 * so y = 2^-shift H diag(s) x with Sylvester's H_ij = (-1)^popcount(i & j), not normalised. H diag(s) times its transpose is n I:
 * two operands whose shifts add up to log2 n, under the same signs, have the product that they had before, exactly but for
 * the roundings above. Every factor is a power of two, which 1 / sqrt(32) and 1 / sqrt(128) are not.
 * NG_OP_HADAMARD: OUT = cast(y). NG_OP_QUANTIZE: y itself is quantized, as the binary32 that it is; OUT_T, whose groups run
 * along its own columns, is then another tensor than OUT and has its own tensor scale, in NG_OUT_T_TENSOR_SCALE.
 * Source: arXiv:2509.25149 (16 x 16, one fixed vector of signs), with the order of additions stated. */
#ifndef NG_CONTRACT_HADAMARD_H
#define NG_CONTRACT_HADAMARD_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NG_HADAMARD_MOST = 128 };

typedef struct ng_hadamard {
    uint16_t size;        /* n; 0: no transform */
    uint8_t shift;
    bool transposed_only; /* NG_OP_QUANTIZE: OUT is quantized without it */
    uint32_t signs[4];    /* bit j mod 32 of word j / 32 */
} ng_hadamard;

#ifdef __cplusplus
}
#endif
#endif
