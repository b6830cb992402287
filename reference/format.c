/* The format table and everything that reads codes: exact decoding, element access, rows. */
#include "reference/format.h"

#include <float.h>
#include <math.h>
#include <string.h>

const ng_format ng_formats[NG_FORMATS] = {
    /*            name   exp man signed bias  specials      storage largest  emax   emin  */
    [NG_FP64] = {"fp64", 11, 52, true, 1023, NG_IEEE, 64, DBL_MAX, 1023, -1022},    /* IEEE 754-2019 */
    [NG_FP32] = {"fp32", 8, 23, true, 127, NG_IEEE, 32, 0x1.fffffep127, 127, -126}, /* IEEE 754-2019 */
    [NG_TF32] = {"tf32", 8, 10, true, 127, NG_IEEE, 32, 0x1.ffcp127, 127, -126},    /* PTX ISA 5.2.3 */
    [NG_BF16] = {"bf16", 8, 7, true, 127, NG_IEEE, 16, 0x1.fep127, 127, -126},      /* PTX ISA 5.2.3 */
    [NG_FP16] = {"fp16", 5, 10, true, 15, NG_IEEE, 16, 65504.0, 15, -14},           /* IEEE 754-2019 */
    [NG_E4M3] = {"e4m3", 4, 3, true, 7, NG_NAN_ALL_ONES, 8, 448.0, 8, -6},          /* OCP OFP8 1.0 */
    [NG_E5M2] = {"e5m2", 5, 2, true, 15, NG_IEEE, 8, 57344.0, 15, -14},             /* OCP OFP8 1.0 */
    [NG_E3M2] = {"e3m2", 3, 2, true, 3, NG_FINITE_ONLY, 8, 28.0, 4, -2},            /* OCP MX 1.0 */
    [NG_E2M3] = {"e2m3", 2, 3, true, 1, NG_FINITE_ONLY, 8, 7.5, 2, 0},              /* OCP MX 1.0 */
    [NG_E2M1] = {"e2m1", 2, 1, true, 1, NG_FINITE_ONLY, 4, 6.0, 2, 0},              /* OCP MX 1.0 */
    [NG_E8M0] = {"e8m0", 8, 0, false, 127, NG_NAN_ALL_ONES, 8, 0x1p127, 127, -127}, /* OCP MX 1.0 */
    [NG_UE4M3] = {"ue4m3", 4, 3, false, 7, NG_NAN_ALL_ONES, 8, 448.0, 8, -6},       /* PTX ISA 8.7 */
};

ng_format_id ng_format_by_name(const char *name) {
    for (int f = 0; f < NG_FORMATS; f++)
        if (strcmp(ng_formats[f].name, name) == 0) return (ng_format_id)f;
    return NG_NO_FORMAT;
}

uint32_t ng_format_codes(ng_format_id format) {
    const ng_format *f = &ng_formats[format];
    int bits = f->exponent_bits + f->mantissa_bits + f->is_signed;
    return bits <= 16 ? 1u << bits : 0;
}

static double bits_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A code of a format of at most 16 bits as binary32. The fields are constants after inlining, and nothing branches, so
 * that rows vectorize. Normal codes move their fields and rebias the exponent; subnormal ones are integers times the
 * least unit (a product with a subnormal float would be exact too, and slow). */
static inline __attribute__((always_inline)) float decode_small(uint32_t code, int exponent_bits, int mantissa_bits,
                                                                int bias, ng_specials specials, int is_signed) {
    uint32_t magnitude = code & ((1u << (exponent_bits + mantissa_bits)) - 1);
    uint32_t sign = is_signed ? (code >> (exponent_bits + mantissa_bits) & 1) << 31 : 0;
    uint32_t top = ((1u << exponent_bits) - 1) << mantissa_bits; /* the code of infinity, where there is one */
    float unit = bits_float((uint32_t)(127 + 1 - bias - mantissa_bits) << 23);
    float small = (float)(int32_t)magnitude * unit;
    uint32_t small_bits;
    memcpy(&small_bits, &small, sizeof small_bits);
    uint32_t bits = (magnitude << (23 - mantissa_bits)) + ((uint32_t)(127 - bias) << 23);
    bits = magnitude >> mantissa_bits ? bits : small_bits;
    if (specials == NG_IEEE) bits = magnitude < top ? bits : magnitude == top ? 0x7F800000u : 0x7FC00000u;
    if (specials == NG_NAN_ALL_ONES) bits = magnitude == (top | ((1u << mantissa_bits) - 1)) ? 0x7FC00000u : bits;
    return bits_float(bits | sign);
}

static inline float decode_fp16(uint32_t c) {
    return decode_small(c, 5, 10, 15, NG_IEEE, 1);
}
static inline float decode_e4m3(uint32_t c) {
    return decode_small(c, 4, 3, 7, NG_NAN_ALL_ONES, 1);
}
static inline float decode_e5m2(uint32_t c) {
    return decode_small(c, 5, 2, 15, NG_IEEE, 1);
}
static inline float decode_e3m2(uint32_t c) {
    return decode_small(c, 3, 2, 3, NG_FINITE_ONLY, 1);
}
static inline float decode_e2m3(uint32_t c) {
    return decode_small(c, 2, 3, 1, NG_FINITE_ONLY, 1);
}
static inline float decode_e2m1(uint32_t c) {
    return decode_small(c, 2, 1, 1, NG_FINITE_ONLY, 1);
}
static inline float decode_ue4m3(uint32_t c) {
    return decode_small(c, 4, 3, 7, NG_NAN_ALL_ONES, 0);
}
static inline float decode_bf16(uint32_t c) {
    return bits_float(c << 16);
}
static inline float decode_fp32(uint32_t c) {
    return bits_float(c);
}
static inline float decode_tf32(uint32_t c) {
    return bits_float(c & ~0x1FFFu);
}

/* Code 0 is 2^-127, a subnormal binary32: decoders that only shift make it 0. */
static inline float decode_e8m0(uint32_t c) {
    c &= 0xFF;
    return bits_float(c == 0 ? 0x00400000u : c == 0xFF ? 0x7FC00000u : c << 23);
}

double ng_decode(ng_format_id format, uint64_t code) {
    uint32_t c = (uint32_t)code;
    switch (format) {
    case NG_FP64:
        return bits_double(code);
    case NG_FP32:
        return (double)decode_fp32(c);
    case NG_TF32:
        return (double)decode_tf32(c);
    case NG_BF16:
        return (double)decode_bf16(c);
    case NG_FP16:
        return (double)decode_fp16(c);
    case NG_E4M3:
        return (double)decode_e4m3(c);
    case NG_E5M2:
        return (double)decode_e5m2(c);
    case NG_E3M2:
        return (double)decode_e3m2(c);
    case NG_E2M3:
        return (double)decode_e2m3(c);
    case NG_E2M1:
        return (double)decode_e2m1(c);
    case NG_E8M0:
        return (double)decode_e8m0(c);
    case NG_UE4M3:
        return (double)decode_ue4m3(c);
    case NG_FORMATS:
        break;
    }
    return (double)NAN;
}

int64_t ng_row_bytes(ng_format_id format, int64_t columns) {
    return (columns * ng_formats[format].storage_bits + 7) / 8;
}

static unsigned char *row_start(const ng_tensor *tensor, int64_t row) {
    return (unsigned char *)tensor->data + row * tensor->row_bytes;
}

uint64_t ng_get_code(const ng_tensor *tensor, int64_t row, int64_t column) {
    const unsigned char *p = row_start(tensor, row);
    uint64_t wide;
    uint32_t word;
    uint16_t half;
    switch (ng_formats[tensor->format].storage_bits) {
    case 64:
        memcpy(&wide, p + column * 8, 8);
        return wide;
    case 32:
        memcpy(&word, p + column * 4, 4);
        return word;
    case 16:
        memcpy(&half, p + column * 2, 2);
        return half;
    case 8:
        return p[column];
    default:
        return p[column / 2] >> (column % 2 * 4) & 0xF;
    }
}

void ng_set_code(const ng_tensor *tensor, int64_t row, int64_t column, uint64_t code) {
    unsigned char *p = row_start(tensor, row);
    uint32_t word = (uint32_t)code;
    uint16_t half = (uint16_t)code;
    int shift = (int)(column % 2 * 4);
    switch (ng_formats[tensor->format].storage_bits) {
    case 64:
        memcpy(p + column * 8, &code, 8);
        return;
    case 32:
        memcpy(p + column * 4, &word, 4);
        return;
    case 16:
        memcpy(p + column * 2, &half, 2);
        return;
    case 8:
        p[column] = (unsigned char)code;
        return;
    default:
        p[column / 2] = (unsigned char)((p[column / 2] & (0xF0 >> shift)) | (code & 0xF) << shift);
    }
}

double ng_get_value(const ng_tensor *tensor, int64_t row, int64_t column) {
    return ng_decode(tensor->format, ng_get_code(tensor, row, column));
}

/* One loop a format and result type; `load` names the element's storage. */
#define DECODE_LOOP(load, decode)                                                                                      \
    for (int64_t j = 0; j < count; j++) {                                                                              \
        load code;                                                                                                     \
        memcpy(&code, p + (from + j) * (int64_t)sizeof code, sizeof code);                                             \
        values[j] = decode(code);                                                                                      \
    }                                                                                                                  \
    return

#define DECODE_NIBBLES                                                                                                 \
    for (int64_t j = 0; j < count; j++)                                                                                \
        values[j] = decode_e2m1((uint32_t)p[(from + j) / 2] >> ((from + j) % 2 * 4) & 0xF);                            \
    return

#define DECODE_ROW                                                                                                     \
    switch (tensor->format) {                                                                                          \
    case NG_FP32:                                                                                                      \
        DECODE_LOOP(uint32_t, decode_fp32);                                                                            \
    case NG_TF32:                                                                                                      \
        DECODE_LOOP(uint32_t, decode_tf32);                                                                            \
    case NG_BF16:                                                                                                      \
        DECODE_LOOP(uint16_t, decode_bf16);                                                                            \
    case NG_FP16:                                                                                                      \
        DECODE_LOOP(uint16_t, decode_fp16);                                                                            \
    case NG_E4M3:                                                                                                      \
        DECODE_LOOP(uint8_t, decode_e4m3);                                                                             \
    case NG_E5M2:                                                                                                      \
        DECODE_LOOP(uint8_t, decode_e5m2);                                                                             \
    case NG_E3M2:                                                                                                      \
        DECODE_LOOP(uint8_t, decode_e3m2);                                                                             \
    case NG_E2M3:                                                                                                      \
        DECODE_LOOP(uint8_t, decode_e2m3);                                                                             \
    case NG_E2M1:                                                                                                      \
        DECODE_NIBBLES;                                                                                                \
    case NG_E8M0:                                                                                                      \
        DECODE_LOOP(uint8_t, decode_e8m0);                                                                             \
    case NG_UE4M3:                                                                                                     \
        DECODE_LOOP(uint8_t, decode_ue4m3);                                                                            \
    default:                                                                                                           \
        break;                                                                                                         \
    }

static double from_fp64(uint64_t code) {
    return bits_double(code);
}
static float narrow_fp64(uint64_t code) {
    return (float)bits_double(code);
}

void ng_decode_row(const ng_tensor *tensor, int64_t row, int64_t from, int64_t count, double *values) {
    const unsigned char *p = row_start(tensor, row);
    if (tensor->format == NG_FP64) {
        DECODE_LOOP(uint64_t, from_fp64);
    }
    DECODE_ROW
}

void ng_decode_row_float(const ng_tensor *tensor, int64_t row, int64_t from, int64_t count, float *values) {
    const unsigned char *p = row_start(tensor, row);
    if (tensor->format == NG_FP64) {
        DECODE_LOOP(uint64_t, narrow_fp64);
    }
    DECODE_ROW
}
