/* Files that appear whole or not at all: written under a temporary name beside their place and renamed at the end.
 * "-" is standard output; a device or a pipe is written directly. */
#ifndef NG_HARNESS_OUTPUT_H
#define NG_HARNESS_OUTPUT_H

#include "harness/error.h"

#include <stdio.h>

typedef struct ng_output {
    FILE *stream;        /* NULL: not asked for */
    const char *path;
    char *temporary;     /* NULL: written in place */
} ng_output;

/* Makes sure that path can be written before work begins. path NULL: leaves output empty. */
ng_status ng_output_open(const char *path, ng_output *output, ng_error *error);

/* Flushes, syncs and renames. On failure (disk full) nothing is left at path that was not there before. */
ng_status ng_output_commit(ng_output *output, ng_error *error);

/* Closes and removes the temporary; harmless after a commit. */
void ng_output_discard(ng_output *output);

#endif
