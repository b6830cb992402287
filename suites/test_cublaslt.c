/* A library that test_device.c takes for cuBLASLt: it knows its version and nothing else. */
#include <stddef.h>

size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void) { return 70809; }
