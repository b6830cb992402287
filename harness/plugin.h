/* Kernels from shared libraries (kernels/kernel.h is the ABI). A library is opened first in a process of its own, so that
 * one that crashes, hangs or leaves while it loads is an error line, not a lost run. */
#ifndef NG_HARNESS_PLUGIN_H
#define NG_HARNESS_PLUGIN_H

#include "harness/judge.h"

typedef struct ng_loaded_plugin {
    const char *path;
    void *library;
    const ng_plugin *plugin;
} ng_loaded_plugin;

typedef struct ng_plugins {
    ng_loaded_plugin *items;
    size_t count;
    const ng_kernel **kernels; /* the program's own, then the plug-ins' */
    size_t kernel_count;
} ng_plugins;

/* Opens the libraries and gathers the catalogue: builtin's kernels first. Errors name the library and what is wrong with
 * it: not loadable, another ABI, a kernel without a proper or with a taken name. */
ng_status ng_plugins_load(const ng_kernel *const *builtin, size_t builtin_count, const char *const *paths,
                          size_t path_count, ng_plugins *plugins, ng_error *error);
void ng_plugins_free(ng_plugins *plugins);

ng_catalogue ng_plugins_catalogue(const ng_plugins *plugins);

#endif
