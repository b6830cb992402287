/* reference/sweep.h on a GPU: the inputs made there, and codes compared there with the runs that MPFR proved on the host.
 * The stream is a cudaStream_t; nothing but ng_sweep_cuda_new and _result waits for it. Built with CUDA only. */
#ifndef NG_REFERENCE_SWEEP_CUDA_H
#define NG_REFERENCE_SWEEP_CUDA_H

#include "reference/sweep.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ng_sweep_cuda {
    int storage_bits; /* of a code: 4, 8, 16 or 32 */
    unsigned count;   /* of runs */
    ng_run *runs;     /* [count] in device memory */
    void *found;      /* in device memory: how many codes differ, and the first input of them */
} ng_sweep_cuda;

/* Copies the runs to the current device. NG_NO_MEMORY, NG_DEVICE. */
ng_status ng_sweep_cuda_new(const ng_sweep *sweep, void *stream, ng_sweep_cuda *made);
void ng_sweep_cuda_free(ng_sweep_cuda *sweep);

/* words[i] = start + i, in device memory. */
ng_status ng_sweep_cuda_inputs(uint32_t start, uint64_t count, uint32_t *words, void *stream);

/* Compares codes[i], in device memory, stored as ng_sweep_check wants them, with what the binary32 of bits start + i gives.
 * 16-byte aligned; count a multiple of 32. Finds add up until the result is asked for. */
ng_status ng_sweep_cuda_check(const ng_sweep_cuda *sweep, uint32_t start, uint64_t count, const void *codes, void *stream);

/* Waits. *different over all checks so far; *first is the lowest input among them. */
ng_status ng_sweep_cuda_result(const ng_sweep_cuda *sweep, void *stream, uint64_t *different, uint32_t *first);

#ifdef __cplusplus
}
#endif
#endif
