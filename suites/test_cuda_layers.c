/* CUDA attention, rotary position, addition, transposition and embedding against the CPU kernels of the same name, bit for bit: odd shapes, heads
 * beside tile borders, infinities. Without a GPU each row is skipped with the reason. */
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

/* Numbers from 2^-6 to 2^1 of either sign; with `special`, now and then an infinity, a zero or a tiny number. */
static void fill(const ng_tensor *t, uint64_t seed, bool special) {
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            const uint32_t r = ng_test_hash(seed, (uint64_t)(i * t->columns + j));
            float x = (float)(1 + (r & 0xFFFF) * 0x1p-16) * (float[]){0x1p-6f, 0x1p-3f, 0.25f, 1}[r >> 16 & 3] * (r >> 31 ? -1 : 1);
            if (special && r % 4001 == 7) x = (float[]){__builtin_inff(), -0.0f, 0x1p-130f, -__builtin_inff()}[r >> 20 & 3];
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            if (t->format == NG_FP64) ((double *)((char *)t->data + i * t->row_bytes))[j] = (double)x * (special ? 1 : 1 + 0x1p-30 * (r & 0xFFFF));
            else if (t->format == NG_BF16) ng_set_code(t, i, j, bits >> 16);
            else if (t->format == NG_FP16) ng_set_code(t, i, j, special && r % 4001 == 7 ? 0x7C00 : (bits >> 16 & 0x8000) | (0x2000 + r % 0x2000));
            else ng_set_code(t, i, j, t->format == NG_TF32 ? bits >> 13 : bits);
        }
}

/* ---- both sides ---------------------------------------------------------------------------------------------------*/
typedef struct sides {
    ng_launch cpu, gpu;
    char message[256];
} sides;

/* Rows `padding` bytes apart. */
static ng_tensor *add_padded(sides *s, ng_role role, ng_format_id format, int64_t rows, int64_t columns, int64_t padding, uint64_t seed,
                             bool special) {
    ng_tensor *t = &s->cpu.tensors[role];
    *t = (ng_tensor){NULL, format, NG_HOST, rows, columns, ng_row_bytes(format, columns) + padding};
    t->data = calloc(1, ng_test_bytes(t) + 1);
    cr_assert(t->data);
    fill(t, seed, special);
    return t;
}
static ng_tensor *add(sides *s, ng_role role, ng_format_id format, int64_t rows, int64_t columns, uint64_t seed, bool special) {
    return add_padded(s, role, format, rows, columns, seed % 2 ? 0 : 16 * ng_row_bytes(format, 1), seed, special);
}

static void run(sides *s, const ng_problem *p, const ng_kernel *gpu) {
    const ng_kernel *cpu = ng_test_twin(gpu);
    ng_launch *l = &s->gpu;
    cr_assert(cpu);
    s->cpu.problem = l->problem = p;
    s->cpu.message = l->message = s->message;
    s->cpu.message_bytes = l->message_bytes = sizeof s->message;
    s->cpu.device = &cpu_device;
    l->device = &gpu_device;
    for (int role = 0; role < NG_ROLES; role++) {
        l->tensors[role] = s->cpu.tensors[role];
        if (!l->tensors[role].data) continue;
        l->tensors[role].space = NG_GPU;
        ng_test_cuda(cudaMalloc(&l->tensors[role].data, ng_test_bytes(&l->tensors[role]) + 1));
        ng_test_cuda(cudaMemcpy(l->tensors[role].data, s->cpu.tensors[role].data, ng_test_bytes(&l->tensors[role]), cudaMemcpyHostToDevice));
    }
    l->workspace_bytes = gpu->workspace ? gpu->workspace(gpu, p, &gpu_device) : 0;
    if (l->workspace_bytes) ng_test_cuda(cudaMalloc(&l->workspace, l->workspace_bytes));
    cr_assert(cpu->launch(cpu, &s->cpu) == NG_OK, "%s: %s", cpu->name, s->message);
    cr_assert(gpu->launch(gpu, l) == NG_OK, "%s: %s", gpu->name, s->message);
    ng_test_cuda(cudaDeviceSynchronize());
    for (int role = 0; role < NG_ROLES; role++) {
        const ng_tensor *t = &s->cpu.tensors[role];
        if (!t->data) continue;
        ng_tensor got = *t;
        got.data = malloc(ng_test_bytes(t) + 1);
        cr_assert(got.data);
        ng_test_cuda(cudaMemcpy(got.data, l->tensors[role].data, ng_test_bytes(t), cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < t->columns; j++) {
                const double a = ng_get_value(&got, i, j), b = ng_get_value(t, i, j);
                cr_assert(ng_get_code(&got, i, j) == ng_get_code(t, i, j) || (t->format == NG_FP64 && a != a && b != b),
                          "%s, %lldx%lld: role %d [%lld][%lld] is %.9g, the CPU's %.9g", gpu->name, (long long)p->m, (long long)p->n, role,
                          (long long)i, (long long)j, a, b);
            }
        free(got.data);
        free(t->data);
        ng_test_cuda(cudaFree(l->tensors[role].data));
    }
    if (l->workspace) ng_test_cuda(cudaFree(l->workspace));
}

typedef struct shape {
    int64_t sequences, sequence, heads, d;
} shape;

static void test_attention(void) {
    static const shape shapes[] = {{1, 1, 1, 1},   {2, 37, 3, 10}, {1, 64, 1, 64},  {2, 129, 2, 64}, {1, 200, 2, 128},
                                   {1, 70, 1, 65}, {3, 63, 2, 8},  {1, 320, 1, 96}, {2, 256, 6, 64}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        const bool back = k->op == NG_OP_ATTENTION_BACKWARD;
        if (k->backend != NG_BACKEND_CUDA || (k->op != NG_OP_ATTENTION_FORWARD && !back) || !ng_test_twin(k)) continue;
        for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++)
            for (int special = 0; special < 2; special++) {
                const shape *h = &shapes[at];
                const int64_t m = h->sequences * h->sequence, n = h->heads * h->d;
                sides s = {0};
                ng_problem p = {.op = k->op, .m = m, .n = n, .scalars = {[NG_HEADS] = (double)h->heads, [NG_SEQUENCE] = (double)h->sequence}};
                if (k->supports(k, &p, &gpu_device)) continue; /* fp64 heads of 128 backward */
                add(&s, NG_IN, k->in, m, 3 * n, 2 * at + (uint64_t)special, special);
                if (back) add(&s, NG_GRADIENT, k->in, m, n, at + 50, false);
                add(&s, NG_OUT, k->out, m, back ? 3 * n : n, at + 99, false);
                run(&s, &p, k);
            }
    }
}

static void test_rope(void) {
    static const shape shapes[] = {{1, 1, 1, 2}, {2, 37, 3, 10}, {1, 128, 4, 64}, {1000, 65, 1, 4}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        if (k->backend != NG_BACKEND_CUDA || k->op != NG_OP_ROPE) continue;
        for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++) {
            const shape *h = &shapes[at];
            const int64_t m = h->sequences * h->sequence, n = h->heads * h->d;
            sides s = {0};
            const ng_problem p = {.op = k->op, .m = m, .n = n, .scalars = {[NG_HEADS] = (double)h->heads, [NG_SEQUENCE] = (double)h->sequence}};
            add(&s, NG_IN, k->in, m, 3 * n, at, true);
            add(&s, NG_PARAMETER, k->contract.layer.compute, h->sequence, h->d / 2, at + 7, false);
            add(&s, NG_PARAMETER_2, k->contract.layer.compute, h->sequence, h->d / 2, at + 8, false);
            add(&s, NG_OUT, k->out, m, 3 * n, at + 9, false);
            run(&s, &p, k);
        }
    }
}

static void test_add_and_transpose(void) {
    static const int64_t shapes[][2] = {{1, 1}, {33, 161}, {64, 256}, {3, 70000}, {70000, 3}, {1024, 512}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        if (k->backend != NG_BACKEND_CUDA || (k->op != NG_OP_ADD && k->op != NG_OP_TRANSPOSE)) continue;
        for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++) {
            const int64_t m = shapes[at][0], n = shapes[at][1];
            sides s = {0};
            const ng_problem p = {.op = k->op, .m = m, .n = n};
            add(&s, NG_IN, k->in, m, n, at, true);
            if (k->op == NG_OP_ADD) add(&s, NG_IN_2, k->in, m, n, at + 2, true);
            if (k->op == NG_OP_ADD) add(&s, NG_OUT, k->out, m, n, at, false);
            else add(&s, NG_OUT_T, k->out, n, m, at, false);
            run(&s, &p, k);
        }
    }
}

static void test_embedding(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {75, 37, 41}, {3000, 16, 3}, {600, 300, 256}, {64, 8, 70000}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        const bool back = k->op == NG_OP_EMBEDDING_BACKWARD;
        if (k->backend != NG_BACKEND_CUDA || (k->op != NG_OP_EMBEDDING_FORWARD && !back)) continue;
        for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++) {
            const int64_t m = shapes[at][0], n = shapes[at][1], vocabulary = shapes[at][2];
            sides s = {0};
            const ng_problem p = {.op = k->op, .m = m, .n = n, .k = vocabulary};
            ng_tensor *tokens = add_padded(&s, NG_TOKENS, NG_FP32, m, 1, 0, 1, false);
            for (int64_t row = 0; row < m; row++)
                ((int32_t *)tokens->data)[row] = (int32_t)(ng_test_hash(3, (uint64_t)row) % (uint64_t)(row % 3 ? vocabulary : (vocabulary + 9) / 10));
            add(&s, back ? NG_GRADIENT : NG_PARAMETER, k->in, back ? m : vocabulary, n, at, !back || k->in != NG_FP64);
            add(&s, NG_OUT, k->out, back ? vocabulary : m, n, at + 1, false);
            run(&s, &p, k);
        }
    }
}

/* ---- binary64 -----------------------------------------------------------------------------------------------------*/
static void set_labels(const ng_tensor *t, int64_t classes) {
    for (int64_t i = 0; i < t->rows; i++)
        ((int32_t *)t->data)[i] = (int32_t)(ng_test_hash(3, (uint64_t)i) % (uint64_t)(classes + 1)) - 1;
}

/* Second moments, standard deviations: positive. */
static void make_positive(const ng_tensor *t) {
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            double *x = (double *)((char *)t->data + i * t->row_bytes) + j;
            *x = __builtin_fabs(*x) + 0.01;
        }
}

static void add_fp64(sides *s, const ng_kernel *k, int64_t m, int64_t n, uint64_t seed) {
    const bool back = k->op == NG_OP_NORM_BACKWARD || k->op == NG_OP_ACTIVATION_BACKWARD || k->op == NG_OP_LOSS_BACKWARD;
    const bool loss = k->op == NG_OP_LOSS || k->op == NG_OP_LOSS_BACKWARD, norm = k->op == NG_OP_NORM_FORWARD || k->op == NG_OP_NORM_BACKWARD;
    if (k->op == NG_OP_OPTIMIZER) {
        add(s, NG_GRADIENT, NG_FP64, m, n, seed, false);
        make_positive(add(s, NG_OUT, NG_FP64, 1, 1, 1, false));
        if (k->contract.optimizer.kind != NG_ADAMW_TORCH) return;
        add(s, NG_PARAMETER, NG_FP64, m, n, seed + 1, false);
        add(s, NG_MOMENT_1, NG_FP64, m, n, seed + 2, false);
        make_positive(add(s, NG_MOMENT_2, NG_FP64, m, n, seed + 3, false));
        return;
    }
    add(s, NG_IN, NG_FP64, m, n, seed, true);
    add(s, NG_OUT, NG_FP64, m, k->op == NG_OP_LOSS ? 1 : n, seed + 1, false);
    if (loss) set_labels(add_padded(s, NG_LABELS, NG_FP32, m, 1, 0, 1, false), n);
    if (loss) add(s, NG_ROW_MAX, NG_FP64, m, 1, 3, false), make_positive(add(s, NG_ROW_SUM, NG_FP64, m, 1, 5, false));
    if (back) add(s, NG_GRADIENT, NG_FP64, m, loss ? 1 : n, seed + 2, false);
    if (!loss && !norm) add(s, NG_IN_2, NG_FP64, m, n, seed + 4, false), add(s, NG_OUT_2, NG_FP64, m, n, seed + 5, false);
    if (!norm) return;
    add(s, NG_PARAMETER, NG_FP64, 1, n, 7, false);
    add(s, NG_PARAMETER_2, NG_FP64, 1, n, 9, false);
    add(s, NG_MEAN, NG_FP64, m, 1, 11, false);
    make_positive(add(s, NG_RSTD, NG_FP64, m, 1, 13, false));
    if (back) add(s, NG_OUT_2, NG_FP64, 1, n, 1, false), add(s, NG_OUT_3, NG_FP64, 1, n, 1, false);
}

static void test_fp64(void) {
    static const int64_t shapes[][2] = {{1, 1}, {33, 161}, {64, 256}, {3, 5003}, {3001, 5}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        if (k->backend != NG_BACKEND_CUDA || k->in != NG_FP64 || k->op < NG_OP_NORM_FORWARD || k->op > NG_OP_LOSS_BACKWARD) continue;
        for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++) {
            sides s = {0};
            const ng_problem p = {.op = k->op,
                                  .m = shapes[at][0],
                                  .n = shapes[at][1],
                                  .scalars = {[NG_EPSILON] = 1e-5,
                                              [NG_LEARNING_RATE] = 1e-3,
                                              [NG_BETA1] = 0.9,
                                              [NG_BETA2] = 0.999,
                                              [NG_WEIGHT_DECAY] = 0.1,
                                              [NG_STEP] = 7,
                                              [NG_MAX_NORM] = 0.3}};
            add_fp64(&s, k, p.m, p.n, 2 * at);
            run(&s, &p, k);
        }
    }
}

static void test_fp64_products(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {17, 23, 41}, {64, 128, 16}, {65, 130, 333}};
    need_gpu();
    for (size_t i = 0; i < kernel_count; i++) {
        const ng_kernel *k = kernels[i];
        const ng_contract *c = &k->contract;
        if (k->backend != NG_BACKEND_CUDA || k->in != NG_FP64 || k->op != NG_OP_GEMM) continue;
        for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++) {
            sides s = {0};
            const ng_problem p = {.op = k->op, .m = shapes[at][0], .n = shapes[at][1], .k = shapes[at][2]};
            add(&s, NG_A, NG_FP64, c->a_transposed ? p.k : p.m, c->a_transposed ? p.m : p.k, at, true);
            add(&s, NG_B, NG_FP64, c->b_transposed ? p.k : p.n, c->b_transposed ? p.n : p.k, at + 7, false);
            add(&s, NG_OUT, NG_FP64, p.m, p.n, at + 9, false);
            run(&s, &p, k);
        }
    }
}

const ng_test ng_tests[] = {
    {"cuda", "attention equals the CPU's", test_attention, 300},
    {"cuda", "rotary position equals the CPU's", test_rope, 300},
    {"cuda", "addition and transposition equal the CPU's", test_add_and_transpose, 300},
    {"cuda", "embedding and its gradient equal the CPU's", test_embedding, 300},
    {"cuda", "norms, activations, losses and AdamW in binary64 equal the CPU's", test_fp64, 300},
    {"cuda", "products in binary64 equal the CPU's", test_fp64_products, 300},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
