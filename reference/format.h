/* What each number format is. Everything else (rounding, thresholds, sweeps, reports) is derived from these rows.
 * Sources: IEEE 754-2019; OCP OFP8 1.0; OCP MX 1.0; PTX ISA 8.7 (ue4m3). */
#ifndef NG_REFERENCE_FORMAT_H
#define NG_REFERENCE_FORMAT_H

#include "kernels/contract.h"

typedef enum ng_specials {
    NG_IEEE,         /* infinities and NaNs in the top binade */
    NG_NAN_ALL_ONES, /* no infinity; NaN is the code whose exponent and mantissa bits are all ones */
    NG_FINITE_ONLY,  /* every code is a number */
} ng_specials;

typedef struct ng_format {
    const char *name;
    uint8_t exponent_bits, mantissa_bits;
    bool is_signed;
    int16_t bias;
    ng_specials specials;
    uint8_t storage_bits; /* distance between elements in memory: 64, 32, 16, 8 or 4 */
    double largest;       /* largest finite value; binary64's is DBL_MAX */
    int16_t emax, emin;   /* exponents of the largest and the smallest normal number; e8m0: 127 and -127 */
} ng_format;

extern const ng_format ng_formats[NG_FORMATS];

/* The format of that name ("e4m3"), or NG_NO_FORMAT. */
ng_format_id ng_format_by_name(const char *name);

/* Number of codes (2^bits); 0 for formats wider than 16 bits. */
uint32_t ng_format_codes(ng_format_id format);

/* The value of a code, exact: every value of every format is a binary64. NaN codes give NaN. tf32's low 13 bits count as zero. */
double ng_decode(ng_format_id format, uint64_t code);

/* Bytes of a row of that many elements, without padding. */
int64_t ng_row_bytes(ng_format_id format, int64_t columns);

/* Element access in host tensors, any format. No bounds are checked. */
uint64_t ng_get_code(const ng_tensor *tensor, int64_t row, int64_t column);
void ng_set_code(const ng_tensor *tensor, int64_t row, int64_t column, uint64_t code);
double ng_get_value(const ng_tensor *tensor, int64_t row, int64_t column);

/* Decodes a row's columns [from, from + count) into doubles (exact) or floats (exact for every format but fp64). */
void ng_decode_row(const ng_tensor *tensor, int64_t row, int64_t from, int64_t count, double *values);
void ng_decode_row_float(const ng_tensor *tensor, int64_t row, int64_t from, int64_t count, float *values);

/* Extent of a block along one axis (0 in the quantization means the whole extent), and the number of blocks. */
static inline int64_t ng_block_extent(uint32_t block, int64_t extent) { return block ? (int64_t)block : (extent ? extent : 1); }
static inline int64_t ng_block_count(uint32_t block, int64_t extent) {
    int64_t size = ng_block_extent(block, extent);
    return extent / size + (extent % size != 0);
}

#endif
