/* Reads .safetensors and .npy headers. Nothing in them is believed: the reader below knows just the grammar that the two
 * formats need, sees every byte, and never looks beyond the end (a general JSON reader accepts duplicates, bytes after a
 * NUL and numbers that are no integers, and takes memory in proportion to what an attacker writes). */
#include "harness/tensorfile.h"

#include "harness/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_LIMIT = 100000000, /* bytes; safetensors' own limit */
    DEPTH_LIMIT = 32,         /* of values that are skipped */
    DIMENSIONS = 32,
    TYPE_BYTES = 24,
};
static const uint64_t ELEMENT_LIMIT = (uint64_t)1 << 60;

typedef struct item {
    ng_file_tensor tensor;
    uint64_t begin, end; /* of its bytes in the data */
} item;

struct ng_tensor_file {
    char *path;
    void *map; /* NULL: the caller's memory */
    size_t map_bytes;
    item *items;
    size_t count, capacity;
    char *strings; /* names and types */
    size_t used, string_bytes;
};

/* Types by their names in the files. Sizes are known even where the values are not ours, so that lengths are checked. */
typedef struct type_row {
    const char *name;
    int bits;
    ng_format_id format;
} type_row;

static const type_row safetensors_types[] = {
    {"F64", 64, NG_FP64},      {"F32", 32, NG_FP32},      {"BF16", 16, NG_BF16},     {"F16", 16, NG_FP16},
    {"F8_E4M3", 8, NG_E4M3},   {"F8_E5M2", 8, NG_E5M2},   {"F8_E8M0", 8, NG_NO_FORMAT}, {"F4", 4, NG_NO_FORMAT},
    {"F6_E2M3", 6, NG_NO_FORMAT}, {"F6_E3M2", 6, NG_NO_FORMAT}, {"BOOL", 8, NG_NO_FORMAT}, {"U8", 8, NG_NO_FORMAT},
    {"I8", 8, NG_NO_FORMAT},   {"U16", 16, NG_NO_FORMAT}, {"I16", 16, NG_NO_FORMAT}, {"U32", 32, NG_NO_FORMAT},
    {"I32", 32, NG_NO_FORMAT}, {"U64", 64, NG_NO_FORMAT}, {"I64", 64, NG_NO_FORMAT}, {"C64", 64, NG_NO_FORMAT},
};
static const type_row npy_types[] = {{"<f8", 64, NG_FP64}, {"<f4", 32, NG_FP32}, {"<f2", 16, NG_FP16}};

static const type_row *type_by_name(const type_row *rows, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

/* ---- a reader of bytes ------------------------------------------------------------------------------------------------*/
typedef struct reader {
    const char *start, *at, *end;
    const char *path;
    ng_error *error;
    ng_status status; /* the first failure; once set, everything reads as nothing */
} reader;

static void fail(reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(reader *r, const char *format, ...) {
    char text[512];
    va_list arguments;
    if (r->status) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->status = NG_IO;
    ng_fail(r->error, NG_IO, "%s: %s", r->path, text);
}

/* A name from a file, fit for one line. */
typedef struct shown {
    char text[96];
} shown;
static shown show(const char *name) {
    shown s = {""};
    size_t used = 0;
    for (; *name && used < sizeof s.text - 4; name++)
        s.text[used++] = (unsigned char)*name < ' ' || *name == 0x7F ? '?' : *name;
    while (*name && used && ((unsigned char)*name & 0xC0) == 0x80) /* do not cut a character */
        used--, name--;
    memcpy(s.text + used, *name ? "..." : "", *name ? 4 : 1);
    return s;
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static int peek(reader *r) {
    skip_space(r);
    return r->status || r->at == r->end ? -1 : (unsigned char)*r->at;
}

static bool accept(reader *r, char c) {
    if (peek(r) != (unsigned char)c) return false;
    r->at++;
    return true;
}

static void expect(reader *r, char c) {
    if (!accept(r, c)) fail(r, "header byte %td: expected '%c'", r->at - r->start, c);
}

static unsigned hex4(reader *r) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->at < r->end ? *r->at : 0;
        unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a' + 10) : 16;
        if (digit == 16) {
            fail(r, "header byte %td: a \\u escape needs four hexadecimal digits", r->at - r->start);
            return 0;
        }
        value = value * 16 + digit;
    }
    return value;
}

static size_t encode_utf8(unsigned code, char *out) {
    if (code < 0x80) return out[0] = (char)code, 1;
    if (code < 0x800) return out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), 2;
    if (code < 0x10000)
        return out[0] = (char)(0xE0 | code >> 12), out[1] = (char)(0x80 | (code >> 6 & 63)), out[2] = (char)(0x80 | (code & 63)), 3;
    return out[0] = (char)(0xF0 | code >> 18), out[1] = (char)(0x80 | (code >> 12 & 63)), out[2] = (char)(0x80 | (code >> 6 & 63)),
           out[3] = (char)(0x80 | (code & 63)), 4;
}

/* After a backslash. Writes at most four bytes. */
static size_t read_escape(reader *r, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at++ : 0;
    const char *found = c ? strchr(from, c) : NULL;
    if (found) return out[0] = to[found - from], 1;
    unsigned code = c == 'u' ? hex4(r) : 0;
    if (code >= 0xD800 && code < 0xDC00 && r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        unsigned low = hex4(r);
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : 0;
    }
    if (!code || (code >= 0xD800 && code < 0xE000)) {
        fail(r, "header byte %td: not a character", r->at - r->start);
        return 0;
    }
    return encode_utf8(code, out);
}

/* A well-formed character's bytes, 0 at the end or where there is none. The bytes are not followed by a NUL. */
static size_t utf8_here(const reader *r) {
    char window[5] = "";
    size_t left = (size_t)(r->end - r->at);
    memcpy(window, r->at, left < 4 ? left : 4);
    return ng_utf8_length(window);
}

/* A string in quotes into out (capacity bytes, NUL included); longer ones are an error. Returns its length. */
static size_t read_string(reader *r, char *out, size_t capacity) {
    size_t used = 0;
    expect(r, '"');
    while (!r->status) {
        char piece[4];
        if (r->at == r->end) {
            fail(r, "header byte %td: a string has no end", r->at - r->start);
            break;
        }
        unsigned char c = (unsigned char)*r->at;
        if (c == '"') {
            r->at++;
            break;
        }
        size_t length = c == '\\' ? (r->at++, read_escape(r, piece)) : c < ' ' ? 0 : utf8_here(r);
        if (c != '\\') {
            if (!length) fail(r, "header byte %td: not UTF-8, or a control character", r->at - r->start);
            memcpy(piece, r->at, length);
            r->at += length;
        }
        if (used + length >= capacity) fail(r, "header byte %td: a string of more than %zu bytes", r->at - r->start, capacity - 1);
        if (r->status) break;
        memcpy(out + used, piece, length);
        used += length;
    }
    if (r->status) used = 0;
    out[used] = 0;
    return used;
}

/* Digits alone: no sign, fraction, exponent or leading zero. */
static uint64_t read_integer(reader *r, const char *what) {
    uint64_t value = 0;
    int c = peek(r);
    const char *from = r->at;
    while (!r->status && r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        unsigned digit = (unsigned)(*r->at++ - '0');
        if (value > (UINT64_MAX - digit) / 10) fail(r, "%s does not fit in 64 bits", what);
        else value = value * 10 + digit;
    }
    bool more = r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E');
    if (r->at == from || more || (c == '0' && r->at - from > 1)) fail(r, "%s is not a whole number from 0", what);
    return r->status ? 0 : value;
}

static void skip_word(reader *r, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length)) fail(r, "header byte %td: not JSON", r->at - r->start);
    else r->at += length;
}

static void skip_string(reader *r) {
    expect(r, '"');
    while (!r->status && r->at < r->end && *r->at != '"') {
        char unused[4];
        if (*r->at == '\\') r->at++, read_escape(r, unused);
        else {
            size_t length = (unsigned char)*r->at < ' ' ? 0 : utf8_here(r);
            if (!length) fail(r, "header byte %td: not UTF-8, or a control character", r->at - r->start);
            r->at += length;
        }
    }
    if (!r->status && r->at == r->end) fail(r, "header byte %td: a string has no end", r->at - r->start);
    expect(r, '"');
}

static void skip_value(reader *r, int depth) {
    int c = peek(r);
    if (depth > DEPTH_LIMIT) fail(r, "header byte %td: nested more than %d deep", r->at - r->start, DEPTH_LIMIT);
    else if (c == '"') skip_string(r);
    else if (c == '{' || c == '[') {
        char close = c == '{' ? '}' : ']';
        expect(r, (char)c);
        if (accept(r, close)) return;
        do {
            if (c == '{') skip_string(r), expect(r, ':');
            skip_value(r, depth + 1);
        } while (accept(r, ','));
        expect(r, close);
    } else if (c == 't') skip_word(r, "true");
    else if (c == 'f') skip_word(r, "false");
    else if (c == 'n') skip_word(r, "null");
    else if (c == '-' || (c >= '0' && c <= '9'))
        while (r->at < r->end && *r->at && strchr("+-.eE0123456789", *r->at))
            r->at++;
    else fail(r, "header byte %td: expected a value", r->at - r->start);
}

/* ---- shapes ---------------------------------------------------------------------------------------------------------------*/
typedef struct shape {
    uint64_t extent[DIMENSIONS];
    int dimensions;
} shape;

static void read_extent(reader *r, shape *s, const char *what) {
    uint64_t extent = read_integer(r, what);
    if (s->dimensions == DIMENSIONS) fail(r, "%s: more than %d dimensions", what, DIMENSIONS);
    else s->extent[s->dimensions++] = extent;
}

/* Leading dimensions folded into rows. False where the product exceeds 2^60 elements. */
static bool fold_shape(const shape *s, ng_file_tensor *t) {
    uint64_t rows = 1, columns = s->dimensions ? s->extent[s->dimensions - 1] : 1;
    for (int i = 0; i + 1 < s->dimensions; i++) {
        if (s->extent[i] && rows > ELEMENT_LIMIT / s->extent[i]) return false;
        rows *= s->extent[i];
    }
    if (columns > ELEMENT_LIMIT || rows > ELEMENT_LIMIT || (columns && rows > ELEMENT_LIMIT / columns)) return false;
    t->rows = (int64_t)rows;
    t->columns = (int64_t)columns;
    return true;
}

/* ---- safetensors ----------------------------------------------------------------------------------------------------------*/
typedef struct entry {
    char type[TYPE_BYTES];
    shape shape;
    uint64_t begin, end;
    bool has_type, has_shape, has_offsets;
} entry;

static void once(reader *r, bool *seen, const char *name, const char *member) {
    if (*seen) fail(r, "tensor \"%s\" has two members \"%s\"", show(name).text, member);
    *seen = true;
}

static void read_shape(reader *r, const char *name, shape *s) {
    char what[160];
    snprintf(what, sizeof what, "tensor \"%s\": shape", show(name).text);
    if (!accept(r, '[')) fail(r, "%s is not an array", what);
    if (accept(r, ']')) return;
    do read_extent(r, s, what);
    while (!r->status && accept(r, ','));
    expect(r, ']');
}

static void read_offsets(reader *r, const char *name, entry *e) {
    char what[160];
    snprintf(what, sizeof what, "tensor \"%s\": data_offsets", show(name).text);
    if (!accept(r, '[')) fail(r, "%s is not an array", what);
    e->begin = read_integer(r, what);
    expect(r, ',');
    e->end = read_integer(r, what);
    expect(r, ']');
}

static void read_entry(reader *r, const char *name, entry *e) {
    if (peek(r) != '{') fail(r, "tensor \"%s\" is not an object", show(name).text);
    expect(r, '{');
    if (accept(r, '}')) return;
    do {
        char member[32];
        skip_space(r);
        const char *from = r->at;
        skip_string(r);
        if (r->status) return;
        bool is_short = r->at - from < (ptrdiff_t)sizeof member;
        if (is_short) r->at = from, read_string(r, member, sizeof member);
        expect(r, ':');
        if (is_short && !strcmp(member, "dtype")) once(r, &e->has_type, name, member), read_string(r, e->type, sizeof e->type);
        else if (is_short && !strcmp(member, "shape")) once(r, &e->has_shape, name, member), read_shape(r, name, &e->shape);
        else if (is_short && !strcmp(member, "data_offsets")) once(r, &e->has_offsets, name, member), read_offsets(r, name, e);
        else skip_value(r, 0);
    } while (!r->status && accept(r, ','));
    expect(r, '}');
}

static void check_entry(reader *r, const char *name, const entry *e, uint64_t data_bytes, ng_file_tensor *t) {
    shown n = show(name);
    const char *missing = !e->has_type ? "dtype" : !e->has_shape ? "shape" : !e->has_offsets ? "data_offsets" : NULL;
    if (missing) fail(r, "tensor \"%s\" has no \"%s\"", n.text, missing);
    else if (e->begin > e->end) fail(r, "tensor \"%s\": data_offsets %" PRIu64 ", %" PRIu64 " are reversed", n.text, e->begin, e->end);
    else if (e->end > data_bytes)
        fail(r, "tensor \"%s\" ends at byte %" PRIu64 " of the data, of which the file has %" PRIu64, n.text, e->end, data_bytes);
    else if (!fold_shape(&e->shape, t)) fail(r, "tensor \"%s\": its shape has more than 2^60 elements", n.text);
    if (r->status) return;
    const type_row *type = type_by_name(safetensors_types, sizeof safetensors_types / sizeof *safetensors_types, e->type);
    uint64_t elements = (uint64_t)t->rows * (uint64_t)t->columns;
    unsigned bits = type ? (unsigned)type->bits : 0;
    t->format = type ? type->format : NG_NO_FORMAT;
    if (bits && (elements / 8 * bits + (elements % 8 * bits + 7) / 8 != e->end - e->begin))
        fail(r, "tensor \"%s\": %" PRId64 " x %" PRId64 " elements of %s take another size than its %" PRIu64 " bytes", n.text, t->rows,
             t->columns, e->type, e->end - e->begin);
}

/* Names and types live in one allocation: each takes at most its bytes in the header, quotes making room for the NUL. */
static char *keep(ng_tensor_file *file, size_t length) {
    char *kept = file->strings + file->used;
    file->used += length + 1;
    return kept;
}

static bool room_for_one(ng_tensor_file *file) {
    if (file->count < file->capacity) return true;
    size_t capacity = file->capacity ? 2 * file->capacity : 64;
    item *more = realloc(file->items, capacity * sizeof *more);
    if (!more) return false;
    file->items = more;
    file->capacity = capacity;
    return true;
}

static void read_tensor(reader *r, ng_tensor_file *file, const char *data, uint64_t data_bytes) {
    char *name = file->strings + file->used;
    size_t length = read_string(r, name, file->string_bytes - file->used);
    expect(r, ':');
    if (r->status) return;
    if (!strcmp(name, "__metadata__")) {
        if (peek(r) != '{') fail(r, "\"__metadata__\" is not an object");
        skip_value(r, 0);
        return;
    }
    entry e = {0};
    ng_file_tensor t = {.name = keep(file, length)};
    read_entry(r, name, &e);
    if (!r->status) check_entry(r, name, &e, data_bytes, &t);
    if (r->status) return;
    if (!room_for_one(file)) {
        r->status = ng_fail(r->error, NG_NO_MEMORY, "%s: no memory for its list of tensors", r->path);
        return;
    }
    t.type = memcpy(keep(file, strlen(e.type)), e.type, strlen(e.type) + 1);
    t.data = data + e.begin;
    file->items[file->count++] = (item){t, e.begin, e.end};
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const item *const *)a)->tensor.name, (*(const item *const *)b)->tensor.name);
}

static int by_begin(const void *a, const void *b) {
    const item *x = *(const item *const *)a, *y = *(const item *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The format wants the data covered once and wholly: no overlap, no hole, nothing after the last tensor. */
static void check_cover(reader *r, const item *const *sorted, size_t count, uint64_t data_bytes) {
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        const item *one = sorted[i];
        if (one->begin < end && one->begin < one->end)
            fail(r, "tensors \"%s\" and \"%s\" overlap at byte %" PRIu64 " of the data", show(sorted[i - 1]->tensor.name).text,
                 show(one->tensor.name).text, one->begin);
        else if (one->begin > end) fail(r, "bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor", end, one->begin);
        end = one->end > end ? one->end : end;
    }
    if (end != data_bytes) fail(r, "bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor", end, data_bytes);
}

static void check_items(reader *r, const ng_tensor_file *file, uint64_t data_bytes) {
    const item **sorted = malloc(file->count * sizeof *sorted);
    if (!sorted) {
        r->status = ng_fail(r->error, NG_NO_MEMORY, "%s: no memory to sort its tensors", r->path);
        return;
    }
    for (size_t i = 0; i < file->count; i++)
        sorted[i] = &file->items[i];
    qsort(sorted, file->count, sizeof *sorted, by_name);
    for (size_t i = 1; i < file->count; i++)
        if (!by_name(&sorted[i], &sorted[i - 1])) fail(r, "two tensors named \"%s\"", show(sorted[i]->tensor.name).text);
    qsort(sorted, file->count, sizeof *sorted, by_begin);
    check_cover(r, sorted, file->count, data_bytes);
    free(sorted);
}

/* The header's length, checked; 0 after a failure. */
static uint64_t safetensors_header(reader *r, const unsigned char *bytes, size_t size) {
    uint64_t header = 0;
    if (size < 8) {
        fail(r, "%zu bytes; a safetensors file begins with 8 that hold its header's length", size);
        return 0;
    }
    for (int i = 7; i >= 0; i--)
        header = header << 8 | bytes[i];
    if (header > size - 8) fail(r, "a header of %" PRIu64 " bytes in a file of %zu: truncated, or not safetensors", header, size);
    else if (header > HEADER_LIMIT) fail(r, "a header of %" PRIu64 " bytes; at most %d are allowed", header, HEADER_LIMIT);
    return r->status ? 0 : header;
}

static void read_safetensors(reader *r, ng_tensor_file *file, const unsigned char *bytes, size_t size) {
    uint64_t header = safetensors_header(r, bytes, size);
    if (r->status) return;
    const char *data = (const char *)bytes + 8 + header;
    uint64_t data_bytes = size - 8 - header;
    r->start = r->at = (const char *)bytes + 8;
    r->end = r->at + header;
    file->string_bytes = (size_t)header + 1;
    if (!(file->strings = malloc(file->string_bytes))) {
        r->status = ng_fail(r->error, NG_NO_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes", r->path, header);
        return;
    }
    if (peek(r) != '{') fail(r, "the header is not a JSON object");
    expect(r, '{');
    if (!accept(r, '}')) {
        do read_tensor(r, file, data, data_bytes);
        while (!r->status && accept(r, ','));
        expect(r, '}');
    }
    if (peek(r) != -1) fail(r, "header byte %td: something follows the object", r->at - r->start);
    if (!r->status && !file->count) fail(r, "no tensors");
    if (!r->status) check_items(r, file, data_bytes);
}

/* ---- npy --------------------------------------------------------------------------------------------------------------------*/
/* A string of the header, a Python dictionary: either quote, no escapes. */
static void read_python_string(reader *r, char *out, size_t capacity) {
    size_t used = 0;
    int quote = peek(r);
    if (quote != '\'' && quote != '"') fail(r, "header byte %td: expected a string", r->at - r->start);
    else r->at++;
    while (!r->status && r->at < r->end && *r->at != quote) {
        if (*r->at < ' ' || *r->at > '~' || *r->at == '\\' || used + 1 >= capacity)
            fail(r, "header byte %td: not a string that NumPy writes", r->at - r->start);
        else out[used++] = *r->at++;
    }
    if (!r->status && r->at == r->end) fail(r, "header byte %td: a string has no end", r->at - r->start);
    else if (!r->status) r->at++;
    out[used] = 0;
}

static void read_tuple(reader *r, shape *s) {
    if (!accept(r, '(')) fail(r, "shape is not a tuple");
    while (!r->status && !accept(r, ')')) {
        read_extent(r, s, "shape");
        if (accept(r, ',')) continue;
        if (s->dimensions == 1) fail(r, "shape is not a tuple");
        expect(r, ')');
        break;
    }
}

typedef struct npy_header {
    entry entry;
    bool fortran, has_fortran;
} npy_header;

static void read_npy_member(reader *r, npy_header *h) {
    char member[TYPE_BYTES];
    read_python_string(r, member, sizeof member);
    expect(r, ':');
    if (r->status) return;
    if (!strcmp(member, "descr")) {
        if (h->entry.has_type) fail(r, "two members 'descr'");
        h->entry.has_type = true;
        if (peek(r) == '[') fail(r, "has a structured type; expected '<f2', '<f4' or '<f8'");
        read_python_string(r, h->entry.type, sizeof h->entry.type);
    } else if (!strcmp(member, "fortran_order")) {
        if (h->has_fortran) fail(r, "two members 'fortran_order'");
        h->has_fortran = true;
        h->fortran = peek(r) == 'T';
        skip_word(r, h->fortran ? "True" : "False");
    } else if (!strcmp(member, "shape")) {
        if (h->entry.has_shape) fail(r, "two members 'shape'");
        h->entry.has_shape = true;
        read_tuple(r, &h->entry.shape);
    } else fail(r, "unknown member '%s'", member);
}

static void read_npy_dictionary(reader *r, npy_header *h) {
    expect(r, '{');
    while (!r->status && !accept(r, '}')) {
        read_npy_member(r, h);
        if (accept(r, ',')) continue;
        expect(r, '}');
        break;
    }
    if (peek(r) != -1) fail(r, "header byte %td: something follows the dictionary", r->at - r->start);
    const char *missing = !h->entry.has_type ? "descr" : !h->has_fortran ? "fortran_order" : !h->entry.has_shape ? "shape" : NULL;
    if (missing) fail(r, "the header has no '%s'", missing);
}

static void check_npy(reader *r, const npy_header *h, uint64_t data_bytes, ng_file_tensor *t) {
    const type_row *type = type_by_name(npy_types, sizeof npy_types / sizeof *npy_types, h->entry.type);
    const char *t_name = h->entry.type;
    if (!type) fail(r, "has type '%s'; expected '<f2', '<f4' or '<f8'", t_name);
    else if (h->fortran && h->entry.shape.dimensions > 1) fail(r, "is in Fortran order; save numpy.ascontiguousarray(x)");
    else if (!fold_shape(&h->entry.shape, t)) fail(r, "its shape has more than 2^60 elements");
    else if ((uint64_t)t->rows * (uint64_t)t->columns * (unsigned)(type->bits / 8) != data_bytes)
        fail(r, "%" PRId64 " x %" PRId64 " elements of '%s' take another size than the %" PRIu64 " bytes after the header", t->rows,
             t->columns, t_name, data_bytes);
    else t->format = type->format;
}

static void read_npy(reader *r, ng_tensor_file *file, const unsigned char *bytes, size_t size) {
    npy_header h = {0};
    int major = size > 6 ? bytes[6] : 0;
    size_t prefix = major == 1 ? 10 : 12, header;
    if (size < 8 || memcmp(bytes, "\x93NUMPY", 6)) fail(r, "does not begin as a .npy file");
    else if (major < 1 || major > 3) fail(r, "is a .npy file of version %d.%d; expected 1 to 3", major, bytes[7]);
    else if (size < prefix) fail(r, "truncated after %zu bytes", size);
    if (r->status) return;
    header = bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1) header |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (header > size - prefix) fail(r, "a header of %zu bytes in a file of %zu: truncated", header, size);
    if (r->status) return;
    r->start = r->at = (const char *)bytes + prefix;
    r->end = r->at + header;
    read_npy_dictionary(r, &h);
    ng_file_tensor t = {.data = r->end};
    if (!r->status) check_npy(r, &h, size - prefix - header, &t);
    if (r->status) return;

    /* Its name is the file's, without folder and ".npy". */
    const char *slash = strrchr(file->path, '/'), *stem = slash ? slash + 1 : file->path;
    size_t length = strlen(stem) - 4, type_length = strlen(h.entry.type);
    if (!room_for_one(file) || !(file->strings = malloc(length + type_length + 2))) {
        r->status = ng_fail(r->error, NG_NO_MEMORY, "%s: no memory for its name", r->path);
        return;
    }
    char *name = keep(file, length);
    t.name = memcpy(name, stem, length);
    name[length] = 0;
    t.type = memcpy(keep(file, type_length), h.entry.type, type_length + 1);
    file->items[file->count++] = (item){t, 0, size - prefix - header};
}

/* ---- files -------------------------------------------------------------------------------------------------------------------*/
ng_status ng_tensor_file_parse(const void *bytes, size_t size, const char *path, ng_tensor_file **out, ng_error *error) {
    ng_tensor_file *file = calloc(1, sizeof *file);
    size_t length = strlen(path);
    if (!file || !(file->path = strdup(path))) {
        ng_tensor_file_close(file);
        return ng_fail(error, NG_NO_MEMORY, "%s: no memory", path);
    }
    reader r = {.path = file->path, .error = error};
    if (length > 4 && !strcmp(path + length - 4, ".npy")) read_npy(&r, file, bytes, size);
    else read_safetensors(&r, file, bytes, size);
    if (r.status) ng_tensor_file_close(file);
    else *out = file;
    return r.status;
}

ng_status ng_tensor_file_open(const char *path, ng_tensor_file **out, ng_error *error) {
    struct stat info;
    void *map = MAP_FAILED;
    ng_status status = NG_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* non-blocking: a FIFO is refused below, not waited for */
    if (fd < 0 || fstat(fd, &info)) status = ng_fail(error, NG_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode)) status = ng_fail(error, NG_IO, "%s: not a regular file", path);
    else if (!info.st_size) status = ng_fail(error, NG_IO, "%s: the file is empty", path);
    if (status) goto done;
    map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        status = ng_fail(error, NG_IO, "%s: cannot be mapped: %s", path, strerror(errno));
        goto done;
    }
    status = ng_tensor_file_parse(map, (size_t)info.st_size, path, out, error);
    if (status) goto done;
    madvise(map, (size_t)info.st_size, MADV_SEQUENTIAL); /* a hint: read ahead, drop behind */
    (*out)->map = map;
    (*out)->map_bytes = (size_t)info.st_size;
    map = MAP_FAILED;
done:
    if (map != MAP_FAILED) munmap(map, (size_t)info.st_size);
    if (fd >= 0) close(fd);
    return status;
}

void ng_tensor_file_close(ng_tensor_file *file) {
    if (!file) return;
    if (file->map) munmap(file->map, file->map_bytes);
    free(file->items);
    free(file->strings);
    free(file->path);
    free(file);
}

const char *ng_tensor_file_path(const ng_tensor_file *file) { return file->path; }
size_t ng_tensor_file_count(const ng_tensor_file *file) { return file->count; }
const ng_file_tensor *ng_tensor_file_tensor(const ng_tensor_file *file, size_t index) { return &file->items[index].tensor; }

ng_status ng_tensor_file_operand(const ng_tensor_file *file, size_t index, ng_error *error) {
    const ng_file_tensor *t = &file->items[index].tensor;
    if (t->format == NG_NO_FORMAT)
        return ng_fail(error, NG_UNSUPPORTED, "%s: tensor \"%s\" has type %s; expected F32, BF16, F16 or an 8-bit float",
                       file->path, show(t->name).text, show(t->type).text);
    if (!t->rows || !t->columns)
        return ng_fail(error, NG_UNSUPPORTED, "%s: tensor \"%s\" is empty (%" PRId64 " x %" PRId64 ")", file->path, show(t->name).text,
                       t->rows, t->columns);
    return NG_OK;
}

/* The nearest name, or the first few where none is near. */
static ng_status not_found(const ng_tensor_file *file, const char *name, ng_error *error) {
    char few[512] = "";
    size_t used = 0;
    const char **names = malloc(file->count * sizeof *names);
    if (!names) return ng_fail(error, NG_NO_MEMORY, "%s: no memory for its names", file->path);
    for (size_t i = 0; i < file->count; i++)
        names[i] = file->items[i].tensor.name;
    const char *nearest = ng_nearest(name, names, file->count);
    if (nearest) snprintf(few, sizeof few, "did you mean \"%s\"?", show(nearest).text);
    else
        for (size_t i = 0; i < file->count && i < 4; i++)
            used += (size_t)snprintf(few + used, sizeof few - used, "%s\"%s\"", i ? ", " : "there are ", show(names[i]).text);
    free(names);
    return ng_fail(error, NG_BAD_ARGUMENT, "%s: no tensor \"%s\"; %s%s", file->path, show(name).text, few,
                   !nearest && file->count > 4 ? ", ..." : "");
}

ng_status ng_tensor_file_find(const ng_tensor_file *file, const char *name, size_t *index, ng_error *error) {
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->items[i].tensor.name, name)) {
            *index = i;
            return ng_tensor_file_operand(file, i, error);
        }
    return not_found(file, name, error);
}
