/* Why two MPFR roundings a run prove all of its inputs: on each side of zero the inputs of one sign, ordered by their
 * bits, are ordered by magnitude. Every deterministic rounding is monotone there (the rounded magnitude does not
 * decrease as the magnitude grows; an overflow's infinity or NaN comes after the largest finite value). So where the
 * first and the last input of a run round to the same code, all between do. Runs are found by bisection with the
 * integer tier, whose errors cannot survive: they cover all inputs, and both ends of each are rounded by MPFR. */
#include "reference/sweep.h"

#include "reference/round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INFINITE = 0x7F800000, MAGNITUDES = 0x7FFFFFFF };

static double input(uint32_t bits) {
    return ng_decode(NG_FP32, bits);
}

static uint32_t code_of(ng_format_id to, const ng_cast *cast, uint32_t bits) {
    return (uint32_t)ng_round(to, input(bits), cast, 0);
}

static uint32_t proved_code(ng_format_id to, const ng_cast *cast, mpfr_ptr x, uint32_t bits) {
    mpfr_set_d(x, input(bits), MPFR_RNDN);
    mpfr_setsign(x, x, bits >> 31, MPFR_RNDN); /* of NaN, too */
    return (uint32_t)ng_round_mpfr(to, x, cast, 0);
}

/* The last input from `first` on, of the same sign and at most infinite, with first's code. */
static uint32_t last_of_run(ng_format_id to, const ng_cast *cast, uint32_t first, uint32_t code) {
    uint32_t low = first, high = (first & ~(uint32_t)MAGNITUDES) + INFINITE;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (code_of(to, cast, middle) == code)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static ng_status append(ng_sweep *sweep, size_t *room, uint32_t first, uint32_t code) {
    if (sweep->count == *room) {
        size_t more = *room ? 2 * *room : 1024;
        ng_run *runs = realloc(sweep->runs, more * sizeof *runs);
        if (!runs) return NG_NO_MEMORY;
        sweep->runs = runs;
        *room = more;
    }
    sweep->runs[sweep->count++] = (ng_run){first, code};
    return NG_OK;
}

/* One sign's runs, zero to infinity, then its NaNs. */
static ng_status append_half(ng_sweep *sweep, size_t *room, const ng_cast *cast, mpfr_ptr x, uint32_t sign) {
    ng_status status = NG_OK;
    uint32_t nan = sign + INFINITE + 1;
    for (uint32_t first = sign, last; !status && first < nan; first = last + 1) {
        uint32_t code = code_of(sweep->to, cast, first);
        last = last_of_run(sweep->to, cast, first, code);
        if (proved_code(sweep->to, cast, x, first) != code || proved_code(sweep->to, cast, x, last) != code)
            return NG_INTERNAL;
        status = append(sweep, room, first, code);
    }
    return status ? status : append(sweep, room, nan, proved_code(sweep->to, cast, x, nan));
}

ng_status ng_sweep_new(ng_format_id to, const ng_cast *cast, ng_sweep *sweep) {
    size_t room = 0;
    mpfr_t x;
    *sweep = (ng_sweep){.to = to};
    if (to == NG_FP64 || to == NG_FP32) return NG_UNSUPPORTED;
    if ((unsigned)to >= NG_FORMATS || cast->rounding == NG_R_STOCHASTIC) return NG_BAD_ARGUMENT;
    mpfr_init2(x, 24);
    ng_status status = append_half(sweep, &room, cast, x, 0);
    if (!status) status = append_half(sweep, &room, cast, x, 0x80000000u);
    mpfr_clear(x);
    if (status) ng_sweep_free(sweep);
    return status;
}

void ng_sweep_free(ng_sweep *sweep) {
    free(sweep->runs);
    *sweep = (ng_sweep){0};
}

static size_t run_of(const ng_sweep *sweep, uint32_t bits) {
    size_t low = 0, high = sweep->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (sweep->runs[middle].first <= bits)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint32_t ng_sweep_code(const ng_sweep *sweep, uint32_t bits) {
    return sweep->runs[run_of(sweep, bits)].code;
}

/* ---- checking -----------------------------------------------------------------------------------------------------
 * Almost always everything agrees, so a run is first or-ed together (these loops vectorize), and looked at element by
 * element only if that is not 0. */
static bool all_bytes(const uint8_t *p, uint64_t count, uint8_t code) {
    uint8_t differ = 0;
    for (uint64_t i = 0; i < count; i++)
        differ |= p[i] ^ code;
    return differ == 0;
}

static bool all_halves(const unsigned char *p, uint64_t count, uint16_t code) {
    uint16_t differ = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t value;
        memcpy(&value, p + 2 * i, 2);
        differ |= value ^ code;
    }
    return differ == 0;
}

static bool all_words(const unsigned char *p, uint64_t count, uint32_t code) {
    uint32_t differ = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t value;
        memcpy(&value, p + 4 * i, 4);
        differ |= value ^ code;
    }
    return differ == 0;
}

static bool all_nibbles(const uint8_t *p, uint64_t from, uint64_t count, uint8_t code) {
    uint64_t end = from + count;
    if (from % 2 && p[from / 2] >> 4 != code) return false;
    if (end % 2 && (p[end / 2] & 0xF) != code) return false;
    from = (from + 1) / 2;
    end /= 2;
    return from >= end || all_bytes(p + from, end - from, (uint8_t)(code | code << 4));
}

static bool run_agrees(const ng_tensor *codes, uint64_t from, uint64_t count, uint32_t code) {
    const unsigned char *p = codes->data;
    switch (ng_formats[codes->format].storage_bits) {
    case 4:
        return all_nibbles(p, from, count, (uint8_t)code);
    case 8:
        return all_bytes(p + from, count, (uint8_t)code);
    case 16:
        return all_halves(p + 2 * from, count, (uint16_t)code);
    default:
        return all_words(p + 4 * from, count, code);
    }
}

uint64_t ng_sweep_check(const ng_sweep *sweep, uint32_t start, uint64_t count, const void *codes,
                        uint32_t *first_different) {
    const uint64_t end = start + count;
    uint64_t different = 0;
    void *data;
    memcpy(&data, &codes, sizeof data); /* read only from here on, whatever ng_tensor's type says */
    const ng_tensor row = {.data = data, .format = sweep->to, .rows = 1, .columns = (int64_t)count};
    uint64_t at = start;
    for (size_t r = run_of(sweep, start); at < end; r++) {
        uint64_t stop = r + 1 < sweep->count ? sweep->runs[r + 1].first : (uint64_t)1 << 32;
        stop = stop < end ? stop : end;
        uint32_t code = sweep->runs[r].code;
        if (!run_agrees(&row, at - start, stop - at, code))
            for (uint64_t i = at; i < stop; i++)
                if (ng_get_code(&row, 0, (int64_t)(i - start)) != code && different++ == 0 && first_different)
                    *first_different = (uint32_t)i;
        at = stop;
    }
    return different;
}
