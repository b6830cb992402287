/* The predictor of predict.c on a GPU, for products of full size: no tensor core is involved. Two kernels: one that
 * interprets any MMA contract in 64-bit integers, one thread an output, and a fast one in binary32 or binary64 directed
 * rounding. Callers hold the fast one to the integer one and to the CPU's predictor on a sample. */
#ifndef NG_REFERENCE_PREDICT_CUDA_H
#define NG_REFERENCE_PREDICT_CUDA_H

#include "kernels/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Part of a product: rows [row, row + rows) and columns [column, column + columns) of out. */
typedef struct ng_window {
    int64_t row, rows, column, columns;
} ng_window;

/* As ng_predict_gemm (reference/gemm.h) with every tensor in device memory; out is [m][n] bf16, fp16 or fp32 rounded to
 * nearest even; initial [m][n], or a bias [1][n], fp32, may be NULL. Enqueued on `stream` (a cudaStream_t). exact_integers asks for the
 * integer kernel. NG_UNSUPPORTED: the contract is no MMA contract or needs widths that the kernels do not have. On
 * NG_DEVICE, message (may be NULL) says what the runtime said. */
ng_status ng_predict_gemm_cuda(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b,
                               const ng_tensor *initial, bool exact_integers, void *stream, ng_tensor *out,
                               char *message, size_t message_bytes);

/* Counts the elements whose bits differ between two device tensors of one shape and format (all NaNs are equal), and the
 * place of the first in row-major order (-1: none). Synchronizes the stream. */
ng_status ng_compare_bits_cuda(const ng_tensor *x, const ng_tensor *y, void *stream, int64_t *differ, int64_t *first,
                               char *message, size_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif
