#include "reference/scale_layout.h"

#include "reference/format.h"

static int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

void ng_layout_extents(ng_scale_layout layout, int64_t block_rows, int64_t block_columns, int64_t *rows, int64_t *columns)
{
    *rows = block_rows;
    *columns = block_columns;
    if (layout == NG_LAYOUT_TRANSPOSED) *rows = block_columns, *columns = block_rows;
    if (layout == NG_LAYOUT_PADDED) *columns = round_up(block_columns, 4);
    if (layout == NG_LAYOUT_SWIZZLED) *rows = 1, *columns = round_up(block_rows, 128) * round_up(block_columns, 4);
}

/* From the position to the scale: the inverse of what a kernel computes. False: padding. */
static bool source_of(ng_scale_layout layout, const ng_tensor *plain, int64_t i, int64_t j, int64_t *row, int64_t *column)
{
    *row = i;
    *column = j;
    if (layout == NG_LAYOUT_TRANSPOSED) *row = j, *column = i;
    if (layout == NG_LAYOUT_SWIZZLED) {
        int64_t tile = j / 512, inside = j % 512, tiles = round_up(plain->columns, 4) / 4;
        *row = tile / tiles * 128 + inside / 16 + inside % 16 / 4 * 32;
        *column = tile % tiles * 4 + inside % 4;
    }
    return *row < plain->rows && *column < plain->columns;
}

void ng_layout_arrange(ng_scale_layout layout, const ng_tensor *from, ng_tensor *to)
{
    for (int64_t i = 0; i < to->rows; i++)
        for (int64_t j = 0; j < to->columns; j++) {
            int64_t row, column;
            bool there = source_of(layout, from, i, j, &row, &column);
            ng_set_code(to, i, j, there ? ng_get_code(from, row, column) : 0);
        }
}
