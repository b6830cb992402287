/* Whole products verified on a GPU, every element, without any library: c = sum a b in binary64 by the FP64 tensor cores
 * (IEEE fused multiply-adds), H = sum |a b| beside it, the contract's bound from both, and the error figures of what a
 * kernel computed; c is never stored. */
#ifndef NG_REFERENCE_EXACT_CUDA_H
#define NG_REFERENCE_EXACT_CUDA_H

#include "kernels/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NG_UNDECIDED = 64 };

/* As ng_error_figures and ng_tally (harness/verdict.h) mean them. */
typedef struct ng_witness {
    double max_abs, max_rel, max_ulp, ratio;
    double sum_e2, sum_c2, sum_signed, sum_abs;
    double worst_key, worst_computed, worst_exact, worst_bound;
    int64_t worst_row, worst_column;
    int64_t nonfinite, beyond, bounded, zero_rejected, checked;
    int64_t exact;      /* elements whose c is exact */
    int64_t undecided;  /* accepted or not within the certified error of c: for the caller to settle, row * n + column: */
    int64_t places[NG_UNDECIDED];
} ng_witness;

/* All tensors in device memory. sum NULL: figures only, no bound. initial: fp32 [m][n], or a bias [1][n], or NULL. computed
 * fp32, bf16 or fp16, cast to nearest even without saturation. Synchronizes the stream. NG_UNSUPPORTED: formats of different
 * widths, or none of the kernel's; NG_DEVICE: message says what the runtime said. */
ng_status ng_witness_gemm_cuda(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                               const ng_tensor *computed, void *stream, ng_witness *figures, char *message, size_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif
