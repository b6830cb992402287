/* Whole files into memory, and JSON documents that say what they are. */
#ifndef NG_HARNESS_INPUT_H
#define NG_HARNESS_INPUT_H

#include "harness/error.h"

#include <stdbool.h>

struct cJSON;

/* The file's bytes and a zero after them; to be freed. `what` is what the file should be: "journal". NG_IO on any failure. */
ng_status ng_read_file(const char *path, const char *what, char **text, size_t *length, ng_error *error);

/* Reads a JSON object whose member "schema" is `schema` ("narrowgauge.report/1"). Another version of the same, something
 * foreign, something cut off: NG_BAD_ARGUMENT with the difference in one line. */
ng_status ng_read_document(const char *path, const char *what, const char *schema, struct cJSON **document, ng_error *error);

/* The named member's text; NULL: it has none. */
const char *ng_text_member(const struct cJSON *object, const char *name);

/* The files in a folder whose names end in `ending`, sorted; to be freed with ng_free_names. A folder that is not there is
 * NG_IO. */
ng_status ng_list_folder(const char *folder, const char *ending, char ***names, size_t *count, ng_error *error);
void ng_free_names(char **names, size_t count);

#endif
