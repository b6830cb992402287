/* What a kernel that turns a history of maxima into the next step's scales promises (FP8 with delayed scaling). Part of the
 * plug-in ABI (kernel.h).
 *
 * NG_OP_SCALE_UPDATE, L = m steps of history, T = n tensors, everything fp32:
 *     IN [L][T]: maxima; row 0 is this step's, rows 1 .. L - 1 are the earlier ones, the oldest first. IN_2 [1][T]: the scales in use.
 *     OUT [L][T]: row 0 is 0; row i is IN's row i + 1 for 0 < i < L - 1; row L - 1, if L > 1, is IN's row 0.
 *     amax = IN[0], or the largest of the column, in which a NaN is passed over (fmaxf) unless there is nothing else.
 *     OUT_2 [1][T]: the scale in use where amax is 0, negative, infinite or NaN; else min(fl(max 2^-margin / amax), FLT_MAX), max
 *     being the element format's largest finite value. OUT_3 [1][T]: fl(1 / OUT_2).
 * fl() is one binary32 rounding to nearest even. Source: TransformerEngine, recipe/delayed_scaling.cu. */
#ifndef NG_CONTRACT_SCALE_UPDATE_H
#define NG_CONTRACT_SCALE_UPDATE_H

#include "contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ng_scale_update {
    ng_format_id element;
    uint8_t margin;
    bool most_recent; /* IN[0] alone */
} ng_scale_update;

#ifdef __cplusplus
}
#endif
#endif
