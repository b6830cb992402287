/* Where the scale of a block lies (contract.h, ng_scale_layout), for R block rows and C block columns. */
#ifndef NG_KERNELS_COMMON_SCALE_LAYOUT_H
#define NG_KERNELS_COMMON_SCALE_LAYOUT_H

#include "kernels/common/target.h"
#include "kernels/contract.h"

NG_HD int64_t ng_scale_rows(ng_scale_layout layout, int64_t R, int64_t C) {
    return layout == NG_LAYOUT_TRANSPOSED ? C : layout == NG_LAYOUT_SWIZZLED ? 1 : R;
}

NG_HD int64_t ng_scale_columns(ng_scale_layout layout, int64_t R, int64_t C) {
    const int64_t four = (C + 3) / 4;
    return layout == NG_LAYOUT_TRANSPOSED ? R : layout == NG_LAYOUT_PADDED ? 4 * four : layout == NG_LAYOUT_SWIZZLED ? (R + 127) / 128 * four * 512 : C;
}

/* Row and column, in the tensor of scales, of the scale of block (r, c). */
NG_HD int64_t ng_scale_row(ng_scale_layout layout, int64_t r, int64_t c) {
    return layout == NG_LAYOUT_TRANSPOSED ? c : layout == NG_LAYOUT_SWIZZLED ? 0 : r;
}

NG_HD int64_t ng_scale_column(ng_scale_layout layout, int64_t r, int64_t c, int64_t C) {
    if (layout == NG_LAYOUT_TRANSPOSED) return r;
    if (layout != NG_LAYOUT_SWIZZLED) return c;
    return (r / 128 * ((C + 3) / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

#endif
