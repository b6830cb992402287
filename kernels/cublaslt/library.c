#include "kernels/cublaslt/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written once, by load(); constant afterwards. A handle costs tens of milliseconds and memory on the device, so that a
 * process makes one. */
static struct {
    ng_cublaslt functions;
    bool usable;
    char why[256];
} loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The name that the headers stand for first: its options and structures are those that this was compiled with. */
static void *open_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", NG_CUBLASLT_DIRECTORY "/libcublasLt.so.13", "libcublasLt.so"};
    const char *asked = getenv("NARROWGAUGE_CUBLASLT");
    void *library = NULL;
    if (asked && *asked) {
        library = dlopen(asked, RTLD_NOW | RTLD_LOCAL);
        if (!library) snprintf(loaded.why, sizeof loaded.why, "NARROWGAUGE_CUBLASLT: %.200s", dlerror());
        return library;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(loaded.why, sizeof loaded.why, "no cuBLASLt: libcublasLt.so.13 is not found");
    return library;
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found && !*loaded.why) snprintf(loaded.why, sizeof loaded.why, "cuBLASLt has no function %s", name);
    return found;
}

static void load(void) {
    ng_cublaslt *f = &loaded.functions;
    void *library = open_library(), *found;
    if (!library) return;
#define FIND(name)                              \
    found = find(library, "cublasLt" #name);    \
    memcpy(&f->name, &found, sizeof found);
    NG_CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    if (*loaded.why) return;
    cublasStatus_t status = f->Create(&f->handle);
    if (status) snprintf(loaded.why, sizeof loaded.why, "cuBLASLt cannot start: %s", f->GetStatusName(status));
    loaded.usable = status == CUBLAS_STATUS_SUCCESS;
}

const ng_cublaslt *ng_cublaslt_library(const char **why) {
    pthread_once(&once, load);
    *why = loaded.why;
    return loaded.usable ? &loaded.functions : NULL;
}
