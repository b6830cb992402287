#include "suites/vectors.h"

#include "reference/predict.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------------------------------*/
typedef struct reader {
    const char *path;
    size_t line;
    bool has_format, has_accumulator;
    ng_error *error;
} reader;

static ng_status complain(const reader *r, const char *text)
{
    return ng_fail(r->error, NG_IO, "%s:%zu: %s", r->path, r->line, text);
}

/* The word that ends where `end` begins, as a format. */
static ng_format_id format_before(const char *start, const char *end)
{
    char name[16];
    const char *word = end;
    while (word > start && isalnum((unsigned char)word[-1])) word--;
    size_t length = (size_t)(end - word);
    if (length == 0 || length >= sizeof name) return NG_NO_FORMAT;
    for (size_t i = 0; i < length; i++) name[i] = (char)tolower((unsigned char)word[i]);
    name[length] = 0;
    return ng_format_by_name(name);
}

static ng_status read_title(reader *r, const char *text, const char *inputs, ng_vectors *v)
{
    const char *k = strstr(text, "K=");
    v->format = format_before(text, inputs);
    if (v->format == NG_NO_FORMAT || v->format == NG_FP32 || v->format == NG_FP64)
        return complain(r, "the word before \"inputs\" is no format of a tensor core");
    v->k = k ? atoi(k + 2) : 0;
    if (v->k < 1 || v->k > NG_MAX_STEP) return complain(r, "no K=N with N from 1 to 256 beside \"inputs\"");
    if (!strstr(text, "fp32 output")) return complain(r, "only steps with fp32 output can be replayed");
    r->has_format = true;
    return NG_OK;
}

static ng_status read_comment(reader *r, const char *text, ng_vectors *v)
{
    const char *inputs = strstr(text, " inputs"), *accumulator = strstr(text, "accumulator:");
    if (inputs && !r->has_format) return read_title(r, text, inputs, v);
    if (!accumulator) return NG_OK;
    accumulator += strlen("accumulator:");
    accumulator += strspn(accumulator, " \t");
    size_t length = strcspn(accumulator, " \t\r\n(");
    if (length == 1 && *accumulator == 'c') v->accumulator = NG_C_IS_ADDEND;
    else if (length == 4 && !memcmp(accumulator, "none", 4)) v->accumulator = NG_C_IS_ABSENT;
    else if (length == 5 && !memcmp(accumulator, "after", 5)) v->accumulator = NG_C_IS_ADDED_AFTER;
    else return complain(r, "accumulator: must be c, none or after");
    r->has_accumulator = true;
    return NG_OK;
}

/* Significant bits of a code as files write it: tf32 without the 13 zeros that its storage has. */
static int code_bits(ng_format_id format)
{
    const ng_format *f = &ng_formats[format];
    return f->exponent_bits + f->mantissa_bits + f->is_signed;
}

static bool read_hex(const char *text, int digits, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)text[i])) return false;
        int c = tolower((unsigned char)text[i]);
        *value = *value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

static ng_status read_codes(const reader *r, const char *word, size_t length, const ng_vectors *v, uint64_t *codes)
{
    int bits = code_bits(v->format), digits = (bits + 3) / 4;
    if (length != (size_t)(v->k * digits)) return complain(r, "a column of codes does not hold K of them");
    for (int i = 0; i < v->k; i++) {
        if (!read_hex(word + i * digits, digits, &codes[i])) return complain(r, "a code is not hexadecimal");
        if (codes[i] >> bits) return complain(r, "a code has more bits than its format");
        if (v->format == NG_TF32) codes[i] <<= 13;
    }
    return NG_OK;
}

static ng_status read_bits(const reader *r, const char *word, size_t length, uint32_t *bits)
{
    uint64_t value;
    if (length != 8 || !read_hex(word, 8, &value)) return complain(r, "c and d must be 8 hexadecimal digits");
    *bits = (uint32_t)value;
    return NG_OK;
}

static ng_status grow(const reader *r, ng_vectors *v)
{
    if (v->count < v->capacity) return NG_OK;
    size_t capacity = v->capacity ? 2 * v->capacity : 256;
    void *codes = realloc(v->codes, capacity * 2 * (size_t)v->k * sizeof *v->codes);
    if (codes) v->codes = codes;
    void *c = realloc(v->c, capacity * sizeof *v->c);
    if (c) v->c = c;
    void *d = realloc(v->d, capacity * sizeof *v->d);
    if (d) v->d = d;
    void *lines = realloc(v->lines, capacity * sizeof *v->lines);
    if (lines) v->lines = lines;
    if (!codes || !c || !d || !lines) return ng_fail(r->error, NG_NO_MEMORY, "%s: out of memory", r->path);
    v->capacity = capacity;
    return NG_OK;
}

static ng_status read_row(reader *r, char *text, ng_vectors *v)
{
    const char *words[5];
    size_t lengths[5];
    int count = 0;
    for (char *p = text; count < 5; count++) {
        p += strspn(p, " \t\r\n");
        if (!*p) break;
        words[count] = p;
        lengths[count] = strcspn(p, " \t\r\n");
        p += lengths[count];
    }
    if (count == 0) return NG_OK;
    if (!r->has_format) return complain(r, "a row before the comment that names the inputs' format and K");
    if (count != 4) return complain(r, "a row has four columns: a b c d");
    ng_status status = grow(r, v);
    uint64_t *codes = status ? NULL : v->codes + v->count * 2 * (size_t)v->k;
    if (!status) status = read_codes(r, words[0], lengths[0], v, codes);
    if (!status) status = read_codes(r, words[1], lengths[1], v, codes + v->k);
    if (!status) status = read_bits(r, words[2], lengths[2], &v->c[v->count]);
    if (!status) status = read_bits(r, words[3], lengths[3], &v->d[v->count]);
    if (!status) v->lines[v->count++] = r->line;
    return status;
}

ng_status ng_vectors_read(const char *path, ng_vectors *vectors, ng_error *error)
{
    reader r = {.path = path, .error = error};
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    ng_status status = NG_OK;
    *vectors = (ng_vectors){0};
    FILE *file = fopen(path, "r");
    if (!file) return ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
    while (!status && (length = getline(&text, &capacity, file)) >= 0) {
        r.line++;
        if ((size_t)length != strlen(text)) status = complain(&r, "not a text file");
        else status = *text == '#' ? read_comment(&r, text, vectors) : read_row(&r, text, vectors);
    }
    if (!status && ferror(file)) status = ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
    if (!status && !r.has_format) status = ng_fail(error, NG_IO, "%s: no comment names the inputs' format and K", path);
    if (!status && !r.has_accumulator) status = ng_fail(error, NG_IO, "%s: no comment says \"accumulator: c|none|after\"", path);
    if (!status && !vectors->count) status = ng_fail(error, NG_IO, "%s: holds no rows", path);
    free(text);
    fclose(file);
    if (status) ng_vectors_free(vectors);
    return status;
}

void ng_vectors_free(ng_vectors *vectors)
{
    free(vectors->codes);
    free(vectors->c);
    free(vectors->d);
    free(vectors->lines);
    *vectors = (ng_vectors){0};
}

/* ---- replaying ----------------------------------------------------------------------------------------------------*/
static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return isnan(f) ? 0x7FFFFFFFu : bits;
}

/* One row: as many steps as its K takes, the last one filled with zeros; unit scales where the step takes scales. */
static ng_status replay_row(const ng_vectors *v, size_t row, const ng_mma *mma, uint32_t *computed)
{
    const uint64_t *a = v->codes + row * 2 * (size_t)v->k, *b = a + v->k;
    ng_format_id scale_format = mma->scale_block == 16 ? NG_UE4M3 : NG_E8M0;
    uint64_t step_a[NG_MAX_STEP], step_b[NG_MAX_STEP], ones[NG_MAX_STEP];
    for (int i = 0; i < NG_MAX_STEP; i++) ones[i] = scale_format == NG_E8M0 ? 127 : 0x38;
    float c = float_of(v->c[row]), d = v->accumulator == NG_C_IS_ADDEND ? c : 0.0f;
    for (int k = 0; k < v->k; k += mma->k) {
        for (int i = 0; i < mma->k && i < NG_MAX_STEP; i++) {
            step_a[i] = k + i < v->k ? a[k + i] : 0;
            step_b[i] = k + i < v->k ? b[k + i] : 0;
        }
        const uint64_t *scales = mma->scales_inside ? ones : NULL;
        ng_status status = ng_mma_step(mma, v->format, step_a, v->format, step_b, scale_format, scales, scales, d, &d);
        if (status) return status;
    }
    *computed = bits_of(v->accumulator == NG_C_IS_ADDED_AFTER ? d + c : d);
    return NG_OK;
}

ng_status ng_vectors_replay(const ng_vectors *vectors, const ng_mma *mma, size_t capacity, size_t *places,
                            uint32_t *computed, size_t *differ)
{
    *differ = 0;
    for (size_t row = 0; row < vectors->count; row++) {
        uint32_t bits;
        ng_status status = replay_row(vectors, row, mma, &bits);
        if (status) return status;
        if (bits == vectors->d[row]) continue;
        if (*differ < capacity) places[*differ] = row, computed[*differ] = bits;
        ++*differ;
    }
    return NG_OK;
}
