/* Where an element of K stands in a sum whose steps do not take K in ascending order (contract.h, ng_k_order). Private. */
#ifndef NG_REFERENCE_K_ORDER_H
#define NG_REFERENCE_K_ORDER_H

#include "kernels/contract.h"

#ifdef __CUDACC__
#define NG_K_ORDER static __host__ __device__ inline
#else
#define NG_K_ORDER static inline __attribute__((unused))
#endif

NG_K_ORDER int64_t ng_k_position(ng_k_order order, int64_t k) {
    if (order == NG_K_ASCENDING) return k;
    int64_t in_chunk = k % 128, thread = in_chunk / 32, word = in_chunk % 32 / 8, n = in_chunk % 8;
    return k - in_chunk + 16 * (2 * word + (n >> 1 & 1)) + 4 * thread + (n & 1) + 2 * (n >> 2);
}

NG_K_ORDER bool ng_k_order_fits(const ng_accumulation *sum, int64_t k) {
    return sum->k_order == NG_K_ASCENDING || (sum->order == NG_SUM_MMA && sum->scales == NG_SCALES_DEQUANTIZED && k % 128 == 0);
}

#endif
