/* Delayed scaling's history of maxima into the next step's scales, as kernels/contract_scale_update.h says. */
#ifndef NG_REFERENCE_SCALE_UPDATE_H
#define NG_REFERENCE_SCALE_UPDATE_H

#include "reference/format.h"

/* history, next [steps][tensors]; in_use, scales, inverses [1][tensors]; all fp32, in host memory. NG_BAD_ARGUMENT: shapes that differ. */
ng_status ng_reference_scale_update(const ng_scale_update *update, const ng_tensor *history, const ng_tensor *in_use, ng_tensor *next,
                                    ng_tensor *scales, ng_tensor *inverses);

#endif
