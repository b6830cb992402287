/* CUDA optimizers, activations and losses against the CPU kernels of the same name, bit for bit: on values of every kind, in lists
 * of thousands, and replayed from a graph. Without a GPU each row is skipped with the reason. */
#include "reference/format.h"
#include "suites/gpu_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ng_device cpu_device, gpu_device;
static const ng_kernel *const *kernels;
static size_t kernel_count;

static void need_gpu(void) {
    ng_test_need_gpu(&gpu_device, &cpu_device);
    kernels = ng_test_kernels(&kernel_count);
}

static const ng_kernel *named(const char *name) {
    for (size_t i = 0; i < kernel_count; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    cr_assert(false, "no kernel %s", name);
    return NULL;
}

static const ng_kernel *twin_of(const ng_kernel *gpu) {
    const ng_kernel *cpu = ng_test_twin(gpu);
    cr_assert(cpu, "no CPU kernel like %s", gpu->name);
    return cpu;
}

/* Seed 0: any bits; else ordinary numbers of some magnitudes. positive: second moments. */
static void fill(ng_tensor *t, uint64_t seed, bool positive) {
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            const uint32_t r = ng_test_hash(seed + 17, (uint64_t)(i * t->columns + j));
            uint64_t code = seed ? (r & 0x80000000u) | (117u + (r >> 23 & 0xFF) % 13) << 23 | (r & 0x7FFFFF) : r;
            if (positive) code &= 0x7FFFFFFFu;
            if (t->format == NG_BF16) code >>= 16;
            if (t->format == NG_FP16) code = seed ? (code >> 16 & 0x8000) | (r >> 4) % 0x5000 : code >> 16;
            if (t->format == NG_E4M3 || t->format == NG_E5M2) code = r % 0x78 | (positive ? 0 : r >> 24 & 0x80);
            ng_set_code(t, i, j, code);
        }
}

/* ---- both sides ---------------------------------------------------------------------------------------------------*/
typedef struct sides {
    ng_launch cpu, gpu;
    char message[256];
} sides;

static void begin(sides *s, const ng_problem *problem) {
    memset(s, 0, sizeof *s);
    s->cpu = (ng_launch){.problem = problem, .device = &cpu_device, .message = s->message, .message_bytes = sizeof s->message};
    s->gpu = s->cpu;
    s->gpu.device = &gpu_device;
}

static ng_tensor *add(sides *s, ng_role role, ng_format_id format, int64_t rows, int64_t columns, uint64_t seed) {
    ng_tensor *t = &s->cpu.tensors[role];
    *t = (ng_tensor){NULL, format, NG_HOST, rows, columns, ng_row_bytes(format, columns)};
    t->data = calloc(1, ng_test_bytes(t) + 1);
    cr_assert(t->data);
    fill(t, seed, role == NG_MOMENT_2 || role == NG_MOMENT_1_SCALES || role == NG_MOMENT_2_SCALES);
    return t;
}

static void set(sides *s, ng_role role, float value) { *(float *)add(s, role, NG_FP32, 1, 1, 1)->data = value; }

static void send(sides *s, const ng_kernel *gpu) {
    for (int role = 0; role < NG_ROLES; role++) {
        if (!s->cpu.tensors[role].data) continue;
        s->gpu.tensors[role] = s->cpu.tensors[role];
        s->gpu.tensors[role].space = NG_GPU;
        ng_test_cuda(cudaMalloc(&s->gpu.tensors[role].data, ng_test_bytes(&s->cpu.tensors[role]) + 1));
        ng_test_cuda(cudaMemcpy(s->gpu.tensors[role].data, s->cpu.tensors[role].data, ng_test_bytes(&s->cpu.tensors[role]), cudaMemcpyHostToDevice));
    }
    s->gpu.workspace_bytes = gpu->workspace ? gpu->workspace(gpu, s->gpu.problem, &gpu_device) : 0;
    if (s->gpu.workspace_bytes) ng_test_cuda(cudaMalloc(&s->gpu.workspace, s->gpu.workspace_bytes));
}

static void launch(sides *s, const ng_kernel *gpu) {
    const ng_kernel *cpu = twin_of(gpu);
    cr_assert(cpu->launch(cpu, &s->cpu) == NG_OK, "%s: %s", cpu->name, s->message);
    cr_assert(gpu->launch(gpu, &s->gpu) == NG_OK, "%s: %s", gpu->name, s->message);
}

/* Every role must be the same now, inputs included. */
static void end(sides *s, const char *what) {
    ng_test_cuda(cudaDeviceSynchronize());
    for (int role = 0; role < NG_ROLES; role++) {
        const ng_tensor *t = &s->cpu.tensors[role];
        if (!t->data) continue;
        unsigned char *got = malloc(ng_test_bytes(t) + 1);
        cr_assert(got);
        ng_test_cuda(cudaMemcpy(got, s->gpu.tensors[role].data, ng_test_bytes(t), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < ng_test_bytes(t); i++)
            cr_assert(got[i] == ((unsigned char *)t->data)[i], "%s: role %d differs from the CPU's in byte %zu of %zu", what, role, i, ng_test_bytes(t));
        free(got);
        free(t->data);
        ng_test_cuda(cudaFree(s->gpu.tensors[role].data));
    }
    if (s->gpu.workspace) ng_test_cuda(cudaFree(s->gpu.workspace));
}

static void usual(ng_problem *p, double step) {
    const double scalars[NG_SCALARS] = {[NG_LEARNING_RATE] = 1e-3, [NG_BETA1] = 0.9, [NG_BETA2] = 0.999, [NG_EPSILON] = 1e-8, [NG_WEIGHT_DECAY] = 0.1,
                                        [NG_STEP] = step, [NG_GROWTH] = 2, [NG_BACKOFF] = 0.5, [NG_GROWTH_INTERVAL] = 3, [NG_MAX_NORM] = 1};
    memcpy(p->scalars, scalars, sizeof scalars);
}

/* ---- optimizers ---------------------------------------------------------------------------------------------------*/
static bool is_scaled(ng_format_id format) { return format == NG_E4M3 || format == NG_E5M2; }

static void add_adam(sides *s, const ng_kernel *k, int64_t rows, int64_t columns, uint64_t seed) {
    const ng_optimizer *o = &k->contract.optimizer;
    const int64_t blocks = (columns + NG_MOMENT_BLOCK - 1) / NG_MOMENT_BLOCK;
    add(s, NG_PARAMETER, k->out, rows, columns, seed);
    add(s, NG_GRADIENT, k->in, rows, columns, seed ? seed + 1 : 0);
    add(s, NG_MOMENT_1, o->moment_1, rows, columns, seed ? seed + 2 : 0);
    add(s, NG_MOMENT_2, o->moment_2, rows, columns, seed ? seed + 3 : 0);
    if (o->master) add(s, NG_PARAMETER_2, o->master == NG_MASTER_FP32 ? NG_FP32 : NG_BF16, rows, columns, seed ? seed + 4 : 0);
    if (is_scaled(o->moment_1)) add(s, NG_MOMENT_1_SCALES, NG_FP32, rows, blocks, 5);
    if (is_scaled(o->moment_2)) add(s, NG_MOMENT_2_SCALES, NG_FP32, rows, blocks, 6);
    set(s, NG_FOUND_INF, 0);
    if (o->capturable) set(s, NG_STEP_COUNT, 1000);
}

static void test_adam(void) {
    static const int64_t shapes[][2] = {{1, 1}, {1, 20011}, {33, 161}, {64, 256}, {3, 40000}, {500, 3}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        if (k->op != NG_OP_OPTIMIZER || k->backend != NG_BACKEND_CUDA || k->contract.optimizer.kind > NG_ADAMW_APEX) continue;
        for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                sides s;
                ng_problem p = {.op = NG_OP_OPTIMIZER, .m = shapes[shape][0], .n = shapes[shape][1]};
                usual(&p, seed == 1 ? 1 : 12345);
                begin(&s, &p);
                add_adam(&s, k, p.m, p.n, 10 * seed);
                send(&s, k);
                launch(&s, k);
                end(&s, k->name);
            }
    }
}

static void test_steps(void) {
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        if (k->op != NG_OP_OPTIMIZER || k->backend != NG_BACKEND_CUDA || k->contract.optimizer.kind <= NG_ADAMW_APEX) continue;
        for (uint64_t seed = 0; seed < 4; seed++) {
            sides s;
            ng_problem p = {.op = NG_OP_OPTIMIZER, .m = seed == 1 ? 1 : 33, .n = seed == 1 ? 300001 : 8192 + 161 * (int64_t)(seed & 1)};
            usual(&p, 1);
            begin(&s, &p);
            if (k->contract.optimizer.kind != NG_SCALER) add(&s, NG_GRADIENT, k->in, p.m, p.n, seed);
            set(&s, NG_LOSS_SCALE, 65536);
            set(&s, NG_GROWTH_COUNT, (float)seed);
            set(&s, NG_STEP_COUNT, 7);
            set(&s, NG_FOUND_INF, seed == 3);
            set(&s, NG_OUT, seed == 2 ? 0.5f : 3.7f);
            send(&s, k);
            launch(&s, k);
            end(&s, k->name);
        }
    }
}

/* Ragged tensors in one buffer, more than one launch can hold; the bytes between them must stay. */
static void test_list(void) {
    enum { TENSORS = 2500, MOST = 1000 };
    static const ng_role roles[] = {NG_PARAMETER, NG_GRADIENT, NG_MOMENT_1, NG_MOMENT_2};
    static ng_tensor lists[2][4][TENSORS];
    need_gpu();
    const ng_kernel *k = named("adamw/fp32/cuda/torch"), *norm = named("norm2/fp32/cuda/fp64-sum");
    ng_problem p = {.op = NG_OP_OPTIMIZER, .m = 1, .n = (int64_t)TENSORS * MOST, .k = TENSORS};
    for (int which = 0; which < 2; which++) {
        sides s;
        usual(&p, 3);
        begin(&s, &p);
        add_adam(&s, k, TENSORS, MOST, 10);
        set(&s, NG_OUT, 0);
        send(&s, which ? norm : k);
        sides listed = s;
        listed.cpu.list_count = listed.gpu.list_count = TENSORS;
        for (int r = 0; r < 4; r++) {
            for (int side = 0; side < 2; side++)
                for (int i = 0; i < TENSORS; i++) {
                    ng_tensor *t = &lists[side][r][i];
                    *t = (side ? &s.gpu : &s.cpu)->tensors[roles[r]];
                    t->data = (char *)t->data + i * t->row_bytes;
                    t->rows = 1;
                    t->columns = 1 + ng_test_hash(99, (uint64_t)i) % MOST;
                }
            listed.cpu.lists[roles[r]] = lists[0][r];
            listed.gpu.lists[roles[r]] = lists[1][r];
        }
        launch(&listed, which ? norm : k);
        end(&s, which ? "norm of a list" : "a list");
    }
}

/* Scaler and optimizer captured once, replayed with other gradients of a step: the step count moves on the device. */
static void test_graph(void) {
    enum { REPLAYS = 5 };
    need_gpu();
    const ng_kernel *k = named("adamw/fp32/cuda/torch-capturable"), *scaler = named("scaler/fp32/cuda/dynamic");
    ng_problem p = {.op = NG_OP_OPTIMIZER, .m = 40, .n = 1000};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    sides s;
    usual(&p, 1);
    begin(&s, &p);
    add_adam(&s, k, p.m, p.n, 10);
    *(float *)s.cpu.tensors[NG_STEP_COUNT].data = 0;
    set(&s, NG_LOSS_SCALE, 1024);
    set(&s, NG_GROWTH_COUNT, 0);
    send(&s, k);
    ng_test_cuda(cudaStreamCreate(&stream));
    s.gpu.stream = stream;
    ng_test_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cr_assert(scaler->launch(scaler, &s.gpu) == NG_OK && k->launch(k, &s.gpu) == NG_OK, "%s", s.message);
    ng_test_cuda(cudaStreamEndCapture(stream, &graph));
    ng_test_cuda(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < REPLAYS; i++) {
        ng_test_cuda(cudaGraphLaunch(exec, stream));
        const ng_kernel *cpu_scaler = twin_of(scaler), *cpu = twin_of(k);
        cr_assert(cpu_scaler->launch(cpu_scaler, &s.cpu) == NG_OK && cpu->launch(cpu, &s.cpu) == NG_OK, "%s", s.message);
    }
    end(&s, "a graph");
    ng_test_cuda(cudaGraphExecDestroy(exec));
    ng_test_cuda(cudaGraphDestroy(graph));
    ng_test_cuda(cudaStreamDestroy(stream));
}

/* ---- activations, losses ------------------------------------------------------------------------------------------*/
static void test_activations(void) {
    static const int64_t shapes[][2] = {{1, 1}, {33, 161}, {64, 256}, {2, 5003}, {70000, 3}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        if ((k->op != NG_OP_ACTIVATION && k->op != NG_OP_ACTIVATION_BACKWARD) || k->backend != NG_BACKEND_CUDA) continue;
        const ng_quantization *q = &k->contract.quantization;
        const bool quantized = k->op == NG_OP_ACTIVATION && q->rule != NG_SCALE_ABSENT;
        for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                sides s;
                ng_problem p = {.op = k->op, .m = shapes[shape][0], .n = shapes[shape][1]};
                begin(&s, &p);
                add(&s, NG_IN, k->in, p.m, p.n, seed);
                add(&s, NG_IN_2, k->in, p.m, p.n, seed + 1);
                add(&s, NG_GRADIENT, k->in, p.m, p.n, seed + 2);
                memset(add(&s, NG_OUT, k->out, p.m, p.n, 1)->data, 0, (size_t)(p.m * ng_row_bytes(k->out, p.n)));
                add(&s, NG_OUT_2, k->out, p.m, p.n, 1);
                set(&s, NG_SCALE_GIVEN_IN, 3.25f);
                set(&s, NG_OUT_TENSOR_SCALE, 1);
                if (quantized) add(&s, NG_OUT_SCALES, q->scale, ng_block_count(q->blocks.rows, p.m), ng_block_count(q->blocks.columns, p.n), 1);
                send(&s, k);
                launch(&s, k);
                end(&s, k->name);
            }
    }
}

static void test_losses(void) {
    static const int64_t shapes[][2] = {{1, 1}, {33, 161}, {64, 2048}, {5, 50257}, {70000, 3}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        const bool back = k->op == NG_OP_LOSS_BACKWARD;
        if ((k->op != NG_OP_LOSS && !back) || k->backend != NG_BACKEND_CUDA) continue;
        for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                sides s;
                ng_problem p = {.op = k->op, .m = shapes[shape][0], .n = shapes[shape][1]};
                begin(&s, &p);
                add(&s, NG_IN, k->in, p.m, p.n, seed);
                int32_t *labels = add(&s, NG_LABELS, NG_FP32, p.m, 1, 1)->data;
                for (int64_t row = 0; row < p.m; row++)
                    labels[row] = (int32_t)(ng_test_hash(3, (uint64_t)row) % (uint64_t)(p.n + 1)) - 1;
                add(&s, NG_ROW_MAX, NG_FP32, p.m, 1, 3);
                add(&s, NG_ROW_SUM, NG_FP32, p.m, 1, 4);
                add(&s, NG_GRADIENT, NG_FP32, p.m, 1, 5);
                add(&s, NG_OUT, k->out, p.m, back ? p.n : 1, 1);
                send(&s, k);
                launch(&s, k);
                end(&s, k->name);
            }
    }
}

const ng_test ng_tests[] = {
    {"cuda", "Adam and AdamW equal the CPU's", test_adam, 300},
    {"cuda", "unscaling, scaler, norm and clipping equal the CPU's", test_steps, 300},
    {"cuda", "a list of 2500 tensors equals the CPU's", test_list, 300},
    {"cuda", "scaler and optimizer from a graph equal the CPU's", test_graph, 300},
    {"cuda", "activations equal the CPU's", test_activations, 300},
    {"cuda", "cross-entropy equals the CPU's", test_losses, 300},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
