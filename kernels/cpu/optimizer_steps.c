/* unscale, scaler, norm2, clip: the steps around an optimizer; and how lists of tensors are cut into pieces. */
#include "kernels/cpu/optimizer.h"

#include <stdlib.h>

/* ---- lists --------------------------------------------------------------------------------------------------------*/
ng_status ng_cpu_cut(const ng_launch *launch, ng_role role, int64_t piece, ng_cpu_pieces *pieces) {
    const int64_t tensors = launch->list_count ? launch->list_count : 1;
    *pieces = (ng_cpu_pieces){launch, tensors, piece, 0, malloc(sizeof *pieces->first * (size_t)(tensors + 1))};
    if (!pieces->first) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for a list of %lld tensors", (long long)tensors);
    for (int64_t i = 0; i < tensors; i++) {
        const ng_tensor *t = ng_cpu_listed(launch, role, i);
        pieces->first[i] = pieces->count;
        pieces->count += t->rows * ((t->columns + piece - 1) / piece);
    }
    pieces->first[tensors] = pieces->count;
    return NG_OK;
}

void ng_cpu_uncut(ng_cpu_pieces *pieces) { free(pieces->first); }

ng_cpu_piece ng_cpu_piece_of(const ng_cpu_pieces *p, ng_role role, int64_t index) {
    int64_t low = 0, high = p->tensors; /* first[low] <= index < first[high] */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (p->first[middle] <= index) low = middle;
        else high = middle;
    }
    const int64_t columns = ng_cpu_listed(p->launch, role, low)->columns, across = (columns + p->piece - 1) / p->piece;
    const int64_t row = (index - p->first[low]) / across, from = (index - p->first[low]) % across * p->piece;
    return (ng_cpu_piece){low, row, from, ng_cpu_min(p->piece, columns - from)};
}

ng_status ng_cpu_check_listed(const ng_launch *launch, ng_role role, ng_format_id format, ng_role like, int64_t block) {
    if (!launch->list_count) {
        const ng_tensor *t = &launch->tensors[like];
        return ng_cpu_check(launch, role, format, t->rows, (t->columns + block - 1) / block);
    }
    if (!launch->lists[role] || !launch->lists[like]) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "list of role %d is missing", (int)role);
    for (int64_t i = 0; i < launch->list_count; i++) {
        const ng_tensor *t = &launch->lists[role][i], *l = &launch->lists[like][i];
        if (t->data && t->space == NG_HOST && t->format == format && t->rows == l->rows && t->columns == (l->columns + block - 1) / block &&
            t->row_bytes >= ng_cpu_row_bytes(format, t->columns))
            continue;
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "tensor %lld of role %d is missing, not in host memory, or of another format or shape",
                           (long long)i, (int)role);
    }
    return NG_OK;
}

ng_status ng_cpu_check_number(const ng_launch *launch, ng_role role, bool needed) {
    return needed || launch->tensors[role].data ? ng_cpu_check(launch, role, NG_FP32, 1, 1) : NG_OK;
}

/* ---- unscale and clip ---------------------------------------------------------------------------------------------*/
typedef struct scaling {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm_loops *loops;
    ng_caster caster;
    float factor;
} scaling;

/* Whether one of the gradients, before or after, is not finite. */
static bool scale_piece(const scaling *s, ng_cpu_piece at) {
    float x[NG_NORM2_CHUNK];
    uint32_t most = 0;
    const ng_tensor *t = ng_cpu_listed(s->launch, NG_GRADIENT, at.tensor);
    uint8_t *row = ng_cpu_row(t, at.row) + ng_cpu_row_bytes(t->format, at.from);
    s->loops->load(t->format, row, at.n, x);
    for (int64_t i = 0; i < at.n; i++) {
        const uint32_t before = ng_bits(x[i]) & NG_ABS_MASK;
        x[i] = ng_mul(x[i], s->factor);
        most = before > most ? before : most;
    }
    s->loops->store(t->format, &s->caster, x, at.n, row);
    s->loops->load(t->format, row, at.n, x);
    for (int64_t i = 0; i < at.n; i++) {
        const uint32_t after = ng_bits(x[i]) & NG_ABS_MASK;
        most = after > most ? after : most;
    }
    return most >= NG_INF_BITS;
}

static bool scale_all(const ng_kernel *kernel, const ng_launch *launch, float factor, const ng_cpu_pieces *pieces) {
    const scaling s = {kernel, launch, &ng_norm_loops_of[ng_cpu_avx2(launch->device)], ng_caster_of(kernel->in, &kernel->contract.cast), factor};
    int found = 0;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, pieces->count * pieces->piece)) schedule(static) reduction(| : found)
    for (int64_t i = 0; i < pieces->count; i++)
        found |= scale_piece(&s, ng_cpu_piece_of(pieces, NG_GRADIENT, i));
    return found;
}

static void store_number(const ng_launch *launch, ng_role role, float value) {
    *(ng_u32 *)launch->tensors[role].data = ng_norm_code(NULL, NG_FP32, value);
}

static ng_status unscale(const ng_kernel *kernel, const ng_launch *launch, const ng_cpu_pieces *pieces) {
    const double given = launch->problem->scalars[NG_GRADIENT_SCALE];
    ng_status status = ng_cpu_check_number(launch, NG_FOUND_INF, true);
    if (!status) status = ng_cpu_check_number(launch, NG_LOSS_SCALE, false);
    if (status) return status;
    if (!launch->tensors[NG_LOSS_SCALE].data && given == 0) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "neither a loss scale nor a gradient scale");
    const float factor = launch->tensors[NG_LOSS_SCALE].data ? ng_div(1.0f, ng_cpu_number(launch, NG_LOSS_SCALE, 1)) : (float)(1 / given);
    if (scale_all(kernel, launch, factor, pieces)) store_number(launch, NG_FOUND_INF, 1);
    return NG_OK;
}

static ng_status clip(const ng_kernel *kernel, const ng_launch *launch, const ng_cpu_pieces *pieces) {
    ng_status status = ng_cpu_check_number(launch, NG_OUT, true);
    if (status) return status;
    const float factor = ng_clip_factor((float)launch->problem->scalars[NG_MAX_NORM], ng_cpu_number(launch, NG_OUT, 0));
    if (factor != 1.0f) scale_all(kernel, launch, factor, pieces);
    return NG_OK;
}

/* ---- norm ---------------------------------------------------------------------------------------------------------*/
static double halve(double *s) {
    for (int h = NG_NORM2_CHAINS / 2; h; h /= 2)
        for (int k = 0; k < h; k++)
            s[k] += s[k + h];
    return s[0];
}

static double chunk_sum(const ng_launch *launch, ng_cpu_piece at) {
    float x[NG_NORM2_CHUNK];
    double s[NG_NORM2_CHAINS] = {0};
    const ng_tensor *t = ng_cpu_listed(launch, NG_GRADIENT, at.tensor);
    ng_norm_loops_of[ng_cpu_avx2(launch->device)].load(t->format, ng_cpu_row(t, at.row) + ng_cpu_row_bytes(t->format, at.from), at.n, x);
    for (int64_t from = 0; from < at.n; from += NG_NORM2_CHAINS)
        for (int64_t k = 0; k < ng_cpu_min(NG_NORM2_CHAINS, at.n - from); k++)
            s[k] += (double)x[from + k] * (double)x[from + k];
    return halve(s);
}

static ng_status norm2(const ng_launch *launch, const ng_cpu_pieces *pieces) {
    double chains[NG_NORM2_CHAINS] = {0};
    ng_status status = ng_cpu_check_number(launch, NG_OUT, true);
    if (status) return status;
    double *sums = malloc(sizeof *sums * (size_t)(pieces->count + 1));
    if (!sums) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for %lld sums", (long long)pieces->count);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, pieces->count * pieces->piece)) schedule(static)
    for (int64_t i = 0; i < pieces->count; i++)
        sums[i] = chunk_sum(launch, ng_cpu_piece_of(pieces, NG_GRADIENT, i));
    for (int64_t i = 0; i < pieces->count; i++)
        chains[i % NG_NORM2_CHAINS] += sums[i];
    free(sums);
    store_number(launch, NG_OUT, (float)ng_sqrt64(halve(chains)));
    return NG_OK;
}

/* ---- scaler -------------------------------------------------------------------------------------------------------*/
static ng_status scaler(const ng_launch *launch) {
    ng_status status = ng_cpu_check_number(launch, NG_LOSS_SCALE, true);
    if (!status) status = ng_cpu_check_number(launch, NG_GROWTH_COUNT, true);
    if (!status) status = ng_cpu_check_number(launch, NG_FOUND_INF, true);
    if (!status) status = ng_cpu_check_number(launch, NG_STEP_COUNT, false);
    if (status) return status;
    ng_scaler s = {ng_cpu_number(launch, NG_LOSS_SCALE, 0), ng_cpu_number(launch, NG_GROWTH_COUNT, 0), ng_cpu_number(launch, NG_STEP_COUNT, 0)};
    ng_scaler_update(launch->problem->scalars, ng_cpu_number(launch, NG_FOUND_INF, 0) != 0, &s);
    store_number(launch, NG_LOSS_SCALE, s.scale);
    store_number(launch, NG_GROWTH_COUNT, s.count);
    if (launch->tensors[NG_STEP_COUNT].data) store_number(launch, NG_STEP_COUNT, s.step);
    store_number(launch, NG_FOUND_INF, 0);
    return NG_OK;
}

ng_status ng_cpu_launch_steps(const ng_kernel *kernel, const ng_launch *launch) {
    ng_cpu_pieces pieces = {0};
    const ng_optimizer_kind kind = kernel->contract.optimizer.kind;
    if (kind == NG_SCALER) return scaler(launch);
    ng_status status = ng_cpu_check_listed(launch, NG_GRADIENT, kernel->in, NG_GRADIENT, 1);
    if (!status) status = ng_cpu_cut(launch, NG_GRADIENT, NG_NORM2_CHUNK, &pieces);
    if (status) return status;
    status = kind == NG_UNSCALE ? unscale(kernel, launch, &pieces) : kind == NG_CLIP ? clip(kernel, launch, &pieces) : norm2(launch, &pieces);
    ng_cpu_uncut(&pieces);
    return status;
}
