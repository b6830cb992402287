/* One kernel on one set of tensors: launched, watched, repeated, timed. */
#include "harness/judge_internal.h"

#include "harness/digest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ng_role_names[NG_ROLES] = {
    [NG_IN] = "IN", [NG_IN_SCALES] = "IN_SCALES", [NG_IN_TENSOR_SCALE] = "IN_TENSOR_SCALE",
    [NG_OUT] = "OUT", [NG_OUT_SCALES] = "OUT_SCALES", [NG_OUT_TENSOR_SCALE] = "OUT_TENSOR_SCALE",
    [NG_OUT_T] = "OUT_T", [NG_OUT_T_SCALES] = "OUT_T_SCALES",
    [NG_A] = "A", [NG_A_SCALES] = "A_SCALES", [NG_A_TENSOR_SCALE] = "A_TENSOR_SCALE",
    [NG_B] = "B", [NG_B_SCALES] = "B_SCALES", [NG_B_TENSOR_SCALE] = "B_TENSOR_SCALE",
    [NG_BIAS] = "BIAS", [NG_RANDOM_WORDS] = "RANDOM_WORDS", [NG_SCALE_GIVEN_IN] = "SCALE_GIVEN_IN",
    [NG_PARAMETER] = "PARAMETER", [NG_PARAMETER_2] = "PARAMETER_2", [NG_GRADIENT] = "GRADIENT",
    [NG_MOMENT_1] = "MOMENT_1", [NG_MOMENT_2] = "MOMENT_2", [NG_MEAN] = "MEAN", [NG_RSTD] = "RSTD",
    [NG_OUT_2] = "OUT_2", [NG_OUT_3] = "OUT_3", [NG_IN_2] = "IN_2",
    [NG_FOUND_INF] = "FOUND_INF", [NG_LOSS_SCALE] = "LOSS_SCALE", [NG_GROWTH_COUNT] = "GROWTH_COUNT", [NG_STEP_COUNT] = "STEP_COUNT",
    [NG_MOMENT_1_SCALES] = "MOMENT_1_SCALES", [NG_MOMENT_2_SCALES] = "MOMENT_2_SCALES",
    [NG_LABELS] = "LABELS", [NG_ROW_MAX] = "ROW_MAX", [NG_ROW_SUM] = "ROW_SUM",
    [NG_OUT_T_TENSOR_SCALE] = "OUT_T_TENSOR_SCALE",
    [NG_TOKENS] = "TOKENS",
};

static void skip(ng_result *result, const char *why) {
    result->verdict = NG_SKIP;
    snprintf(result->reason, sizeof result->reason, "%.511s", why);
}

static bool on_gpu(const ng_session *session) { return session->device.backend == NG_BACKEND_CUDA; }

bool ng_session_begin(ng_session *session, ng_judge *judge, const ng_kernel *kernel, const ng_problem *problem,
                      ng_result *result) {
    memset(session, 0, sizeof *session);
    session->judge = judge;
    session->kernel = kernel;
    session->problem = *problem;
    session->device = judge->cpu;
    if (kernel->backend == NG_BACKEND_CUDA) {
        if (!ng_judge_has_gpu(judge)) {
            skip(result, judge->gpu_absent.text);
            return false;
        }
        session->device = judge->gpu.device;
        session->device.threads = judge->threads;
    }
    const char *why = kernel->supports ? kernel->supports(kernel, problem, &session->device) : NULL;
    if (why) skip(result, why);
    return !why;
}

/* Ragged tensors also get a stride that is not their width, so that a kernel which takes one for the other shows. */
static int64_t padding_of(ng_format_id format, int64_t rows, int64_t columns) {
    return rows > 1 && ng_row_bytes(format, columns) % 16 && rows * columns <= 1 << 16 ? 16 : 0;
}

static ng_status make_input(ng_session *session, ng_role role, const ng_tensor *value, int64_t padding, ng_error *error) {
    ng_guarded *guarded = &session->roles[role];
    ng_status status = ng_guarded_copy(value, padding, guarded, error);
    if (!status && on_gpu(session)) status = ng_guarded_send(guarded, &session->judge->gpu, error);
    return status;
}

ng_status ng_session_input(ng_session *session, ng_role role, const ng_tensor *value, ng_error *error) {
    return make_input(session, role, value, padding_of(value->format, value->rows, value->columns), error);
}

ng_status ng_session_input_dense(ng_session *session, ng_role role, const ng_tensor *value, ng_error *error) {
    return make_input(session, role, value, 0, error);
}

ng_status ng_session_output(ng_session *session, ng_role role, ng_format_id format, int64_t rows, int64_t columns,
                            ng_error *error) {
    session->written |= (uint64_t)1 << role;
    ng_status status = ng_tensor_create(format, rows, columns, &session->first[role], error);
    if (status) return status;
    return ng_guarded_create(format, rows, columns, padding_of(format, rows, columns), &session->roles[role], error);
}

static void free_guarded(ng_session *session, ng_guarded *guarded) {
    if (guarded->device) ng_guarded_free_device(guarded, &session->judge->gpu);
    ng_guarded_free(guarded);
}

void ng_session_end(ng_session *session) {
    for (int role = 0; role < NG_ROLES; role++) {
        free_guarded(session, &session->roles[role]);
        ng_tensor_free(&session->first[role]);
    }
    free_guarded(session, &session->workspace);
    free(session->listed);
}

ng_status ng_session_list(ng_session *session, const int64_t *widths, int64_t count, uint32_t block, ng_error *error) {
    session->listed = calloc((size_t)(NG_ROLES * count), sizeof *session->listed);
    if (!session->listed) return ng_fail(error, NG_NO_MEMORY, "no memory for a list of %lld tensors", (long long)count);
    session->list_count = count;
    session->list_widths = widths;
    session->list_block = block;
    return NG_OK;
}

/* Where every row of these tensors is a tensor of the list. */
static void fill_lists(const ng_session *session, ng_launch *launch) {
    const int64_t columns = session->roles[NG_GRADIENT].tensor.columns;
    launch->list_count = session->list_count;
    for (int role = 0; role < NG_ROLES; role++) {
        ng_tensor *t = &launch->tensors[role], *listed = session->listed + role * session->list_count;
        if (!t->data || t->rows != session->list_count) continue;
        for (int64_t i = 0; i < session->list_count; i++) {
            const int64_t width = session->list_widths[i];
            listed[i] = *t;
            listed[i].data = (char *)t->data + i * t->row_bytes;
            listed[i].rows = 1;
            listed[i].columns = t->columns == columns ? width : ng_block_count(session->list_block, width);
        }
        launch->lists[role] = listed;
        t->data = NULL;
    }
}

static bool writes(const ng_session *session, int role) { return session->written >> role & 1; }

static ng_status make_workspace(ng_session *session, ng_error *error) {
    const ng_kernel *kernel = session->kernel;
    size_t bytes = kernel->workspace ? kernel->workspace(kernel, &session->problem, &session->device) : 0;
    if (!bytes || session->workspace.base) return NG_OK;
    if (bytes > (size_t)1 << 40) return ng_fail(error, NG_NO_MEMORY, "%s asks for %zu bytes of workspace", kernel->name, bytes);
    ng_status status = ng_guarded_create(NG_E4M3, 1, (int64_t)bytes, 0, &session->workspace, error);
    if (status) return status;
    ng_guarded_poison(&session->workspace, 0); /* zeros would hide a workspace that is read before it is written */
    return on_gpu(session) ? ng_guarded_send(&session->workspace, &session->judge->gpu, error) : NG_OK;
}

void ng_session_fill(const ng_session *session, ng_launch *launch) {
    *launch = (ng_launch){.problem = &session->problem, .device = &session->device, .variant = session->variant};
    if (on_gpu(session)) launch->stream = session->judge->gpu.stream;
    for (int role = 0; role < NG_ROLES; role++)
        launch->tensors[role] = ng_guarded_view(&session->roles[role]);
    if (session->workspace.base) {
        launch->workspace = ng_guarded_view(&session->workspace).data;
        launch->workspace_bytes = session->workspace.bytes;
    }
    if (session->listed) fill_lists(session, launch);
}

static ng_status prepare_outputs(ng_session *session, int poison) {
    ng_status status = NG_OK;
    for (int role = 0; role < NG_ROLES && !status; role++) {
        ng_guarded *g = &session->roles[role];
        if (!writes(session, role)) continue;
        if (session->initial[role]) ng_tensor_copy(session->initial[role], &g->tensor);
        else ng_guarded_poison(g, poison);
        if (on_gpu(session)) status = ng_guarded_send(g, &session->judge->gpu, &session->broken);
    }
    return status;
}

/* What the device made of the buffers: all of them where they are compared, else the guards. */
static ng_status fetch_buffers(ng_session *session, bool watched) {
    ng_gpu *gpu = &session->judge->gpu;
    ng_status status = NG_OK;
    for (int role = 0; role < NG_ROLES && !status; role++)
        if (session->roles[role].device) status = ng_guarded_fetch(&session->roles[role], gpu, !watched, &session->broken);
    if (!status && session->workspace.device) status = ng_guarded_fetch(&session->workspace, gpu, true, &session->broken);
    return status;
}

/* A launch on a GPU shows what came of it when the device rests. *launched: what the kernel itself said, corrected. False:
 * there is no verdict to be had (broken), or a skip. */
static bool settle(ng_session *session, ng_status *launched, char *message, size_t bytes, ng_result *result) {
    ng_gpu *gpu = &session->judge->gpu;
    const ng_runtime *r = gpu->runtime;
    int code = r->last_error(), after = r->synchronize();
    if (after) {
        ng_gpu_check(gpu, after, "the kernel faulted", &session->broken);
        return false;
    }
    if (code == NG_CUDA_NO_IMAGE || code == NG_CUDA_NEW_PTX) {
        char why[160];
        snprintf(why, sizeof why, "no code for sm_%d in this kernel: %s (%s)", gpu->device.sm, r->error_text(code), r->error_name(code));
        if (result->verdict == NG_PASS) skip(result, why);
        return false;
    }
    if (code == NG_CUDA_NO_MEMORY || *launched == NG_NO_MEMORY) {
        gpu->short_of_memory = true;
        ng_fail(&session->broken, NG_NO_MEMORY, "not enough memory on the GPU to launch: %s", *message ? message : r->error_text(code));
        return false;
    }
    if (code && !*launched) {
        *launched = NG_DEVICE; /* it did not look */
        snprintf(message, bytes, "%s (%s)", r->error_text(code), r->error_name(code));
    }
    return true;
}

static bool check_buffers(const ng_session *session, bool watched, ng_result *result) {
    bool right = true;
    for (int role = 0; role < NG_ROLES; role++) {
        const ng_guarded *g = &session->roles[role];
        if (!g->base) continue;
        if (!ng_guarded_intact(g)) {
            ng_accuse(result, NG_FAIL, "the kernel wrote outside %s", ng_role_names[role]);
            right = false;
        }
        if (watched && !writes(session, role) && !ng_guarded_unchanged(g)) {
            ng_accuse(result, NG_FAIL, "the kernel changed its input %s", ng_role_names[role]);
            right = false;
        }
    }
    if (session->workspace.base && !ng_guarded_intact(&session->workspace)) {
        ng_accuse(result, NG_FAIL, "the kernel wrote outside its workspace of %zu bytes", session->workspace.bytes);
        right = false;
    }
    return right;
}

bool ng_session_launch(ng_session *session, int poison, bool quiet, bool watched, ng_result *result) {
    char message[256] = "";
    ng_launch launch;
    session->broken.status = NG_OK;
    if (watched && prepare_outputs(session, poison)) return false;
    ng_session_fill(session, &launch);
    launch.message = message;
    launch.message_bytes = sizeof message;
    ng_status status = session->kernel->launch(session->kernel, &launch);
    message[sizeof message - 1] = 0;
    if (on_gpu(session) && !settle(session, &status, message, sizeof message, result)) return false;
    if (on_gpu(session) && fetch_buffers(session, watched)) return false;
    if (status && !(quiet && status == NG_UNSUPPORTED))
        ng_accuse(result, NG_FAIL, "the launch failed: %s", *message ? message : "the kernel gives no reason");
    return check_buffers(session, watched, result) && !status;
}

/* What changed between the first launch (poison 0) and another: an element that shows the poison of both was not written. */
typedef struct changes {
    int64_t unwritten, other, row, column;
} changes;

static changes compare(const ng_tensor *first, const ng_tensor *again, int poison) {
    changes found = {0, 0, -1, -1};
    uint64_t before = ng_poison_code(first->format, 0), after = ng_poison_code(first->format, poison);
    if (ng_tensor_equal(first, again)) return found;
    for (int64_t i = 0; i < first->rows; i++)
        for (int64_t j = 0; j < first->columns; j++) {
            uint64_t x = ng_get_code(first, i, j), y = ng_get_code(again, i, j);
            if (x == y) continue;
            if (!found.unwritten && !found.other) found.row = i, found.column = j;
            if (x == before && y == after) found.unwritten++;
            else found.other++;
        }
    return found;
}

static void compare_outputs(const ng_session *session, int poison, uint32_t launches, ng_result *result) {
    for (int role = 0; role < NG_ROLES; role++) {
        if (!writes(session, role) || result->nondeterministic) continue;
        changes found = compare(&session->first[role], &session->roles[role].tensor, poison);
        bool poisoned = !session->initial[role];
        if (poisoned && found.unwritten)
            ng_accuse(result, NG_FAIL, "%lld elements of %s were never written, the first at [%lld][%lld]",
                      (long long)found.unwritten, ng_role_names[role], (long long)found.row, (long long)found.column);
        if (!found.other && (poisoned || !found.unwritten)) continue;
        result->nondeterministic = true;
        if (session->kernel->contract.determinism != NG_NONDETERMINISTIC)
            ng_accuse(result, NG_FAIL, "launch %u gave other bits than the first in %lld elements of %s, as at [%lld][%lld], where the contract promises the same",
                      launches, (long long)(found.other + (poisoned ? 0 : found.unwritten)), ng_role_names[role],
                      (long long)found.row, (long long)found.column);
    }
}

static const double long_launch_s = 2, short_launch_s = 0.02;

ng_status ng_session_run(ng_session *session, uint32_t repeats, bool quiet, ng_result *result, bool *launched,
                         ng_error *error) {
    *launched = false;
    ng_status status = make_workspace(session, error);
    if (status) return status;
    double start = ng_now_s();
    if (!ng_session_launch(session, 0, quiet, true, result)) return ng_session_broken(session, error);
    double took = ng_now_s() - start;
    *launched = true;
    for (int role = 0; role < NG_ROLES; role++)
        if (writes(session, role)) ng_tensor_copy(&session->roles[role].tensor, &session->first[role]);
    uint32_t launches = repeats > 2 ? repeats : took > long_launch_s && repeats <= 1 ? 1 : 2;
    /* Results never depend on the number of threads; where launches are many or long, another one is tried. */
    int threads = session->device.threads, others = threads > 1 ? 1 : launches > 2 ? session->judge->most_threads : 1;
    for (uint32_t i = 1; i < launches; i++) {
        ng_verdict before = result->verdict;
        session->device.threads = i % 4 == 1 && took < short_launch_s ? others : threads;
        if (!ng_session_launch(session, i % 2, false, true, result)) break;
        compare_outputs(session, i % 2, i + 1, result);
        if (result->verdict != before) break;
    }
    session->device.threads = threads;
    return ng_session_broken(session, error);
}

ng_status ng_session_broken(const ng_session *session, ng_error *error) {
    if (!session->broken.status) return NG_OK;
    *error = session->broken;
    return error->status;
}

void ng_session_digest(const ng_session *session, ng_result *result) {
    const ng_tensor *outputs[NG_ROLES];
    size_t count = 0;
    for (int role = 0; role < NG_ROLES; role++)
        if (writes(session, role)) outputs[count++] = &session->first[role];
    ng_digest_tensors(outputs, count, result->digest);
}

ng_status ng_session_conclude(ng_session *session, const ng_case *one, double start, double flop, ng_result *result, ng_error *error) {
    ng_session_digest(session, result);
    result->verify_s = ng_now_s() - start;
    ng_status status = ng_session_time(&session, NULL, 1, one->level, flop, result, error);
    return status ? status : ng_save_session(session, one, result, error);
}

/* ---- speed --------------------------------------------------------------------------------------------------------*/
/* Copies of the tensors, taken in turn, so that a kernel finds its operands colder than it left them. The set is limited:
 * a small problem stays in the outer caches, as in training it does between the kernels that make and use it. */
enum { COPIES = 8 };
static const double rotation_bytes = 32 << 20;

typedef struct rotation {
    ng_session *const *sessions;
    int count, copies;
    ng_tensor (*roles)[NG_ROLES]; /* [count * COPIES]; without guards: what was watched before is not watched again */
} rotation;

/* A scale that spans the tensor must be known before its first element is encoded: the input is read twice. */
static bool reads_twice(const ng_kernel *kernel) {
    const ng_quantization *q = &kernel->contract.quantization;
    return kernel->op == NG_OP_QUANTIZE && (q->tensor_scale || (!q->blocks.rows && !q->blocks.columns && q->rule != NG_SCALE_GIVEN));
}

static double session_bytes(const ng_session *session) {
    double bytes = 0;
    for (int role = 0; role < NG_ROLES; role++) {
        const ng_tensor *t = &session->roles[role].tensor;
        bool twice = session->initial[role] || (role == NG_IN && reads_twice(session->kernel));
        if (t->data) bytes += (double)ng_row_bytes(t->format, t->columns) * (double)t->rows * (twice ? 2 : 1);
    }
    return bytes;
}

static ng_status make_rotation(rotation *r, double bytes, ng_error *error) {
    ng_status status = NG_OK;
    r->copies = r->sessions[0]->judge->settings.warm_cache || bytes >= rotation_bytes ? 1 : (int)fmin(COPIES, rotation_bytes / (bytes + 1) + 1);
    r->roles = calloc((size_t)(r->count * COPIES), sizeof *r->roles);
    if (!r->roles) return ng_fail(error, NG_NO_MEMORY, "no memory for timing");
    for (int s = 0; s < r->count; s++)
        for (int c = 0; c < r->copies; c++)
            for (int role = 0; role < NG_ROLES && !status; role++) {
                const ng_tensor *from = &r->sessions[s]->roles[role].tensor;
                ng_tensor *to = &r->roles[s * COPIES + c][role];
                if (!from->data) continue;
                status = ng_tensor_create(from->format, from->rows, from->columns, to, error);
                if (!status) ng_tensor_copy(from, to);
            }
    return status;
}

static void free_rotation(rotation *r) {
    for (int i = 0; r->roles && i < r->count * COPIES; i++)
        for (int role = 0; role < NG_ROLES; role++)
            ng_tensor_free(&r->roles[i][role]);
    free(r->roles);
}

static ng_status run_rotation(void *context, int iteration, double *part_s) {
    rotation *r = context;
    for (int s = 0; s < r->count; s++) {
        ng_launch launch;
        double start = ng_now_s();
        ng_session_fill(r->sessions[s], &launch);
        memcpy(launch.tensors, r->roles[s * COPIES + iteration % r->copies], sizeof launch.tensors);
        ng_status status = r->sessions[s]->kernel->launch(r->sessions[s]->kernel, &launch);
        if (status) return status;
        part_s[s] = ng_now_s() - start;
    }
    return NG_OK;
}

/* Seconds of sampling a case, where the settings leave it open: levels have to stay within their own limits. */
static const double level_limit_s[NG_LEVELS] = {[NG_SMOKE] = 0.02, [NG_CI] = 0.02, [NG_NIGHTLY] = 0.2};

ng_status ng_session_time(ng_session *const *sessions, const char *const *names, int count, ng_level level, double flop,
                          ng_result *result, ng_error *error) {
    ng_judge *judge = sessions[0]->judge;
    rotation r = {.sessions = sessions, .count = count};
    ng_timing timing;
    double bytes = 0;
    if (!judge->settings.timing || count > NG_SPEED_PARTS) return NG_OK;
    for (int s = 0; s < count; s++)
        bytes += session_bytes(sessions[s]);
    double limit_s = judge->settings.time_limit_s > 0 ? judge->settings.time_limit_s : level_limit_s[level < NG_LEVELS ? level : NG_CI];
    if (on_gpu(sessions[0])) return ng_session_time_gpu(sessions, names, count, limit_s, flop, bytes, result, error);
    ng_status status = judge->ceilings_known ? NG_OK : ng_measure_ceilings(judge->most_threads, &judge->ceilings, error);
    if (status) return status;
    judge->ceilings_known = true;
    status = make_rotation(&r, bytes, error);
    if (!status) status = ng_time(run_rotation, &r, names ? count : 0, limit_s, &timing, error);
    free_rotation(&r);
    if (status) return status == NG_NO_MEMORY ? status : ng_fail(error, NG_INTERNAL, "%s launched, but failed when timed", sessions[0]->kernel->name);
    double least_s = fmax(flop / judge->ceilings.fma_flop_s, bytes / judge->ceilings.copy_bytes_s);
    ng_speed *speed = &result->speed;
    *speed = (ng_speed){.present = true, .sm_mhz_before = NAN, .sm_mhz_after = NAN};
    speed->median_s = timing.median_s;
    speed->q1_s = timing.q1_s;
    speed->q3_s = timing.q3_s;
    speed->samples = timing.samples;
    speed->flop = flop;
    speed->bytes = bytes;
    speed->rate = (flop > 0 ? flop : bytes) / timing.median_s;
    speed->roofline = least_s / timing.median_s;
    for (int p = 0; names && p < count; p++) {
        snprintf(speed->parts[p].name, sizeof speed->parts[p].name, "%s", names[p]);
        speed->parts[p].median_s = timing.part_s[p];
    }
    speed->part_count = names ? count : 0;
    return NG_OK;
}
