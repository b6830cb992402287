#include "harness/buffers.h"

#include "harness/digest.h"
#include "reference/format.h"

#include <stdlib.h>
#include <string.h>

/* Depends on the place, so that a kernel which copies or repeats a row into a guard does not reproduce it. A function of
 * words, as every tensor of every case has two guards; the bytes of a word are in memory order. */
static uint32_t guard_word(size_t index) { return (uint32_t)index * 0x9E3779B1u ^ 0xA5C3965Au; }

static unsigned char guard_byte(size_t offset) {
    uint32_t word = guard_word(offset / 4);
    return ((const unsigned char *)&word)[offset % 4];
}

/* Bytes of [from, end) before the first whole word, and where the whole words end. */
static size_t first_word(size_t from, size_t end) { return (from + 3) / 4 * 4 < end ? (from + 3) / 4 * 4 : end; }
static size_t last_word(size_t first, size_t end) { return first + (end - first) / 4 * 4; }

static void fill_guard(unsigned char *base, size_t from, size_t bytes) {
    size_t end = from + bytes, first = first_word(from, end), last = last_word(first, end);
    uint32_t *words = (uint32_t *)(void *)(base + first);
    for (size_t i = from; i < first; i++)
        base[i] = guard_byte(i);
    for (size_t i = 0; i < (last - first) / 4; i++)
        words[i] = guard_word(first / 4 + i);
    for (size_t i = last; i < end; i++)
        base[i] = guard_byte(i);
}

static bool guard_intact(const unsigned char *base, size_t from, size_t bytes) {
    size_t end = from + bytes, first = first_word(from, end), last = last_word(first, end);
    const uint32_t *words = (const uint32_t *)(const void *)(base + first);
    uint32_t differ = 0;
    for (size_t i = from; i < first; i++)
        differ |= base[i] ^ guard_byte(i);
    for (size_t i = 0; i < (last - first) / 4; i++)
        differ |= words[i] ^ guard_word(first / 4 + i);
    for (size_t i = last; i < end; i++)
        differ |= base[i] ^ guard_byte(i);
    return !differ;
}

static ng_status extents(ng_format_id format, int64_t rows, int64_t columns, int64_t padding, int64_t *row_bytes,
                         size_t *bytes, ng_error *error) {
    int64_t total;
    if (rows < 0 || columns < 0 || padding < 0 || columns > INT64_MAX / 16)
        return ng_fail(error, NG_BAD_ARGUMENT, "a tensor of %lld x %lld elements cannot be", (long long)rows, (long long)columns);
    *row_bytes = ng_row_bytes(format, columns) + padding;
    if (__builtin_mul_overflow(rows, *row_bytes, &total) || total > (int64_t)(SIZE_MAX / 4))
        return ng_fail(error, NG_NO_MEMORY, "a tensor of %lld x %lld elements does not fit into memory", (long long)rows,
                       (long long)columns);
    *bytes = (size_t)total;
    return NG_OK;
}

ng_status ng_guarded_create(ng_format_id format, int64_t rows, int64_t columns, int64_t padding, ng_guarded *guarded,
                            ng_error *error) {
    int64_t row_bytes = 0;
    size_t bytes = 0;
    memset(guarded, 0, sizeof *guarded);
    ng_status status = extents(format, rows, columns, padding, &row_bytes, &bytes, error);
    if (status) return status;
    size_t whole = (bytes + 2 * NG_GUARD_BYTES + 63) / 64 * 64;
    unsigned char *base = aligned_alloc(64, whole);
    if (!base) return ng_fail(error, NG_NO_MEMORY, "no memory for a tensor of %zu bytes", bytes);
    fill_guard(base, 0, NG_GUARD_BYTES);
    fill_guard(base, NG_GUARD_BYTES + bytes, NG_GUARD_BYTES);
    memset(base + NG_GUARD_BYTES, 0, bytes);
    for (int64_t i = 0; padding && i < rows; i++)
        fill_guard(base, NG_GUARD_BYTES + (size_t)((i + 1) * row_bytes - padding), (size_t)padding);
    guarded->base = base;
    guarded->bytes = bytes;
    guarded->tensor = (ng_tensor){base + NG_GUARD_BYTES, format, NG_HOST, rows, columns, row_bytes};
    return NG_OK;
}

ng_status ng_guarded_copy(const ng_tensor *from, int64_t padding, ng_guarded *guarded, ng_error *error) {
    ng_status status = ng_guarded_create(from->format, from->rows, from->columns, padding, guarded, error);
    if (status) return status;
    ng_tensor_copy(from, &guarded->tensor);
    ng_guarded_seal(guarded);
    return NG_OK;
}

void ng_guarded_free(ng_guarded *guarded) {
    free(guarded->base);
    memset(guarded, 0, sizeof *guarded);
}

static const unsigned char poisons[NG_POISONS] = {0xFF, 0x55}; /* both nibbles alike: e2m1 */

void ng_guarded_poison(ng_guarded *guarded, int poison) {
    ng_tensor *t = &guarded->tensor;
    for (int64_t i = 0; i < t->rows; i++)
        memset((char *)t->data + i * t->row_bytes, poisons[poison], (size_t)ng_row_bytes(t->format, t->columns));
}

uint64_t ng_poison_code(ng_format_id format, int poison) {
    unsigned char bytes[8];
    memset(bytes, poisons[poison], sizeof bytes);
    ng_tensor one = {bytes, format, NG_HOST, 1, 1, sizeof bytes};
    return ng_get_code(&one, 0, 0);
}

void ng_guarded_seal(ng_guarded *guarded) { guarded->digest = ng_digest_elements(&guarded->tensor); }

bool ng_guarded_unchanged(const ng_guarded *guarded) { return guarded->digest == ng_digest_elements(&guarded->tensor); }

bool ng_guarded_intact(const ng_guarded *guarded) {
    const ng_tensor *t = &guarded->tensor;
    size_t padding = (size_t)(t->row_bytes - ng_row_bytes(t->format, t->columns));
    bool intact = guard_intact(guarded->base, 0, NG_GUARD_BYTES) &&
                  guard_intact(guarded->base, NG_GUARD_BYTES + guarded->bytes, NG_GUARD_BYTES);
    for (int64_t i = 0; padding && intact && i < t->rows; i++)
        intact = guard_intact(guarded->base, NG_GUARD_BYTES + (size_t)((i + 1) * t->row_bytes) - padding, padding);
    return intact;
}

/* ---- the mirror in device memory ----------------------------------------------------------------------------------*/
static size_t whole_bytes(const ng_guarded *guarded) { return guarded->bytes + 2 * NG_GUARD_BYTES; }

ng_status ng_guarded_send(ng_guarded *guarded, ng_gpu *gpu, ng_error *error) {
    ng_status status = NG_OK;
    void *made = NULL;
    if (!guarded->device) {
        status = ng_gpu_malloc(gpu, whole_bytes(guarded), &made, error);
        if (status) return status;
        guarded->device = made;
    }
    return ng_gpu_copy(gpu, guarded->device, guarded->base, whole_bytes(guarded), NG_TO_DEVICE, error);
}

ng_status ng_guarded_fetch(ng_guarded *guarded, ng_gpu *gpu, bool guards_only, ng_error *error) {
    size_t after = NG_GUARD_BYTES + guarded->bytes;
    if (!guards_only) return ng_gpu_copy(gpu, guarded->base, guarded->device, whole_bytes(guarded), NG_FROM_DEVICE, error);
    ng_status status = ng_gpu_copy(gpu, guarded->base, guarded->device, NG_GUARD_BYTES, NG_FROM_DEVICE, error);
    if (status) return status;
    return ng_gpu_copy(gpu, guarded->base + after, guarded->device + after, NG_GUARD_BYTES, NG_FROM_DEVICE, error);
}

void ng_guarded_free_device(ng_guarded *guarded, ng_gpu *gpu) {
    if (guarded->device) ng_gpu_free(gpu, guarded->device);
    guarded->device = NULL;
}

ng_tensor ng_guarded_view(const ng_guarded *guarded) {
    ng_tensor tensor = guarded->tensor;
    if (!guarded->device) return tensor;
    tensor.data = guarded->device + NG_GUARD_BYTES;
    tensor.space = NG_GPU;
    return tensor;
}

/* ---- plain tensors ------------------------------------------------------------------------------------------------*/
ng_status ng_tensor_create(ng_format_id format, int64_t rows, int64_t columns, ng_tensor *tensor, ng_error *error) {
    int64_t row_bytes = 0;
    size_t bytes = 0;
    memset(tensor, 0, sizeof *tensor);
    ng_status status = extents(format, rows, columns, 0, &row_bytes, &bytes, error);
    if (status) return status;
    void *data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!data) return ng_fail(error, NG_NO_MEMORY, "no memory for a tensor of %zu bytes", bytes);
    memset(data, 0, bytes);
    *tensor = (ng_tensor){data, format, NG_HOST, rows, columns, row_bytes};
    return NG_OK;
}

void ng_tensor_free(ng_tensor *tensor) {
    free(tensor->data);
    memset(tensor, 0, sizeof *tensor);
}

void ng_tensor_copy(const ng_tensor *from, ng_tensor *to) {
    size_t bytes = (size_t)ng_row_bytes(from->format, from->columns);
    for (int64_t i = 0; i < from->rows; i++)
        memcpy((char *)to->data + i * to->row_bytes, (const char *)from->data + i * from->row_bytes, bytes);
}

bool ng_tensor_equal(const ng_tensor *a, const ng_tensor *b) {
    bool half_byte = ng_formats[a->format].storage_bits == 4 && a->columns % 2;
    size_t bytes = (size_t)ng_row_bytes(a->format, a->columns) - half_byte;
    for (int64_t i = 0; i < a->rows; i++) {
        if (memcmp((const char *)a->data + i * a->row_bytes, (const char *)b->data + i * b->row_bytes, bytes)) return false;
        if (half_byte && ng_get_code(a, i, a->columns - 1) != ng_get_code(b, i, b->columns - 1)) return false;
    }
    return true;
}
