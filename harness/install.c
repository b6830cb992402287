#include "harness/install.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cuts the last part off; false: there is none. */
static bool to_parent(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}

ng_status ng_installed_file(const char *name, char **path) {
    char program[PATH_MAX];
    *path = NULL;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return NG_IO;
    program[length] = 0;
    if (!to_parent(program) || !to_parent(program)) return NG_IO;
    if (asprintf(path, "%s/share/narrowgauge/%s", program, name) < 0) {
        *path = NULL;
        return NG_NO_MEMORY;
    }
    if (!access(*path, R_OK)) return NG_OK;
    free(*path);
    *path = NULL;
    return NG_IO;
}
