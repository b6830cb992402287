/* The quantized forms of tensors, one row a form and scale rule: what quantize, dequantize and products are made for. */
#ifndef NG_KERNELS_COMMON_FORMS_H
#define NG_KERNELS_COMMON_FORMS_H

#include "kernels/contract.h"

/* A cast into an element format: saturating; the finite-only formats have no NaN to give. */
#define NG_ELEMENT_CAST(element, rounding, form, r) \
    {rounding, form, r, true, (element) == NG_E4M3 || (element) == NG_E5M2 ? NG_NAN_CANONICAL : NG_NAN_MAX}

#define NG_QUANTIZATION(element, scale, rows, columns, rule, over, rounding, form, r) \
    {element, scale, {rows, columns}, rule, (scale) == NG_UE4M3, over, NG_ELEMENT_CAST(element, rounding, form, r), \
     NG_LAYOUT_PLAIN}

/* X(form, rule's name, element, scale, block rows, block columns, rule, 4over6) */
#define NG_FORMS_FP8(X, form, element, rows, columns)                                                 \
    X(form, "max-over-amax", element, NG_FP32, rows, columns, NG_SCALE_MAX_OVER_AMAX, NG_4OVER6_OFF)  \
    X(form, "amax-over-max", element, NG_FP32, rows, columns, NG_SCALE_AMAX_OVER_MAX, NG_4OVER6_OFF)  \
    X(form, "pow2", element, NG_FP32, rows, columns, NG_SCALE_POW2, NG_4OVER6_OFF)
#define NG_FORMS_GIVEN(X, form, element) X(form, "given", element, NG_FP32, 0, 0, NG_SCALE_GIVEN, NG_4OVER6_OFF)
#define NG_FORMS_MX(X, form, element)                                                           \
    X(form, "round-up", element, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_4OVER6_OFF)           \
    X(form, "floor", element, NG_E8M0, 1, 32, NG_SCALE_MX_FLOOR, NG_4OVER6_OFF)                 \
    X(form, "even", element, NG_E8M0, 1, 32, NG_SCALE_MX_EVEN, NG_4OVER6_OFF)                   \
    X(form, "ceil", element, NG_E8M0, 1, 32, NG_SCALE_MX_CEIL, NG_4OVER6_OFF)
#define NG_FORMS_MX_SQUARE(X, form, element)                                              \
    X(form, "round-up", element, NG_E8M0, 32, 32, NG_SCALE_MX_ROUND_UP, NG_4OVER6_OFF)    \
    X(form, "floor", element, NG_E8M0, 32, 32, NG_SCALE_MX_FLOOR, NG_4OVER6_OFF)
#define NG_FORMS_NVFP4(X, form, rows, columns, over)                                            \
    X(form, "paper", NG_E2M1, NG_UE4M3, rows, columns, NG_SCALE_NVFP4_PAPER, over)              \
    X(form, "te", NG_E2M1, NG_UE4M3, rows, columns, NG_SCALE_NVFP4_TE, over)

#define NG_FORMS(X)                                                                                       \
    NG_FORMS_FP8(X, "e4m3", NG_E4M3, 0, 0) NG_FORMS_GIVEN(X, "e4m3", NG_E4M3)                             \
    NG_FORMS_FP8(X, "e5m2", NG_E5M2, 0, 0) NG_FORMS_GIVEN(X, "e5m2", NG_E5M2)                             \
    NG_FORMS_FP8(X, "e4m3-row", NG_E4M3, 1, 0) NG_FORMS_FP8(X, "e5m2-row", NG_E5M2, 1, 0)                 \
    NG_FORMS_FP8(X, "e4m3-1x128", NG_E4M3, 1, 128) NG_FORMS_FP8(X, "e5m2-1x128", NG_E5M2, 1, 128)         \
    NG_FORMS_FP8(X, "e4m3-128x128", NG_E4M3, 128, 128) NG_FORMS_FP8(X, "e5m2-128x128", NG_E5M2, 128, 128) \
    NG_FORMS_MX(X, "mxfp8", NG_E4M3) NG_FORMS_MX(X, "mxfp8-e5m2", NG_E5M2)                                \
    NG_FORMS_MX_SQUARE(X, "mxfp8-32x32", NG_E4M3)                                                         \
    NG_FORMS_MX(X, "mxfp6-e3m2", NG_E3M2) NG_FORMS_MX(X, "mxfp6-e2m3", NG_E2M3)                           \
    NG_FORMS_MX(X, "mxfp4", NG_E2M1)                                                                      \
    NG_FORMS_NVFP4(X, "nvfp4", 1, 16, NG_4OVER6_OFF) NG_FORMS_NVFP4(X, "nvfp4-16x16", 16, 16, NG_4OVER6_OFF) \
    NG_FORMS_NVFP4(X, "nvfp4-4over6-mae", 1, 16, NG_4OVER6_MAE)                                           \
    NG_FORMS_NVFP4(X, "nvfp4-4over6-mse", 1, 16, NG_4OVER6_MSE)

#endif
