/* Block quantization as ng_quantization defines it, every intermediate rounding of the contract done as such, everything
 * else exact. Two tiers with equal results: MPFR throughout, and integer arithmetic on binary64. */
#ifndef NG_REFERENCE_QUANTIZE_H
#define NG_REFERENCE_QUANTIZE_H

#include "reference/format.h"

typedef enum ng_tier {
    NG_TIER_NONE,
    NG_TIER_INTEGER,       /* integers or binary64 with a proof that nothing was rounded */
    NG_TIER_SPLIT,         /* error-free split products, exact sums */
    NG_TIER_DOUBLE_DOUBLE, /* double-double with a proved remainder */
    NG_TIER_CERTIFIED,     /* binary64 with a proved error, beside which the verdict stands */
    NG_TIER_MPFR,
    NG_TIERS,
} ng_tier;

/* Names for records: "integer", "split", "double-double", "mpfr". */
extern const char *const ng_tier_names[NG_TIERS];

/* Encoding inputs that do not come from the tensor itself. */
typedef struct ng_quantize_inputs {
    const ng_tensor *random;  /* [rows][columns] uint32 words, or NULL */
    const float *given_scale; /* NG_SCALE_GIVEN */
    const double *tensor_amax; /* amax of a larger tensor of which `in` is a part; NULL: in's own. Used where a block is the whole tensor, and for nvfp4's tensor scale */
} ng_quantize_inputs;

/* Quantizes the host tensor `in` [rows][columns] into codes [rows][columns], scales [block rows][block columns] and, where
 * the quantization has one, *tensor_scale (decoding; 1 otherwise). tier: NG_TIER_MPFR or NG_TIER_INTEGER. NG_UNSUPPORTED: fp64
 * input, or scaled elements that are wider than 16 bits. NG_BAD_ARGUMENT: shapes or formats that do not fit the quantization,
 * a missing random tensor or given scale, a tensor_amax that is not a binary32. */
ng_status ng_reference_quantize(const ng_quantization *quantization, const ng_tensor *in,
                                const ng_quantize_inputs *inputs, ng_tier tier, ng_tensor *codes, ng_tensor *scales,
                                float *tensor_scale);

/* out[i][j] = the exact product element * block scale * tensor scale, rounded once by `cast`. */
ng_status ng_reference_dequantize(const ng_operand *in, const ng_cast *cast, ng_tier tier, ng_tensor *out);

/* The scale code and the encoding factor of one block from its amax (and, for nvfp4, the tensor's amax): for tables,
 * sweeps and tests. decode is the exact decoding scale of the block without the tensor scale. Both maxima are binary32
 * values; NG_SCALE_GIVEN is answered for a given scale of 1, 4over6 with the scale to 6. */
uint64_t ng_reference_scale(const ng_quantization *quantization, double amax, double tensor_amax, ng_tier tier,
                            double *decode, double *tensor_scale);

#endif
