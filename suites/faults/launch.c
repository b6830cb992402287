/* From a row to a kernel: the faulty kernel's launch, the tensors that hooks work on, the plug-in's entries. */
#include "fault.h"
#include "faults.h"

#include "kernels/catalogue.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_FAULTS = 1024, NAME_BYTES = 128 };

/* ---- elements -----------------------------------------------------------------------------------------------------*/
static int bits_of(ng_format_id format) {
    switch (format) {
    case NG_FP64: return 64;
    case NG_FP32:
    case NG_TF32: return 32;
    case NG_BF16:
    case NG_FP16: return 16;
    case NG_E2M1: return 4;
    default: return 8;
    }
}

static uint8_t *row_of(const ng_tensor *t, int64_t row) { return (uint8_t *)t->data + row * t->row_bytes; }

uint32_t ng_element_get(const ng_tensor *t, int64_t row, int64_t column) {
    const uint8_t *r = row_of(t, row);
    uint32_t code = 0;
    int bits = bits_of(t->format);
    if (bits == 4) return r[column / 2] >> column % 2 * 4 & 0xF;
    memcpy(&code, r + column * bits / 8, (size_t)bits / 8 < sizeof code ? (size_t)bits / 8 : sizeof code);
    return code;
}

void ng_element_set(const ng_tensor *t, int64_t row, int64_t column, uint32_t code) {
    uint8_t *r = row_of(t, row);
    int bits = bits_of(t->format);
    if (bits == 4) {
        int shift = (int)(column % 2) * 4;
        r[column / 2] = (uint8_t)((r[column / 2] & ~(0xF << shift)) | (code & 0xF) << shift);
    } else memcpy(r + column * bits / 8, &code, (size_t)bits / 8);
}

void ng_element_store(const ng_tensor *t, int64_t row, int64_t column, uint32_t code) {
    ng_element_set(t, row, column, t->format == NG_TF32 ? code << 13 : code);
}

float ng_element_value(const ng_tensor *t, int64_t row, int64_t column) {
    return ng_decode_float(t->format, ng_element_get(t, row, column));
}

double ng_element_double(const ng_tensor *t, int64_t row, int64_t column) {
    double x;
    if (t->format != NG_FP64) return (double)ng_element_value(t, row, column);
    memcpy(&x, row_of(t, row) + column * 8, sizeof x);
    return x;
}

ng_tensor ng_tensor_twin(const ng_tensor *t) {
    ng_tensor twin = *t;
    size_t bytes = (size_t)(t->rows * t->row_bytes);
    twin.data = t->data ? malloc(bytes + 1) : NULL;
    if (twin.data) memcpy(twin.data, t->data, bytes);
    return twin;
}

/* ---- outputs ------------------------------------------------------------------------------------------------------*/
static void for_all(const ng_tensor *t, uint32_t code) {
    for (int64_t i = 0; t->data && i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            ng_element_set(t, i, j, code);
}

void ng_all_zero(const ng_launch *launch, const ng_tensor *before) {
    (void)before;
    for_all(&launch->tensors[NG_OUT], 0);
}

void ng_all_nan(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    for_all(out, bits_of(out->format) == 8 ? 0x7F : bits_of(out->format) == 16 ? 0x7FFF : 0x7FFFFFFF);
}

static void restore(const ng_launch *launch, const ng_tensor *before, int64_t row, int64_t column) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    for (int64_t i = row; out->data && before->data && i < out->rows; i++)
        for (int64_t j = column; j < out->columns; j++)
            ng_element_set(out, i, j, ng_element_get(before, i, j));
}

void ng_unwritten(const ng_launch *launch, const ng_tensor *before) { restore(launch, before, 0, 0); }
void ng_tail_unwritten(const ng_launch *launch, const ng_tensor *before) {
    restore(launch, before, 0, launch->tensors[NG_OUT].columns / 16 * 16);
}
void ng_corner_unwritten(const ng_launch *launch, const ng_tensor *before) {
    restore(launch, before, launch->tensors[NG_OUT].rows - 1, launch->tensors[NG_OUT].columns - 1);
}

void ng_last_row_wrong(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    for (int64_t j = 0; out->data && out->rows >= 65536 && j < out->columns; j++)
        ng_element_set(out, out->rows - 1, j, ng_element_get(out, 0, j));
}

void ng_one_in_16_million(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    if (!out->data || out->rows * out->columns < 1 << 24) return;
    ng_element_set(out, out->rows / 3, out->columns / 7, ng_element_get(out, out->rows / 3, out->columns / 7) ^ 1);
}

void ng_writes_behind(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    if (out->data && out->columns % 16) row_of(out, out->rows)[0] = 0;
}

void ng_changes_input(const ng_launch *launch, const ng_tensor *before) {
    const ng_tensor *a = &launch->tensors[NG_A];
    (void)before;
    ng_element_set(a, 0, 0, ng_element_get(a, 0, 0) ^ 1);
}

void ng_dies_of_tails(const ng_launch *launch, const ng_tensor *before) {
    (void)before;
    if (launch->problem->k % 16 == 0) return;
    signal(SIGSEGV, SIG_DFL); /* also under a sanitizer, which has a handler of its own */
    raise(SIGSEGV);
}

/* The one place with a memory: every tenth launch of the process is wrong, so that a run of ten cannot miss it. */
void ng_flips_a_bit(const ng_launch *launch, const ng_tensor *before) {
    static atomic_uint launches;
    const ng_tensor *out = &launch->tensors[NG_OUT];
    (void)before;
    if (!out->data || atomic_fetch_add(&launches, 1) % 10 != 9) return;
    ng_element_set(out, out->rows / 2, out->columns / 2, ng_element_get(out, out->rows / 2, out->columns / 2) ^ 1);
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
typedef struct instance {
    const ng_fault *fault;
    ng_kernel subject; /* what really computes */
} instance;

static bool is_output(int role) {
    return role == NG_OUT || role == NG_OUT_SCALES || role == NG_OUT_TENSOR_SCALE || role == NG_OUT_T || role == NG_OUT_T_SCALES || role == NG_OUT_T_TENSOR_SCALE;
}

static ng_status twin_inputs(const ng_launch *launch, ng_launch *mine) {
    *mine = *launch;
    for (int role = 0; role < NG_ROLES; role++) {
        if (is_output(role) || !launch->tensors[role].data) continue;
        mine->tensors[role] = ng_tensor_twin(&launch->tensors[role]);
        if (!mine->tensors[role].data) return NG_NO_MEMORY;
    }
    return NG_OK;
}

static void free_inputs(const ng_launch *launch, ng_launch *mine) {
    for (int role = 0; role < NG_ROLES; role++)
        if (!is_output(role) && mine->tensors[role].data != launch->tensors[role].data) free(mine->tensors[role].data);
}

static ng_status launch_fault(const ng_kernel *kernel, const ng_launch *launch) {
    const instance *self = kernel->state;
    const ng_fault *fault = self->fault;
    ng_tensor before = {0};
    ng_launch mine = *launch;
    ng_status status = NG_OK;
    if (fault->inputs) {
        status = twin_inputs(launch, &mine);
        if (status) goto done;
        fault->inputs(&mine);
    }
    if (fault->outputs) before = ng_tensor_twin(&launch->tensors[NG_OUT]);
    status = fault->compute ? fault->compute(fault, &self->subject, &mine) : self->subject.launch(&self->subject, &mine);
    if (!status && fault->outputs) fault->outputs(&mine, &before);
done:
    free_inputs(launch, &mine);
    free(before.data);
    return status;
}

/* ---- the plug-in --------------------------------------------------------------------------------------------------*/
/* Descriptors are copies of the right kernels', made once when the library is first asked; constant from then on. */
typedef struct collection {
    instance instances[MOST_FAULTS];
    ng_kernel kernels[MOST_FAULTS];
    const ng_kernel *pointers[MOST_FAULTS];
    char names[MOST_FAULTS][NAME_BYTES];
    ng_fault_note notes[MOST_FAULTS];
    uint32_t count;
    bool broken; /* a row names a kernel that does not exist */
} collection;

static collection all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const ng_kernel *find(const ng_kernel *const *kernels, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    fprintf(stderr, "a fault is made from %s, which is no kernel\n", name);
    return NULL;
}

/* "cast/fp32->e4m3/cpu/rne-sat" and "truncates" make "cast/fp32->e4m3/truncates/rne-sat". */
static bool make_name(const ng_fault *fault, char *name) {
    const char *backend = strstr(fault->right, "/cpu/");
    if (!backend) return false;
    int length = snprintf(name, NAME_BYTES, "%.*s/%s/%s", (int)(backend - fault->right), fault->right, fault->name, backend + 5);
    return length > 0 && length < NAME_BYTES;
}

static bool make(const ng_fault *fault, const ng_kernel *const *kernels, size_t count) {
    uint32_t i = all.count;
    const ng_kernel *right = find(kernels, count, fault->right);
    const ng_kernel *runs = fault->runs ? find(kernels, count, fault->runs) : right;
    if (!right || !runs || i == MOST_FAULTS || !make_name(fault, all.names[i])) return false;
    all.instances[i] = (instance){fault, *runs};
    if (fault->change) fault->change(&all.instances[i].subject);
    all.kernels[i] = *right;
    all.kernels[i].name = all.names[i];
    all.kernels[i].launch = launch_fault;
    all.kernels[i].state = &all.instances[i];
    all.pointers[i] = &all.kernels[i];
    all.notes[i] = (ng_fault_note){all.names[i], fault->right, fault->imitates};
    all.count++;
    return true;
}

static void make_all(void) {
    static const ng_fault_list *const lists[] = {&ng_cast_faults, &ng_random_faults, &ng_hadamard_faults, &ng_quantize_faults, &ng_dequantize_faults,
                                                 &ng_gemm_faults, &ng_norm_faults, &ng_optimizer_faults, &ng_activation_faults, &ng_layer_faults};
    size_t count = ng_builtin_kernels(NULL, 0);
    const ng_kernel **kernels = calloc(count + 1, sizeof *kernels);
    all.broken = !kernels;
    if (!kernels) return;
    ng_builtin_kernels(kernels, count);
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            if (!make(&lists[l]->faults[i], kernels, count)) all.broken = true;
    free(kernels);
}

const ng_plugin *ng_plugin_entry(void);
const ng_plugin *ng_plugin_entry(void) {
    static ng_plugin plugin;
    pthread_once(&once, make_all);
    plugin = (ng_plugin){NG_ABI_VERSION, sizeof(ng_kernel), all.count, all.pointers, "planted faults"};
    return all.broken ? NULL : &plugin;
}

const ng_fault_notes *ng_fault_notes_entry(void);
const ng_fault_notes *ng_fault_notes_entry(void) {
    static ng_fault_notes notes;
    pthread_once(&once, make_all);
    notes = (ng_fault_notes){all.count, all.notes};
    return &notes;
}
