#include "reference/scale_update.h"

#include <float.h>
#include <math.h>

/* A quotient of binary32 numbers rounded to binary64 first is rounded right (53 >= 2 * 24 + 2, Figueroa 1995), results that are
 * subnormal excepted: there are none, as no maximum is larger than FLT_MAX and 1 / FLT_MAX is handled by the machine's own
 * binary32 division in `inverse`. */
static float next_scale(const ng_scale_update *u, double amax, float in_use) {
    double largest = ldexp(ng_formats[u->element].largest, -u->margin);
    if (!(amax > 0) || isinf(amax)) return in_use;
    double scale = largest / amax;
    return scale > (double)FLT_MAX ? FLT_MAX : (float)scale;
}

static float inverse(float scale) { return 1.0f / scale; }

static bool same_shape(const ng_tensor *t, int64_t rows, int64_t columns) {
    return t->data && t->space == NG_HOST && t->format == NG_FP32 && t->rows == rows && t->columns == columns;
}

static float at(const ng_tensor *t, int64_t i, int64_t j) { return (float)ng_get_value(t, i, j); }
static void put(const ng_tensor *t, int64_t i, int64_t j, float x) { ((float *)(void *)((char *)t->data + i * t->row_bytes))[j] = x; }

ng_status ng_reference_scale_update(const ng_scale_update *u, const ng_tensor *history, const ng_tensor *in_use, ng_tensor *next,
                                    ng_tensor *scales, ng_tensor *inverses) {
    int64_t steps = history->rows, tensors = history->columns;
    if (!same_shape(history, steps, tensors) || !same_shape(next, steps, tensors) || !same_shape(in_use, 1, tensors) ||
        !same_shape(scales, 1, tensors) || !same_shape(inverses, 1, tensors) || (unsigned)u->element >= NG_FORMATS)
        return NG_BAD_ARGUMENT;
    for (int64_t j = 0; j < tensors; j++) {
        double amax = (double)at(history, 0, j);
        for (int64_t i = 1; i < steps && !u->most_recent; i++)
            amax = fmax(amax, (double)at(history, i, j));
        /* the column moved up by one, this step's maximum behind the others, and the place of the oldest cleared */
        for (int64_t i = 0; i < steps; i++)
            put(next, i, j, i == 0 ? 0 : at(history, (i + 1) % steps, j));
        put(scales, 0, j, next_scale(u, amax, at(in_use, 0, j)));
        put(inverses, 0, j, inverse(at(scales, 0, j)));
    }
    return NG_OK;
}
