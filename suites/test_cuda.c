/* Every CUDA kernel against the CPU kernel of the same name, bit for bit, and the GPU's predictor against the CPU's. Without
 * a GPU each row is skipped with the reason. */
#include "kernels/contracts.h"
#include "reference/gemm.h"
#include "reference/predict_cuda.h"
#include "suites/gpu_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ng_device cpu_device, gpu_device;

/* ---- tensors on both sides ------------------------------------------------------------------------------------------*/

static ng_tensor host_tensor(ng_format_id format, int64_t rows, int64_t columns, int64_t padding) {
    ng_tensor t = {NULL, format, NG_HOST, rows, columns, ng_row_bytes(format, columns) + padding};
    t.data = calloc(1, ng_test_bytes(&t) + 1);
    cr_assert(t.data);
    return t;
}

/* Codes of a wide format: by seed, any bits at all; ordinary magnitudes; few mantissa bits, so that ties are common; or
 * blocks of tiny numbers, zeros and NaN among ordinary ones. */
static void fill_wide(ng_tensor *t, uint64_t seed) {
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            uint32_t r = ng_test_hash(seed, (uint64_t)i << 32 | (uint64_t)j), block = ng_test_hash(seed + 9, (uint64_t)i << 32 | (uint64_t)(j / 16));
            uint32_t bits = (r & 0x80000000u) | (119u + (r >> 23 & 0xFF) % 10) << 23 | (r & 0x7FFFFF);
            if (seed % 4 == 0) bits = ng_test_hash(seed + 3, r);
            if (seed % 4 == 1) bits &= 0xFFF00000u;
            if (seed % 4 == 2 && block % 3 == 0) bits = (r & 0x80000000u) | (r & 0x7FFFFF) >> block % 23;
            if (seed % 4 == 2 && block % 3 == 1 && r % 29 == 0) bits = r % 2 ? 0x7F800000u : 0xFFC00001u;
            if (seed % 4 == 2 && block % 7 == 2) bits = r & 0x80000000u;
            uint64_t code = bits;
            double value = (double)ng_decode(NG_FP32, bits);
            if (t->format == NG_FP64) memcpy(&code, &value, sizeof code);
            if (t->format == NG_BF16) code = bits >> 16;
            if (t->format == NG_TF32) code = bits & 0xFFFFE000u;
            if (t->format == NG_FP16) code = (r & 0x8000u) | (seed % 4 == 0 ? r & 0x7FFF : (r >> 8) % 0x6000);
            ng_set_code(t, i, j, code);
        }
}

/* Codes of a narrow format or of scales: any; without `special` none that is NaN or infinite. */
static void fill_codes(ng_tensor *t, uint64_t seed, bool special) {
    if (t->format <= NG_FP16) {
        fill_wide(t, special ? 4 * seed + 2 : 4 * seed + 3);
        return;
    }
    uint32_t last = t->format == NG_E4M3 ? 0x7E : t->format == NG_E5M2 ? 0x7B : t->format == NG_UE4M3 ? 0x7E : 0xFF;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            uint32_t code = ng_test_hash(seed, (uint64_t)(i * t->columns + j)) % ng_format_codes(t->format);
            if (t->format == NG_E8M0 && !special) code = 120 + code % 16;
            if (!special && (code & 0x7F) > last) code = last;
            ng_set_code(t, i, j, code);
        }
}

/* ---- a launch on both sides -----------------------------------------------------------------------------------------*/
/* Launches both on the same host tensors; outputs are those roles of `host` that are set in `outputs`. */
static void compare(const ng_kernel *gpu, const ng_kernel *cpu, const ng_problem *problem, ng_tensor *host, uint32_t outputs, uint64_t seed) {
    char message[256] = "";
    ng_launch on_cpu = {.problem = problem, .device = &cpu_device, .message = message, .message_bytes = sizeof message}, on_gpu = on_cpu;
    on_gpu.device = &gpu_device;
    const char *why = gpu->supports(gpu, problem, &gpu_device);
    cr_assert_null(why, "%s: %s", gpu->name, why);
    for (int role = 0; role < NG_ROLES; role++)
        if (host[role].data) on_gpu.tensors[role] = ng_test_to_gpu(&host[role]);
    memcpy(on_cpu.tensors, host, sizeof on_cpu.tensors);
    on_gpu.workspace_bytes = gpu->workspace ? gpu->workspace(gpu, problem, &gpu_device) : 0;
    if (on_gpu.workspace_bytes) ng_test_cuda(cudaMalloc(&on_gpu.workspace, on_gpu.workspace_bytes));
    ng_status status = cpu->launch(cpu, &on_cpu);
    cr_assert(status == NG_OK, "%s: %s", cpu->name, message);
    status = gpu->launch(gpu, &on_gpu);
    cr_assert(status == NG_OK, "%s: %s", gpu->name, message);
    ng_test_cuda(cudaDeviceSynchronize());
    for (int role = 0; role < NG_ROLES; role++) {
        if (!(outputs >> role & 1)) continue;
        ng_tensor got = host_tensor(host[role].format, host[role].rows, host[role].columns, host[role].row_bytes - ng_row_bytes(host[role].format, host[role].columns));
        ng_test_from_gpu(&on_gpu.tensors[role], got.data);
        for (int64_t i = 0; i < got.rows; i++)
            for (int64_t j = 0; j < got.columns; j++) {
                uint64_t want = ng_get_code(&host[role], i, j), is = ng_get_code(&got, i, j);
                cr_assert(want == is, "%s %lldx%lldx%lld seed %llu: role %d (%lld, %lld) is %llx, the CPU's %llx", gpu->name,
                          (long long)problem->m, (long long)problem->n, (long long)problem->k, (unsigned long long)seed, role,
                          (long long)i, (long long)j, (unsigned long long)is, (unsigned long long)want);
            }
        free(got.data);
    }
    for (int role = 0; role < NG_ROLES; role++)
        if (on_gpu.tensors[role].data) ng_test_cuda(cudaFree(on_gpu.tensors[role].data));
    if (on_gpu.workspace) ng_test_cuda(cudaFree(on_gpu.workspace));
}

static void free_all(ng_tensor *host) {
    for (int role = 0; role < NG_ROLES; role++)
        free(host[role].data);
}

static int64_t blocks(uint32_t block, int64_t extent) { return ng_block_count(block, extent); }

/* ---- one operation at a time ----------------------------------------------------------------------------------------*/
static void one_cast(const ng_kernel *gpu, const ng_kernel *cpu, int64_t rows, int64_t columns, uint64_t seed) {
    ng_tensor host[NG_ROLES] = {0};
    host[NG_IN] = host_tensor(gpu->in, rows, columns, 0);
    host[NG_OUT] = host_tensor(gpu->out, rows, columns, columns % 2 ? 4 : 0);
    fill_wide(&host[NG_IN], seed);
    ng_problem problem = {.op = NG_OP_CAST, .m = rows, .n = columns, .seed = seed, .offset = 3};
    compare(gpu, cpu, &problem, host, 1u << NG_OUT, seed);
    free_all(host);
}

static void one_quantize(const ng_kernel *gpu, const ng_kernel *cpu, int64_t rows, int64_t columns, uint64_t seed, int directions) {
    const ng_quantization *q = &gpu->contract.quantization;
    ng_tensor host[NG_ROLES] = {0};
    uint32_t outputs = 0;
    host[NG_IN] = host_tensor(gpu->in, rows, columns, 0);
    fill_wide(&host[NG_IN], seed);
    if (directions & 1) {
        host[NG_OUT] = host_tensor(q->element, rows, columns, 0);
        host[NG_OUT_SCALES] = host_tensor(q->scale, blocks(q->blocks.rows, rows), blocks(q->blocks.columns, columns), 0);
        outputs |= 1u << NG_OUT | 1u << NG_OUT_SCALES;
    }
    if (directions & 2) {
        host[NG_OUT_T] = host_tensor(q->element, columns, rows, 3);
        host[NG_OUT_T_SCALES] = host_tensor(q->scale, blocks(q->blocks.rows, columns), blocks(q->blocks.columns, rows), 4);
        outputs |= 1u << NG_OUT_T | 1u << NG_OUT_T_SCALES;
    }
    const bool rotated = gpu->contract.hadamard.size; /* OUT_T is then another tensor, with a scale of its own */
    if (q->tensor_scale && (directions & 1 || !rotated)) {
        host[NG_OUT_TENSOR_SCALE] = host_tensor(NG_FP32, 1, 1, 0);
        outputs |= 1u << NG_OUT_TENSOR_SCALE;
    }
    if (q->tensor_scale && rotated && directions & 2) {
        host[NG_OUT_T_TENSOR_SCALE] = host_tensor(NG_FP32, 1, 1, 0);
        outputs |= 1u << NG_OUT_T_TENSOR_SCALE;
    }
    if (q->rule == NG_SCALE_GIVEN) {
        host[NG_SCALE_GIVEN_IN] = host_tensor(NG_FP32, 1, 1, 0);
        ng_set_code(&host[NG_SCALE_GIVEN_IN], 0, 0, 0x42F70000u);
    }
    if (q->cast.rounding == NG_R_STOCHASTIC && seed % 2) {
        host[NG_RANDOM_WORDS] = host_tensor(NG_FP32, rows, columns, 0);
        for (int64_t i = 0; i < rows * columns; i++)
            ((uint32_t *)host[NG_RANDOM_WORDS].data)[i] = ng_test_hash(seed + 77, (uint64_t)i);
    }
    ng_problem problem = {.op = NG_OP_QUANTIZE, .m = rows, .n = columns, .seed = seed, .offset = 5};
    compare(gpu, cpu, &problem, host, outputs, seed);
    free_all(host);
}

static void one_dequantize(const ng_kernel *gpu, const ng_kernel *cpu, int64_t rows, int64_t columns, uint64_t seed) {
    const ng_quantization *q = &gpu->contract.quantization;
    ng_tensor host[NG_ROLES] = {0};
    host[NG_IN] = host_tensor(q->element, rows, columns, 0);
    host[NG_IN_SCALES] = host_tensor(q->scale, blocks(q->blocks.rows, rows), blocks(q->blocks.columns, columns), 0);
    host[NG_OUT] = host_tensor(gpu->out, rows, columns, 0);
    fill_codes(&host[NG_IN], seed, true);
    fill_codes(&host[NG_IN_SCALES], seed + 1, true);
    if (q->tensor_scale) {
        host[NG_IN_TENSOR_SCALE] = host_tensor(NG_FP32, 1, 1, 0);
        ng_set_code(&host[NG_IN_TENSOR_SCALE], 0, 0, 0x3A123456u);
    }
    ng_problem problem = {.op = NG_OP_DEQUANTIZE, .m = rows, .n = columns};
    compare(gpu, cpu, &problem, host, 1u << NG_OUT, seed);
    free_all(host);
}

static void operand(ng_tensor *host, const ng_quantization *q, ng_format_id format, ng_role codes, int64_t rows, int64_t k, bool transposed,
                    uint64_t seed, bool special) {
    host[codes] = host_tensor(format, transposed ? k : rows, transposed ? rows : k, 0);
    fill_codes(&host[codes], seed, special);
    if (q->rule == NG_SCALE_ABSENT) return;
    host[codes + 1] = host_tensor(q->scale, blocks(q->blocks.rows, rows), blocks(q->blocks.columns, k), 0);
    fill_codes(&host[codes + 1], seed + 1, false);
    if (!q->tensor_scale) return;
    host[codes + 2] = host_tensor(NG_FP32, 1, 1, 0);
    ng_set_code(&host[codes + 2], 0, 0, 0x3C23D70Au);
}

static void one_gemm(const ng_kernel *gpu, const ng_kernel *cpu, int64_t m, int64_t n, int64_t k, uint64_t seed) {
    ng_tensor host[NG_ROLES] = {0};
    ng_problem problem = {.op = NG_OP_GEMM, .m = m, .n = n, .k = k};
    operand(host, &gpu->contract.a, gpu->in, NG_A, m, k, gpu->contract.a_transposed, seed, seed % 2);
    operand(host, &gpu->contract.b, gpu->in_b, NG_B, n, k, gpu->contract.b_transposed, seed + 50, seed % 2);
    host[NG_OUT] = host_tensor(gpu->out, m, n, 0);
    if (gpu->contract.accumulate_into) fill_wide(&host[NG_OUT], 3);
    compare(gpu, cpu, &problem, host, 1u << NG_OUT, seed);
    free_all(host);
}

typedef void one_kernel(const ng_kernel *gpu, const ng_kernel *cpu);

static void each_kernel(ng_op op, one_kernel *one) {
    ng_test_need_gpu(&gpu_device, &cpu_device);
    size_t count, checked = 0;
    const ng_kernel *const *all = ng_test_kernels(&count);
    for (size_t i = 0; i < count; i++) {
        if (all[i]->op != op || all[i]->backend != NG_BACKEND_CUDA || !strstr(all[i]->name, "/cuda/")) continue;
        static const ng_problem any = {.m = 64, .n = 1024, .k = 128};
        if (all[i]->supports(all[i], &any, &gpu_device)) continue; /* another GPU's instruction, few rows: held to the predictor below */
        if (all[i]->contract.quantization.layout != NG_LAYOUT_PLAIN) continue; /* judged by their cases; no CPU kernel lays scales out */
        const ng_kernel *cpu = ng_test_twin(all[i]);
        cr_assert(cpu, "no CPU kernel like %s", all[i]->name);
        one(all[i], cpu);
        checked++;
    }
    cr_assert(checked > 20, "only %zu kernels checked", checked);
}

static void cast_kernel(const ng_kernel *gpu, const ng_kernel *cpu) {
    one_cast(gpu, cpu, 1, 1, 0);
    for (uint64_t seed = 0; seed < 4; seed++)
        one_cast(gpu, cpu, 33, 65 + (int64_t)seed % 2 * 63, seed);
    one_cast(gpu, cpu, 64, 1024, 4);
}
static void quantize_kernel(const ng_kernel *gpu, const ng_kernel *cpu) {
    static const int64_t shapes[][2] = {{1, 1}, {1, 31}, {33, 65}, {129, 257}, {16, 512}, {128, 128}, {200, 384}};
    for (uint64_t seed = 0; seed < 8; seed++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            one_quantize(gpu, cpu, shapes[s][0], shapes[s][1], seed, 1 + (int)(seed / 2 + s) % 3);
    one_quantize(gpu, cpu, 512, 2048, 3, 1);
    one_quantize(gpu, cpu, 512, 2048, 2, 1);
}
static void dequantize_kernel(const ng_kernel *gpu, const ng_kernel *cpu) {
    one_dequantize(gpu, cpu, 1, 1, 1);
    one_dequantize(gpu, cpu, 33, 65, 2);
    one_dequantize(gpu, cpu, 256, 512, 3);
}
static void gemm_kernel(const ng_kernel *gpu, const ng_kernel *cpu) {
    one_gemm(gpu, cpu, 1, 1, 1, 0);
    one_gemm(gpu, cpu, 33, 65, 97, 1);
    one_gemm(gpu, cpu, 128, 96, 512, 2);
    one_gemm(gpu, cpu, 65, 130, 300, 4);
}

static void casts(void) { each_kernel(NG_OP_CAST, cast_kernel); }
static void quantizers(void) { each_kernel(NG_OP_QUANTIZE, quantize_kernel); }
static void dequantizers(void) { each_kernel(NG_OP_DEQUANTIZE, dequantize_kernel); }
static void products(void) { each_kernel(NG_OP_GEMM, gemm_kernel); }

/* ---- the predictors -------------------------------------------------------------------------------------------------*/
static int64_t differing(const ng_tensor *x, const ng_tensor *y) {
    int64_t differ = 0, first = 0;
    char message[256] = "";
    ng_status status = ng_compare_bits_cuda(x, y, NULL, &differ, &first, message, sizeof message);
    cr_assert(status == NG_OK, "%s", message);
    return differ;
}

/* The three derivations of one contract on one problem: CPU, GPU integers, GPU directed rounding. */
static void predict_one(const ng_named_contract *contract, ng_format_id format, int64_t m, int64_t n, int64_t k, int split, uint64_t seed) {
    const ng_cast cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL};
    ng_accumulation sum = contract->sum;
    ng_operand a = {.blocks = {1, 0}, .tensor_scale = 1}, b = a;
    char message[256] = "";
    if (split > 1 && !sum.split_tile) return;
    sum.split_k = (uint16_t)split;
    a.codes = host_tensor(format, m, k, 0);
    b.codes = host_tensor(format, n, k, 0);
    fill_codes(&a.codes, seed, seed % 2);
    fill_codes(&b.codes, seed + 100, seed % 2);
    if (sum.scales != NG_SCALES_NONE) {
        a.blocks.columns = b.blocks.columns = sum.scales == NG_SCALES_AFTER ? 0 : 128;
        if (sum.scales == NG_SCALES_BLOCK_FMA_PRODUCT) b.blocks.rows = 128;
        a.scales = host_tensor(NG_FP32, blocks(a.blocks.rows, m), blocks(a.blocks.columns, k), 0);
        b.scales = host_tensor(NG_FP32, blocks(b.blocks.rows, n), blocks(b.blocks.columns, k), 0);
        fill_wide(&a.scales, 3);
        fill_wide(&b.scales, 7);
    }
    ng_tensor want = host_tensor(NG_FP32, m, n, 0);
    ng_status status = ng_predict_gemm(&sum, &cast, &a, &b, NULL, cpu_device.threads, &want, NULL);
    cr_assert(status == NG_OK, "%s: the CPU's predictor refuses", contract->name);
    ng_operand da = a, db = b;
    da.codes = ng_test_to_gpu(&a.codes), db.codes = ng_test_to_gpu(&b.codes), da.scales = ng_test_to_gpu(&a.scales), db.scales = ng_test_to_gpu(&b.scales);
    ng_tensor cpu = ng_test_to_gpu(&want), out = ng_test_to_gpu(&want);
    for (int integers = 0; integers < 2; integers++) {
        ng_test_cuda(cudaMemset(out.data, 0x5A, ng_test_bytes(&out)));
        status = ng_predict_gemm_cuda(&sum, &da, &db, NULL, integers, NULL, &out, message, sizeof message);
        cr_assert(status == NG_OK, "%s: %d %s", contract->name, status, message);
        int64_t differ = differing(&cpu, &out);
        cr_assert(differ == 0, "%s %s %lldx%lldx%lld split %d seed %llu, %s: %lld of %lld elements differ from the CPU's", contract->name,
                  ng_formats[format].name, (long long)m, (long long)n, (long long)k, split, (unsigned long long)seed,
                  integers ? "integers" : "directed rounding", (long long)differ, (long long)(m * n));
    }
    ((uint32_t *)want.data)[m * n / 2] ^= 1;
    ng_test_from_gpu(&out, want.data);
    uint32_t flipped = ((uint32_t *)want.data)[m * n / 2] ^ 1u;
    ng_test_cuda(cudaMemcpy((char *)out.data + m * n / 2 * 4, &flipped, 4, cudaMemcpyHostToDevice));
    bool nan = (flipped & 0x7FFFFFFFu) > 0x7F800000u;
    cr_assert(differing(&cpu, &out) == (nan ? 0 : 1), "one planted bit was not found");
    free(a.codes.data), free(b.codes.data), free(a.scales.data), free(b.scales.data), free(want.data);
    cudaFree(da.codes.data), cudaFree(db.codes.data), cudaFree(da.scales.data), cudaFree(db.scales.data), cudaFree(cpu.data), cudaFree(out.data);
}

static void predictors(void) {
    int contracts = 0;
    ng_test_need_gpu(&gpu_device, &cpu_device);
    for (size_t c = 0; c < ng_named_contract_count; c++) {
        const ng_named_contract *contract = &ng_named_contracts[c];
        if (contract->sum.mma.scales_inside || contract->sum.mma.dot) continue;
        for (int f = 0; contract->in[f] != NG_NO_FORMAT; f++)
            for (uint64_t seed = 0; seed < 4; seed++) {
                predict_one(contract, contract->in[f], 70, 66, 1, 1, seed);
                predict_one(contract, contract->in[f], 65, 130, 97, 1, seed);
                predict_one(contract, contract->in[f], 128, 192, 1040, 1, seed);
                predict_one(contract, contract->in[f], 64, 64, 1040, 3, seed);
            }
        contracts++;
    }
    cr_assert(contracts >= 20);
}

/* Products of few rows have no twin: their contract's predictor says their bits. */
static void few_rows(void) {
    static const struct { int64_t m, n, k; } shapes[] = {{1, 1, 128}, {16, 67, 1152}, {8, 130, 1024}, {9, 64, 3072}, {3, 9000, 256}};
    ng_test_need_gpu(&gpu_device, &cpu_device);
    const ng_kernel *kernel = NULL;
    size_t count;
    const ng_kernel *const *all = ng_test_kernels(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(all[i]->name, "gemm/nvfp4/cuda/few-rows/fp32-out")) kernel = all[i];
    cr_assert_not_null(kernel);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            const ng_problem problem = {.op = NG_OP_GEMM, .m = shapes[s].m, .n = shapes[s].n, .k = shapes[s].k};
            char message[256] = "";
            ng_tensor host[NG_ROLES] = {0};
            ng_launch launch = {.problem = &problem, .device = &gpu_device, .message = message, .message_bytes = sizeof message};
            const char *why = kernel->supports(kernel, &problem, &gpu_device);
            if (why) cr_skip_test("%s", why);
            operand(host, &kernel->contract.a, NG_E2M1, NG_A, problem.m, problem.k, false, seed, seed % 2);
            operand(host, &kernel->contract.b, NG_E2M1, NG_B, problem.n, problem.k, false, seed + 50, seed % 2);
            if (seed == 3) ng_set_code(&host[NG_B_SCALES], 0, 1, 0x7F); /* NaN */
            host[NG_OUT] = host_tensor(NG_FP32, problem.m, problem.n, 0);
            for (int role = 0; role < NG_ROLES; role++)
                if (host[role].data) launch.tensors[role] = ng_test_to_gpu(&host[role]);
            ng_status status = kernel->launch(kernel, &launch);
            cr_assert(status == NG_OK, "%s", message);
            ng_test_cuda(cudaDeviceSynchronize());
            const float scale = (float)ng_decode(NG_FP32, ng_get_code(&host[NG_A_TENSOR_SCALE], 0, 0));
            const ng_operand a = {host[NG_A], host[NG_A_SCALES], {1, 16}, scale}, b = {host[NG_B], host[NG_B_SCALES], {1, 16}, scale};
            status = ng_predict_gemm(&kernel->contract.sum, &kernel->contract.cast, &a, &b, NULL, cpu_device.threads, &host[NG_OUT], NULL);
            cr_assert(status == NG_OK, "the CPU's predictor refuses: %d", (int)status);
            ng_tensor want = ng_test_to_gpu(&host[NG_OUT]);
            int64_t differ = differing(&want, &launch.tensors[NG_OUT]);
            cr_expect(differ == 0, "%lldx%lldx%lld seed %llu: %lld elements differ", (long long)problem.m, (long long)problem.n, (long long)problem.k,
                      (unsigned long long)seed, (long long)differ);
            for (int role = 0; role < NG_ROLES; role++)
                if (launch.tensors[role].data) ng_test_cuda(cudaFree(launch.tensors[role].data));
            ng_test_cuda(cudaFree(want.data));
            free_all(host);
        }
}

/* A whole product: time printed; floors are 80 % of what an H200 at 1,980 MHz gave in several runs. */
static void predictor_speed(void) {
    static const struct { const char *name; ng_format_id format; double floor_per_s; } rows[] = {
        {"cublaslt-hopper-fp8-promoted", NG_E4M3, 2.4e12}, {"cublaslt-hopper-fp8-fast", NG_E4M3, 2.4e12}, {"cublaslt-hopper-bf16", NG_BF16, 5e11},
        {"hopper-fp16", NG_FP16, 5e11}, {"hopper-tf32", NG_TF32, 5e11}};
    enum { N = 4096 };
    ng_test_need_gpu(&gpu_device, &cpu_device);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const ng_named_contract *contract = ng_contract_by_name(rows[r].name);
        cr_assert(contract, "%s", rows[r].name);
        ng_accumulation sum = contract->sum;
        sum.scales = NG_SCALES_NONE;
        ng_operand a = {.tensor_scale = 1}, b = a;
        a.codes = host_tensor(rows[r].format, N, N, 0);
        fill_codes(&a.codes, 6, false);
        ng_tensor host = host_tensor(NG_FP32, N, N, 0);
        b.codes = a.codes = ng_test_to_gpu(&a.codes);
        ng_tensor out = ng_test_to_gpu(&host);
        cudaEvent_t start, end;
        float best = 1e30f;
        ng_test_cuda(cudaEventCreate(&start));
        ng_test_cuda(cudaEventCreate(&end));
        for (int i = 0; i < 4; i++) {
            float ms;
            ng_test_cuda(cudaEventRecord(start, NULL));
            cr_assert(ng_predict_gemm_cuda(&sum, &a, &b, NULL, false, NULL, &out, NULL, 0) == NG_OK);
            ng_test_cuda(cudaEventRecord(end, NULL));
            ng_test_cuda(cudaEventSynchronize(end));
            ng_test_cuda(cudaEventElapsedTime(&ms, start, end));
            if (ms < best) best = ms;
        }
        double rate = (double)N * N * N / (best * 1e-3);
        fprintf(stderr, "predict %s 4096x4096x4096: %.2f ms, %.2fe12 multiply-adds/s (floor %.1fe12)\n", rows[r].name, (double)best, rate * 1e-12, rows[r].floor_per_s * 1e-12);
        cr_expect(rate >= rows[r].floor_per_s, "%s: %.3g multiply-adds a second, floor %.3g", rows[r].name, rate, rows[r].floor_per_s);
        cudaFree(a.codes.data);
        cudaFree(out.data);
        free(host.data);
    }
}

const ng_test ng_tests[] = {
    {"cuda", "casts equal the CPU's", casts, 300},
    {"cuda", "quantization equals the CPU's", quantizers, 300},
    {"cuda", "dequantization equals the CPU's", dequantizers, 300},
    {"cuda", "products equal the CPU's", products, 300},
    {"cuda", "predictors on the GPU equal the CPU's", predictors, 300},
    {"cuda", "predictor's rate", predictor_speed, 300},
    {"cuda", "products of few rows equal the prediction", few_rows, 300},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
