/* Input data made in device memory, with the bits that ng_data_fill gives (data.h). */
#ifndef NG_HARNESS_DATA_CUDA_H
#define NG_HARNESS_DATA_CUDA_H

#include "harness/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills the device tensor out (fp32, tf32, bf16 or fp16) with a window, as ng_data_fill does, in the order of `stream`.
 * NG_UNSUPPORTED: data from files, data made for a format, another format of out. */
ng_status ng_data_fill_cuda(const ng_data_spec *spec, int64_t row0, int64_t column0, const ng_tensor *out, void *stream, ng_error *error);

#ifdef __cplusplus
}
#endif
#endif
