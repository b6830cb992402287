/* Baselines by name: records of runs that later ones are compared with. NAME is a folder of records in the store. */
#ifndef NG_HARNESS_BASELINE_H
#define NG_HARNESS_BASELINE_H

#include "harness/compare.h"

#define NG_BASELINE_STORE "narrowgauge-baselines"

/* Reads `name`: a record, a folder of records, or a name in the store. NG_IO: there is none; the error names those there are. */
ng_status ng_baseline_read(const char *store, const char *name, ng_side *side, ng_error *error);

/* Copies records into the store under that name, beside what it holds. Each appears whole or not at all. */
ng_status ng_baseline_save(const char *store, const char *name, const ng_side *side, ng_error *error);

#endif
