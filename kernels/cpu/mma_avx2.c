/* The step kernels with 256-bit vectors. */
#define NG_MMA_BYTES 32
#define NG_MMA_STEPS ng_mma_avx2
#include "mma_steps.h"
