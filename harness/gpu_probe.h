/* What GPU a run is on, without touching CUDA in the calling process, which forks workers afterwards. */
#ifndef NG_HARNESS_GPU_PROBE_H
#define NG_HARNESS_GPU_PROBE_H

#include "harness/device.h"
#include "harness/fingerprint.h"

/* An ng_gpu_probe: asks the runtime and the driver in a process of its own. NG_UNSUPPORTED: built without CUDA, no driver,
 * no such device; NG_DEVICE: the process died of it or did not answer. */
ng_status ng_probe_gpu(int device, ng_gpu_info *info, ng_error *error);

/* "13.1.0": of the cuBLASLt that the kernels are given, NARROWGAUGE_CUBLASLT's where that names one; "" where there is none. */
void ng_cublaslt_version(char *text, size_t bytes);

/* The same in this process, of a runtime. */
ng_status ng_describe_gpu(const ng_runtime *runtime, int device, ng_gpu_info *info);

#endif
