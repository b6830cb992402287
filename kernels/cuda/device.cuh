/* Elements in and out of device memory, as the kernels here see them. */
#ifndef NG_KERNELS_CUDA_DEVICE_CUH
#define NG_KERNELS_CUDA_DEVICE_CUH

#include "kernels/common/cast.h"
#include "kernels/common/decode.h"
#include "kernels/common/philox.h"
#include "kernels/common/scale.h"
#include "kernels/cuda/cuda.h"

#include <cuda_runtime.h>

struct ng_matrix { /* a tensor on the device; data NULL: absent */
    unsigned char *data;
    long long row_bytes;
    ng_format_id format;
};

static inline ng_matrix ng_matrix_of(const ng_tensor *t) {
    ng_matrix m = {static_cast<unsigned char *>(t->data), (long long)t->row_bytes, t->format};
    return m;
}

template <typename T> static __device__ __forceinline__ T *ng_row(const ng_matrix &m, long long row) {
    return reinterpret_cast<T *>(m.data + row * m.row_bytes);
}

/* The binary32 bits of an element of a wide input format; fp64 rounded to odd, which every narrower format rounds alike. */
static __device__ __forceinline__ uint32_t ng_load_bits(const ng_matrix &m, long long row, long long column) {
    switch (m.format) {
    case NG_BF16: return (uint32_t)ng_row<const uint16_t>(m, row)[column] << 16;
    case NG_FP16: return ng_bits(ng_decode_fp16(ng_row<const uint16_t>(m, row)[column]));
    case NG_FP64: return ng_bits(ng_round_to_odd(ng_row<const double>(m, row)[column]));
    default: return ng_row<const uint32_t>(m, row)[column];
    }
}

/* A code of one element; e2m1 is stored in pairs by ng_store_pair. */
static __device__ __forceinline__ void ng_store_code(const ng_matrix &m, long long row, long long column, uint32_t code) {
    switch (m.format) {
    case NG_FP32: ng_row<uint32_t>(m, row)[column] = code; break;
    case NG_TF32: ng_row<uint32_t>(m, row)[column] = code << 13; break;
    case NG_BF16:
    case NG_FP16: ng_row<uint16_t>(m, row)[column] = (uint16_t)code; break;
    default: ng_row<uint8_t>(m, row)[column] = (uint8_t)code;
    }
}
static __device__ __forceinline__ void ng_store_pair(const ng_matrix &m, long long row, long long even, uint32_t low, uint32_t high) {
    ng_row<uint8_t>(m, row)[even / 2] = (uint8_t)(low | high << 4);
}

/* A code of any narrow format or scale. */
static __device__ __forceinline__ uint32_t ng_load_code(const ng_matrix &m, long long row, long long column) {
    switch (m.format) {
    case NG_FP32:
    case NG_TF32: return ng_row<const uint32_t>(m, row)[column];
    case NG_BF16:
    case NG_FP16: return ng_row<const uint16_t>(m, row)[column];
    case NG_E2M1: return (ng_row<const uint8_t>(m, row)[column >> 1] >> (column & 1) * 4) & 0xFu;
    default: return ng_row<const uint8_t>(m, row)[column];
    }
}

/* The random word of an element: given, or drawn for its index (kernels/common/philox.h). */
static __device__ __forceinline__ uint32_t ng_random_word(const ng_matrix &given, uint64_t seed, uint64_t offset, long long row,
                                                          long long column, uint64_t index) {
    return given.data ? ng_row<const uint32_t>(given, row)[column] : ng_philox(seed, offset, index);
}

#endif
