/* TAP 13: numbered, with YAML diagnostics, as `meson test` reads it. */
#ifndef NG_HARNESS_TAP_H
#define NG_HARNESS_TAP_H

#include "harness/record.h"

void ng_tap_begin(FILE *out, size_t count);
void ng_tap_case(FILE *out, const ng_run_record *run, size_t i);
void ng_tap_bail_out(FILE *out, const char *reason);

#endif
