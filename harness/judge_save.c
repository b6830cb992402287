/* Operands and outputs as .npy (format 1.0, NumPy's own description): codes of the formats that NumPy has no name for as
 * unsigned integers. */
#include "harness/judge_internal.h"

#include "reference/format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *descriptor(ng_format_id format) {
    switch (format) {
    case NG_FP64: return "<f8";
    case NG_FP32: case NG_TF32: return "<f4";
    case NG_FP16: return "<f2";
    case NG_BF16: return "<u2";
    default: return "|u1";
    }
}

void ng_mangle_id(char *name) {
    for (; *name; name++)
        if (*name == '/' || *name == '>' || *name == '*') *name = '_';
}

static void file_name(const ng_judge *judge, const ng_case *one, const char *what, char *path, size_t bytes) {
    int used = snprintf(path, bytes, "%s/", judge->settings.save_directory);
    if (used < 0 || (size_t)used >= bytes) return;
    snprintf(path + used, bytes - (size_t)used, "%s.%s.npy", one->id, what);
    ng_mangle_id(path + used);
}

/* e2m1 is saved a code a byte, so that the array has the tensor's shape. */
static bool write_rows(FILE *file, const ng_tensor *t) {
    bool good = true;
    for (int64_t i = 0; good && i < t->rows; i++) {
        if (ng_formats[t->format].storage_bits >= 8) {
            size_t bytes = (size_t)ng_row_bytes(t->format, t->columns);
            good = fwrite((const char *)t->data + i * t->row_bytes, 1, bytes, file) == bytes;
            continue;
        }
        for (int64_t j = 0; good && j < t->columns; j++)
            good = putc((int)ng_get_code(t, i, j), file) != EOF;
    }
    return good;
}

ng_status ng_save(const ng_judge *judge, const ng_case *one, const ng_result *result, const char *what, const ng_tensor *tensor,
                  ng_error *error) {
    bool bad = result->verdict == NG_FAIL || result->verdict == NG_MOVED;
    char path[4096], header[128];
    if (!judge->settings.save_directory || !(bad || judge->settings.save_always)) return NG_OK;
    if (mkdir(judge->settings.save_directory, 0777) && errno != EEXIST)
        return ng_fail(error, NG_IO, "%s: %s", judge->settings.save_directory, strerror(errno));
    file_name(judge, one, what, path, sizeof path);
    /* the header with its 10 bytes before it fills a multiple of 64, and ends in a newline */
    memset(header, ' ', sizeof header);
    int used = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld, %lld), }", descriptor(tensor->format),
                        (long long)tensor->rows, (long long)tensor->columns);
    header[used] = ' ';
    header[sizeof header - 10 - 1] = '\n';
    FILE *file = fopen(path, "wb");
    if (!file) return ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
    static const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 128 - 10, 0};
    bool good = fwrite(magic, 1, sizeof magic, file) == sizeof magic && fwrite(header, 1, sizeof header - 10, file) == sizeof header - 10 &&
                write_rows(file, tensor);
    if (fclose(file)) good = false;
    return good ? NG_OK : ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
}

ng_status ng_save_session(const ng_session *session, const ng_case *one, const ng_result *result, ng_error *error) {
    ng_status status = NG_OK;
    for (int role = 0; role < NG_ROLES && !status; role++) {
        const ng_tensor *t = session->written >> role & 1 ? &session->first[role] : &session->roles[role].tensor;
        if (t->data) status = ng_save(session->judge, one, result, ng_role_names[role], t, error);
    }
    return status;
}
