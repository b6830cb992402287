/* All 2^32 binary32 inputs of a cast, in pieces, against thresholds proved with MPFR. On a GPU the inputs are made and the
 * codes compared there; the host then looks at some of the pieces itself, so that the GPU is not its own only witness. */
#include "harness/judge_internal.h"
#include "reference/sweep.h"
#ifdef NG_HAVE_CUDA
#include "reference/sweep_cuda.h"
#endif

#include <math.h>
#include <string.h>

/* A piece on the host stays in the caches; one on a GPU is large enough to hide what a launch costs. */
enum { COLUMNS = 4096, HOST_PIECE = 1 << 20, GPU_PIECE = 1 << 24, WITNESSES = 2 };

static const uint64_t all_inputs = (uint64_t)1 << 32;

typedef struct sweeping {
    const ng_sweep *sweep;
    ng_session *session;
    uint32_t piece;     /* inputs in one */
    uint64_t done, differ;
    uint32_t first;     /* the lowest input whose code differs */
} sweeping;

static void found(sweeping *s, uint64_t differ, uint32_t first) {
    if (differ && (!s->differ || first < s->first)) s->first = first;
    s->differ += differ;
}

/* ---- on the host --------------------------------------------------------------------------------------------------*/
static void check_piece(sweeping *s, uint32_t start) {
    const ng_tensor *out = &s->session->roles[NG_OUT].tensor;
    uint64_t differ = 0;
    uint32_t lowest = UINT32_MAX;
#pragma omp parallel for num_threads(s->session->judge->threads) reduction(+ : differ) reduction(min : lowest)
    for (int64_t row = 0; row < out->rows; row++) {
        uint32_t at = 0;
        uint64_t here = ng_sweep_check(s->sweep, start + (uint32_t)row * COLUMNS, COLUMNS,
                                       (const char *)out->data + row * out->row_bytes, &at);
        differ += here;
        if (here && at < lowest) lowest = at;
    }
    found(s, differ, lowest);
}

static void fill_piece(const sweeping *s, uint32_t start) {
    uint32_t *bits = s->session->roles[NG_IN].tensor.data;
#pragma omp parallel for num_threads(s->session->judge->threads)
    for (uint32_t i = 0; i < s->piece; i++)
        bits[i] = start + i;
}

/* The host makes the inputs and looks at the codes. Every launch on a GPU is watched, for that sends and fetches; on a CPU
 * the first and the last are, those between only for what they write outside. False: the launch went wrong. */
static bool piece_by_host(sweeping *s, uint32_t start, ng_result *result) {
    ng_guarded *in = &s->session->roles[NG_IN];
    bool watched = in->device || start == 0 || start + (uint64_t)s->piece == all_inputs;
    fill_piece(s, start);
    if (watched) ng_guarded_seal(in);
    if (in->device && ng_guarded_send(in, &s->session->judge->gpu, &s->session->broken)) return false;
    if (!ng_session_launch(s->session, 0, false, watched, result)) return false;
    check_piece(s, start);
    s->done += s->piece;
    return true;
}

static void sweep_by_host(sweeping *s, ng_result *result) {
    for (uint64_t start = 0; start < all_inputs; start += s->piece)
        if (!piece_by_host(s, (uint32_t)start, result)) return;
}

/* ---- on a GPU -----------------------------------------------------------------------------------------------------*/
/* The reference's CUDA code needs the true runtime under it. */
static bool can_sweep_on_gpu(const ng_session *session) {
    const ng_judge *judge = session->judge;
    return session->device.backend == NG_BACKEND_CUDA && !judge->settings.verify_on_cpu && judge->gpu.runtime == ng_cuda_runtime();
}

#ifdef NG_HAVE_CUDA
static ng_status piece_by_gpu(sweeping *s, const ng_sweep_cuda *sweep, uint32_t start, bool *launched, ng_result *result) {
    ng_session *session = s->session;
    void *stream = session->judge->gpu.stream;
    ng_status status = ng_sweep_cuda_inputs(start, s->piece, ng_guarded_view(&session->roles[NG_IN]).data, stream);
    *launched = !status && ng_session_launch(session, 0, false, false, result);
    if (!*launched) return status;
    return ng_sweep_cuda_check(sweep, start, s->piece, ng_guarded_view(&session->roles[NG_OUT]).data, stream);
}

/* Some pieces with the host as judge: the first, the last, and others by the seed. */
static bool witness(sweeping *s, ng_result *result) {
    const uint64_t pieces = all_inputs / s->piece;
    for (uint64_t w = 0; w < WITNESSES + 2; w++) {
        uint64_t middle = ng_word(s->session->judge->settings.seed, w) % pieces;
        uint64_t piece = w == 0 ? 0 : w == 1 ? pieces - 1 : middle;
        if (!piece_by_host(s, (uint32_t)(piece * s->piece), result)) return false;
    }
    return true;
}

static ng_status sweep_by_gpu(sweeping *s, ng_result *result, ng_error *error) {
    void *stream = s->session->judge->gpu.stream;
    sweeping host = {.sweep = s->sweep, .session = s->session, .piece = s->piece};
    ng_sweep_cuda sweep;
    bool launched = witness(&host, result);
    if (!launched) return NG_OK;
    ng_status status = ng_sweep_cuda_new(s->sweep, stream, &sweep);
    if (status) return ng_fail(error, status, "the thresholds could not be copied to the GPU");
    for (uint64_t start = 0; start < all_inputs && launched && !status; start += s->piece) {
        status = piece_by_gpu(s, &sweep, (uint32_t)start, &launched, result);
        s->done += !status && launched ? s->piece : 0;
    }
    if (launched && !status) status = ng_sweep_cuda_result(&sweep, stream, &s->differ, &s->first);
    if (status) ng_fail(error, status, "the sweep on the GPU failed");
    else if (host.differ && !s->differ)
        ng_accuse(result, NG_FAIL, "the host finds wrong codes where the GPU finds none, the first of 0x%08x", host.first);
    ng_sweep_cuda_free(&sweep);
    return status;
}
#else
static ng_status sweep_by_gpu(sweeping *s, ng_result *result, ng_error *error) {
    (void)s, (void)result;
    return ng_fail(error, NG_INTERNAL, "no GPU code in this program");
}
#endif

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
static void publish(const sweeping *s, ng_result *result) {
    ng_error_figures *f = &result->error;
    f->present = true;
    f->elements = (int64_t)all_inputs;
    f->checked = (int64_t)s->done;
    f->by_tier[NG_TIER_INTEGER] = f->checked;
    f->beyond_bound = (int64_t)s->differ;
    f->bound_ratio = s->differ ? 1 : 0;
    f->max_rel = f->max_ulp = f->max_abs = f->rms_rel = f->bias = f->sqnr_db = f->expected_ratio = NAN;
    f->worst[1] = s->first;
    if (s->differ)
        ng_accuse(result, NG_FAIL, "%llu of 2^32 inputs give another code, the first 0x%08x", (unsigned long long)s->differ, s->first);
}

ng_status ng_judge_sweep(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = one->kernel;
    ng_problem problem = one->problem;
    ng_sweep sweep = {0};
    ng_session session = {0};
    ng_tensor in = {0};
    if (kernel->in != NG_FP32) return ng_fail(error, NG_BAD_ARGUMENT, "%s: every input can be tried of fp32 and 16-bit formats only", one->id);
    sweeping s = {.sweep = &sweep, .session = &session, .piece = kernel->backend == NG_BACKEND_CUDA ? GPU_PIECE : HOST_PIECE};
    problem.m = s.piece / COLUMNS;
    problem.n = COLUMNS;
    if (!ng_session_begin(&session, judge, kernel, &problem, result)) return NG_OK;
    double start = ng_now_s();
    ng_status status = ng_sweep_new(kernel->out, &kernel->contract.cast, &sweep);
    if (status) status = ng_fail(error, status, "no proved thresholds for %s", kernel->name);
    if (!status) status = ng_tensor_create(NG_FP32, problem.m, problem.n, &in, error);
    if (!status) status = ng_session_input(&session, NG_IN, &in, error);
    if (!status) status = ng_session_output(&session, NG_OUT, kernel->out, problem.m, problem.n, error);
    if (status) goto done;
    if (can_sweep_on_gpu(&session)) status = sweep_by_gpu(&s, result, error);
    else sweep_by_host(&s, result);
    if (!status) status = ng_session_broken(&session, error);
    if (status) goto done;
    if (result->verdict != NG_SKIP) publish(&s, result);
    result->verify_s = ng_now_s() - start;
done:
    ng_sweep_free(&sweep);
    ng_session_end(&session);
    ng_tensor_free(&in);
    return status;
}
