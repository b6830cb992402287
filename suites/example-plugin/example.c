/* A plug-in for narrowgauge: two casts of fp32 to bf16. Built against the installed header alone; see README.md.
 *
 * The first keeps its contract, one rounding to nearest even. The second claims the same contract and cuts the bits off: the
 * kind of fault that narrowgauge is for. */
#include <narrowgauge/kernel.h>

#include <string.h>

static uint32_t round_to_nearest(uint32_t bits) {
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF; /* NG_NAN_CANONICAL */
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;     /* carries into the exponent, and into infinity */
}

static uint32_t truncate(uint32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : bits >> 16; }

typedef struct method {
    uint32_t (*round)(uint32_t bits);
} method;

/* Rows lie row_bytes apart, which may be more than their elements take. */
static ng_status launch(const ng_kernel *kernel, const ng_launch *request) {
    const method *self = kernel->state;
    const ng_tensor *in = &request->tensors[NG_IN], *out = &request->tensors[NG_OUT];
    if (!in->data || !out->data) return NG_BAD_ARGUMENT;
    for (int64_t i = 0; i < in->rows; i++) {
        const char *from = (const char *)in->data + i * in->row_bytes;
        char *to = (char *)out->data + i * out->row_bytes;
        for (int64_t j = 0; j < in->columns; j++) {
            uint32_t bits;
            memcpy(&bits, from + 4 * j, sizeof bits);
            uint16_t code = (uint16_t)self->round(bits);
            memcpy(to + 2 * j, &code, sizeof code);
        }
    }
    return NG_OK;
}

#define CAST(kernel_name, how)                                                                        \
    {.name = kernel_name, .op = NG_OP_CAST, .backend = NG_BACKEND_CPU,                               \
     .in = NG_FP32, .in_b = NG_NO_FORMAT, .out = NG_BF16,                                            \
     .contract = {.cast = {.rounding = NG_RN_EVEN, .saturate = false, .nan = NG_NAN_CANONICAL},      \
                  .determinism = NG_DETERMINISTIC},                                                  \
     .launch = launch, .state = &(const method){how}}

static const ng_kernel right = CAST("cast/fp32->bf16/example/rne-nosat", round_to_nearest);
static const ng_kernel faulty = CAST("cast/fp32->bf16/example-truncated/rne-nosat", truncate);

static const ng_kernel *const kernels[] = {&right, &faulty};
static const ng_plugin plugin = {NG_ABI_VERSION, sizeof(ng_kernel), sizeof kernels / sizeof *kernels, kernels, "example 1.0"};

const ng_plugin *ng_plugin_entry(void);
const ng_plugin *ng_plugin_entry(void) { return &plugin; }
