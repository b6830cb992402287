/* The options that say which cases run, shared by every command that runs or lists cases, and what they come to. */
#ifndef NG_HARNESS_SELECT_H
#define NG_HARNESS_SELECT_H

#include "harness/command.h"

typedef enum ng_verify { NG_VERIFY_GPU, NG_VERIFY_CPU } ng_verify;
typedef enum ng_save { NG_SAVE_NEVER, NG_SAVE_FAILING, NG_SAVE_ALWAYS } ng_save;

typedef struct ng_options {
    /* which cases */
    int level, backend;          /* backend: ng_backend, or NG_BACKENDS for all that is there */
    uint64_t seed;
    ng_texts filters, plugins;
    const char *model;
    int64_t batch, sequence, tensor_parallel;
    int64_t shape[3];
    const char *tensors, *x, *w, *dy; /* FILE[:NAME] */
    const char *data;                 /* names, comma-separated */
    const char *recipe, *budget;
    unsigned modes;
    bool full;
    const char *json;
    /* how they run */
    const char *junit, *tap, *journal, *resume, *save_directory;
    ng_texts tags;
    int save;
    int64_t threads, device;
    double timeout_s;
    const char *goldens, *expectations; /* folders; "none" */
    int verify;
    bool variants;
    bool dry_run, no_speed, warm_cache, quiet, no_retry;
} ng_options;

extern const ng_option ng_option_rows[];
extern const size_t ng_select_option_count; /* the first rows: which cases, and --json */
extern const size_t ng_run_option_count;    /* all rows */

ng_options ng_default_options(void);

/* --budget as a number; 0: not given, or none. */
double ng_budget_db(const ng_options *options);

/* A folder of data that an option names: "none" is none (NULL), no option the one installed with the program, if there is one.
 * To be freed. */
ng_status ng_data_folder(const char *option, const char *installed, char **folder, ng_error *error);

/* What the options select, with everything that the case list points into. */
typedef struct ng_selected {
    ng_plugins plugins;
    ng_catalogue catalogue;
    ng_model model;
    struct ng_tensor_file *files[4];
    char *names[4]; /* parsed FILE parts and tensor names */
    char *paths[4];
    ng_distribution data[NG_DISTRIBUTIONS + 1];
    ng_selection selection;
    ng_case_list list;
} ng_selected;

ng_status ng_select(const ng_program *program, const ng_options *options, const ng_args *args, ng_selected *selected,
                    ng_error *error);
void ng_selected_free(ng_selected *selected);

#endif
