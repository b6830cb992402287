/* Operands of a product of full size: data made on the device, quantized by the catalogue's own kernels. */
#include "harness/judge_whole.h"

#include "harness/data_cuda.h"
#include "reference/scale_layout.h"

#include <stdio.h>

static const ng_kernel *find_quantizer(const ng_whole *w, const ng_quantization *q, ng_scale_layout layout) {
    ng_quantization wanted = *q;
    wanted.layout = layout;
    return ng_find_quantizer(&w->judge->catalogue, NG_BACKEND_CUDA, NG_BF16, &wanted);
}

static ng_status fill(ng_whole *w, const ng_data_spec *spec, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *t, ng_error *error) {
    ng_status status = ng_whole_tensor(w, format, rows, columns, t, error);
    return status ? status : ng_data_fill_cuda(spec, 0, 0, t, w->gpu->stream, error);
}

/* The same tensor stored the other way round. */
static ng_data_spec other_way(const ng_data_spec *spec) {
    ng_data_spec turned = *spec;
    turned.transposed = !spec->transposed;
    return turned;
}

static ng_status plain_side(ng_whole *w, ng_whole_half *d, ng_format_id in, bool transposed, ng_error *error) {
    ng_data_spec turned = other_way(d->spec);
    ng_status status = fill(w, d->spec, d->source_format, d->rows, w->problem.k, &d->source, error);
    if (!status && in == d->source_format) d->operand.codes = d->source;
    else if (!status) status = fill(w, d->spec, in, d->rows, w->problem.k, &d->operand.codes, error);
    d->codes = d->operand.codes;
    if (!status && transposed) status = fill(w, &turned, in, w->problem.k, d->rows, &d->codes, error);
    return status;
}

ng_status ng_whole_quantizer_launch(ng_whole *w, ng_whole_half *d, const ng_kernel *kernel, ng_launch *launch, ng_error *error) {
    const ng_quantization *q = &kernel->contract.quantization;
    ng_role codes = d->turned ? NG_OUT_T : NG_OUT, scales = d->turned ? NG_OUT_T_SCALES : NG_OUT_SCALES;
    int64_t block_rows = ng_block_count(q->blocks.rows, d->rows), block_columns = ng_block_count(q->blocks.columns, w->problem.k), rows, columns;
    ng_status status = ng_whole_launch_of(w, kernel, &d->problem, launch, error);
    launch->tensors[NG_IN] = d->stored;
    if (!status) status = ng_whole_tensor(w, q->element, d->rows, w->problem.k, &launch->tensors[codes], error);
    ng_layout_extents(q->layout, block_rows, block_columns, &rows, &columns);
    if (!status) status = ng_whole_tensor(w, q->scale, rows, columns, &launch->tensors[scales], error);
    if (!status && q->tensor_scale) status = ng_whole_tensor(w, NG_FP32, 1, 1, &launch->tensors[NG_OUT_TENSOR_SCALE], error);
    if (!status && q->tensor_scale && d->turned && kernel->contract.hadamard.size)
        status = ng_whole_tensor(w, NG_FP32, 1, 1, &launch->tensors[NG_OUT_T_TENSOR_SCALE], error);
    return status;
}

/* The scales as the product wants them: repeated where it has smaller blocks, arranged. */
static ng_status arrange(ng_whole *w, ng_whole_half *d, const ng_quantization *wanted, ng_error *error) {
    const ng_tensor *plain = &d->operand.scales;
    int64_t block_rows = ng_block_count(wanted->blocks.rows, d->rows), block_columns = ng_block_count(wanted->blocks.columns, w->problem.k), rows, columns;
    d->scales = *plain;
    if (wanted->layout == NG_LAYOUT_PLAIN && block_rows == plain->rows && block_columns == plain->columns) return NG_OK;
    ng_tensor here = {0}, repeated = {0}, arranged = {0};
    ng_layout_extents(wanted->layout, block_rows, block_columns, &rows, &columns);
    ng_status status = ng_whole_fetch_rows(w, plain, 0, plain->rows, &here, error);
    if (!status) status = ng_tensor_create(plain->format, block_rows, block_columns, &repeated, error);
    if (!status) status = ng_tensor_create(plain->format, rows, columns, &arranged, error);
    if (!status) {
        int64_t down = ng_block_extent(wanted->blocks.rows, d->rows), across = ng_block_extent(wanted->blocks.columns, w->problem.k);
        int64_t from_down = ng_block_extent(d->q.blocks.rows, d->rows), from_across = ng_block_extent(d->q.blocks.columns, w->problem.k);
        for (int64_t i = 0; i < block_rows; i++)
            for (int64_t j = 0; j < block_columns; j++)
                ng_set_code(&repeated, i, j, ng_get_code(&here, i * down / from_down, j * across / from_across));
        ng_layout_arrange(wanted->layout, &repeated, &arranged);
        status = ng_whole_upload(w, &arranged, &d->scales, error);
    }
    ng_tensor_free(&here);
    ng_tensor_free(&repeated);
    ng_tensor_free(&arranged);
    return status;
}

/* Delayed scaling: the scale that current scaling gives the same tensor of an earlier step. */
static ng_status earlier_scale(ng_whole *w, ng_whole_half *d, ng_tensor *given, ng_result *result, ng_error *error) {
    ng_quantization current = d->q;
    ng_data_spec earlier = *d->spec;
    ng_whole_half before = {.rows = d->rows, .problem = d->problem};
    float decode = 1, encode;
    current.rule = NG_SCALE_MAX_OVER_AMAX;
    earlier.seed ^= 0x9E3779B97F4A7C15u;
    before.problem.m = d->rows;
    before.problem.n = w->problem.k;
    const ng_kernel *kernel = find_quantizer(w, &current, NG_LAYOUT_PLAIN);
    if (!kernel) return ng_fail(error, NG_UNSUPPORTED, "no CUDA kernel finds the scale of an earlier step");
    ng_status status = fill(w, &earlier, NG_BF16, d->rows, w->problem.k, &before.stored, error);
    if (!status) status = ng_whole_quantizer_launch(w, &before, kernel, &before.launch, error);
    if (status || !ng_whole_run(w, kernel, &before.launch, result, &status, error)) return status;
    status = ng_gpu_copy(w->gpu, &decode, before.launch.tensors[NG_OUT_SCALES].data, sizeof decode, NG_FROM_DEVICE, error);
    encode = 1 / decode;
    ng_tensor one = {&encode, NG_FP32, NG_HOST, 1, 1, sizeof encode};
    return status ? status : ng_whole_upload(w, &one, given, error);
}

static ng_status quantized_side(ng_whole *w, ng_whole_half *d, const ng_quantization *wanted, ng_result *result, ng_error *error) {
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
    if (!status) status = ng_whole_quantizer_launch(w, d, kernel, &d->launch, error);
    if (!status && d->q.rule == NG_SCALE_GIVEN) status = earlier_scale(w, d, &d->launch.tensors[NG_SCALE_GIVEN_IN], result, error);
    if (status || !ng_whole_run(w, kernel, &d->launch, result, &status, error)) return status;
    const ng_tensor *t = d->launch.tensors;
    bool own = d->turned && t[NG_OUT_T_TENSOR_SCALE].data;
    d->codes = d->operand.codes = t[d->turned ? NG_OUT_T : NG_OUT];
    d->operand.scales = t[d->turned ? NG_OUT_T_SCALES : NG_OUT_SCALES];
    d->operand.blocks = d->q.blocks;
    d->tensor_scale = t[own ? NG_OUT_T_TENSOR_SCALE : NG_OUT_TENSOR_SCALE];
    if (d->q.tensor_scale) status = ng_gpu_copy(w->gpu, &d->operand.tensor_scale, d->tensor_scale.data, sizeof(float), NG_FROM_DEVICE, error);
    return status ? status : arrange(w, d, wanted, error);
}

ng_status ng_whole_side(ng_whole *w, int s, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = w->kernel;
    const ng_quantization *wanted = s ? &kernel->contract.b : &kernel->contract.a;
    ng_format_id in = s && kernel->in_b < NG_FORMATS ? kernel->in_b : kernel->in;
    ng_whole_half *d = &w->sides[s];
    d->spec = s ? &w->one->data_b : &w->one->data;
    d->rows = s ? w->problem.n : w->problem.m;
    d->q = w->one->quantizers[s] ? w->one->quantizers[s]->contract.quantization : *wanted;
    d->plain = ng_is_plain(&d->q);
    if (d->plain) d->q.element = in;
    d->source_format = ng_source_format(&d->q);
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
ng_status ng_whole_added(ng_whole *w, ng_error *error) {
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
    if (!status) status = ng_whole_upload(w, &here, &w->bias, error);
    if (!status) status = ng_whole_upload(w, &wide, &w->added, error);
    ng_tensor_free(&here);
    ng_tensor_free(&wide);
    return status;
}

