/* The step kernels with 512-bit vectors. */
#define NG_MMA_BYTES 64
#define NG_MMA_STEPS ng_mma_avx512
#include "mma_steps.h"
