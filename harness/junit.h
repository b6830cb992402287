/* JUnit XML as CI servers read it: classname = suite/operation, name = id, both stable; seeds and figures as properties. */
#ifndef NG_HARNESS_JUNIT_H
#define NG_HARNESS_JUNIT_H

#include "harness/record.h"

void ng_junit_write(FILE *out, const ng_run_record *run);

#endif
