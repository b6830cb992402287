#include "suites/fuzz/targets.h"

#include "harness/data.h"
#include "harness/model.h"
#include "harness/tensorfile.h"
#include "reference/format.h"

#include <math.h>
#include <string.h>

static bool one_line(const ng_error *error, const char *begin) {
    return error->status && !strncmp(error->text, begin, strlen(begin)) && !strpbrk(error->text, "\n\r") &&
           strlen(error->text) + 1 < sizeof error->text;
}

/* Inside the bytes to the last element; every element is read once (under a sanitizer, an overrun is seen). */
static bool tensor_within(const ng_tensor_file *file, size_t index, const char *bytes, size_t size) {
    const ng_file_tensor *t = ng_tensor_file_tensor(file, index);
    const char *data = t->data;
    ng_error error = {0};
    size_t found;
    double amax = 0;
    if (data < bytes || data > bytes + size || t->rows < 0 || t->columns < 0) return false;
    ng_status status = ng_tensor_file_operand(file, index, &error);
    if (status) return one_line(&error, ng_tensor_file_path(file)) && ng_tensor_file_find(file, t->name, &found, NULL) == status;
    if (ng_row_bytes(t->format, t->columns) * t->rows > bytes + size - data) return false;
    if (ng_tensor_file_find(file, t->name, &found, &error) || found != index) return false;
    ng_data_spec spec = {.distribution = NG_FILE_TENSOR, .file = file, .file_index = (int)index, .whole_rows = t->rows,
                         .whole_columns = t->columns};
    return !ng_data_amax(&spec, t->format, 1, &amax, &error) && (isnan(amax) || amax >= 0);
}

static bool tensor_file(const void *bytes, size_t size, const char *path) {
    ng_tensor_file *file = NULL;
    ng_error error = {0};
    bool good = true;
    if (ng_tensor_file_parse(bytes, size, path, &file, &error)) return !file && one_line(&error, path);
    for (size_t i = 0; good && i < ng_tensor_file_count(file); i++)
        good = tensor_within(file, i, bytes, size);
    ng_tensor_file_close(file);
    return good;
}

bool ng_fuzz_safetensors(const void *bytes, size_t size) { return tensor_file(bytes, size, "fuzz.safetensors"); }
bool ng_fuzz_npy(const void *bytes, size_t size) { return tensor_file(bytes, size, "fuzz.npy"); }

bool ng_fuzz_config(const void *bytes, size_t size) {
    ng_model model;
    ng_model_product rows[64];
    ng_error error = {0};
    size_t count = 0;
    if (ng_model_parse(bytes, size, "fuzz.json", &model, &error)) return one_line(&error, "fuzz.json");
    for (int64_t tp = 1; tp <= 8; tp *= 8) {
        if (ng_model_products(&model, 3, 1000, tp, rows, 64, &count, &error)) {
            if (!one_line(&error, "fuzz")) return false;
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            const ng_model_product *r = &rows[i];
            const int64_t limit = (int64_t)1 << 60;
            if (r->m < 1 || r->n < 1 || r->k < 1 || r->count < 1 || r->m > limit / r->n || r->m > limit / r->k || r->n > limit / r->k)
                return false;
        }
        if (!count || count > 64) return false;
    }
    return true;
}
