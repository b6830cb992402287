/* A plug-in for test_faults.c whose kernels misbehave in a launch, one way each; NG_WRONG chooses what is wrong with the
 * library as a whole. */
#include "kernels/kernel.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOTHING, SAME_NAMES, NO_LAUNCH, NULL_KERNEL, NO_KERNELS, TOO_MANY, NO_SUCH_FORMAT };

static void write_right(const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT];
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            uint32_t bits;
            memcpy(&bits, (char *)in->data + i * in->row_bytes + 4 * j, sizeof bits);
            uint16_t code = (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
            memcpy((char *)out->data + i * out->row_bytes + 2 * j, &code, sizeof code);
        }
}

static ng_status right(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel;
    write_right(launch);
    return NG_OK;
}
static ng_status crashes(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel, (void)launch;
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    return NG_OK;
}
static ng_status aborts(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel, (void)launch;
    signal(SIGABRT, SIG_DFL);
    abort();
    return NG_OK;
}
static ng_status leaves(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel, (void)launch;
    _exit(0);
    return NG_OK;
}
static ng_status hangs(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel, (void)launch;
    while (pause())
        continue;
    return NG_OK;
}
static ng_status writes_outside(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)kernel;
    write_right(launch);
    ((char *)out->data)[out->rows * out->row_bytes] = 0;
    return NG_OK;
}
static ng_status writes_before(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel;
    write_right(launch);
    ((char *)launch->tensors[NG_OUT].data)[-1] = 0;
    return NG_OK;
}
static ng_status writes_nothing(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel, (void)launch;
    return NG_OK;
}
static ng_status changes_input(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel;
    write_right(launch);
    ((char *)launch->tensors[NG_IN].data)[0] ^= 1;
    return NG_OK;
}
static ng_status fails(const ng_kernel *kernel, const ng_launch *launch) {
    static const char why[] = "no luck today";
    (void)kernel;
    if (launch->message && launch->message_bytes >= sizeof why) memcpy(launch->message, why, sizeof why);
    return NG_DEVICE;
}

#define CAST(how, function)                                                                                          \
    {.name = "cast/fp32->bf16/" how "/rne-nosat", .op = NG_OP_CAST, .in = NG_WRONG == NO_SUCH_FORMAT ? 77 : NG_FP32, \
     .in_b = NG_NO_FORMAT, .out = NG_BF16, .launch = NG_WRONG == NO_LAUNCH ? NULL : function}

static const ng_kernel kernels[] = {
    CAST("right", right), CAST("crashes", crashes), CAST("aborts", aborts), CAST("leaves", leaves), CAST("hangs", hangs),
    CAST("writes-outside", writes_outside), CAST("writes-before", writes_before), CAST("writes-nothing", writes_nothing),
    CAST("changes-input", changes_input), CAST("fails", fails),
};
static const ng_kernel *const pointers[] = {
    &kernels[0], NG_WRONG == SAME_NAMES ? &kernels[0] : NG_WRONG == NULL_KERNEL ? NULL : &kernels[1], &kernels[2], &kernels[3],
    &kernels[4], &kernels[5], &kernels[6], &kernels[7], &kernels[8], &kernels[9],
};

const ng_plugin *ng_plugin_entry(void);
const ng_plugin *ng_plugin_entry(void) {
    static const ng_plugin plugin = {NG_ABI_VERSION, sizeof(ng_kernel),
                                     NG_WRONG == NO_KERNELS ? 0 : NG_WRONG == TOO_MANY ? 4000000 : sizeof pointers / sizeof *pointers,
                                     pointers, "misbehaving"};
    return &plugin;
}
