/* Products of full size on a GPU: data made there, operands quantized by the catalogue's own kernels, every element verified
 * against the certified product (reference/exact_cuda.h) and predicted bit for bit (reference/predict_cuda.h); and, in each
 * run, what the device says of a sample held to the CPU's reference: data, quantization, exact product, bound, prediction.
 * OUT lies between guard zones and is poisoned before each launch. */
#include "harness/judge_whole.h"

#include "harness/digest.h"
#include "reference/predict_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------------------------------*/
ng_status ng_whole_make(ng_whole *w, size_t bytes, void **made, ng_error *error) {
    if (w->made_count == NG_WHOLE_BUFFERS) return ng_fail(error, NG_INTERNAL, "too many buffers for one product");
    ng_status status = ng_gpu_malloc(w->gpu, bytes, made, error);
    if (!status) w->made[w->made_count++] = *made;
    return status;
}

ng_status ng_whole_tensor(ng_whole *w, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *t, ng_error *error) {
    *t = (ng_tensor){NULL, format, NG_GPU, rows, columns, ng_row_bytes(format, columns)};
    return ng_whole_make(w, (size_t)(t->rows * t->row_bytes), &t->data, error);
}

size_t ng_whole_bytes(const ng_tensor *t) { return (size_t)(t->rows * t->row_bytes); }

ng_status ng_whole_upload(ng_whole *w, const ng_tensor *from, ng_tensor *to, ng_error *error) {
    ng_status status = ng_whole_tensor(w, from->format, from->rows, from->columns, to, error);
    return status ? status : ng_gpu_copy(w->gpu, to->data, from->data, ng_whole_bytes(to), NG_TO_DEVICE, error);
}

/* Rows [row, row + rows) of a device tensor in a dense host tensor, which the caller frees. */
ng_status ng_whole_fetch_rows(ng_whole *w, const ng_tensor *from, int64_t row, int64_t rows, ng_tensor *to, ng_error *error) {
    ng_status status = ng_tensor_create(from->format, rows, from->columns, to, error);
    if (status) return status;
    return ng_gpu_copy(w->gpu, to->data, (const char *)from->data + row * from->row_bytes, (size_t)(rows * from->row_bytes), NG_FROM_DEVICE, error);
}

/* What the reference's device code said, as the case's own error. */
ng_status ng_whole_on_device(ng_whole *w, ng_status status, ng_error *error) {
    if (!status) return NG_OK;
    if (status == NG_NO_MEMORY) w->gpu->short_of_memory = true;
    w->gpu->runtime->last_error();
    return ng_fail(error, status == NG_UNSUPPORTED ? NG_INTERNAL : status, "%s",
                   *w->message ? w->message : "the GPU's verification does not know this product");
}

/* ---- launches -----------------------------------------------------------------------------------------------------*/
ng_status ng_whole_launch_of(ng_whole *w, const ng_kernel *kernel, const ng_problem *problem, ng_launch *launch, ng_error *error) {
    *launch = (ng_launch){.problem = problem, .device = &w->gpu->device, .stream = w->gpu->stream, .message = w->message, .message_bytes = sizeof w->message};
    launch->workspace_bytes = kernel->workspace ? kernel->workspace(kernel, problem, &w->gpu->device) : 0;
    return launch->workspace_bytes ? ng_whole_make(w, launch->workspace_bytes, &launch->workspace, error) : NG_OK;
}

/* False: *status says that the device failed, or the result is accused. */
bool ng_whole_run(ng_whole *w, const ng_kernel *kernel, const ng_launch *launch, ng_result *result, ng_status *status, ng_error *error) {
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

/* ---- outputs ------------------------------------------------------------------------------------------------------*/
static ng_status make_outputs(ng_whole *w, ng_error *error) {
    void *base = NULL;
    w->out = (ng_tensor){NULL, w->kernel->out, NG_GPU, w->problem.m, w->problem.n, ng_row_bytes(w->kernel->out, w->problem.n)};
    w->out_bytes = ng_whole_bytes(&w->out);
    ng_status status = ng_whole_make(w, w->out_bytes + 2 * NG_GUARD_BYTES, &base, error);
    w->base = base;
    w->out.data = w->base + NG_GUARD_BYTES;
    if (!status) status = ng_whole_tensor(w, w->kernel->out, w->problem.m, w->problem.n, &w->first, error);
    if (!status) status = ng_whole_launch_of(w, w->kernel, &w->problem, &w->launch, error);
    static const ng_role roles[NG_WHOLE_SIDES][3] = {{NG_A, NG_A_SCALES, NG_A_TENSOR_SCALE}, {NG_B, NG_B_SCALES, NG_B_TENSOR_SCALE}};
    for (int s = 0; s < NG_WHOLE_SIDES; s++) {
        w->launch.tensors[roles[s][0]] = w->sides[s].codes;
        w->launch.tensors[roles[s][1]] = w->sides[s].scales;
        w->launch.tensors[roles[s][2]] = w->sides[s].tensor_scale;
    }
    w->launch.tensors[NG_BIAS] = w->bias;
    w->launch.tensors[NG_OUT] = w->out;
    return status;
}

/* ---- one launch of the product --------------------------------------------------------------------------------------*/
static ng_status prepare(ng_whole *w, int poison, ng_error *error) {
    const ng_runtime *r = w->gpu->runtime;
    int code = r->set(w->base, 0xA5, NG_GUARD_BYTES, w->gpu->stream);
    if (!code) code = r->set(w->base + NG_GUARD_BYTES + w->out_bytes, 0xA5, NG_GUARD_BYTES, w->gpu->stream);
    if (!code && w->held.data) code = r->copy(w->out.data, w->held.data, w->out_bytes, NG_ON_DEVICE, w->gpu->stream);
    else if (!code) code = r->set(w->out.data, poison ? 0x55 : 0xFF, w->out_bytes, w->gpu->stream);
    return ng_gpu_check(w->gpu, code, "preparing the output", error);
}

static ng_status guards_intact(ng_whole *w, bool *intact, ng_error *error) {
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

static bool launch_product(ng_whole *w, int poison, ng_result *result, ng_status *status, ng_error *error) {
    bool intact;
    *status = prepare(w, poison, error);
    if (*status || !ng_whole_run(w, w->kernel, &w->launch, result, status, error)) return false;
    *status = guards_intact(w, &intact, error);
    if (!*status && !intact) ng_accuse(result, NG_FAIL, "the kernel wrote outside OUT");
    return !*status && intact;
}

static ng_status differing(ng_whole *w, const ng_tensor *x, const ng_tensor *y, int64_t *differ, int64_t *place, ng_error *error) {
    return ng_whole_on_device(w, ng_compare_bits_cuda(x, y, w->gpu->stream, differ, place, w->message, sizeof w->message), error);
}

/* ---- figures ------------------------------------------------------------------------------------------------------*/
static void publish(const ng_whole *w, const ng_witness *from, bool bounded, ng_error_figures *figures, ng_power *power) {
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

static ng_status measure(ng_whole *w, ng_power *power, ng_result *result, ng_error *error) {
    ng_operand before[NG_WHOLE_SIDES] = {{.codes = w->sides[0].source, .tensor_scale = 1}, {.codes = w->sides[1].source, .tensor_scale = 1}};
    const ng_tensor *added = w->added.data ? &w->added : NULL;
    ng_witness kernel, recipe;
    ng_status status = ng_witness_gemm_cuda(&w->contract.sum, &w->sides[0].operand, &w->sides[1].operand, added, &w->out, w->gpu->stream, &kernel,
                                            w->message, sizeof w->message);
    if (!status) status = ng_witness_gemm_cuda(NULL, &before[0], &before[1], added, &w->out, w->gpu->stream, &recipe, w->message, sizeof w->message);
    if (status) return ng_whole_on_device(w, status, error);
    publish(w, &kernel, true, &result->error, power);
    publish(w, &recipe, false, &result->recipe_error, NULL);
    ng_accuse_figures(result, "OUT", &result->error);
    return kernel.undecided ? ng_whole_settle(w, &kernel, result, error) : NG_OK;
}

static ng_status predict(ng_whole *w, ng_result *result, ng_error *error) {
    const ng_accumulation *sum = &w->contract.sum;
    ng_prediction *prediction = &result->prediction;
    int64_t differ, first;
    bool known = w->has_predicted && !memcmp(sum, &w->predicted_sum, sizeof *sum);
    ng_status status = NG_OK;
    if (!known) {
        if (!w->predicted.data) status = ng_whole_tensor(w, w->kernel->out, w->problem.m, w->problem.n, &w->predicted, error);
        if (status) return status;
        status = ng_predict_gemm_cuda(sum, &w->sides[0].operand, &w->sides[1].operand, w->added.data ? &w->added : NULL, false, w->gpu->stream,
                                      &w->predicted, w->message, sizeof w->message);
        w->has_predicted = true;
        w->predicted_sum = *sum;
        w->unpredicted = status == NG_UNSUPPORTED;
        if (status && status != NG_UNSUPPORTED) return ng_whole_on_device(w, status, error);
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

/* ---- variants -----------------------------------------------------------------------------------------------------*/
static ng_status take_variant(ng_whole *w, int variant) {
    w->launch.variant = variant;
    return ng_take_variant(w->kernel, &w->problem, &w->gpu->device, variant, &w->contract, w->algorithm);
}

/* Bits that the first one has need no second verdict. */
static ng_status judge_variant(void *context, int variant, const ng_result *first, ng_result *own, ng_error *error) {
    ng_whole *w = context;
    int64_t differ = 1, place;
    ng_power power;
    ng_status status = take_variant(w, variant);
    if (status || !launch_product(w, 0, own, &status, error)) return status;
    status = differing(w, &w->out, &w->first, &differ, &place, error);
    if (!status && differ) status = measure(w, &power, own, error);
    if (!status && !differ) {
        own->error = first->error;
        memcpy(own->digest, first->digest, sizeof own->digest);
    }
    if (!status) status = predict(w, own, error);
    if (!status && differ && !own->prediction.present) ng_accuse_powerless(own, &own->error, &power);
    return status ? status : ng_whole_time(w, own, error);
}

/* ---- a case ---------------------------------------------------------------------------------------------------------*/
static ng_status digest(ng_whole *w, ng_result *result, ng_error *error) {
    ng_tensor here = {0};
    const ng_tensor *all[] = {&here};
    ng_status status = ng_whole_fetch_rows(w, &w->out, 0, w->out.rows, &here, error);
    if (!status) ng_digest_tensors(all, 1, result->digest);
    ng_tensor_free(&here);
    return status;
}

/* What another mode of the same product found, if it gave the same bits. */
typedef struct found { ng_result result; } found;

static ng_status verify(ng_whole *w, ng_result *result, ng_error *error) {
    ng_cache *cache = &w->judge->cache;
    ng_key key;
    ng_key_set(&key, "whole %s %s %s %llu %llu %lld %lld %lld", w->kernel->name, w->one->quantizers[0] ? w->one->quantizers[0]->name : "",
               w->one->quantizers[1] ? w->one->quantizers[1]->name : "",
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
    if (!status) status = ng_whole_check_sample(w, result, error);
    if (status || known || !(known = calloc(1, sizeof *known))) return status;
    known->result = *result;
    return ng_cache_put(cache, &key, known, free, sizeof *known, error);
}

static ng_status judge_whole(ng_whole *w, ng_result *result, ng_error *error) {
    const char *why = w->kernel->supports ? w->kernel->supports(w->kernel, &w->problem, &w->gpu->device) : NULL;
    int64_t differ, place;
    if (why) {
        result->verdict = NG_SKIP;
        snprintf(result->reason, sizeof result->reason, "%.511s", why);
        return NG_OK;
    }
    ng_status status = take_variant(w, 0);
    for (int s = 0; s < NG_WHOLE_SIDES && !status && result->verdict == NG_PASS; s++)
        status = ng_whole_side(w, s, result, error);
    if (status || result->verdict != NG_PASS) return status;
    status = ng_whole_added(w, error);
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
    if (!status) status = ng_whole_time(w, result, error);
    snprintf(result->speed.algorithm, sizeof result->speed.algorithm, "%s", w->algorithm);
    if (status) return status;
    return ng_each_variant(w->judge, w->one, &w->problem, &w->gpu->device, w->algorithm, judge_variant, w, result, error);
}

static const double whole_products = 0x1p28; /* multiply-adds; smaller ones are quick on the CPU */

bool ng_judges_whole(ng_judge *judge, const ng_case *one) {
    const ng_problem *p = &one->problem;
    if (one->kernel->backend != NG_BACKEND_CUDA || judge->settings.verify_on_cpu || one->sample.rows || !ng_judge_has_gpu(judge)) return false;
    bool made = ng_data_is_binary32(&one->data) && ng_data_is_binary32(&one->data_b);
    return made && judge->gpu.runtime == ng_cuda_runtime() && (double)p->m * (double)p->n * (double)p->k > whole_products;
}

ng_status ng_judge_whole(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    ng_whole *w = calloc(1, sizeof *w);
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
