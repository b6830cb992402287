/* Products of full size on a GPU: data made there, operands quantized by the catalogue's own kernels, every element verified
 * against the certified product (reference/exact_cuda.h) and predicted bit for bit (reference/predict_cuda.h); and, in each
 * run, what the device says of a sample held to the CPU's reference: data, quantization, exact product, bound, prediction.
 * OUT lies between guard zones and is poisoned before each launch. */
#include "harness/data_cuda.h"
#include "harness/digest.h"
#include "harness/judge_internal.h"
#include "harness/timing_gpu.h"
#include "reference/exact_cuda.h"
#include "reference/predict_cuda.h"
#include "reference/scale_layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 2, MADE = 96, SAMPLE_ROWS = 4, SAMPLE_COLUMNS = 32, MPFR_ROWS = 2, MPFR_COLUMNS = 8, SETS = 12, ALIGNMENT = 256 };

typedef struct half { /* an operand */
    const ng_data_spec *spec;
    ng_quantization q;          /* as quantized; plain formats: element alone */
    bool plain, turned;
    ng_format_id source_format;
    int64_t rows;
    const ng_kernel *quantizer, *timed; /* of plain scales; with the layout that the product wants */
    ng_problem problem;         /* of the quantizer */
    ng_tensor source, stored;   /* [rows][k]; as the quantizer reads it: the same, or [k][rows] */
    ng_operand operand;         /* codes, plain scales; tensor_scale read back */
    ng_tensor codes, scales, tensor_scale; /* as the product takes them */
    ng_launch launch, timed_launch;
} half;

typedef struct whole {
    ng_judge *judge;
    ng_gpu *gpu;
    const ng_case *one;
    const ng_kernel *kernel;
    ng_contract contract;
    char algorithm[160];
    ng_problem problem;
    half sides[SIDES];
    ng_tensor out, first, predicted; /* out between guards */
    unsigned char *base;
    size_t out_bytes;
    ng_tensor held, added, bias;     /* what OUT holds; what the reference adds; BIAS */
    ng_accumulation predicted_sum;   /* of `predicted` */
    bool has_predicted, unpredicted;
    ng_launch launch;
    char message[256];
    void *made[MADE];
    int made_count;
} whole;

/* ---- memory -------------------------------------------------------------------------------------------------------*/
static ng_status make(whole *w, size_t bytes, void **made, ng_error *error) {
    if (w->made_count == MADE) return ng_fail(error, NG_INTERNAL, "too many buffers for one product");
    ng_status status = ng_gpu_malloc(w->gpu, bytes, made, error);
    if (!status) w->made[w->made_count++] = *made;
    return status;
}

static ng_status make_tensor(whole *w, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *t, ng_error *error) {
    *t = (ng_tensor){NULL, format, NG_GPU, rows, columns, ng_row_bytes(format, columns)};
    return make(w, (size_t)(t->rows * t->row_bytes), &t->data, error);
}

static size_t bytes_of(const ng_tensor *t) { return (size_t)(t->rows * t->row_bytes); }

static ng_status upload(whole *w, const ng_tensor *from, ng_tensor *to, ng_error *error) {
    ng_status status = make_tensor(w, from->format, from->rows, from->columns, to, error);
    return status ? status : ng_gpu_copy(w->gpu, to->data, from->data, bytes_of(to), NG_TO_DEVICE, error);
}

/* Rows [row, row + rows) of a device tensor in a dense host tensor, which the caller frees. */
static ng_status fetch_rows(whole *w, const ng_tensor *from, int64_t row, int64_t rows, ng_tensor *to, ng_error *error) {
    ng_status status = ng_tensor_create(from->format, rows, from->columns, to, error);
    if (status) return status;
    return ng_gpu_copy(w->gpu, to->data, (const char *)from->data + row * from->row_bytes, (size_t)(rows * from->row_bytes), NG_FROM_DEVICE, error);
}

static ng_status on_device(whole *w, ng_status status, ng_error *error) {
    if (status != NG_DEVICE && status != NG_NO_MEMORY && status != NG_INTERNAL) return status;
    if (status == NG_NO_MEMORY) w->gpu->short_of_memory = true;
    w->gpu->runtime->last_error();
    return ng_fail(error, status, "%s", *w->message ? w->message : "verification on the GPU failed");
}

/* ---- launches -----------------------------------------------------------------------------------------------------*/
static ng_status make_launch(whole *w, const ng_kernel *kernel, const ng_problem *problem, ng_launch *launch, ng_error *error) {
    *launch = (ng_launch){.problem = problem, .device = &w->gpu->device, .stream = w->gpu->stream, .message = w->message, .message_bytes = sizeof w->message};
    launch->workspace_bytes = kernel->workspace ? kernel->workspace(kernel, problem, &w->gpu->device) : 0;
    return launch->workspace_bytes ? make(w, launch->workspace_bytes, &launch->workspace, error) : NG_OK;
}

/* False: *status says that the device failed, or the result is accused. */
static bool run(whole *w, const ng_kernel *kernel, const ng_launch *launch, ng_result *result, ng_status *status, ng_error *error) {
    w->message[0] = 0;
    ng_status said = kernel->launch(kernel, launch);
    *status = ng_gpu_check(w->gpu, w->gpu->runtime->synchronize(), "the kernel faulted", error);
    if (*status) return false;
    if (said == NG_NO_MEMORY) {
        w->gpu->short_of_memory = true;
        *status = ng_fail(error, NG_NO_MEMORY, "not enough memory on the GPU: %s", w->message);
        return false;
    }
    if (said) ng_accuse(result, NG_FAIL, "%s: the launch failed: %s", kernel->name, *w->message ? w->message : "no reason given");
    return !said;
}

/* ---- operands -----------------------------------------------------------------------------------------------------*/
static bool same_cast(const ng_cast *a, const ng_cast *b) {
    return a->rounding == b->rounding && a->saturate == b->saturate && a->nan == b->nan;
}

static const ng_kernel *find_quantizer(const whole *w, const ng_quantization *q, ng_scale_layout layout) {
    for (size_t i = 0; i < w->judge->catalogue.count; i++) {
        const ng_kernel *k = w->judge->catalogue.kernels[i];
        const ng_quantization *o = &k->contract.quantization;
        if (k->op == NG_OP_QUANTIZE && k->backend == NG_BACKEND_CUDA && k->in == NG_BF16 && !k->contract.hadamard.size &&
            o->element == q->element && o->scale == q->scale && o->blocks.rows == q->blocks.rows && o->blocks.columns == q->blocks.columns &&
            o->rule == q->rule && o->tensor_scale == q->tensor_scale && o->four_over_six == q->four_over_six && o->layout == layout &&
            same_cast(&o->cast, &q->cast))
            return k;
    }
    return NULL;
}

static ng_format_id bias_of(const ng_quantization *q, ng_format_id in) {
    bool wide = ng_is_plain(q) && (in == NG_FP32 || in == NG_TF32 || in == NG_FP16);
    return wide ? NG_FP32 : NG_BF16;
}

static ng_status fill(whole *w, const ng_data_spec *spec, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *t, ng_error *error) {
    ng_status status = make_tensor(w, format, rows, columns, t, error);
    return status ? status : ng_data_fill_cuda(spec, 0, 0, t, w->gpu->stream, error);
}

/* The same tensor stored the other way round. */
static ng_data_spec other_way(const ng_data_spec *spec) {
    ng_data_spec turned = *spec;
    turned.transposed = !spec->transposed;
    return turned;
}

static ng_status plain_side(whole *w, half *d, ng_format_id in, bool transposed, ng_error *error) {
    ng_data_spec turned = other_way(d->spec);
    ng_status status = fill(w, d->spec, d->source_format, d->rows, w->problem.k, &d->source, error);
    if (!status && in == d->source_format) d->operand.codes = d->source;
    else if (!status) status = fill(w, d->spec, in, d->rows, w->problem.k, &d->operand.codes, error);
    d->codes = d->operand.codes;
    if (!status && transposed) status = fill(w, &turned, in, w->problem.k, d->rows, &d->codes, error);
    return status;
}

static ng_status quantizer_launch(whole *w, half *d, const ng_kernel *kernel, ng_launch *launch, ng_error *error) {
    const ng_quantization *q = &kernel->contract.quantization;
    ng_role codes = d->turned ? NG_OUT_T : NG_OUT, scales = d->turned ? NG_OUT_T_SCALES : NG_OUT_SCALES;
    int64_t block_rows = ng_block_count(q->blocks.rows, d->rows), block_columns = ng_block_count(q->blocks.columns, w->problem.k), rows, columns;
    ng_status status = make_launch(w, kernel, &d->problem, launch, error);
    launch->tensors[NG_IN] = d->stored;
    if (!status) status = make_tensor(w, q->element, d->rows, w->problem.k, &launch->tensors[codes], error);
    ng_layout_extents(q->layout, block_rows, block_columns, &rows, &columns);
    if (!status) status = make_tensor(w, q->scale, rows, columns, &launch->tensors[scales], error);
    if (!status && q->tensor_scale) status = make_tensor(w, NG_FP32, 1, 1, &launch->tensors[NG_OUT_TENSOR_SCALE], error);
    if (!status && q->tensor_scale && d->turned && kernel->contract.hadamard.size)
        status = make_tensor(w, NG_FP32, 1, 1, &launch->tensors[NG_OUT_T_TENSOR_SCALE], error);
    return status;
}

/* The scales as the product wants them: repeated where it has smaller blocks, arranged. */
static ng_status arrange(whole *w, half *d, const ng_quantization *wanted, ng_error *error) {
    const ng_tensor *plain = &d->operand.scales;
    int64_t block_rows = ng_block_count(wanted->blocks.rows, d->rows), block_columns = ng_block_count(wanted->blocks.columns, w->problem.k), rows, columns;
    d->scales = *plain;
    if (wanted->layout == NG_LAYOUT_PLAIN && block_rows == plain->rows && block_columns == plain->columns) return NG_OK;
    ng_tensor here = {0}, repeated = {0}, arranged = {0};
    ng_layout_extents(wanted->layout, block_rows, block_columns, &rows, &columns);
    ng_status status = fetch_rows(w, plain, 0, plain->rows, &here, error);
    if (!status) status = ng_tensor_create(plain->format, block_rows, block_columns, &repeated, error);
    if (!status) status = ng_tensor_create(plain->format, rows, columns, &arranged, error);
    if (!status) {
        int64_t down = ng_block_extent(wanted->blocks.rows, d->rows), across = ng_block_extent(wanted->blocks.columns, w->problem.k);
        int64_t from_down = ng_block_extent(d->q.blocks.rows, d->rows), from_across = ng_block_extent(d->q.blocks.columns, w->problem.k);
        for (int64_t i = 0; i < block_rows; i++)
            for (int64_t j = 0; j < block_columns; j++)
                ng_set_code(&repeated, i, j, ng_get_code(&here, i * down / from_down, j * across / from_across));
        ng_layout_arrange(wanted->layout, &repeated, &arranged);
        status = upload(w, &arranged, &d->scales, error);
    }
    ng_tensor_free(&here);
    ng_tensor_free(&repeated);
    ng_tensor_free(&arranged);
    return status;
}

/* Delayed scaling: the scale that current scaling gives the same tensor of an earlier step. */
static ng_status earlier_scale(whole *w, half *d, ng_tensor *given, ng_result *result, ng_error *error) {
    ng_quantization current = d->q;
    ng_data_spec earlier = *d->spec;
    half before = {.rows = d->rows, .problem = d->problem};
    float decode = 1, encode;
    current.rule = NG_SCALE_MAX_OVER_AMAX;
    earlier.seed ^= 0x9E3779B97F4A7C15u;
    before.problem.m = d->rows;
    before.problem.n = w->problem.k;
    const ng_kernel *kernel = find_quantizer(w, &current, NG_LAYOUT_PLAIN);
    if (!kernel) return ng_fail(error, NG_UNSUPPORTED, "no CUDA kernel finds the scale of an earlier step");
    ng_status status = fill(w, &earlier, NG_BF16, d->rows, w->problem.k, &before.stored, error);
    if (!status) status = quantizer_launch(w, &before, kernel, &before.launch, error);
    if (status || !run(w, kernel, &before.launch, result, &status, error)) return status;
    status = ng_gpu_copy(w->gpu, &decode, before.launch.tensors[NG_OUT_SCALES].data, sizeof decode, NG_FROM_DEVICE, error);
    encode = 1 / decode;
    ng_tensor one = {&encode, NG_FP32, NG_HOST, 1, 1, sizeof encode};
    return status ? status : upload(w, &one, given, error);
}

static ng_status quantized_side(whole *w, half *d, const ng_quantization *wanted, ng_result *result, ng_error *error) {
    ng_data_spec turned = other_way(d->spec);
    const ng_kernel *kernel = d->quantizer;
    d->problem = (ng_problem){.op = NG_OP_QUANTIZE, .m = d->turned ? w->problem.k : d->rows, .n = d->turned ? d->rows : w->problem.k,
                              .seed = d->spec->seed, .offset = d->spec->stream};
    const char *why = kernel->supports ? kernel->supports(kernel, &d->problem, &w->gpu->device) : NULL;
    if (why) {
        result->verdict = NG_SKIP;
        snprintf(result->reason, sizeof result->reason, "%s: %.400s", kernel->name, why);
        return NG_OK;
    }
    ng_status status = fill(w, d->spec, NG_BF16, d->rows, w->problem.k, &d->source, error);
    d->stored = d->source;
    if (!status && d->turned) status = fill(w, &turned, NG_BF16, w->problem.k, d->rows, &d->stored, error);
    if (!status) status = quantizer_launch(w, d, kernel, &d->launch, error);
    if (!status && d->q.rule == NG_SCALE_GIVEN) status = earlier_scale(w, d, &d->launch.tensors[NG_SCALE_GIVEN_IN], result, error);
    if (status || !run(w, kernel, &d->launch, result, &status, error)) return status;
    const ng_tensor *t = d->launch.tensors;
    bool own = d->turned && t[NG_OUT_T_TENSOR_SCALE].data;
    d->codes = d->operand.codes = t[d->turned ? NG_OUT_T : NG_OUT];
    d->operand.scales = t[d->turned ? NG_OUT_T_SCALES : NG_OUT_SCALES];
    d->operand.blocks = d->q.blocks;
    d->tensor_scale = t[own ? NG_OUT_T_TENSOR_SCALE : NG_OUT_TENSOR_SCALE];
    if (d->q.tensor_scale) status = ng_gpu_copy(w->gpu, &d->operand.tensor_scale, d->tensor_scale.data, sizeof(float), NG_FROM_DEVICE, error);
    return status ? status : arrange(w, d, wanted, error);
}

static ng_status make_side(whole *w, int s, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = w->kernel;
    const ng_quantization *wanted = s ? &kernel->contract.b : &kernel->contract.a;
    ng_format_id in = s && kernel->in_b < NG_FORMATS ? kernel->in_b : kernel->in;
    half *d = &w->sides[s];
    d->spec = s ? &w->one->data_b : &w->one->data;
    d->rows = s ? w->problem.n : w->problem.m;
    d->q = w->one->quantizers[s] ? w->one->quantizers[s]->contract.quantization : *wanted;
    d->plain = ng_is_plain(&d->q);
    d->source_format = bias_of(&d->q, in);
    d->operand.tensor_scale = 1;
    if (d->plain) return plain_side(w, d, in, s ? kernel->contract.b_transposed : kernel->contract.a_transposed, error);
    d->turned = w->one->quantizers[s] && d->spec->transposed;
    d->q.layout = NG_LAYOUT_PLAIN;
    d->quantizer = w->one->quantizers[s] ? w->one->quantizers[s] : find_quantizer(w, &d->q, NG_LAYOUT_PLAIN);
    d->timed = w->one->quantizers[s] ? w->one->quantizers[s] : find_quantizer(w, &d->q, wanted->layout);
    if (d->quantizer && (d->timed || w->one->mode != NG_AUTOCAST)) return quantized_side(w, d, wanted, result, error);
    result->verdict = NG_SKIP;
    snprintf(result->reason, sizeof result->reason, "no CUDA kernel of the catalogue quantizes operand %c as the contract says", 'a' + s);
    return NG_OK;
}

/* What the sum is added to: OUT's own contents, or a bias (in OUT's format for the kernel, in binary32 for the reference). */
static ng_status make_added(whole *w, ng_error *error) {
    const ng_data_spec *a = w->sides[0].spec;
    ng_data_spec spec = {.distribution = a->distribution == NG_INTEGERS ? NG_INTEGERS : NG_NORMAL, .seed = a->seed, .stream = 3,
                         .target = a->target, .whole_rows = w->problem.m, .whole_columns = w->problem.n};
    ng_tensor here = {0}, wide = {0};
    if (w->contract.accumulate_into) {
        ng_status status = fill(w, &spec, w->kernel->out, w->problem.m, w->problem.n, &w->held, error);
        w->added = w->held;
        return status;
    }
    if (!w->contract.bias) return NG_OK;
    ng_status status = ng_tensor_create(w->kernel->out, 1, w->problem.n, &here, error);
    if (!status) status = ng_tensor_create(NG_FP32, 1, w->problem.n, &wide, error);
    if (!status) status = ng_data_fill(&spec, 0, 0, &here, w->judge->threads, error);
    for (int64_t j = 0; j < w->problem.n && !status; j++)
        ((float *)wide.data)[j] = (float)ng_get_value(&here, 0, j);
    if (!status) status = upload(w, &here, &w->bias, error);
    if (!status) status = upload(w, &wide, &w->added, error);
    ng_tensor_free(&here);
    ng_tensor_free(&wide);
    return status;
}

static ng_status make_outputs(whole *w, ng_error *error) {
    void *base = NULL;
    w->out = (ng_tensor){NULL, w->kernel->out, NG_GPU, w->problem.m, w->problem.n, ng_row_bytes(w->kernel->out, w->problem.n)};
    w->out_bytes = bytes_of(&w->out);
    ng_status status = make(w, w->out_bytes + 2 * NG_GUARD_BYTES, &base, error);
    w->base = base;
    w->out.data = w->base + NG_GUARD_BYTES;
    if (!status) status = make_tensor(w, w->kernel->out, w->problem.m, w->problem.n, &w->first, error);
    if (!status) status = make_launch(w, w->kernel, &w->problem, &w->launch, error);
    static const ng_role roles[SIDES][3] = {{NG_A, NG_A_SCALES, NG_A_TENSOR_SCALE}, {NG_B, NG_B_SCALES, NG_B_TENSOR_SCALE}};
    for (int s = 0; s < SIDES; s++) {
        w->launch.tensors[roles[s][0]] = w->sides[s].codes;
        w->launch.tensors[roles[s][1]] = w->sides[s].scales;
        w->launch.tensors[roles[s][2]] = w->sides[s].tensor_scale;
    }
    w->launch.tensors[NG_BIAS] = w->bias;
    w->launch.tensors[NG_OUT] = w->out;
    return status;
}

/* ---- one launch of the product --------------------------------------------------------------------------------------*/
static ng_status prepare(whole *w, int poison, ng_error *error) {
    const ng_runtime *r = w->gpu->runtime;
    int code = r->set(w->base, 0xA5, NG_GUARD_BYTES, w->gpu->stream);
    if (!code) code = r->set(w->base + NG_GUARD_BYTES + w->out_bytes, 0xA5, NG_GUARD_BYTES, w->gpu->stream);
    if (!code && w->held.data) code = r->copy(w->out.data, w->held.data, w->out_bytes, NG_ON_DEVICE, w->gpu->stream);
    else if (!code) code = r->set(w->out.data, poison ? 0x55 : 0xFF, w->out_bytes, w->gpu->stream);
    return ng_gpu_check(w->gpu, code, "preparing the output", error);
}

static ng_status guards_intact(whole *w, bool *intact, ng_error *error) {
    static const size_t bytes = NG_GUARD_BYTES;
    unsigned char *here = malloc(2 * bytes);
    *intact = true;
    if (!here) return ng_fail(error, NG_NO_MEMORY, "no memory for guards");
    ng_status status = ng_gpu_copy(w->gpu, here, w->base, bytes, NG_FROM_DEVICE, error);
    if (!status) status = ng_gpu_copy(w->gpu, here + bytes, w->base + bytes + w->out_bytes, bytes, NG_FROM_DEVICE, error);
    for (size_t i = 0; i < 2 * bytes && !status; i++)
        *intact = *intact && here[i] == 0xA5;
    free(here);
    return status;
}

static bool launch_product(whole *w, int poison, ng_result *result, ng_status *status, ng_error *error) {
    bool intact;
    *status = prepare(w, poison, error);
    if (*status || !run(w, w->kernel, &w->launch, result, status, error)) return false;
    *status = guards_intact(w, &intact, error);
    if (!*status && !intact) ng_accuse(result, NG_FAIL, "the kernel wrote outside OUT");
    return !*status && intact;
}

static ng_status differing(whole *w, const ng_tensor *x, const ng_tensor *y, int64_t *differ, int64_t *place, ng_error *error) {
    return on_device(w, ng_compare_bits_cuda(x, y, w->gpu->stream, differ, place, w->message, sizeof w->message), error);
}

/* ---- figures ------------------------------------------------------------------------------------------------------*/
static void publish(const whole *w, const ng_witness *from, bool bounded, ng_error_figures *figures, ng_power *power) {
    ng_tally t;
    ng_tally_begin(&t);
    t.max_abs = from->max_abs, t.max_rel = from->max_rel, t.max_ulp = from->max_ulp, t.ratio = from->ratio;
    t.sum_e2 = from->sum_e2, t.sum_c2 = from->sum_c2, t.sum_signed = from->sum_signed, t.sum_abs = from->sum_abs;
    t.worst_key = from->worst_key, t.worst_computed = from->worst_computed, t.worst_exact = from->worst_exact, t.worst_bound = from->worst_bound;
    t.worst_row = from->worst_row, t.worst_column = from->worst_column;
    t.nonfinite = from->nonfinite, t.beyond = from->beyond, t.bounded = from->bounded, t.zero_rejected = from->zero_rejected;
    t.checked = from->checked, t.has_bound = bounded;
    ng_tally_publish(&t, w->problem.m * w->problem.n, figures, power);
    figures->by_tier[NG_TIER_INTEGER] = from->exact;
    figures->by_tier[NG_TIER_CERTIFIED] = from->checked - from->exact;
}

/* Elements that the certified product leaves open: by MPFR, and the bound of the CPU. */
static ng_status settle(whole *w, const ng_witness *from, ng_result *result, ng_error *error);

static ng_status measure(whole *w, ng_power *power, ng_result *result, ng_error *error) {
    ng_operand before[SIDES] = {{.codes = w->sides[0].source, .tensor_scale = 1}, {.codes = w->sides[1].source, .tensor_scale = 1}};
    const ng_tensor *added = w->added.data ? &w->added : NULL;
    ng_witness kernel, recipe;
    ng_status status = ng_witness_gemm_cuda(&w->contract.sum, &w->sides[0].operand, &w->sides[1].operand, added, &w->out, w->gpu->stream, &kernel,
                                            w->message, sizeof w->message);
    if (!status) status = ng_witness_gemm_cuda(NULL, &before[0], &before[1], added, &w->out, w->gpu->stream, &recipe, w->message, sizeof w->message);
    if (status) return on_device(w, status, error) ? error->status ? error->status : status : NG_OK;
    publish(w, &kernel, true, &result->error, power);
    publish(w, &recipe, false, &result->recipe_error, NULL);
    ng_accuse_figures(result, "OUT", &result->error);
    return kernel.undecided ? settle(w, &kernel, result, error) : NG_OK;
}

static ng_status predict(whole *w, ng_result *result, ng_error *error) {
    const ng_accumulation *sum = &w->contract.sum;
    ng_prediction *prediction = &result->prediction;
    int64_t differ, first;
    bool known = w->has_predicted && !memcmp(sum, &w->predicted_sum, sizeof *sum);
    ng_status status = NG_OK;
    if (w->unpredicted && !known) w->unpredicted = false;
    if (!known) {
        if (!w->predicted.data) status = make_tensor(w, w->kernel->out, w->problem.m, w->problem.n, &w->predicted, error);
        if (status) return status;
        status = ng_predict_gemm_cuda(sum, &w->sides[0].operand, &w->sides[1].operand, w->added.data ? &w->added : NULL, false, w->gpu->stream,
                                      &w->predicted, w->message, sizeof w->message);
        w->has_predicted = true;
        w->predicted_sum = *sum;
        w->unpredicted = status == NG_UNSUPPORTED;
        if (status && status != NG_UNSUPPORTED) return on_device(w, status, error);
    }
    if (w->unpredicted) return NG_OK;
    status = differing(w, &w->out, &w->predicted, &differ, &first, error);
    if (status) return status;
    prediction->present = true;
    prediction->elements = w->problem.m * w->problem.n;
    prediction->differ = differ;
    prediction->first[0] = first < 0 ? 0 : first / w->problem.n;
    prediction->first[1] = first < 0 ? 0 : first % w->problem.n;
    ng_describe_sum(sum, prediction->model, sizeof prediction->model);
    if (differ)
        ng_accuse(result, NG_MOVED, "%lld of %lld elements differ from the bits that the contract fixes (%s), the first OUT[%lld][%lld]", (long long)differ,
                  (long long)prediction->elements, prediction->model, (long long)prediction->first[0], (long long)prediction->first[1]);
    return NG_OK;
}

/* ---- the sample, on the CPU ---------------------------------------------------------------------------------------------*/
typedef struct sample {
    int64_t row, rows, column, columns;
    ng_operand operand[SIDES]; /* host, owned tensors */
    ng_tensor out, added;
} sample;

static void free_sample(sample *s) {
    for (int i = 0; i < SIDES; i++) {
        ng_tensor_free(&s->operand[i].codes);
        ng_tensor_free(&s->operand[i].scales);
    }
    ng_tensor_free(&s->out);
    ng_tensor_free(&s->added);
}

/* Rows of an operand with the scales of each of them: blocks of one row. */
static ng_status fetch_operand(whole *w, const half *d, int64_t row, int64_t rows, ng_operand *to, ng_error *error) {
    const ng_operand *from = &d->operand;
    int64_t down = ng_block_extent(from->blocks.rows, d->rows);
    ng_tensor all = {0};
    *to = (ng_operand){.blocks = {1, from->blocks.columns}, .tensor_scale = from->tensor_scale};
    ng_status status = fetch_rows(w, &from->codes, row, rows, &to->codes, error);
    if (status || !from->scales.data) return status;
    int64_t first = row / down, last = (row + rows - 1) / down;
    status = fetch_rows(w, &from->scales, first, last - first + 1, &all, error);
    if (!status) status = ng_tensor_create(all.format, rows, all.columns, &to->scales, error);
    for (int64_t i = 0; i < rows && !status; i++)
        for (int64_t j = 0; j < all.columns; j++)
            ng_set_code(&to->scales, i, j, ng_get_code(&all, (row + i) / down - first, j));
    ng_tensor_free(&all);
    return status;
}

static ng_status fetch_window(whole *w, const ng_tensor *from, const sample *s, ng_tensor *to, ng_error *error) {
    ng_tensor rows = {0};
    bool one = from->rows == 1 && w->problem.m > 1; /* a bias */
    ng_status status = fetch_rows(w, from, one ? 0 : s->row, one ? 1 : s->rows, &rows, error);
    if (!status) status = ng_tensor_create(from->format, s->rows, s->columns, to, error);
    for (int64_t i = 0; i < s->rows && !status; i++)
        for (int64_t j = 0; j < s->columns; j++)
            ng_set_code(to, i, j, ng_get_code(&rows, one ? 0 : i, s->column + j));
    ng_tensor_free(&rows);
    return status;
}

static ng_status take_sample(whole *w, int64_t row, int64_t rows, int64_t column, int64_t columns, sample *s, ng_error *error) {
    *s = (sample){.row = row, .rows = rows, .column = column, .columns = columns};
    ng_status status = fetch_operand(w, &w->sides[0], row, rows, &s->operand[0], error);
    if (!status) status = fetch_operand(w, &w->sides[1], column, columns, &s->operand[1], error);
    if (!status) status = fetch_window(w, &w->out, s, &s->out, error);
    if (!status && w->added.data) status = fetch_window(w, &w->added, s, &s->added, error);
    return status;
}

/* The CPU's bound and exact product of a sample, and its verdict. */
static ng_status judge_sample(whole *w, const sample *s, bool mpfr, ng_error_figures *figures, ng_error *error) {
    const ng_tensor *added = s->added.data ? &s->added : NULL;
    ng_exact_product exact = {0};
    ng_power power;
    int threads = w->judge->threads;
    double *bound = malloc(sizeof *bound * (size_t)(s->rows * s->columns + 1));
    ng_status status = bound ? NG_OK : NG_NO_MEMORY;
    if (!status) status = (mpfr ? ng_exact_gemm_mpfr : ng_exact_gemm)(&s->operand[0], &s->operand[1], added, threads, &exact);
    for (int64_t i = 0; i < s->rows * s->columns && !status; i++)
        exact.high[i] += 0.0;
    if (!status) status = ng_gemm_bound(&w->contract.sum, &s->operand[0], &s->operand[1], added, &exact, threads, bound, NULL);
    ng_truth truth = {exact.high, exact.low, bound, NULL};
    if (!status) status = ng_measure(&s->out, &w->contract.cast, &truth, threads, figures, &power);
    ng_exact_product_free(&exact);
    free(bound);
    return status ? ng_fail(error, status, "the reference of a sample failed") : NG_OK;
}

static ng_status settle(whole *w, const ng_witness *from, ng_result *result, ng_error *error) {
    ng_status status = NG_OK;
    int64_t settled = 0;
    for (int64_t i = 0; i < from->undecided && i < NG_UNDECIDED && !status; i++, settled++) {
        ng_error_figures figures;
        sample s;
        status = take_sample(w, from->places[i] / w->problem.n, 1, from->places[i] % w->problem.n, 1, &s, error);
        if (!status) status = judge_sample(w, &s, true, &figures, error);
        if (!status) ng_accuse_figures(result, "an element that MPFR decides: OUT", &figures);
        free_sample(&s);
    }
    result->error.by_tier[NG_TIER_CERTIFIED] -= settled;
    result->error.by_tier[NG_TIER_MPFR] += settled;
    if (from->undecided > settled)
        ng_accuse(result, NG_FAIL, "%lld elements are within the certified error of their bound: too many to decide one by one", (long long)from->undecided);
    return status;
}

static void differs(ng_result *result, const char *what) { ng_accuse(result, NG_FAIL, "on the sample that the CPU checks, %s", what); }

/* The device's data and quantization against the reference's, in the sampled rows. */
static ng_status check_operand(whole *w, const half *d, const ng_operand *taken, int64_t row, ng_result *result, ng_error *error) {
    ng_tensor source = {0}, here = {0};
    int64_t rows = taken->codes.rows;
    ng_status status = ng_tensor_create(d->source_format, rows, w->problem.k, &source, error);
    if (!status) status = ng_data_fill(d->spec, row, 0, &source, w->judge->threads, error);
    if (!status) status = fetch_rows(w, &d->source, row, rows, &here, error);
    if (!status && !ng_tensor_equal(&source, &here)) differs(result, "the device's data are not what the CPU makes");
    bool whole_rows = !d->plain && d->q.blocks.rows == 1 && d->q.cast.rounding == NG_RN_EVEN && !w->one->recipe;
    if (!status && whole_rows) {
        ng_quantized want = {0};
        double amax = 0;
        ng_quantize_inputs inputs = {.tensor_amax = d->q.tensor_scale ? &amax : NULL};
        if (d->q.tensor_scale) status = ng_source_amax(w->judge, d->spec, NG_BF16, &amax, error);
        if (!status) status = ng_quantize(&d->q, &source, &inputs, w->judge->threads, &want, error);
        if (!status && (!ng_tensor_equal(&want.operand.codes, &taken->codes) || !ng_tensor_equal(&want.operand.scales, &taken->scales)))
            differs(result, "an operand is not quantized as the reference does it");
        if (!status) ng_quantized_free(&want);
    }
    ng_tensor_free(&source);
    ng_tensor_free(&here);
    return status;
}

/* What two sums in binary64 of the sample's products may differ by: K + 4 roundings of at most the largest sum |a b|. */
static ng_status certified_error(whole *w, const sample *s, double *error_of_sums, ng_error *error) {
    int64_t k = w->problem.k;
    double *a = malloc(sizeof *a * (size_t)(2 * k + 1)), *b = a ? a + k : NULL, most = 0;
    if (!a) return ng_fail(error, NG_NO_MEMORY, "no memory for a sample");
    for (int64_t i = 0; i < s->rows; i++) {
        ng_operand_row(&s->operand[0], i, a);
        for (int64_t j = 0; j < s->columns; j++) {
            double sum = 0;
            ng_operand_row(&s->operand[1], j, b);
            for (int64_t q = 0; q < k; q++)
                sum += fabs(a[q] * b[q]);
            if (sum > most) most = sum;
        }
    }
    free(a);
    *error_of_sums = most * (double)(k + 4) * 0x1p-53 * (1 + 0x1p-20);
    return NG_OK;
}

/* The witness over the same window must come to the CPU's figures; MPFR to those of the exact product. */
static ng_status check_figures(whole *w, const sample *s, ng_result *result, ng_error *error) {
    ng_error_figures cpu, slow;
    ng_witness gpu;
    sample small;
    double apart = 0;
    ng_status status = judge_sample(w, s, false, &cpu, error);
    if (!status) status = certified_error(w, s, &apart, error);
    ng_operand a = w->sides[0].operand, b = w->sides[1].operand;
    ng_tensor out = {0}, added = {0}, scales[SIDES] = {{0}};
    ng_operand *side[SIDES] = {&a, &b};
    for (int i = 0; i < SIDES && !status; i++) { /* the sample's own tensors, on the device */
        status = upload(w, &s->operand[i].codes, &side[i]->codes, error);
        if (!status && s->operand[i].scales.data) status = upload(w, &s->operand[i].scales, &scales[i], error);
        side[i]->scales = scales[i];
        side[i]->blocks = s->operand[i].blocks;
    }
    if (!status) status = upload(w, &s->out, &out, error);
    if (!status && s->added.data) status = upload(w, &s->added, &added, error);
    if (status) return status;
    status = ng_witness_gemm_cuda(&w->contract.sum, &a, &b, s->added.data ? &added : NULL, &out, w->gpu->stream, &gpu, w->message, sizeof w->message);
    if (status) return on_device(w, status, error) ? error->status : NG_OK;
    bool same = fabs(gpu.max_abs - cpu.max_abs) <= apart && gpu.nonfinite == cpu.nonfinite_mismatch &&
                gpu.beyond == cpu.beyond_bound;
    if (!same) ng_accuse(result, NG_FAIL, "on the sample that the CPU checks, the GPU's witness finds a largest error of %g and %lld beyond, the CPU %g and %lld",
                         gpu.max_abs, (long long)gpu.beyond, cpu.max_abs, (long long)cpu.beyond_bound);
    status = take_sample(w, s->row, s->rows < MPFR_ROWS ? s->rows : MPFR_ROWS, s->column, s->columns < MPFR_COLUMNS ? s->columns : MPFR_COLUMNS, &small, error);
    if (!status) status = judge_sample(w, &small, true, &slow, error);
    if (!status) status = judge_sample(w, &small, false, &cpu, error);
    if (!status && !(fabs(slow.max_abs - cpu.max_abs) <= 0x1p-90 * cpu.max_abs)) differs(result, "the exact product is not MPFR's");
    free_sample(&small);
    return status;
}

static ng_status check_prediction(whole *w, const sample *s, ng_result *result, ng_error *error) {
    ng_tensor want = {0}, here = {0};
    if (!result->prediction.present) return NG_OK;
    ng_status status = ng_tensor_create(w->kernel->out, s->rows, s->columns, &want, error);
    if (!status) status = fetch_window(w, &w->predicted, s, &here, error);
    if (!status && !ng_predict_gemm(&w->contract.sum, &w->contract.cast, &s->operand[0], &s->operand[1], s->added.data ? &s->added : NULL,
                                    w->judge->threads, &want, NULL) && !ng_tensor_equal(&want, &here))
        differs(result, "the GPU's prediction is not the CPU's");
    ng_tensor_free(&want);
    ng_tensor_free(&here);
    return status;
}

static ng_status check_sample(whole *w, ng_result *result, ng_error *error) {
    uint64_t seed = w->one->data.seed;
    int64_t rows = w->problem.m < SAMPLE_ROWS ? w->problem.m : SAMPLE_ROWS, columns = w->problem.n < SAMPLE_COLUMNS ? w->problem.n : SAMPLE_COLUMNS;
    int64_t row = (int64_t)(ng_word(seed, 1) % (uint64_t)(w->problem.m - rows + 1)), column = (int64_t)(ng_word(seed, 2) % (uint64_t)(w->problem.n - columns + 1));
    sample s;
    ng_status status = take_sample(w, row, rows, column, columns, &s, error);
    if (!status) status = check_operand(w, &w->sides[0], &s.operand[0], row, result, error);
    if (!status) status = check_operand(w, &w->sides[1], &s.operand[1], column, result, error);
    if (!status) status = check_figures(w, &s, result, error);
    if (!status) status = check_prediction(w, &s, result, error);
    free_sample(&s);
    return status;
}

/* ---- speed --------------------------------------------------------------------------------------------------------*/
typedef struct clocked {
    const ng_kernel *kernels[SIDES + 1];
    ng_launch launches[SETS][SIDES + 1];
    int count, from, to; /* steps that run */
} clocked;

static ng_status enqueue(void *context, int set) {
    clocked *c = context;
    ng_status status = NG_OK;
    for (int i = c->from; i < c->to && !status; i++)
        status = c->kernels[i]->launch(c->kernels[i], &c->launches[set][i]);
    return status;
}

static size_t launch_bytes(const ng_launch *launch) {
    size_t bytes = 0;
    for (int role = 0; role < NG_ROLES; role++)
        if (launch->tensors[role].data) bytes += bytes_of(&launch->tensors[role]);
    return bytes;
}

static ng_status copy_launch(whole *w, ng_launch *launch, ng_error *error) {
    ng_status status = NG_OK;
    for (int role = 0; role < NG_ROLES && !status; role++) {
        ng_tensor *t = &launch->tensors[role], from = *t;
        if (!t->data) continue;
        status = make_tensor(w, from.format, from.rows, from.columns, t, error);
        if (!status) status = ng_gpu_copy(w->gpu, t->data, from.data, bytes_of(&from), NG_ON_DEVICE, error);
    }
    return status;
}

static ng_status clock_steps(whole *w, clocked *c, const ng_gpu_rotation *rotation, double limit_s, ng_timing *timing, char *method, size_t bytes, ng_error *error) {
    return ng_gpu_time(w->gpu, enqueue, c, rotation, limit_s, timing, method, bytes, error);
}

static ng_status time_product(whole *w, ng_result *result, ng_error *error) {
    static const char *const names[SIDES] = {"quantize a", "quantize b"};
    ng_judge *judge = w->judge;
    ng_speed *speed = &result->speed;
    ng_timing timing;
    double limit_s = judge->settings.time_limit_s > 0 ? judge->settings.time_limit_s : w->one->level == NG_NIGHTLY ? 0.1 : 0.05;
    clocked *c = calloc(1, sizeof *c);
    size_t bytes = 0;
    ng_status status = NG_OK;
    if (!judge->settings.timing || !c) goto done;
    if (!judge->nvml.library) ng_nvml_open(judge->gpu.properties.pci, &judge->nvml);
    for (int s = 0; s < SIDES && w->one->mode == NG_AUTOCAST && !status; s++) {
        half *d = &w->sides[s];
        if (d->plain) continue;
        if (d->timed != d->quantizer) status = quantizer_launch(w, d, d->timed, &d->timed_launch, error);
        c->launches[0][c->count] = d->timed != d->quantizer ? d->timed_launch : d->launch;
        c->kernels[c->count] = d->timed;
        snprintf(speed->parts[c->count++].name, sizeof speed->parts[0].name, "%s", names[s]);
    }
    c->launches[0][c->count] = w->launch;
    c->kernels[c->count] = w->kernel;
    snprintf(speed->parts[c->count++].name, sizeof speed->parts[0].name, "gemm");
    for (int i = 0; i < c->count; i++)
        bytes += launch_bytes(&c->launches[0][i]);
    size_t wanted = 3 * w->gpu->properties.l2;
    ng_gpu_rotation rotation = {.sets = judge->settings.warm_cache || bytes >= wanted ? 1 : (int)(wanted / (bytes + 1)) + 1, .enough = true};
    if (rotation.sets > SETS || w->made_count + rotation.sets * c->count * 4 > MADE) rotation.sets = 1;
    for (int set = 1; set < rotation.sets && !status; set++)
        for (int i = 0; i < c->count && !status; i++) {
            c->launches[set][i] = c->launches[0][i];
            status = copy_launch(w, &c->launches[set][i], error);
        }
    for (c->from = 0; c->from < c->count && c->count > 1 && !status; c->from++) {
        c->to = c->from + 1;
        status = clock_steps(w, c, &rotation, limit_s / 3, &timing, speed->method, sizeof speed->method, error);
        speed->parts[c->from].median_s = timing.median_s;
    }
    speed->part_count = c->count > 1 ? c->count : 0;
    c->from = 0;
    c->to = c->count;
    speed->sm_mhz_before = ng_nvml_sm_mhz(&judge->nvml);
    unsigned long long throttle = ng_nvml_throttle(&judge->nvml);
    if (!status) status = clock_steps(w, c, &rotation, limit_s, &timing, speed->method, sizeof speed->method, error);
    speed->sm_mhz_after = ng_nvml_sm_mhz(&judge->nvml);
    if (judge->nvml.throttle) ng_throttle_text(throttle | ng_nvml_throttle(&judge->nvml), speed->throttle, sizeof speed->throttle);
    if (status) goto done;
    speed->present = true;
    speed->median_s = timing.median_s;
    speed->q1_s = timing.q1_s;
    speed->q3_s = timing.q3_s;
    speed->samples = timing.samples;
    speed->flop = 2.0 * (double)w->problem.m * (double)w->problem.n * (double)w->problem.k;
    speed->bytes = (double)bytes;
    speed->rate = speed->flop / timing.median_s;
    speed->roofline = NAN;
done:
    free(c);
    return status;
}

/* ---- variants -----------------------------------------------------------------------------------------------------*/
static ng_status take_variant(whole *w, int variant) {
    w->contract = w->kernel->contract;
    w->launch.variant = variant;
    w->algorithm[0] = 0;
    if (!w->kernel->describe) return variant ? NG_UNSUPPORTED : NG_OK;
    return w->kernel->describe(w->kernel, &w->problem, &w->gpu->device, variant, &w->contract, w->algorithm, sizeof w->algorithm);
}

static void publish_variant(const whole *w, const ng_result *from, ng_result *result) {
    if (!w->kernel->describe || result->variant_count >= NG_VARIANTS) return;
    ng_variant_result *v = &result->variants[result->variant_count++];
    snprintf(v->algorithm, sizeof v->algorithm, "%s", w->algorithm);
    memcpy(v->digest, from->digest, sizeof v->digest);
    v->differ = from->prediction.present ? from->prediction.differ : -1;
    v->bound_ratio = from->error.bound_ratio;
    v->median_s = from->speed.present ? from->speed.median_s : NAN;
}

/* Bits that the first one has need no second verdict. */
static ng_status judge_variant(whole *w, int variant, ng_result *result, ng_error *error) {
    ng_result own = {.verdict = NG_PASS};
    ng_power power;
    int64_t differ = 1, place;
    ng_status status = take_variant(w, variant);
    if (status) return status == NG_UNSUPPORTED ? NG_OK : status;
    bool launched = launch_product(w, 0, &own, &status, error);
    if (launched) status = differing(w, &w->out, &w->first, &differ, &place, error);
    if (launched && !status && !differ) {
        own.error = result->error;
        memcpy(own.digest, result->digest, sizeof own.digest);
    } else if (launched && !status) {
        status = measure(w, &power, &own, error);
    }
    if (launched && !status) status = predict(w, &own, error);
    if (launched && !status && differ && !own.prediction.present) ng_accuse_powerless(&own, &own.error, &power);
    if (launched && !status) status = time_product(w, &own, error);
    if (!status && own.verdict != NG_PASS) ng_accuse(result, own.verdict, "variant %d (%s): %.300s", variant, w->algorithm, own.reason);
    if (!status) publish_variant(w, &own, result);
    return status;
}

static ng_status judge_variants(whole *w, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = w->kernel;
    bool wanted = w->judge->settings.variants || (w->one->level == NG_NIGHTLY && !*w->one->model);
    ng_status status = NG_OK;
    publish_variant(w, result, result);
    if (!kernel->describe || !kernel->variants || !wanted) return NG_OK;
    int count = kernel->variants(kernel, &w->problem, &w->gpu->device);
    for (int v = 1; v < count && v < NG_VARIANTS && !status; v++)
        status = judge_variant(w, v, result, error);
    return status;
}

/* ---- a case ---------------------------------------------------------------------------------------------------------*/
static ng_status digest(whole *w, ng_result *result, ng_error *error) {
    ng_tensor here = {0};
    const ng_tensor *all[] = {&here};
    ng_status status = fetch_rows(w, &w->out, 0, w->out.rows, &here, error);
    if (!status) ng_digest_tensors(all, 1, result->digest);
    ng_tensor_free(&here);
    return status;
}

/* What another mode of the same product found, if it gave the same bits. */
typedef struct found { ng_result result; } found;

static ng_status verify(whole *w, ng_result *result, ng_error *error) {
    ng_cache *cache = &w->judge->cache;
    ng_key key;
    ng_key_set(&key, "whole %s %s %llu %llu %lld %lld %lld", w->kernel->name, w->one->quantizers[0] ? w->one->quantizers[0]->name : "",
               (unsigned long long)w->one->data.seed, (unsigned long long)w->one->data.distribution, (long long)w->problem.m, (long long)w->problem.n, (long long)w->problem.k);
    found *known = ng_cache_find(cache, &key);
    if (known && !strcmp(known->result.digest, result->digest) && known->result.verdict == NG_PASS) {
        result->error = known->result.error;
        result->recipe_error = known->result.recipe_error;
        result->prediction = known->result.prediction;
        return NG_OK;
    }
    ng_power power;
    ng_status status = measure(w, &power, result, error);
    if (!status) status = predict(w, result, error);
    if (!status && !result->prediction.present) ng_accuse_powerless(result, &result->error, &power);
    if (!status) status = check_sample(w, result, error);
    if (status || known || !(known = calloc(1, sizeof *known))) return status;
    known->result = *result;
    return ng_cache_put(cache, &key, known, free, sizeof *known, error);
}

static ng_status judge_whole(whole *w, ng_result *result, ng_error *error) {
    const char *why = w->kernel->supports ? w->kernel->supports(w->kernel, &w->problem, &w->gpu->device) : NULL;
    int64_t differ, place;
    if (why) {
        result->verdict = NG_SKIP;
        snprintf(result->reason, sizeof result->reason, "%.511s", why);
        return NG_OK;
    }
    ng_status status = take_variant(w, 0);
    for (int s = 0; s < SIDES && !status && result->verdict == NG_PASS; s++)
        status = make_side(w, s, result, error);
    if (status || result->verdict != NG_PASS) return status;
    status = make_added(w, error);
    if (!status) status = make_outputs(w, error);
    if (!status) status = take_variant(w, 0);
    if (status || !launch_product(w, 0, result, &status, error)) return status;
    status = ng_gpu_copy(w->gpu, w->first.data, w->out.data, w->out_bytes, NG_ON_DEVICE, error);
    if (status || !launch_product(w, 1, result, &status, error)) return status;
    status = differing(w, &w->out, &w->first, &differ, &place, error);
    if (!status && differ) {
        result->nondeterministic = true;
        ng_accuse(result, NG_FAIL, "a second launch gave other bits, or left elements unwritten: %lld, the first OUT[%lld][%lld]", (long long)differ,
                  (long long)(place / w->problem.n), (long long)(place % w->problem.n));
    }
    if (!status) status = digest(w, result, error);
    double start = ng_now_s();
    if (!status) status = verify(w, result, error);
    result->verify_s = ng_now_s() - start;
    if (!status) status = time_product(w, result, error);
    snprintf(result->speed.algorithm, sizeof result->speed.algorithm, "%s", w->algorithm);
    return status ? status : judge_variants(w, result, error);
}

static const double whole_products = 0x1p28; /* multiply-adds; smaller ones are quick on the CPU */

bool ng_judges_whole(ng_judge *judge, const ng_case *one) {
    const ng_problem *p = &one->problem;
    ng_distribution d = one->data.distribution, e = one->data_b.distribution;
    if (one->kernel->backend != NG_BACKEND_CUDA || judge->settings.verify_on_cpu || one->sample.rows || !ng_judge_has_gpu(judge)) return false;
    if (judge->gpu.runtime != ng_cuda_runtime() || judge->settings.save_always || d == NG_FILE_TENSOR || e == NG_FILE_TENSOR) return false;
    bool made = d != NG_TIES && d != NG_SUBNORMAL && d != NG_BLOCK_EDGES && d != NG_NEAR_OVERFLOW && d != NG_ILL_CONDITIONED;
    return made && (double)p->m * (double)p->n * (double)p->k > whole_products;
}

ng_status ng_judge_whole(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    whole *w = calloc(1, sizeof *w);
    if (!w) return ng_fail(error, NG_NO_MEMORY, "no memory for a product");
    w->judge = judge;
    w->gpu = &judge->gpu;
    w->one = one;
    w->kernel = one->kernel;
    w->problem = one->problem;
    ng_status status = judge_whole(w, result, error);
    if (!w->gpu->lost) w->gpu->runtime->synchronize();
    for (int i = 0; i < w->made_count && !w->gpu->lost; i++)
        ng_gpu_free(w->gpu, w->made[i]);
    free(w);
    return status;
}
