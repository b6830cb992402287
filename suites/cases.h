/* The case tables: what `run` judges at each level, and which kernels run a model, operands or tensors from files. */
#ifndef NG_SUITES_CASES_H
#define NG_SUITES_CASES_H

#include "harness/expand.h"

extern const ng_case_row ng_case_rows[];
extern const size_t ng_case_row_count;

#endif
