/* The device layer over a runtime that is none: host memory stands for the device's, kernels are the CPU's under another
 * backend, and the n-th call fails. What must hold without a GPU: absent devices have their own line, nothing leaks, a
 * failure is never a pass, kernels that fault take their process and not the run. */
#include "harness/gpu_probe.h"
#include "harness/judge.h"
#include "harness/nvml.h"
#include "harness/run.h"
#include "harness/timing_gpu.h"
#include "kernels/catalogue.h"
#include "reference/format.h"
#include "suites/test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the fake runtime ---------------------------------------------------------------------------------------------*/
enum { ILLEGAL_ADDRESS = 700, INVALID_VALUE = 1, CAPTURE_UNSUPPORTED = 900 };

typedef struct fake {
    int fail_at, code;        /* the fail_at-th call fails with this; 0: none */
    int calls;
    const char *failed;       /* which one did */
    int count_code, devices, driver; /* what device_count says */
    int compute_mode, context_code;  /* what set_device says */
    bool lost;                /* every call fails, as after a kernel's fault */
    int last;                 /* the error that last_error forgets */
    size_t capacity, allocated;
    int blocks, streams, events, graphs, executables; /* that live */
    bool capturing, no_capture;
    int launches, captured;   /* kernels started: not in a graph; in the one at hand */
    int flushes, replays;
    double clock_ms;          /* a launch takes launch_ms */
    double launch_ms;
} fake;

static fake state; /* of this process; each test has its own */

static void reset(void) { state = (fake){.devices = 1, .driver = 13000, .capacity = (size_t)1 << 34, .launch_ms = 0.004}; }

static int call(const char *what) {
    if (state.lost) return state.last = ILLEGAL_ADDRESS;
    if (++state.calls != state.fail_at) return 0;
    state.failed = state.capturing ? "capture_begin" : what; /* what cannot be captured runs by itself */
    return state.last = state.code;
}

static int made(const char *what, void **handle, int *count) {
    static char something;
    int code = call(what);
    if (code) return code;
    *handle = &something;
    ++*count;
    return 0;
}

/* What is freed is gone, whatever error of an earlier call comes back. */
static int freed(const char *what, int *count) {
    --*count;
    return call(what);
}

static int driver_version(int *version) {
    *version = state.driver;
    return call(__func__);
}
static int runtime_version(int *version) {
    *version = 13000;
    return call(__func__);
}
static int device_count(int *count) {
    *count = state.devices;
    return state.count_code ? (state.last = state.count_code) : call(__func__);
}
static int properties(int device, ng_gpu_properties *p) {
    (void)device;
    *p = (ng_gpu_properties){.name = "Fake 90", .uuid = "GPU-0", .pci = "ffff:ff:ff.f", .sm = 90, .processors = 2,
                             .compute_mode = state.compute_mode, .memory = state.capacity, .l2 = 4096};
    return call(__func__);
}
static int set_device(int device) {
    (void)device;
    return state.context_code ? (state.last = state.context_code) : call(__func__);
}
static int memory(size_t *available, size_t *total) {
    *available = state.capacity - state.allocated;
    *total = state.capacity;
    return call(__func__);
}

/* A block carries its size before it. */
static int device_malloc(void **data, size_t bytes) {
    int code = call(__func__);
    if (code) return code;
    if (bytes > state.capacity - state.allocated) return state.last = NG_CUDA_NO_MEMORY;
    size_t *block = aligned_alloc(256, (bytes + 256 + 255) / 256 * 256);
    if (!block) return state.last = NG_CUDA_NO_MEMORY;
    block[0] = bytes;
    state.allocated += bytes;
    state.blocks++;
    *data = (char *)block + 256;
    return 0;
}
static int device_free(void *data) {
    void *block = (char *)data - 256;
    state.allocated -= *(size_t *)block;
    free(block);
    return freed(__func__, &state.blocks);
}
static int copy(void *to, const void *from, size_t bytes, ng_copy_kind kind, void *stream) {
    int code = call(__func__);
    (void)kind, (void)stream;
    if (!code && bytes < (size_t)1 << 28) memcpy(to, from, bytes); /* the ceiling's copies are only counted */
    if (!code && bytes >= (size_t)1 << 28) state.clock_ms += 1;
    return code;
}
static int set(void *data, int byte, size_t bytes, void *stream) {
    int code = call(__func__);
    (void)stream;
    if (!code && bytes < (size_t)1 << 28) memset(data, byte, bytes);
    state.flushes++;
    return code;
}
static int stream_create(void **stream) { return made(__func__, stream, &state.streams); }
static int stream_destroy(void *stream) { return (void)stream, freed(__func__, &state.streams); }
static int synchronize(void) { return call(__func__); }

static int event_create(void **event) {
    int code = call(__func__);
    if (code) return code;
    *event = calloc(1, sizeof(double));
    state.events++;
    return 0;
}
static int event_destroy(void *event) {
    free(event);
    return freed(__func__, &state.events);
}
static int event_record(void *event, void *stream) {
    (void)stream;
    *(double *)event = state.clock_ms;
    return call(__func__);
}
static int event_synchronize(void *event) { return (void)event, call(__func__); }
static int event_elapsed(float *ms, void *from, void *to) {
    *ms = (float)(*(double *)to - *(double *)from);
    return call(__func__);
}
static int capture_begin(void *stream) {
    int code = call(__func__);
    (void)stream;
    if (!code && state.no_capture) code = state.last = CAPTURE_UNSUPPORTED;
    state.capturing = !code;
    state.captured = 0;
    return code;
}
static int capture_end(void *stream, void **graph) {
    (void)stream;
    state.capturing = false;
    return made(__func__, graph, &state.graphs);
}
static int graph_instantiate(void **executable, void *graph) { return (void)graph, made(__func__, executable, &state.executables); }
static int graph_launch(void *executable, void *stream) {
    (void)executable, (void)stream;
    state.replays++;
    state.clock_ms += state.launch_ms * state.captured;
    return call(__func__);
}
static int graph_free(void *graph) { return (void)graph, freed(__func__, &state.graphs); }
static int executable_free(void *executable) { return (void)executable, freed(__func__, &state.executables); }
static int last_error(void) {
    int code = state.lost ? ILLEGAL_ADDRESS : state.last;
    state.last = 0;
    return code;
}
static const char *error_name(int error) { return error == ILLEGAL_ADDRESS ? "cudaErrorIllegalAddress" : "cudaErrorFake"; }
static const char *error_text(int error) { return error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "made up"; }

static const ng_runtime runtime = {
    .driver_version = driver_version, .runtime_version = runtime_version, .device_count = device_count,
    .properties = properties, .set_device = set_device, .memory = memory, .malloc = device_malloc, .free = device_free,
    .copy = copy, .set = set, .stream_create = stream_create, .stream_destroy = stream_destroy, .synchronize = synchronize,
    .event_create = event_create, .event_destroy = event_destroy, .event_record = event_record,
    .event_synchronize = event_synchronize, .event_elapsed = event_elapsed, .capture_begin = capture_begin,
    .capture_end = capture_end, .graph_instantiate = graph_instantiate, .graph_launch = graph_launch,
    .graph_free = graph_free, .executable_free = executable_free, .last_error = last_error, .error_name = error_name,
    .error_text = error_text,
};

static void started(void) {
    if (state.capturing) state.captured++;
    else {
        state.launches++;
        state.clock_ms += state.launch_ms;
    }
}

static void expect_nothing_left(const char *when) {
    cr_expect_eq(state.blocks, 0, "%s, call %d: %d blocks of device memory leak", when, state.fail_at, state.blocks);
    cr_expect_eq(state.streams + state.events + state.graphs + state.executables, 0, "%s, call %d: %d streams, %d events, %d graphs, %d executables leak",
                 when, state.fail_at, state.streams, state.events, state.graphs, state.executables);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------*/
typedef enum fault {
    RIGHT, BEYOND_END, BEFORE_START, CHANGED_INPUT, UNWRITTEN, WRONG_BIT, UNSTABLE, BEYOND_WORKSPACE, ILLEGAL, NO_IMAGE, SWALLOWED,
    OUT_OF_MEMORY, NO_CAPTURE,
} fault;

typedef struct subject {
    const ng_kernel *under; /* the CPU's kernel that does the work */
    fault fault;
} subject;

static ng_device cpu_of(const ng_device *device) {
    return (ng_device){.backend = NG_BACKEND_CPU, .threads = device->threads, .memory = device->memory};
}

static size_t workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const subject *s = kernel->state;
    ng_device cpu = cpu_of(device);
    size_t bytes = s->under->workspace ? s->under->workspace(s->under, problem, &cpu) : 0;
    return bytes ? bytes : s->fault == BEYOND_WORKSPACE ? 64 : 0;
}

/* What a fault does after a right launch. */
static ng_status spoil(fault f, const ng_launch *launch) {
    const ng_tensor *out = &launch->tensors[NG_OUT], *in = &launch->tensors[launch->tensors[NG_IN].data ? NG_IN : NG_A];
    unsigned char *data = out->data;
    switch (f) {
    case BEYOND_END: data[out->rows * out->row_bytes + 5] ^= 1; break;
    case BEFORE_START: data[-1] ^= 1; break;
    case CHANGED_INPUT: *(unsigned char *)in->data ^= 1; break;
    case WRONG_BIT: data[0] ^= 1; break;
    case UNSTABLE: data[0] ^= (unsigned char)(state.launches & 1); break;
    case BEYOND_WORKSPACE: ((unsigned char *)launch->workspace)[launch->workspace_bytes] ^= 1; break;
    case ILLEGAL: state.lost = true; break;
    case NO_IMAGE: state.last = NG_CUDA_NO_IMAGE; return NG_DEVICE;
    case SWALLOWED: state.last = INVALID_VALUE; break;
    case OUT_OF_MEMORY: state.last = NG_CUDA_NO_MEMORY; return NG_NO_MEMORY;
    case NO_CAPTURE:
        if (state.capturing) return NG_DEVICE;
        break;
    default: break;
    }
    return NG_OK;
}

static ng_status launch_on_fake(const ng_kernel *kernel, const ng_launch *launch) {
    const subject *s = kernel->state;
    ng_launch here = *launch;
    ng_device cpu = cpu_of(launch->device);
    unsigned char kept[2] = {0};
    ng_tensor *out = &here.tensors[NG_OUT];
    if (!launch->stream) return NG_BAD_ARGUMENT;
    for (int role = 0; role < NG_ROLES; role++) {
        if (here.tensors[role].data && here.tensors[role].space != NG_GPU) return NG_BAD_ARGUMENT;
        here.tensors[role].space = NG_HOST;
    }
    here.device = &cpu;
    here.stream = NULL;
    if (s->fault == UNWRITTEN) memcpy(kept, out->data, sizeof kept);
    ng_status status = s->under->launch(s->under, &here);
    if (s->fault == UNWRITTEN) memcpy(out->data, kept, sizeof kept);
    started();
    return status ? status : spoil(s->fault, launch);
}

static const ng_kernel *cpu_kernel(const char *name) {
    const ng_kernel_list *lists[] = {&ng_cpu_casts, &ng_cpu_quantizers, &ng_cpu_dequantizers, &ng_cpu_gemms};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; i < lists[l]->count; i++)
            if (!strcmp(lists[l]->kernels[i].name, name)) return &lists[l]->kernels[i];
    cr_assert_fail("no kernel %s", name);
    return NULL;
}

static ng_kernel on_fake(const ng_kernel *under, const subject *s) {
    ng_kernel kernel = *under;
    kernel.backend = NG_BACKEND_CUDA;
    kernel.supports = NULL;
    kernel.variants = NULL;
    kernel.workspace = workspace;
    kernel.launch = launch_on_fake;
    kernel.state = s;
    return kernel;
}

static ng_case case_of(const ng_kernel *kernel, int64_t m, int64_t n, int64_t k) {
    ng_case one = {.kernel = kernel, .problem = {.op = kernel->op, .m = m, .n = n, .k = k, .seed = 7}};
    one.data = (ng_data_spec){.seed = 7, .target = kernel->in, .whole_rows = m, .whole_columns = k ? k : n};
    one.data_b = (ng_data_spec){.seed = 7, .stream = 1, .target = kernel->in, .whole_rows = n, .whole_columns = k};
    snprintf(one.id, sizeof one.id, "%.200s", kernel->name);
    return one;
}

static ng_status judge_among(const ng_kernel *const *kernels, size_t count, const ng_case *one, bool timing, ng_result *result,
                             ng_error *error) {
    const ng_settings settings = {.seed = 1, .threads = 1, .timing = timing, .time_limit_s = 1e-3, .runtime = &runtime};
    const ng_catalogue catalogue = {kernels, count};
    ng_judge *judge;
    error->text[0] = 0;
    ng_status status = ng_judge_create(&settings, &catalogue, &judge, error);
    cr_assert_eq(status, NG_OK, "%s", error->text);
    status = ng_judge_case(judge, one, result, error);
    ng_judge_free(judge);
    return status;
}

static ng_status judge_one(const ng_case *one, bool timing, ng_result *result, ng_error *error) {
    return judge_among(&one->kernel, 1, one, timing, result, error);
}

static const struct {
    const char *name;
    int64_t m, n, k;
} subjects[] = {
    {"cast/bf16->e4m3/cpu/rne-sat", 9, 33, 0},
    {"quantize/bf16->mxfp8/cpu/round-up", 9, 65, 0},
    {"quantize/bf16->nvfp4/cpu/te", 17, 33, 0},
    {"dequantize/mxfp8->bf16/cpu/rne", 9, 65, 0},
    {"gemm/e4m3/cpu/fp32-chain/bf16-out", 9, 13, 65},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* ---- opening ------------------------------------------------------------------------------------------------------*/
static void absent_devices_have_their_line(void) {
    const struct {
        fake state;
        int index;
        const char *line;
    } rows[] = {
        {{.count_code = NG_CUDA_OLD_DRIVER}, 0, "no NVIDIA driver"},
        {{.count_code = NG_CUDA_OLD_DRIVER, .driver = 12040}, 0, "too old: it knows CUDA 12.4, this program needs 13.0"},
        {{.count_code = NG_CUDA_NO_DEVICE}, 0, "no CUDA device"},
        {{.devices = 0}, 0, "no CUDA device"},
        {{.count_code = 3}, 0, "no CUDA device: made up (cudaErrorFake)"},
        {{.devices = 2}, 2, "there is no CUDA device 2: this machine has 2"},
        {{.devices = 1, .compute_mode = 2}, 0, "prohibited compute mode"},
        {{.devices = 1, .context_code = NG_CUDA_UNAVAILABLE}, 0, "CUDA device 0 (Fake 90) is busy or in exclusive mode"},
        {{.devices = 1, .context_code = NG_CUDA_NO_MEMORY}, 0, "no memory left for a context"},
        {{.devices = 1, .context_code = 999}, 0, "CUDA device 0 (Fake 90) cannot be used"},
    };
    ng_gpu gpu;
    ng_error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        state = rows[i].state;
        cr_expect_eq(ng_gpu_open(&runtime, rows[i].index, &gpu, &error), NG_UNSUPPORTED);
        cr_expect_not_null(strstr(error.text, rows[i].line), "row %zu: \"%s\"", i, error.text);
        cr_expect_eq(state.last, 0, "row %zu: the error is left to the next call", i);
        expect_nothing_left(rows[i].line);
    }
    cr_expect_eq(ng_gpu_open(NULL, 0, &gpu, &error), NG_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "built without CUDA"));
}

/* A case for a device that is not there is a skip with that line, before any data is made. */
static void absent_device_skips(void) {
    const subject s = {cpu_kernel(subjects[0].name), RIGHT};
    ng_kernel kernel = on_fake(s.under, &s);
    ng_case one = case_of(&kernel, 1 << 20, 1 << 20, 0);
    ng_result result;
    ng_error error;
    reset();
    state.devices = 0;
    cr_expect_eq(judge_one(&one, true, &result, &error), NG_OK);
    cr_expect_eq(result.verdict, NG_SKIP);
    cr_expect_str_eq(result.reason, "no CUDA device");
    cr_expect(!result.error.present && !result.speed.present && !result.digest[0]);
}

static void description_of_a_device(void) {
    ng_gpu_info info;
    reset();
    cr_expect_eq(ng_describe_gpu(&runtime, 0, &info), NG_OK);
    cr_expect(info.present && info.sm == 90 && isnan(info.power_cap_w) && info.ecc == -1);
    cr_expect_str_eq(info.name, "Fake 90");
    cr_expect_str_eq(info.cuda_runtime, "13.0");
    cr_expect_str_eq(info.driver, "CUDA 13.0");
    cr_expect_eq(ng_describe_gpu(&runtime, 1, &info), NG_UNSUPPORTED);
    cr_expect(!info.present);
    cr_expect_eq(ng_describe_gpu(NULL, 0, &info), NG_UNSUPPORTED);
}

/* An error that was told is not there for the next call to find; that of a lost context always is. */
static void errors_are_told_once(void) {
    char bytes[16] = {0};
    void *data;
    ng_gpu gpu;
    ng_error error;
    reset();
    cr_assert_eq(ng_gpu_open(&runtime, 0, &gpu, &error), NG_OK);
    state.capacity = 1000;
    cr_assert_eq(ng_gpu_reserve(&gpu, 600, &error), NG_OK);
    cr_expect_eq(ng_gpu_malloc(&gpu, 2000, &data, &error), NG_NO_MEMORY);
    cr_expect(!data && gpu.short_of_memory && !gpu.lost && !state.last);
    cr_assert_eq(ng_gpu_malloc(&gpu, 900, &data, &error), NG_OK, "what is kept for later was not given up: %s", error.text);
    state.fail_at = state.calls + 1;
    state.code = INVALID_VALUE;
    cr_expect_eq(ng_gpu_copy(&gpu, data, bytes, sizeof bytes, NG_TO_DEVICE, &error), NG_DEVICE);
    cr_expect_str_eq(error.text, "copying to the GPU: made up (cudaErrorFake)");
    cr_expect(!gpu.lost && !state.last);
    state.lost = true;
    cr_expect_eq(ng_gpu_copy(&gpu, bytes, data, sizeof bytes, NG_FROM_DEVICE, &error), NG_DEVICE);
    cr_expect(gpu.lost);
    ng_gpu_free(&gpu, data);
    ng_gpu_close(&gpu);
    expect_nothing_left("told once");
}

/* ---- verdicts -----------------------------------------------------------------------------------------------------*/
/* The same kernel under either backend: the same bits, the same figures. */
static void device_results_equal_host_results(void) {
    for (int i = 0; i < SUBJECTS; i++) {
        const subject s = {cpu_kernel(subjects[i].name), RIGHT};
        ng_kernel kernel = on_fake(s.under, &s);
        ng_case device = case_of(&kernel, subjects[i].m, subjects[i].n, subjects[i].k);
        ng_case host = case_of(s.under, subjects[i].m, subjects[i].n, subjects[i].k);
        ng_result a, b;
        ng_error error;
        reset();
        cr_expect_eq(judge_one(&host, false, &a, &error), NG_OK, "%s", error.text);
        cr_expect_eq(judge_one(&device, true, &b, &error), NG_OK, "%s", error.text);
        cr_expect(a.verdict == NG_PASS && b.verdict == NG_PASS, "%s: %s; %s", subjects[i].name, a.reason, b.reason);
        cr_expect_str_eq(a.digest, b.digest);
        cr_expect_eq(a.error.checked, b.error.checked);
        cr_expect(b.speed.present && b.speed.samples >= 5 && fabs(b.speed.median_s - 4e-6) < 1e-10, "%s: %d samples of %g s",
                  subjects[i].name, b.speed.samples, b.speed.median_s);
        cr_expect(state.launches > 0 && state.replays > 0);
        expect_nothing_left(subjects[i].name);
    }
}

static void faults_on_the_device_are_seen(void) {
    static const struct {
        fault fault;
        ng_verdict verdict;
        const char *reason;
    } rows[] = {
        {RIGHT, NG_PASS, ""},
        {BEYOND_END, NG_FAIL, "wrote outside OUT"},
        {BEFORE_START, NG_FAIL, "wrote outside OUT"},
        {CHANGED_INPUT, NG_FAIL, "changed its input"},
        {UNWRITTEN, NG_FAIL, "never written"},
        {WRONG_BIT, NG_FAIL, ""},
        {UNSTABLE, NG_FAIL, "gave other bits"},
        {BEYOND_WORKSPACE, NG_FAIL, "wrote outside its workspace"},
        {NO_IMAGE, NG_SKIP, "no code for sm_90 in this kernel"},
        {SWALLOWED, NG_FAIL, "the launch failed: made up (cudaErrorFake)"},
        {OUT_OF_MEMORY, NG_SKIP, "not enough memory on the GPU to launch"},
    };
    for (int i = 0; i < SUBJECTS; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            const subject s = {cpu_kernel(subjects[i].name), rows[r].fault};
            ng_kernel kernel = on_fake(s.under, &s);
            ng_case one = case_of(&kernel, subjects[i].m, subjects[i].n, subjects[i].k);
            ng_result result;
            ng_error error;
            reset();
            cr_expect_eq(judge_one(&one, false, &result, &error), NG_OK, "%s, fault %d: %s", one.id, rows[r].fault, error.text);
            cr_expect(result.verdict == rows[r].verdict && strstr(result.reason, rows[r].reason), "%s, fault %d: %s (%s)", one.id,
                      rows[r].fault, ng_verdict_names[result.verdict], result.reason);
            expect_nothing_left(one.id);
        }
}

static void too_large_is_a_skip_with_sizes(void) {
    for (int i = 0; i < SUBJECTS; i++) {
        const subject s = {cpu_kernel(subjects[i].name), RIGHT};
        ng_kernel kernel = on_fake(s.under, &s);
        ng_case one = case_of(&kernel, subjects[i].m, subjects[i].n, subjects[i].k);
        ng_result result;
        ng_error error;
        reset();
        state.capacity = 200000; /* one buffer with its guards */
        cr_expect_eq(judge_one(&one, true, &result, &error), NG_OK, "%s", error.text);
        cr_expect_eq(result.verdict, NG_SKIP, "%s: %s", one.id, ng_verdict_names[result.verdict]);
        cr_expect_not_null(strstr(result.reason, "0.1 MiB needed at once, 0.1 of 0.2 MiB free"), "%s", result.reason);
        expect_nothing_left(one.id);
    }
}

/* Enough to judge, too little to time: judged, and without a speed. */
static void no_memory_to_time_is_no_speed(void) {
    const subject s = {cpu_kernel(subjects[0].name), RIGHT};
    ng_kernel kernel = on_fake(s.under, &s);
    ng_case one = case_of(&kernel, subjects[0].m, subjects[0].n, 0);
    ng_result result;
    ng_error error;
    reset();
    state.capacity = 270000;
    cr_expect_eq(judge_one(&one, true, &result, &error), NG_OK, "%s", error.text);
    cr_expect(result.verdict == NG_PASS && !result.speed.present, "%s %s", ng_verdict_names[result.verdict], result.reason);
    expect_nothing_left(one.id);
}

/* ---- the n-th call fails ------------------------------------------------------------------------------------------*/
/* Whose failure leaves a pass: what frees, and what only speed needs, which then is absent or taken by plain launches. */
static bool may_fail(const char *what, int code, bool timing) {
    static const char *const always[] = {"device_free", "stream_destroy"};
    static const char *const timed[] = {"event_destroy", "graph_free", "executable_free", "capture_begin", "capture_end", "graph_instantiate"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!strcmp(what, always[i])) return true;
    for (size_t i = 0; timing && i < sizeof timed / sizeof *timed; i++)
        if (!strcmp(what, timed[i])) return true;
    return timing && code == NG_CUDA_NO_MEMORY; /* of device memory for copies and ceilings, and of anything like it */
}

static void check_failure(const ng_case *one, const ng_result *result, const ng_result *right, bool timing) {
    const char *failed = state.failed ? state.failed : "nothing";
    int n = state.fail_at;
    if (result->verdict != NG_PASS) {
        cr_expect(result->reason[0], "%s, call %d, %s: %s without a reason", one->id, n, failed, ng_verdict_names[result->verdict]);
        return;
    }
    cr_expect(!state.failed || may_fail(failed, state.code, timing), "%s: call %d, %s, fails, and the case passes", one->id, n, failed);
    cr_expect_str_eq(result->digest, right->digest, "%s, call %d, %s: a pass with other bits", one->id, n, failed);
    cr_expect_eq(result->error.checked, right->error.checked);
    cr_expect(!result->speed.present || fabs(result->speed.median_s - 4e-6) < 1e-10, "%s, call %d, %s: %g s", one->id, n, failed,
              result->speed.median_s);
}

/* Runs with call n failing, from `first` on, until a run needs fewer calls. What is right is the run in which none fails. */
static void fail_every_call(int subject_index, int code, bool timing, int first) {
    const subject s = {cpu_kernel(subjects[subject_index].name), RIGHT};
    ng_kernel kernel = on_fake(s.under, &s);
    ng_case one = case_of(&kernel, subjects[subject_index].m, subjects[subject_index].n, subjects[subject_index].k);
    ng_result right, result;
    ng_error error;
    reset();
    cr_assert_eq(judge_one(&one, timing, &right, &error), NG_OK, "%s", error.text);
    cr_assert(right.verdict == NG_PASS && state.calls > first + 20, "%s: %d calls", one.id, state.calls);
    for (int n = first;; n++) {
        reset();
        state.fail_at = n;
        state.code = code;
        ng_status status = judge_one(&one, timing, &result, &error);
        expect_nothing_left(one.id);
        if (status) cr_expect(error.text[0], "%s, call %d, %s: a failure without a word", one.id, n, state.failed);
        else check_failure(&one, &result, &right, timing);
        if (!state.failed) break;
    }
    cr_expect_eq(result.verdict, NG_PASS);
}

static void fail_untimed(int code) {
    for (int i = 0; i < SUBJECTS; i++)
        fail_every_call(i, code, false, 1);
}

/* Calls before the verdict are those of an untimed run. */
static void fail_timed(int code) {
    fail_every_call(0, code, true, 20);
    fail_every_call(2, code, true, 30);
}

static void every_call_fails_once(void) { fail_untimed(INVALID_VALUE); }
static void every_call_lacks_memory_once(void) { fail_untimed(NG_CUDA_NO_MEMORY); }
static void every_call_fails_once_timed(void) { fail_timed(INVALID_VALUE); }
static void every_call_lacks_memory_once_timed(void) { fail_timed(NG_CUDA_NO_MEMORY); }

/* ---- faults that take the context ---------------------------------------------------------------------------------*/
static void lost_context_fails_the_judge(void) {
    for (int i = 0; i < SUBJECTS; i++) {
        const subject s = {cpu_kernel(subjects[i].name), ILLEGAL};
        ng_kernel kernel = on_fake(s.under, &s);
        ng_case one = case_of(&kernel, subjects[i].m, subjects[i].n, subjects[i].k);
        ng_result result;
        ng_error error;
        reset();
        cr_expect_eq(judge_one(&one, true, &result, &error), NG_DEVICE, "%s: %s", one.id, ng_verdict_names[result.verdict]);
        cr_expect_not_null(strstr(error.text, "the kernel faulted: an illegal memory access was encountered (cudaErrorIllegalAddress)"), "%s", error.text);
        expect_nothing_left(one.id);
    }
}

typedef struct heard {
    ng_result results[3];
    size_t count;
} heard;

static void ignore_start(void *context, size_t index) { (void)context, (void)index; }
static ng_status keep(void *context, size_t index, const ng_result *result, ng_error *error) {
    heard *h = context;
    (void)error;
    h->results[index] = *result;
    h->count++;
    return NG_OK;
}
static void ignore_remark(void *context, const char *text) { (void)context, (void)text; }

/* The case after a fault is judged in a new process, whose context is whole. */
static void run_goes_on_after_a_fault(void) {
    const subject right = {cpu_kernel(subjects[0].name), RIGHT}, wrong = {right.under, ILLEGAL};
    ng_kernel good = on_fake(right.under, &right), bad = on_fake(wrong.under, &wrong);
    ng_case cases[3] = {case_of(&good, 9, 33, 0), case_of(&bad, 9, 33, 0), case_of(&good, 17, 33, 0)};
    for (int i = 0; i < 3; i++)
        snprintf(cases[i].id, sizeof cases[i].id, "case %d", i);
    const ng_kernel *kernels[] = {&good, &bad};
    const ng_case_list list = {cases, 3};
    const ng_settings settings = {.seed = 1, .threads = 1, .timing = true, .time_limit_s = 1e-3, .timeout_s = 30, .runtime = &runtime};
    const ng_catalogue catalogue = {kernels, 2};
    const ng_judge_functions judge = {ng_judge_create, ng_judge_case, ng_judge_free};
    const ng_run_plan plan = {.list = &list, .settings = &settings, .catalogue = &catalogue, .judge = &judge};
    heard h = {.count = 0};
    const ng_run_events events = {&h, ignore_start, keep, ignore_remark};
    int interrupted;
    ng_error error;
    reset();
    cr_assert_eq(ng_run_cases(&plan, &events, &interrupted, &error), NG_OK, "%s", error.text);
    cr_expect_eq(h.count, 3);
    cr_expect(h.results[0].verdict == NG_PASS && h.results[1].verdict == NG_CRASH && h.results[2].verdict == NG_PASS, "%s (%s), %s (%s), %s (%s)",
              ng_verdict_names[h.results[0].verdict], h.results[0].reason, ng_verdict_names[h.results[1].verdict],
              h.results[1].reason, ng_verdict_names[h.results[2].verdict], h.results[2].reason);
    cr_expect_not_null(strstr(h.results[1].reason, "illegal memory access"), "%s", h.results[1].reason);
}

/* ---- speed --------------------------------------------------------------------------------------------------------*/
typedef struct counted {
    int sets[64];
    ng_status status;
} counted;

static ng_status count_set(void *context, int set_index) {
    counted *c = context;
    c->sets[set_index]++;
    started();
    return c->status;
}

static void samples_are_of_one_launch(void) {
    static const struct {
        ng_gpu_rotation rotation;
        double launch_ms;
        bool no_capture;
        const char *method;
    } rows[] = {
        {{.sets = 1}, 0.004, false, "graph of 25 launches, warm caches"},
        {{.sets = 6, .enough = true, .flush_bytes = 4096}, 0.004, false, "graph of 30 launches, 6 sets in turn"},
        {{.sets = 32, .flush_bytes = 4096}, 0.004, false, "graph of 25 launches, L2 flushed"},
        {{.sets = 8, .flush_bytes = 4096}, 0.004, false, "graph of 8 launches, L2 flushed"},
        {{.sets = 6, .enough = true, .flush_bytes = 4096}, 2, false, "graph of 1 launches, L2 flushed"}, /* a round takes too long */
        {{.sets = 6, .enough = true}, 0.004, true, "30 plain launches, 6 sets in turn"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_gpu gpu;
        ng_error error;
        ng_timing timing;
        char method[64];
        counted c = {.status = NG_OK};
        reset();
        state.launch_ms = rows[r].launch_ms;
        state.no_capture = rows[r].no_capture;
        cr_assert_eq(ng_gpu_open(&runtime, 0, &gpu, &error), NG_OK, "%s", error.text);
        cr_assert_eq(ng_gpu_reserve(&gpu, 4096, &error), NG_OK);
        cr_expect_eq(ng_gpu_time(&gpu, count_set, &c, &rows[r].rotation, 60, &timing, method, sizeof method, &error), NG_OK, "%s", error.text);
        cr_expect_str_eq(method, rows[r].method);
        cr_expect_eq(timing.samples, NG_TIMING_SAMPLES);
        double want = 1e-3 * rows[r].launch_ms;
        cr_expect(fabs(timing.median_s - want) < 1e-4 * want && timing.q1_s <= timing.median_s && timing.q3_s >= timing.median_s, "row %zu: %g s", r, timing.median_s);
        cr_expect_eq(state.flushes > 0, strstr(method, "flushed") != NULL);
        if (strstr(method, "in turn"))
            for (int i = 0; i < rows[r].rotation.sets; i++)
                cr_expect(c.sets[i] >= 5, "row %zu: set %d is used %d times", r, i, c.sets[i]);
        ng_gpu_close(&gpu);
        expect_nothing_left(method);
    }
}

/* A kernel that fails only while it is captured is timed by plain launches; one that always fails is not timed. */
static void what_cannot_be_captured(void) {
    const subject s = {cpu_kernel(subjects[0].name), NO_CAPTURE};
    ng_kernel kernel = on_fake(s.under, &s);
    ng_case one = case_of(&kernel, 9, 33, 0);
    const ng_gpu_rotation rotation = {.sets = 1};
    counted c = {.status = NG_DEVICE};
    ng_result result;
    ng_timing timing;
    ng_error error;
    ng_gpu gpu;
    char method[64];
    reset();
    cr_expect_eq(judge_one(&one, true, &result, &error), NG_OK, "%s", error.text);
    cr_expect(result.verdict == NG_PASS && strstr(result.speed.method, "plain launches"), "%s: %s", ng_verdict_names[result.verdict], result.speed.method);
    cr_assert_eq(ng_gpu_open(&runtime, 0, &gpu, &error), NG_OK);
    cr_expect_eq(ng_gpu_time(&gpu, count_set, &c, &rotation, 1, &timing, method, sizeof method, &error), NG_DEVICE);
    cr_expect_eq(timing.samples, 0);
    ng_gpu_close(&gpu);
    expect_nothing_left("capture");
}

/* Quantization of both operands and the product, each also on its own. */
static void parts_are_timed_apart(void) {
    const subject product = {cpu_kernel("gemm/mxfp8/cpu/fp32-chain/bf16-out"), RIGHT};
    const subject quantizer = {cpu_kernel("quantize/bf16->mxfp8/cpu/round-up"), RIGHT};
    ng_kernel kernel = on_fake(product.under, &product), other = on_fake(quantizer.under, &quantizer);
    const ng_kernel *kernels[] = {&kernel, &other};
    ng_case one = case_of(&kernel, 9, 13, 65);
    ng_result result;
    ng_error error;
    one.mode = NG_AUTOCAST;
    reset();
    cr_expect_eq(judge_among(kernels, 2, &one, true, &result, &error), NG_OK, "%s", error.text);
    cr_expect(result.verdict == NG_PASS && result.speed.part_count == 3, "%s: %d parts", result.reason, result.speed.part_count);
    for (int i = 0; i < 3; i++)
        cr_expect(fabs(result.speed.parts[i].median_s - 4e-6) < 1e-10, "%s: %g s", result.speed.parts[i].name, result.speed.parts[i].median_s);
    cr_expect(fabs(result.speed.median_s - 12e-6) < 1e-10, "%g s", result.speed.median_s);
    expect_nothing_left("parts");
}

static void reasons_of_throttling(void) {
    char text[96];
    ng_throttle_text(0x1 | 0x2, text, sizeof text); /* idle, and clocks that the user has set */
    cr_expect_str_eq(text, "none");
    ng_throttle_text(0x4 | 0x20 | 0x1, text, sizeof text);
    cr_expect_str_eq(text, "power cap, thermal");
    ng_throttle_text(~0ull, text, sizeof text);
    cr_expect(strlen(text) < sizeof text && strstr(text, "power brake"));
}

/* The record names the library that was tested, not the one that the linker would have found. */
static void asked_library_is_named(void) {
    char text[16];
    setenv("NARROWGAUGE_CUBLASLT", NG_BUILD_DIR "/libngcublaslt_fake.so", 1);
    ng_cublaslt_version(text, sizeof text);
    cr_expect_str_eq(text, "7.8.9");
    setenv("NARROWGAUGE_CUBLASLT", NG_BUILD_DIR "/no-such-library.so", 1);
    ng_cublaslt_version(text, sizeof text);
    cr_expect_str_eq(text, "", "%s, where the kernels find none", text);
    unsetenv("NARROWGAUGE_CUBLASLT");
}

const ng_test ng_tests[] = {
    {"device", "absent devices have their line", absent_devices_have_their_line, 0},
    {"device", "a case for an absent device is a skip", absent_device_skips, 0},
    {"device", "description of a device", description_of_a_device, 0},
    {"device", "device results equal host results", device_results_equal_host_results, 0},
    {"device", "faults on the device are seen", faults_on_the_device_are_seen, 0},
    {"device", "too large is a skip with sizes", too_large_is_a_skip_with_sizes, 0},
    {"device", "no memory to time is no speed", no_memory_to_time_is_no_speed, 0},
    {"device", "every call fails once", every_call_fails_once, 0},
    {"device", "every call lacks memory once", every_call_lacks_memory_once, 0},
    {"device", "every timed call fails once", every_call_fails_once_timed, 0},
    {"device", "every timed call lacks memory once", every_call_lacks_memory_once_timed, 0},
    {"device", "a lost context fails the judge", lost_context_fails_the_judge, 0},
    {"device", "a run goes on after a fault", run_goes_on_after_a_fault, 0},
    {"device", "samples are of one launch", samples_are_of_one_launch, 0},
    {"device", "what cannot be captured", what_cannot_be_captured, 0},
    {"device", "reasons of throttling", reasons_of_throttling, 0},
    {"device", "parts are timed apart", parts_are_timed_apart, 0},
    {"device", "errors are told once", errors_are_told_once, 0},
    {"device", "the cuBLASLt that was asked for is named", asked_library_is_named, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
