/* What the two tiers of quantization share: the checked job and its geometry, no arithmetic. Internal to reference/. */
#ifndef NG_REFERENCE_QUANTIZE_CORE_H
#define NG_REFERENCE_QUANTIZE_CORE_H

#include "reference/quantize.h"

#include <float.h>
#include <math.h>

typedef struct ng_quantize_job {
    const ng_quantization *quantization;
    const ng_tensor *in, *random;      /* random: NULL unless the cast is stochastic */
    ng_tensor *codes, *scales;         /* scales: NULL with NG_SCALE_ABSENT */
    float given;                       /* NG_SCALE_GIVEN's encoding factor */
    const double *tensor_amax;         /* NULL: the tensor's own */
    int64_t height, width;             /* of a block */
    int64_t block_rows, block_columns; /* numbers of blocks */
} ng_quantize_job;

static inline bool ng_rule_is_mx(ng_scale_rule rule) {
    return rule >= NG_SCALE_MX_FLOOR && rule <= NG_SCALE_MX_CEIL;
}

static inline bool ng_rule_is_nvfp4(ng_scale_rule rule) {
    return rule == NG_SCALE_NVFP4_PAPER || rule == NG_SCALE_NVFP4_TE;
}

static inline ng_format_id ng_rule_scale_format(ng_scale_rule rule) {
    return ng_rule_is_mx(rule)       ? NG_E8M0
           : ng_rule_is_nvfp4(rule)  ? NG_UE4M3
           : rule == NG_SCALE_ABSENT ? NG_NO_FORMAT
                                     : NG_FP32;
}

/* True where one block is the whole tensor by definition, not by chance of its size. */
static inline bool ng_block_is_tensor(const ng_quantization *q) {
    return q->blocks.rows == 0 && q->blocks.columns == 0;
}

/* The largest block scale times the largest element, which the tensor's amax is mapped to. */
static inline double ng_nvfp4_span(const ng_quantization *q) {
    return q->four_over_six == NG_4OVER6_OFF ? 2688 : 1536;
}

ng_status ng_quantize_integer(const ng_quantize_job *job, float *tensor_scale);
ng_status ng_quantize_mpfr(const ng_quantize_job *job, float *tensor_scale);
ng_status ng_dequantize_integer(const ng_operand *in, const ng_cast *cast, ng_tensor *out);
ng_status ng_dequantize_mpfr(const ng_operand *in, const ng_cast *cast, ng_tensor *out);
uint64_t ng_scale_integer(const ng_quantization *q, double amax, double tensor_amax, double *decode,
                          double *tensor_scale);
uint64_t ng_scale_mpfr(const ng_quantization *q, double amax, double tensor_amax, double *decode, double *tensor_scale);

#endif
