/* `run` inside another command, which takes run's options beside its own. */
#ifndef NG_HARNESS_NESTED_RUN_H
#define NG_HARNESS_NESTED_RUN_H

#include "harness/select.h"

/* One table of both: run's rows fill an ng_options at the start of the command's own structure. The command's own rows come
 * first; rows of run whose names are in `without` (NULL-terminated) are left out. To be freed. */
ng_status ng_nested_options(const ng_option *own, size_t own_count, const char *const *without, ng_option **table, size_t *count,
                            ng_error *error);

/* Runs with what was given of run's options and then `words` (NULL-terminated). */
ng_status ng_nested_run(const ng_program *program, const ng_option *own, size_t own_count, const ng_args *args,
                        const char *const *words, int *exit_status, ng_error *error);

/* A new folder for what a nested run writes, removed with its files afterwards; a journal that a run can go on from stays. */
ng_status ng_make_scratch(char **folder, ng_error *error);
void ng_remove_scratch(char *folder);

#endif
