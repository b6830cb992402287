/* One tensor's column of a history of maxima (contract_scale_update.h), and the rows of kernels. */
#ifndef NG_KERNELS_COMMON_SCALE_UPDATE_H
#define NG_KERNELS_COMMON_SCALE_UPDATE_H

#include "kernels/common/scale.h"

/* The larger one; a NaN gives way. */
NG_HD float ng_larger_number(float a, float b) { return a != a ? b : b > a ? b : a; }

NG_HD float ng_next_scale(const ng_scale_update *u, float amax, float in_use) {
    if (!(amax > 0.0f) || amax > FLT_MAX) return in_use;
    return ng_at_most_max(ng_div(ng_mul(ng_element_max(u->element), ng_float((127u - u->margin) << 23)), amax));
}

/* X(element's name, element, variant, margin, most recent) */
#define NG_SCALE_UPDATE_FORMAT(X, name, element)                                                                      \
    X(name, element, "max", 0, false), X(name, element, "most-recent", 0, true), X(name, element, "max-margin3", 3, false)
#define NG_SCALE_UPDATE_ROWS(X) NG_SCALE_UPDATE_FORMAT(X, "e4m3", NG_E4M3), NG_SCALE_UPDATE_FORMAT(X, "e5m2", NG_E5M2)

#endif
