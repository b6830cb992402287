#include "suites/fuzz/targets.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!ng_fuzz_config(bytes, size)) abort();
    return 0;
}
