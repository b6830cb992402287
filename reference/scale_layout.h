/* Tensors of scales in the layouts of contract.h: where each scale lies, and from one layout to another. */
#ifndef NG_REFERENCE_SCALE_LAYOUT_H
#define NG_REFERENCE_SCALE_LAYOUT_H

#include "kernels/contract.h"

/* Extents of the tensor that holds the scales of block_rows x block_columns blocks. */
void ng_layout_extents(ng_scale_layout layout, int64_t block_rows, int64_t block_columns, int64_t *rows, int64_t *columns);

/* to = from in that layout, padding zero. from: host, plain; to: host, of the layout's extents and from's format (8 or 32 bits). */
void ng_layout_arrange(ng_scale_layout layout, const ng_tensor *from, ng_tensor *to);

#endif
