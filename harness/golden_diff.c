#include "harness/golden_diff.h"
#include "harness/golden.h"
#include "harness/input.h"
#include "harness/judge_internal.h"
#include "harness/record_read.h"
#include "reference/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- either side --------------------------------------------------------------------------------------------------*/
/* A golden or a record as a sorted list of cases. */
typedef struct side {
    const char *path;
    ng_golden_set set;    /* a golden's; or cases that point into record */
    ng_record_file record;
} side;

static ng_status open_side(const char *path, side *s, ng_error *error) {
    *s = (side){.path = path};
    ng_error first;
    ng_status status = ng_record_read(path, &s->record, &first);
    if (status == NG_BAD_ARGUMENT && !ng_golden_read(path, &s->set, error)) return NG_OK;
    if (status && strstr(first.text, NG_GOLDEN_SCHEMA)) return error->status; /* a golden, but not a sound one */
    if (status) return ng_fail(error, status, "%.900s", first.text);
    s->set.cases = calloc(s->record.count + 1, sizeof *s->set.cases);
    if (!s->set.cases) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->record.count; i++) {
        const ng_recorded_case *one = &s->record.cases[i];
        if (!*one->result.digest) continue;
        s->set.cases[s->set.count++] = (ng_golden_case){
            one->id, one->result.digest,
            {one->result.error.bound_ratio, one->result.error.max_ulp, one->result.error.rms_rel, one->result.error.bias}};
    }
    return NG_OK;
}

static void close_side(side *s) {
    ng_golden_free(&s->set);
    ng_record_free(&s->record);
}

/* ---- saved results ------------------------------------------------------------------------------------------------*/
/* A .npy that `run --save` wrote: rows of codes, little-endian. */
typedef struct array {
    char *text;
    const unsigned char *codes;
    long long rows, columns;
    int bytes; /* of an element */
} array;

static void saved_path(const char *folder, const char *id, const char *role, char *path, size_t capacity) {
    int used = snprintf(path, capacity, "%s/", folder);
    if (used < 0 || (size_t)used >= capacity) return;
    snprintf(path + used, capacity - (size_t)used, "%s.%s.npy", id, role);
    ng_mangle_id(path + used);
}

static ng_status read_array(const char *path, array *a, ng_error *error) {
    size_t length;
    char kind[8] = "";
    ng_status status = ng_read_file(path, "saved result", &a->text, &length, error);
    if (status) return status;
    const char *descr = length > 128 ? strstr(a->text + 10, "'descr': '") : NULL, *shape = descr ? strstr(descr, "'shape': (") : NULL;
    if (!shape || sscanf(descr, "'descr': '%3[<|a-z0-9]'", kind) != 1 ||
        sscanf(shape, "'shape': (%lld, %lld)", &a->rows, &a->columns) != 2)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is not what `run --save always` writes", path);
    a->bytes = kind[2] - '0';
    a->codes = (const unsigned char *)a->text + 128;
    if (a->bytes < 1 || a->bytes > 8 || a->rows < 0 || a->columns < 0 ||
        (double)a->rows * (double)a->columns * a->bytes != (double)(length - 128))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: is cut off", path);
    return NG_OK;
}

static uint64_t code_at(const array *a, long long i) {
    uint64_t code = 0;
    for (int b = a->bytes; b-- > 0;)
        code = code << 8 | a->codes[i * a->bytes + b];
    return code;
}

/* Codes of a sign-magnitude format in the order of their values; +0 and -0 are neighbours. */
static int64_t place_of(uint64_t code, int bits, bool is_signed) {
    uint64_t sign = is_signed ? code >> (bits - 1) & 1 : 0, magnitude = is_signed ? code & ~(UINT64_C(1) << (bits - 1)) : code;
    return sign ? -1 - (int64_t)magnitude : (int64_t)magnitude;
}

static const ng_kernel *kernel_of(const ng_program *program, const char *id) {
    const ng_kernel *best = NULL;
    size_t longest = 0;
    for (size_t k = 0; k < program->kernel_count; k++) {
        size_t length = strlen(program->kernels[k]->name);
        const char *at = strstr(id, program->kernels[k]->name); /* at the start, or after the suite of an exhaustive case */
        if (at && length > longest && (!at[length] || at[length] == '/')) {
            best = program->kernels[k];
            longest = length;
        }
    }
    return best;
}

/* Bits and sign of a role's format, where the catalogue knows the kernel; else what the array's elements have. */
static void code_shape(const ng_kernel *kernel, int role, const array *a, int *bits, bool *is_signed) {
    ng_format_id format = NG_NO_FORMAT;
    *bits = 8 * a->bytes;
    *is_signed = true;
    if (kernel && (role == NG_OUT || role == NG_OUT_T)) format = kernel->out;
    if (kernel && (role == NG_OUT_SCALES || role == NG_OUT_T_SCALES)) format = kernel->contract.quantization.scale;
    if (format == NG_NO_FORMAT || ng_formats[format].storage_bits > 8) return;
    const ng_format *f = &ng_formats[format];
    *bits = f->exponent_bits + f->mantissa_bits + f->is_signed;
    *is_signed = f->is_signed;
}

static void compare_arrays(const ng_kernel *kernel, int role, const array *a, const array *b) {
    long long differ = 0, first = -1, count = a->rows * a->columns;
    int64_t most = 0;
    int bits;
    bool is_signed;
    code_shape(kernel, role, a, &bits, &is_signed);
    for (long long i = 0; i < count; i++) {
        uint64_t x = code_at(a, i), y = code_at(b, i);
        if (x == y) continue;
        int64_t distance = place_of(x, bits, is_signed) - place_of(y, bits, is_signed);
        if (distance < 0) distance = -distance;
        if (distance > most) most = distance;
        if (!differ++) first = i;
    }
    if (!differ) return;
    printf("    %s: %lld of %lld elements, by up to %" PRId64 " units in the last place, first [%lld][%lld] %0*" PRIx64 " -> %0*" PRIx64 "\n",
           ng_role_names[role], differ, count, most, first / a->columns, first % a->columns, (bits + 3) / 4, code_at(a, first),
           (bits + 3) / 4, code_at(b, first));
}

static ng_status compare_saved(const ng_program *program, const char *id, const char *saved_a, const char *saved_b, ng_error *error) {
    ng_status status = NG_OK;
    size_t found = 0;
    for (int role = 0; role < NG_ROLES && !status; role++) {
        char path_a[4096], path_b[4096];
        array a = {0}, b = {0};
        saved_path(saved_a, id, ng_role_names[role], path_a, sizeof path_a);
        saved_path(saved_b, id, ng_role_names[role], path_b, sizeof path_b);
        if (access(path_a, F_OK) || access(path_b, F_OK)) continue;
        found++;
        status = read_array(path_a, &a, error);
        if (!status) status = read_array(path_b, &b, error);
        if (!status && (a.rows != b.rows || a.columns != b.columns || a.bytes != b.bytes))
            printf("    %s: another shape\n", ng_role_names[role]);
        else if (!status) compare_arrays(kernel_of(program, id), role, &a, &b);
        free(a.text);
        free(b.text);
    }
    if (!status && !found) printf("    nothing saved of it in both folders\n");
    return status;
}

/* ---- the difference -----------------------------------------------------------------------------------------------*/
static void print_figures(const ng_golden_case *a, const ng_golden_case *b) {
    for (int f = 0; f < NG_GOLDEN_FIGURES; f++)
        if (!isnan(a->figures[f]) || !isnan(b->figures[f]))
            printf("%s%s %.4g -> %.4g", f ? ", " : "    ", ng_golden_figure_names[f], a->figures[f], b->figures[f]);
    putchar('\n');
}

/* What prediction knows of the case: which elements are not what the contract says. */
static void print_predicted(const side *s, const char *id) {
    const ng_recorded_case *one = ng_record_find(&s->record, id);
    if (!one || !one->result.prediction.present) return;
    const ng_prediction *p = &one->result.prediction;
    printf("    %s: %lld of %lld elements differ from the prediction (%s)", s->path, (long long)p->differ, (long long)p->elements, p->model);
    if (p->differ) printf(", first [%lld][%lld]", (long long)p->first[0], (long long)p->first[1]);
    putchar('\n');
}

static ng_status print_difference(const ng_program *program, const side *a, const side *b, const ng_golden_case *x,
                                  const ng_golden_case *y, const char *saved_a, const char *saved_b, ng_error *error) {
    bool inside = y->figures[0] < 1, outside = y->figures[0] >= 1;
    printf("%s\n    %.8s -> %.8s%s\n", x->id, x->digest, y->digest, inside ? ", inside its bound" : outside ? ", OUTSIDE its bound" : "");
    print_figures(x, y);
    print_predicted(a, x->id);
    print_predicted(b, x->id);
    return saved_a ? compare_saved(program, x->id, saved_a, saved_b, error) : NG_OK;
}

ng_status ng_golden_diff(const ng_program *program, const char *path_a, const char *path_b, const char *saved_a, const char *saved_b,
                         int *exit_status, ng_error *error) {
    side a = {0}, b = {0};
    size_t same = 0, differ = 0, only_a = 0, only_b = 0, i = 0, j = 0;
    ng_status status = open_side(path_a, &a, error);
    if (!status) status = open_side(path_b, &b, error);
    while (!status && (i < a.set.count || j < b.set.count)) {
        int order = i == a.set.count ? 1 : j == b.set.count ? -1 : strcmp(a.set.cases[i].id, b.set.cases[j].id);
        if (order < 0) only_a++, i++;
        else if (order > 0) only_b++, j++;
        else {
            const ng_golden_case *x = &a.set.cases[i++], *y = &b.set.cases[j++];
            if (!strcmp(x->digest, y->digest)) same++;
            else {
                differ++;
                status = print_difference(program, &a, &b, x, y, saved_a, saved_b, error);
            }
        }
    }
    if (!status && !(same + differ)) status = ng_fail(error, NG_BAD_ARGUMENT, "%s and %s have no case in common", path_a, path_b);
    if (!status) printf("%zu cases have the same bits, %zu differ; %zu only in %s, %zu only in %s\n", same, differ, only_a, path_a, only_b, path_b);
    *exit_status = differ ? NG_EXIT_REGRESSION : NG_EXIT_OK;
    close_side(&a);
    close_side(&b);
    return status;
}
