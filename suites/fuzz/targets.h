/* The parsers of input from outside, each as one function of bytes: what the fuzzers run, and test_inputs.c replays over
 * corpus/. True if what must hold held: either a message of one line that begins with the path, or results within limits. */
#ifndef NG_SUITES_FUZZ_TARGETS_H
#define NG_SUITES_FUZZ_TARGETS_H

#include <stdbool.h>
#include <stddef.h>

bool ng_fuzz_safetensors(const void *bytes, size_t size);
bool ng_fuzz_npy(const void *bytes, size_t size);
bool ng_fuzz_config(const void *bytes, size_t size);

#endif
