/* Plug-ins for test_harness.c: a right one and ones that are wrong in one way each, chosen by NG_PLUGIN_WRONG. */
#include "kernels/kernel.h"

#include <signal.h>
#include <stdlib.h>

enum { RIGHT, WRONG_ABI, WRONG_BYTES, RETURNS_NULL, NO_ENTRY, WRONG_NAME, NAME_TAKEN, CRASHES, LEAVES };

static ng_status launch(const ng_kernel *kernel, const ng_launch *request) {
    (void)kernel, (void)request;
    return NG_UNSUPPORTED;
}

static const ng_kernel kernel = {
    .name = NG_PLUGIN_WRONG == WRONG_NAME   ? "Bad Name"
            : NG_PLUGIN_WRONG == NAME_TAKEN ? "cast/e4m3/cpu/a"
                                            : "cast/e4m3/cpu/plugged",
    .op = NG_OP_CAST, .in = NG_FP32, .in_b = NG_NO_FORMAT, .out = NG_E4M3, .launch = launch,
};
static const ng_kernel *const kernels[] = {&kernel};
static const ng_plugin plugin = {
    .abi_version = NG_PLUGIN_WRONG == WRONG_ABI ? 4711 : NG_ABI_VERSION,
    .kernel_bytes = NG_PLUGIN_WRONG == WRONG_BYTES ? 8 : sizeof(ng_kernel),
    .count = 1, .kernels = kernels, .name = "test",
};

#if NG_PLUGIN_WRONG == 4 /* NO_ENTRY */
const ng_plugin *some_other_entry(void);
const ng_plugin *some_other_entry(void) { return &plugin; }
#else
const ng_plugin *ng_plugin_entry(void);
const ng_plugin *ng_plugin_entry(void) { return NG_PLUGIN_WRONG == RETURNS_NULL ? NULL : &plugin; }
#endif

__attribute__((constructor)) static void on_load(void) {
    if (NG_PLUGIN_WRONG == CRASHES) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would end it otherwise */
        raise(SIGSEGV);
    }
    if (NG_PLUGIN_WRONG == LEAVES) exit(0);
}
