/* What differs between a host compiler and CUDA's: qualifiers, bit casts, and single-rounded binary32 arithmetic.
 * On a device every operation goes through the _rn intrinsics, which no compiler flag can fuse, flush or approximate. */
#ifndef NG_KERNELS_COMMON_TARGET_H
#define NG_KERNELS_COMMON_TARGET_H

#include "kernels/contract.h"

#include <float.h>
#include <string.h>

#ifdef __CUDACC__
#define NG_HD static __host__ __device__ __forceinline__
#else
#define NG_HD static inline __attribute__((always_inline, unused))
#endif

#ifdef __CUDA_ARCH__
NG_HD uint32_t ng_bits(float x) { return __float_as_uint(x); }
NG_HD float ng_float(uint32_t bits) { return __uint_as_float(bits); }
NG_HD float ng_add(float a, float b) { return __fadd_rn(a, b); }
NG_HD float ng_sub(float a, float b) { return __fsub_rn(a, b); }
NG_HD float ng_mul(float a, float b) { return __fmul_rn(a, b); }
NG_HD float ng_div(float a, float b) { return __fdiv_rn(a, b); }
#else
NG_HD uint32_t ng_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
NG_HD float ng_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
NG_HD float ng_add(float a, float b) { return a + b; }
NG_HD float ng_sub(float a, float b) { return a - b; }
NG_HD float ng_mul(float a, float b) { return a * b; }
NG_HD float ng_div(float a, float b) { return a / b; }
#endif

enum { NG_INF_BITS = 0x7F800000, NG_NAN_BITS = 0x7FFFFFFF, NG_ABS_MASK = 0x7FFFFFFF };

/* min(x, FLT_MAX) that keeps NaN, as the contract's scale rules want it. */
NG_HD float ng_at_most_max(float x) { return x > FLT_MAX ? FLT_MAX : x; }

#endif
