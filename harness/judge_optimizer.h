/* The optimizers' drivers: Adam, and the steps around it. Private to harness/judge*.c. */
#ifndef NG_HARNESS_JUDGE_OPTIMIZER_H
#define NG_HARNESS_JUDGE_OPTIMIZER_H

#include "harness/judge_internal.h"

ng_status ng_judge_adam(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_steps(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);

#endif
