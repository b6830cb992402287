#include "harness/expand.h"

#include "harness/digest.h"
#include "harness/tensorfile.h"
#include "reference/format.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a growing list -----------------------------------------------------------------------------------------------*/
typedef struct builder {
    const ng_selection *selection;
    const ng_catalogue *catalogue;
    ng_case_list list;
    size_t capacity;
    size_t *slots; /* open addressing on ids: place + 1, 0 free */
    size_t slot_count;
    ng_error *error;
} builder;

static ng_status grow_slots(builder *b) {
    size_t count = b->slot_count ? b->slot_count * 2 : 4096;
    size_t *slots = calloc(count, sizeof *slots);
    if (!slots) return ng_fail(b->error, NG_NO_MEMORY, "no memory for %zu cases", count);
    for (size_t i = 0; i < b->list.count; i++) {
        size_t at = ng_digest_text(b->list.cases[i].id, 0) & (count - 1);
        while (slots[at])
            at = (at + 1) & (count - 1);
        slots[at] = i + 1;
    }
    free(b->slots);
    b->slots = slots;
    b->slot_count = count;
    return NG_OK;
}

/* The place of the case of that id, or of the free slot for it. */
static size_t *find_slot(const builder *b, const char *id) {
    size_t at = ng_digest_text(id, 0) & (b->slot_count - 1);
    while (b->slots[at] && strcmp(b->list.cases[b->slots[at] - 1].id, id))
        at = (at + 1) & (b->slot_count - 1);
    return &b->slots[at];
}

/* A case that several rows ask for runs once: on the quickest level, with the most repeats. */
static ng_status add_case(builder *b, const ng_case *one) {
    ng_status status = 2 * (b->list.count + 1) > b->slot_count ? grow_slots(b) : NG_OK;
    if (status) return status;
    size_t *slot = find_slot(b, one->id);
    if (*slot) {
        ng_case *known = &b->list.cases[*slot - 1];
        if (one->level < known->level) known->level = one->level;
        if (one->repeats > known->repeats) known->repeats = one->repeats;
        return NG_OK;
    }
    if (b->list.count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 256;
        ng_case *cases = realloc(b->list.cases, sizeof *cases * capacity);
        if (!cases) return ng_fail(b->error, NG_NO_MEMORY, "no memory for %zu cases", capacity);
        b->list.cases = cases;
        b->capacity = capacity;
    }
    b->list.cases[b->list.count++] = *one;
    *slot = b->list.count;
    return NG_OK;
}

/* ---- parts of a case ----------------------------------------------------------------------------------------------*/
static const char *const phase_names[NG_PHASES] = {[NG_FPROP] = "fprop", [NG_DGRAD] = "dgrad", [NG_WGRAD] = "wgrad"};
static const char *const mode_names[NG_MODES] = {[NG_PREQUANTIZED] = "prequantized", [NG_AUTOCAST] = "autocast"};

static ng_status set_id(builder *b, ng_case *one, const char *format, ...) __attribute__((format(printf, 3, 4)));
static ng_status set_id(builder *b, ng_case *one, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(one->id, sizeof one->id, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof one->id) return NG_OK;
    return ng_fail(b->error, NG_BAD_ARGUMENT, "%.80s...: a case id of %d characters, at most %d are possible", one->id, length, NG_ID_BYTES - 1);
}

/* Distributions that are made for a format; the others are one tensor, whatever the kernel. */
static bool made_for_format(ng_distribution d) {
    return d == NG_INTEGERS || d == NG_TIES || d == NG_SUBNORMAL || d == NG_BLOCK_EDGES || d == NG_NEAR_OVERFLOW;
}

static bool is_norm(const ng_kernel *kernel) { return kernel->op == NG_OP_NORM_FORWARD || kernel->op == NG_OP_NORM_BACKWARD; }

static ng_format_id target_of(const ng_kernel *kernel, const ng_quantization *q, ng_distribution d) {
    if (!made_for_format(d)) return NG_BF16;
    if (kernel->op == NG_OP_CAST) return kernel->out;
    if (is_norm(kernel) || kernel->op >= NG_OP_OPTIMIZER) return kernel->in; /* made for what comes in, however it is stored */
    return q->rule == NG_SCALE_ABSENT ? kernel->in : q->element;
}

/* Seeds depend on the tensors' names and extents, not on kernels: recipes are compared on the same data. */
static uint64_t data_seed(const ng_selection *selection, const char *name, int64_t m, int64_t n, int64_t k) {
    char text[192];
    snprintf(text, sizeof text, "%s %lldx%lldx%lld", name, (long long)m, (long long)n, (long long)k);
    return ng_digest_text(text, selection->seed);
}

static bool matches(const char *glob, const char *text) { return !strcmp(glob, text) || !fnmatch(glob, text, 0); }

static bool backend_wanted(const builder *b, const ng_kernel *kernel) {
    return !b->selection->backends || (b->selection->backends >> kernel->backend & 1);
}

/* x [T][in] is stream 0, w [out][in] 1, dy [T][out] 2 (model.h says which operand is which in a phase). */
static void set_operands(ng_case *one, ng_distribution distribution, uint64_t seed) {
    const ng_problem *p = &one->problem;
    const ng_kernel *kernel = one->kernel;
    ng_data_spec a = {.distribution = distribution, .seed = seed}, c = a;
    bool turned = p->phase == NG_WGRAD, turned_b = turned || p->phase == NG_DGRAD;
    a.stream = turned_b ? 2 : 0;
    a.transposed = turned;
    a.whole_rows = turned ? p->k : p->m;
    a.whole_columns = turned ? p->m : p->k;
    c.stream = turned ? 0 : 1;
    c.transposed = turned_b;
    c.whole_rows = turned_b ? p->k : p->n;
    c.whole_columns = turned_b ? p->n : p->k;
    if (one->data.target) c.distribution = NG_NORMAL;
    a.target = one->data.target ? one->data.target : target_of(kernel, &kernel->contract.a, distribution);
    c.target = target_of(kernel, &kernel->contract.b, c.distribution);
    one->data = a;
    one->data_b = c;
}

/* An aligned block of rows and one of columns: what every block scale of the design divides. */
enum { SAMPLE = 128 };
static const double unsampled_products = 0x1p28; /* multiply-adds */

static void choose_sample(const ng_selection *selection, ng_case *one, bool model) {
    const ng_problem *p = &one->problem;
    bool big = (double)p->m * (double)p->n * (double)p->k > unsampled_products;
    bool on_gpu = one->kernel->backend == NG_BACKEND_CUDA && !selection->verify_on_cpu && ng_data_is_binary32(&one->data) && ng_data_is_binary32(&one->data_b);
    if (selection->full || on_gpu || !(big || model) || (p->m <= SAMPLE && p->n <= SAMPLE)) return;
    uint64_t seed = data_seed(selection, one->problem_name, p->m, p->n, p->k);
    int64_t rows = (p->m + SAMPLE - 1) / SAMPLE, columns = (p->n + SAMPLE - 1) / SAMPLE;
    one->sample.row = (int64_t)(seed % (uint64_t)rows) * SAMPLE;
    one->sample.column = (int64_t)((seed >> 32) % (uint64_t)columns) * SAMPLE;
    one->sample.rows = p->m - one->sample.row < SAMPLE ? p->m - one->sample.row : SAMPLE;
    one->sample.columns = p->n - one->sample.column < SAMPLE ? p->n - one->sample.column : SAMPLE;
}

static bool quantizes(const ng_kernel *kernel) {
    return kernel->contract.a.rule != NG_SCALE_ABSENT || kernel->contract.b.rule != NG_SCALE_ABSENT;
}

/* ---- cases of one kernel ------------------------------------------------------------------------------------------*/
/* one has kernel, problem extents, problem_name (may be empty), level, suite, repeats; data come from the distribution. */
static ng_status add_product(builder *b, ng_case one, ng_distribution distribution, ng_mode mode, const char *seed_name,
                             bool model, const char *data_name) {
    const ng_problem *p = &one.problem;
    if (mode == NG_AUTOCAST && !quantizes(one.kernel)) return NG_OK;
    one.mode = mode;
    one.problem.op = NG_OP_GEMM;
    if (!data_name) set_operands(&one, distribution, data_seed(b->selection, seed_name, 0, 0, 0));
    choose_sample(b->selection, &one, model);
    char extents[72];
    snprintf(extents, sizeof extents, "%lldx%lldx%lld", (long long)p->m, (long long)p->n, (long long)p->k);
    ng_status status = set_id(b, &one, "%s%s%s%s%s/%s/%s/%s", one.kernel->name, p->phase ? "/" : "", p->phase ? phase_names[p->phase] : "",
                              *one.problem_name ? "/" : "", one.problem_name, extents,
                              data_name ? data_name : ng_distribution_names[distribution], mode_names[mode]);
    if (!*one.problem_name) snprintf(one.problem_name, sizeof one.problem_name, "%s", extents);
    return status ? status : add_case(b, &one);
}

/* A product under a recipe: recipe/<name>/<backend>/<phase>/<problem>/<extents>/<data>. Where the backend lacks a kernel, none. */
static ng_status add_recipe(builder *b, const ng_recipe *recipe, ng_backend backend, ng_case one, ng_distribution distribution,
                            const char *seed_name, bool model, const char *data_name) {
    const ng_problem *p = &one.problem;
    const ng_recipe_product *product = &recipe->phases[p->phase];
    const char *const quantizers[2] = {product->a, product->b};
    if (!product->gemm[backend] || !(one.kernel = ng_find_kernel(b->catalogue, NG_OP_GEMM, backend, product->gemm[backend]))) return NG_OK;
    for (int s = 0; s < 2; s++)
        if (quantizers[s] && !(one.quantizers[s] = ng_find_kernel(b->catalogue, NG_OP_QUANTIZE, backend, quantizers[s]))) return NG_OK;
    one.recipe = recipe;
    one.mode = NG_AUTOCAST;
    one.problem.op = NG_OP_GEMM;
    one.problem.seed = data_seed(b->selection, seed_name, 1, 0, 0);
    if (!data_name) {
        set_operands(&one, distribution, data_seed(b->selection, seed_name, 0, 0, 0));
        for (int s = 0; s < 2; s++)
            if (one.quantizers[s]) (s ? &one.data_b : &one.data)->target = target_of(one.kernel, &one.quantizers[s]->contract.quantization, distribution);
    }
    choose_sample(b->selection, &one, model);
    ng_status status = set_id(b, &one, "recipe/%s/%s/%s%s%s/%lldx%lldx%lld/%s", recipe->name, backend == NG_BACKEND_CPU ? "cpu" : "cuda",
                              phase_names[p->phase], *one.problem_name ? "/" : "", one.problem_name, (long long)p->m, (long long)p->n,
                              (long long)p->k, data_name ? data_name : ng_distribution_names[distribution]);
    if (!*one.problem_name) snprintf(one.problem_name, sizeof one.problem_name, "%lldx%lldx%lld", (long long)p->m, (long long)p->n, (long long)p->k);
    return status ? status : add_case(b, &one);
}

/* Whether one of the globs, commas between them, matches. */
static bool in_list(const char *list, const char *name) {
    for (const char *at = list; *at;) {
        char glob[96];
        size_t length = strcspn(at, ",");
        snprintf(glob, sizeof glob, "%.*s", (int)length, at);
        if (matches(glob, name)) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static ng_status add_recipes(builder *b, const char *list, const ng_case *base, ng_distribution distribution, const char *seed_name,
                             bool model, const char *data_name) {
    const ng_recipes *r = &b->selection->recipes;
    ng_status status = NG_OK;
    for (size_t i = 0; i < r->count && !status; i++)
        for (int backend = 0; backend < NG_BACKENDS && !status; backend++)
            if (in_list(list, r->recipes[i].name) && (b->selection->backends >> backend & 1 || !b->selection->backends))
                status = add_recipe(b, &r->recipes[i], (ng_backend)backend, *base, distribution, seed_name, model, data_name);
    return status;
}

static ng_status add_elementwise(builder *b, ng_case one, ng_distribution distribution) {
    ng_problem *p = &one.problem;
    const ng_kernel *kernel = one.kernel;
    p->op = kernel->op;
    const bool has_k = p->op == NG_OP_OPTIMIZER || p->op == NG_OP_EMBEDDING_FORWARD || p->op == NG_OP_EMBEDDING_BACKWARD;
    if (!has_k) p->k = 0; /* there: steps of a trajectory, a vocabulary */
    if (is_norm(kernel)) p->scalars[NG_EPSILON] = 1e-5; /* PyTorch's default */
    p->seed = data_seed(b->selection, one.problem_name, p->m, p->n, 1);
    one.data = (ng_data_spec){.distribution = distribution, .seed = data_seed(b->selection, one.problem_name, p->m, p->n, 0),
                              .target = one.data.target ? one.data.target : target_of(kernel, &kernel->contract.quantization, distribution),
                              .whole_rows = p->m, .whole_columns = p->n};
    char extents[48];
    snprintf(extents, sizeof extents, "%lldx%lld", (long long)p->m, (long long)p->n);
    ng_status status = set_id(b, &one, "%s%s%s/%s/%s", kernel->name, *one.problem_name ? "/" : "", one.problem_name, extents,
                              ng_distribution_names[distribution]);
    if (!*one.problem_name) snprintf(one.problem_name, sizeof one.problem_name, "%s", extents);
    return status ? status : add_case(b, &one);
}

static ng_status add_exhaustive(builder *b, ng_case one, const ng_case_row *row) {
    if (one.kernel->contract.cast.rounding == NG_R_STOCHASTIC) return NG_OK; /* judged word by word elsewhere */
    one.problem.op = NG_OP_CAST;
    if (row->thresholds && !ng_format_codes(one.kernel->out)) return NG_OK; /* too many */
    one.exhaustive = true;
    one.thresholds = row->thresholds;
    snprintf(one.problem_name, sizeof one.problem_name, "%s", row->suite);
    ng_status status = set_id(b, &one, "%s/%s", row->suite, one.kernel->name);
    return status ? status : add_case(b, &one);
}

/* ---- tables -------------------------------------------------------------------------------------------------------*/
static void orient(ng_problem *p, ng_phase phase, int64_t tokens, int64_t out, int64_t in) {
    p->phase = phase;
    p->m = phase == NG_WGRAD ? out : tokens;
    p->n = phase == NG_DGRAD || phase == NG_WGRAD ? in : out;
    p->k = phase == NG_WGRAD ? tokens : phase == NG_DGRAD ? out : in;
}

static ng_status add_row_products(builder *b, const ng_case_row *row, const ng_case *base, ng_distribution distribution) {
    unsigned modes = b->selection->modes ? b->selection->modes : 1u << row->mode, phases = row->phases ? row->phases : 1u << NG_NO_PHASE;
    char name[160];
    ng_status status = NG_OK;
    snprintf(name, sizeof name, "%s %lldx%lldx%lld", base->problem_name, (long long)row->m, (long long)row->n, (long long)row->k);
    for (int phase = 0; phase < NG_PHASES; phase++)
        for (int mode = 0; mode < NG_MODES && !status; mode++) {
            if (!(phases >> phase & 1) || !(modes >> mode & 1)) continue;
            ng_case one = *base;
            orient(&one.problem, (ng_phase)phase, row->m, row->n, row->k);
            status = add_product(b, one, distribution, (ng_mode)mode, name, false, NULL);
        }
    return status;
}

static ng_status add_row_kernel(builder *b, const ng_case_row *row, const ng_kernel *kernel, ng_distribution distribution) {
    ng_case base = {.kernel = kernel, .problem = {.m = row->m, .n = row->n, .k = row->k}, .level = row->level,
                    .repeats = row->repeats, .suite = row->suite};
    if (row->for_input) base.data.target = kernel->op == NG_OP_GEMM ? NG_BF16 : kernel->in; /* operands start from bf16 */
    if (row->scalars) memcpy(base.problem.scalars, row->scalars, sizeof base.problem.scalars);
    if (row->problem) snprintf(base.problem_name, sizeof base.problem_name, "%s", row->problem);
    if (!row->m && !row->n) return add_exhaustive(b, base, row);
    if (kernel->op == NG_OP_GEMM) return add_row_products(b, row, &base, distribution);
    return add_elementwise(b, base, distribution);
}

static ng_status add_row_recipes(builder *b, const ng_case_row *row, const char *list, ng_distribution distribution) {
    unsigned phases = row->phases ? row->phases : 1u << NG_FPROP;
    char name[160];
    ng_status status = NG_OK;
    ng_case base = {.level = row->level, .repeats = row->repeats, .suite = row->suite};
    if (row->problem) snprintf(base.problem_name, sizeof base.problem_name, "%s", row->problem);
    snprintf(name, sizeof name, "%s %lldx%lldx%lld", base.problem_name, (long long)row->m, (long long)row->n, (long long)row->k);
    for (int phase = NG_FPROP; phase < NG_PHASES && !status; phase++) {
        if (!(phases >> phase & 1)) continue;
        orient(&base.problem, (ng_phase)phase, row->m, row->n, row->k);
        status = add_recipes(b, list, &base, distribution, name, false, NULL);
    }
    return status;
}

/* Kernels in binary64 are judged by MPFR alone: rows name them, and are small. */
static bool is_left_out(const ng_case_row *row, const ng_kernel *kernel) {
    return kernel->in == NG_FP64 && kernel->op != NG_OP_CAST && !strstr(row->kernels, "fp64");
}

/* Kernels innermost: neighbours in the list share their data, which the judge keeps. */
static ng_status add_row(builder *b, const ng_case_row *row) {
    static const ng_distribution none[] = {NG_NORMAL, NG_DISTRIBUTIONS};
    bool exhaustive = !row->m && !row->n;
    const ng_distribution *data = exhaustive ? none : b->selection->data ? b->selection->data : row->data;
    ng_status status = NG_OK;
    for (; row->recipes && *data != NG_DISTRIBUTIONS && !status; data++)
        status = add_row_recipes(b, row, row->kernels, *data);
    if (row->recipes) return status;
    for (; *data != NG_DISTRIBUTIONS; data++)
        for (size_t i = 0; i < b->catalogue->count && !status; i++) {
            const ng_kernel *kernel = b->catalogue->kernels[i];
            if (kernel->op == row->op && backend_wanted(b, kernel) && matches(row->kernels, kernel->name) && !is_left_out(row, kernel))
                status = add_row_kernel(b, row, kernel, *data);
        }
    return status;
}

static ng_status add_tables(builder *b) {
    ng_status status = NG_OK;
    for (size_t i = 0; i < b->selection->row_count && !status; i++)
        if (b->selection->rows[i].use == NG_ROW_TABLE) status = add_row(b, &b->selection->rows[i]);
    return status;
}

/* ---- models, shapes -----------------------------------------------------------------------------------------------*/
static const ng_distribution *data_or_normal(const ng_selection *selection) {
    static const ng_distribution normal[] = {NG_NORMAL, NG_DISTRIBUTIONS};
    return selection->data ? selection->data : normal;
}

typedef ng_status (*add_for_kernel)(builder *b, const ng_kernel *kernel, const ng_case_row *row, const void *what);

/* Every kernel of the rows of that use, in the rows' order. */
static ng_status for_model_kernels(builder *b, ng_row_use use, ng_phase phase, add_for_kernel add, const void *what) {
    ng_status status = NG_OK;
    for (size_t r = 0; r < b->selection->row_count; r++) {
        const ng_case_row *row = &b->selection->rows[r];
        if (row->use != use || (row->phases && !(row->phases >> phase & 1))) continue;
        for (size_t i = 0; i < b->catalogue->count && !status; i++) {
            const ng_kernel *kernel = b->catalogue->kernels[i];
            if (kernel->op == NG_OP_GEMM && !kernel->contract.accumulate_into && backend_wanted(b, kernel) && matches(row->kernels, kernel->name))
                status = add(b, kernel, row, what);
        }
    }
    return status;
}

/* Whether filters ask for kernels beyond the usual ones: one that begins with a kernel's name does ("gemm/e4m3/..."), and
 * one that no usual case matches ("*hopper*"); "*lm_head*" asks for a layer. */
static bool filter_matches(const ng_selection *s, const char *id);
static bool asks_for_more(const builder *b) {
    const ng_selection *s = b->selection;
    bool matched = false;
    for (size_t i = 0; i < s->filter_count; i++)
        if (s->filters[i][0] != '*') return true;
    for (size_t i = 0; i < b->list.count && !matched; i++)
        matched = filter_matches(s, b->list.cases[i].id);
    return s->filter_count && !matched;
}

static ng_status add_model_kernel(builder *b, const ng_kernel *kernel, const ng_case_row *row, const void *what) {
    const ng_model_product *product = what;
    unsigned modes = b->selection->modes ? b->selection->modes : 1u << row->mode;
    ng_case one = {.kernel = kernel, .problem = {.phase = product->phase, .m = product->m, .n = product->n, .k = product->k}, .suite = row->suite};
    ng_status status = NG_OK;
    snprintf(one.model, sizeof one.model, "%s", b->selection->model->name);
    snprintf(one.layer, sizeof one.layer, "%s", product->layer);
    snprintf(one.problem_name, sizeof one.problem_name, "%.47s.%.47s", one.model, one.layer);
    for (const ng_distribution *data = data_or_normal(b->selection); *data != NG_DISTRIBUTIONS; data++)
        for (int mode = 0; mode < NG_MODES && !status; mode++)
            if (modes >> mode & 1) status = add_product(b, one, *data, (ng_mode)mode, one.problem_name, true, NULL);
    return status;
}

static ng_status add_model_recipes(builder *b, const ng_model_product *product) {
    const ng_selection *s = b->selection;
    ng_case one = {.problem = {.phase = product->phase, .m = product->m, .n = product->n, .k = product->k}, .suite = "model", .count = product->count};
    ng_status status = NG_OK;
    snprintf(one.model, sizeof one.model, "%s", s->model->name);
    snprintf(one.layer, sizeof one.layer, "%s", product->layer);
    snprintf(one.problem_name, sizeof one.problem_name, "%.47s.%.47s", one.model, one.layer);
    for (const ng_distribution *data = data_or_normal(s); *data != NG_DISTRIBUTIONS && !status; data++)
        status = add_recipes(b, s->recipe, &one, *data, one.problem_name, true, NULL);
    return status;
}

static ng_status add_model(builder *b) {
    const ng_selection *s = b->selection;
    size_t count = 0;
    ng_status status = ng_model_products(s->model, s->batch, s->sequence, s->tensor_parallel ? s->tensor_parallel : 1, NULL, 0, &count, b->error);
    if (status) return status;
    ng_model_product *products = calloc(count + 1, sizeof *products);
    if (!products) return ng_fail(b->error, NG_NO_MEMORY, "no memory for %zu products", count);
    status = ng_model_products(s->model, s->batch, s->sequence, s->tensor_parallel ? s->tensor_parallel : 1, products, count, &count, b->error);
    for (size_t i = 0; i < count && !status; i++)
        status = s->recipe ? add_model_recipes(b, &products[i])
                           : for_model_kernels(b, NG_ROW_MODEL, products[i].phase, add_model_kernel, &products[i]);
    bool more = !status && !s->recipe && asks_for_more(b);
    for (size_t i = 0; i < count && more && !status; i++)
        status = for_model_kernels(b, NG_ROW_MODEL_ON_REQUEST, products[i].phase, add_model_kernel, &products[i]);
    free(products);
    return status;
}

static ng_status add_shape(builder *b) {
    const ng_selection *s = b->selection;
    ng_status status = NG_OK;
    if (s->shape[0] < 1 || s->shape[1] < 1 || s->shape[2] < 1) return ng_fail(b->error, NG_BAD_ARGUMENT, "a shape has three extents of at least 1, as 4096x4096x4096");
    ng_case_row row = {.suite = "shape", .op = NG_OP_GEMM, .kernels = "*", .m = s->shape[0], .n = s->shape[1], .k = s->shape[2],
                       .data = data_or_normal(s)};
    if (s->recipe) { /* as the forward pass of a weight, and its two gradients */
        row.phases = 1u << NG_FPROP | 1u << NG_DGRAD | 1u << NG_WGRAD;
        row.recipes = true;
        row.kernels = s->recipe;
    }
    status = add_row(b, &row);
    return status;
}

/* ---- operands and tensors from files ------------------------------------------------------------------------------*/
typedef struct real_operand {
    const ng_tensor_file *file;
    int index;
    int64_t rows, columns;
} real_operand;

typedef struct real_operands {
    real_operand x, w, dy;
    ng_phase phase;
} real_operands;

static ng_status find_operand(builder *b, const ng_tensor_file *file, const char *name, real_operand *operand) {
    size_t index = 0;
    memset(operand, 0, sizeof *operand);
    if (!file) return NG_OK;
    if (name) {
        ng_status status = ng_tensor_file_find(file, name, &index, b->error);
        if (status) return status;
    } else if (!ng_tensor_file_count(file)) {
        return ng_fail(b->error, NG_BAD_ARGUMENT, "%s: holds no tensor", ng_tensor_file_path(file));
    }
    const ng_file_tensor *t = ng_tensor_file_tensor(file, index);
    *operand = (real_operand){file, (int)index, t->rows, t->columns};
    if (t->rows > 0 && t->columns > 0) return NG_OK;
    return ng_fail(b->error, NG_BAD_ARGUMENT, "%s: tensor \"%s\" is empty", ng_tensor_file_path(file), t->name);
}

static ng_status same_extent(builder *b, const real_operand *p, int64_t p_extent, const char *p_what, const real_operand *q,
                             int64_t q_extent, const char *q_what) {
    if (!p->file || !q->file || p_extent == q_extent) return NG_OK;
    return ng_fail(b->error, NG_BAD_ARGUMENT, "%s has %lld %s, but %s has %lld %s; expected x [T][in], w [out][in], dy [T][out]",
                   ng_tensor_file_path(p->file), (long long)p_extent, p_what, ng_tensor_file_path(q->file), (long long)q_extent, q_what);
}

static void use_operand(ng_data_spec *spec, const real_operand *operand) {
    spec->distribution = NG_FILE_TENSOR;
    spec->seed = 0;
    spec->file = operand->file;
    spec->file_index = operand->index;
    spec->whole_rows = operand->rows;
    spec->whole_columns = operand->columns;
}

static ng_status add_real_kernel(builder *b, const ng_kernel *kernel, const ng_case_row *row, const void *what) {
    const real_operands *o = what;
    unsigned modes = b->selection->modes ? b->selection->modes : 1u << row->mode;
    ng_case one = {.kernel = kernel, .suite = row->suite, .layer = "operands", .problem_name = "operands"};
    int64_t tokens = o->x.file ? o->x.rows : o->dy.rows, out = o->w.file ? o->w.rows : o->dy.columns, in = o->w.file ? o->w.columns : o->x.columns;
    ng_status status = NG_OK;
    snprintf(one.model, sizeof one.model, "files");
    orient(&one.problem, o->phase, tokens, out, in);
    set_operands(&one, NG_FILE_TENSOR, 0);
    use_operand(&one.data, o->phase == NG_FPROP ? &o->x : &o->dy);
    use_operand(&one.data_b, o->phase == NG_WGRAD ? &o->x : &o->w);
    for (int mode = 0; mode < NG_MODES && !status; mode++)
        if (modes >> mode & 1) status = add_product(b, one, NG_FILE_TENSOR, (ng_mode)mode, "", false, ng_distribution_names[NG_FILE_TENSOR]);
    return status;
}

static ng_status add_real_recipes(builder *b, const real_operands *o) {
    int64_t tokens = o->x.file ? o->x.rows : o->dy.rows, out = o->w.file ? o->w.rows : o->dy.columns, in = o->w.file ? o->w.columns : o->x.columns;
    ng_kernel shape = {.op = NG_OP_GEMM}; /* set_operands looks at the phase; the kernels come later */
    ng_case one = {.kernel = &shape, .suite = "model", .layer = "operands", .problem_name = "operands"};
    snprintf(one.model, sizeof one.model, "files");
    orient(&one.problem, o->phase, tokens, out, in);
    set_operands(&one, NG_FILE_TENSOR, 0);
    use_operand(&one.data, o->phase == NG_FPROP ? &o->x : &o->dy);
    use_operand(&one.data_b, o->phase == NG_WGRAD ? &o->x : &o->w);
    return add_recipes(b, b->selection->recipe, &one, NG_FILE_TENSOR, "", false, ng_distribution_names[NG_FILE_TENSOR]);
}

static ng_status add_real_operands(builder *b) {
    const ng_selection *s = b->selection;
    real_operands o = {0};
    ng_status status = find_operand(b, s->x, s->x_name, &o.x);
    if (!status) status = find_operand(b, s->w, s->w_name, &o.w);
    if (!status) status = find_operand(b, s->dy, s->dy_name, &o.dy);
    if (!status) status = same_extent(b, &o.x, o.x.columns, "columns", &o.w, o.w.columns, "columns");
    if (!status) status = same_extent(b, &o.dy, o.dy.columns, "columns", &o.w, o.w.rows, "rows");
    if (!status) status = same_extent(b, &o.x, o.x.rows, "rows", &o.dy, o.dy.rows, "rows");
    if (status) return status;
    if (!!s->x + !!s->w + !!s->dy < 2)
        return ng_fail(b->error, NG_BAD_ARGUMENT, "one operand makes no product: fprop takes x and w, dgrad dy and w, wgrad dy and x");
    bool possible[NG_PHASES] = {[NG_FPROP] = s->x && s->w, [NG_DGRAD] = s->dy && s->w, [NG_WGRAD] = s->dy && s->x};
    for (int phase = NG_FPROP; s->recipe && phase < NG_PHASES && !status; phase++) {
        o.phase = (ng_phase)phase;
        if (possible[phase]) status = add_real_recipes(b, &o);
    }
    for (int use = NG_ROW_MODEL; !s->recipe && use <= NG_ROW_MODEL_ON_REQUEST && !status; use++)
        for (int phase = NG_FPROP; phase < NG_PHASES && !status; phase++) {
            o.phase = (ng_phase)phase;
            if (use == NG_ROW_MODEL_ON_REQUEST && phase == NG_FPROP && !asks_for_more(b)) return NG_OK;
            if (possible[phase]) status = for_model_kernels(b, (ng_row_use)use, o.phase, add_real_kernel, &o);
        }
    return status;
}

static ng_status add_tensor(builder *b, const ng_tensor_file *file, size_t index) {
    const ng_file_tensor *t = ng_tensor_file_tensor(file, index);
    ng_format_id in = t->format == NG_BF16 || t->format == NG_FP16 ? t->format : NG_FP32;
    ng_status status = NG_OK;
    if (t->rows < 1 || t->columns < 1) return NG_OK;
    for (size_t r = 0; r < b->selection->row_count; r++)
        for (size_t i = 0; i < b->catalogue->count && !status; i++) {
            const ng_case_row *row = &b->selection->rows[r];
            const ng_kernel *kernel = b->catalogue->kernels[i];
            if (row->use != NG_ROW_TENSORS || kernel->op != NG_OP_QUANTIZE || kernel->in != in || !backend_wanted(b, kernel) ||
                !matches(row->kernels, kernel->name))
                continue;
            ng_case one = {.kernel = kernel, .suite = row->suite, .problem = {.op = NG_OP_QUANTIZE, .m = t->rows, .n = t->columns},
                           .data = {.distribution = NG_FILE_TENSOR, .file = file, .file_index = (int)index, .target = in,
                                    .whole_rows = t->rows, .whole_columns = t->columns}};
            one.problem.seed = b->selection->seed;
            snprintf(one.problem_name, sizeof one.problem_name, "%s", t->name);
            status = set_id(b, &one, "%s/%s/%lldx%lld/%s", kernel->name, t->name, (long long)t->rows, (long long)t->columns,
                            ng_distribution_names[NG_FILE_TENSOR]);
            if (!status) status = add_case(b, &one);
        }
    return status;
}

static ng_status add_tensors(builder *b) {
    const ng_tensor_file *file = b->selection->tensors;
    size_t index = 0;
    ng_status status = NG_OK;
    if (b->selection->tensor_name) {
        status = ng_tensor_file_find(file, b->selection->tensor_name, &index, b->error);
        return status ? status : add_tensor(b, file, index);
    }
    for (; index < ng_tensor_file_count(file) && !status; index++)
        status = add_tensor(b, file, index);
    return status;
}

/* ---- selection ----------------------------------------------------------------------------------------------------*/
static bool filter_matches(const ng_selection *s, const char *id) {
    for (size_t i = 0; i < s->filter_count; i++)
        if (matches(s->filters[i], id)) return true;
    return !s->filter_count;
}

enum { NEAREST = 3 };

/* Edit distance of the filter to the nearest beginning of the id: what a filter's last star stands for costs nothing. */
static int distance(const char *filter, const char *id) {
    int row[NG_ID_BYTES], best;
    size_t n = strlen(id);
    for (size_t j = 0; j <= n; j++)
        row[j] = (int)j;
    for (const char *f = filter; *f; f++) {
        int diagonal = row[0];
        row[0]++;
        for (size_t j = 1; j <= n; j++) {
            int change = diagonal + (*f != '*' && *f != '?' && *f != id[j - 1]);
            diagonal = row[j];
            int least = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + (*f == '*' ? 0 : 1);
            row[j] = change < least ? change : least;
        }
    }
    best = row[0];
    for (size_t j = 1; j <= n; j++)
        if (row[j] < best) best = row[j];
    return best;
}

static ng_status nothing_matches(const builder *b) {
    const char *filter = b->selection->filters[0];
    const char *nearest[NEAREST] = {"", "", ""};
    int found[NEAREST] = {1 << 30, 1 << 30, 1 << 30};
    for (size_t i = 0; i < b->list.count; i++) {
        int d = distance(filter, b->list.cases[i].id), at = NEAREST;
        while (at > 0 && d < found[at - 1])
            at--;
        if (at == NEAREST) continue;
        memmove(&found[at + 1], &found[at], sizeof found[0] * (size_t)(NEAREST - 1 - at));
        memmove(&nearest[at + 1], &nearest[at], sizeof nearest[0] * (size_t)(NEAREST - 1 - at));
        found[at] = d;
        nearest[at] = b->list.cases[i].id;
    }
    return ng_fail(b->error, NG_BAD_ARGUMENT, "no case matches --filter '%s'; the nearest: %s%s%s%s%s", filter, nearest[0], *nearest[1] ? ", " : "",
                   nearest[1], *nearest[2] ? ", " : "", nearest[2]);
}

static const char *const level_names[NG_LEVELS] = {"smoke", "ci", "nightly"};

/* Keeps what the filters and the level ask for. */
static ng_status select_cases(builder *b) {
    const ng_selection *s = b->selection;
    size_t kept = 0, matched = 0;
    ng_level lowest = NG_LEVELS;
    for (size_t i = 0; i < b->list.count; i++) {
        const ng_case *one = &b->list.cases[i];
        if (!filter_matches(s, one->id)) continue;
        matched++;
        if (one->level < lowest) lowest = one->level;
        if (one->level <= s->level) b->list.cases[kept++] = *one;
    }
    if (!b->list.count)
        return ng_fail(b->error, NG_BAD_ARGUMENT, "no %s fits what is asked for", s->recipe ? "recipe" : "kernel of the catalogue");
    if (!matched) return nothing_matches(b);
    if (!kept)
        return ng_fail(b->error, NG_BAD_ARGUMENT, "%zu cases match, the quickest of level %s: add --level %s", matched,
                       level_names[lowest], level_names[lowest]);
    b->list.count = kept;
    return NG_OK;
}

ng_status ng_expand(const ng_selection *selection, const ng_catalogue *catalogue, ng_case_list *list, ng_error *error) {
    builder b = {.selection = selection, .catalogue = catalogue, .error = error};
    ng_status status;
    memset(list, 0, sizeof *list);
    if (selection->model) status = add_model(&b);
    else if (selection->x || selection->w || selection->dy) status = add_real_operands(&b);
    else if (selection->tensors) status = add_tensors(&b);
    else if (selection->shape[0] || selection->shape[1] || selection->shape[2]) status = add_shape(&b);
    else status = add_tables(&b);
    if (!status) status = select_cases(&b);
    free(b.slots);
    if (status) ng_case_list_free(&b.list);
    else *list = b.list;
    return status;
}

void ng_case_list_free(ng_case_list *list) {
    free(list->cases);
    memset(list, 0, sizeof *list);
}
