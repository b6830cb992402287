/* The table of a model's run: for each recipe (a kernel, data, mode) the products of a layer in each phase, how wrong each
 * is, how wrong it may be, what the recipe costs in accuracy, and how long it took; then one line a recipe. */
#ifndef NG_HARNESS_TABLE_H
#define NG_HARNESS_TABLE_H

#include "harness/terminal.h"

ng_status ng_model_table(const ng_terminal *terminal, const ng_run_record *run, ng_error *error);

/* Of cases with recipes: by layer, a line a recipe, three phases side by side. budget_db > 0: then the fastest of each layer and
 * phase whose signal-to-noise ratio is at least that, and what one training step comes to. */
void ng_recipe_table(const ng_terminal *terminal, const ng_run_record *run, double budget_db);

#endif
