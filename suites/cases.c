/* A row is kernels x one problem x kinds of data. Each stands for something that can go wrong there and nowhere else:
 * the comments say what. Rows are sorted by suite; ids come from their contents, so order is free. */
#include "suites/cases.h"

#define DATA(...) ((const ng_distribution[]){__VA_ARGS__, NG_DISTRIBUTIONS})
#define PHASES (1u << NG_FPROP | 1u << NG_DGRAD | 1u << NG_WGRAD)
#define FORWARD_DATA (1u << NG_FPROP | 1u << NG_DGRAD)
#define ORDINARY DATA(NG_NORMAL)
#define PRE NG_PREQUANTIZED

/* Hyper-parameters that fp32 holds badly: beta as a float instead of a double shows. */
#define ADAM(t, scale) ((const double[NG_SCALARS]){[NG_LEARNING_RATE] = 1e-3, [NG_BETA1] = 0.9, [NG_BETA2] = 0.999, [NG_EPSILON] = 1e-8, [NG_WEIGHT_DECAY] = 0.1, [NG_STEP] = t, [NG_GRADIENT_SCALE] = scale})
#define SCALER(first, interval) ((const double[NG_SCALARS]){[NG_GRADIENT_SCALE] = first, [NG_GROWTH] = 2, [NG_BACKOFF] = 0.5, [NG_GROWTH_INTERVAL] = interval})
#define HEADS(heads, sequence) ((const double[NG_SCALARS]){[NG_HEADS] = heads, [NG_SEQUENCE] = sequence})
#define CLIP ((const double[NG_SCALARS]){[NG_MAX_NORM] = 1})

const ng_case_row ng_case_rows[] = {
    /* ---- casts ---------------------------------------------------------------------------------------------------*/
    {"formats", NG_OP_CAST, "cast/*", "tails", 33, 65, 0, DATA(NG_NORMAL, NG_TIES), PRE, .level = NG_SMOKE},
    /* edges; the 16-bit formats have every input below */
    {"formats", NG_OP_CAST, "cast/fp32->*", NULL, 64, 256, 0, DATA(NG_OUTLIERS, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI},
    {"formats", NG_OP_CAST, "cast/fp64->*", NULL, 32, 128, 0, DATA(NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI},
    {"formats", NG_OP_CAST, "cast/bf16->*/sr*", NULL, 32, 128, 0, DATA(NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI},
    /* a million draws: a probability off by 1/256 is ten standard deviations */
    {"formats", NG_OP_CAST, "cast/bf16->*/sr8-carry-*", NULL, 1024, 1024, 0, ORDINARY, PRE, .level = NG_CI},
    /* more rows than a grid's second dimension may have */
    {"formats", NG_OP_CAST, "cast/bf16->*/rne-sat", "rows", 65600, 8, 0, ORDINARY, PRE, .level = NG_CI},
    /* one wrong element in 16 million */
    {"formats", NG_OP_CAST, "cast/bf16->e4m3/*/rne-sat", NULL, 4096, 4096, 0, ORDINARY, PRE, .level = NG_CI},
    /* a bit that flips once in ten launches */
    {"formats", NG_OP_CAST, "cast/*", NULL, 64, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 50},
    {"formats", NG_OP_CAST, "cast/*", NULL, 1024, 4096, 0, DATA(NG_NORMAL, NG_UNIFORM, NG_LOGNORMAL, NG_STUDENT), PRE, .level = NG_NIGHTLY},
    {"formats", NG_OP_CAST, "cast/*/cuda/*", NULL, 256, 512, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .repeats = 100},
    /* every number at which a rounding of fp32 or fp64 may change, its neighbours, and both signs of NaN */
    {"thresholds", NG_OP_CAST, "cast/fp[36]?->e*", NULL, 0, 0, 0, NULL, PRE, .level = NG_CI, .thresholds = true},
    {"thresholds", NG_OP_CAST, "cast/fp[36]?->ue4m3/*", NULL, 0, 0, 0, NULL, PRE, .level = NG_CI, .thresholds = true},
    {"thresholds", NG_OP_CAST, "cast/fp[36]?->[bf]?16/*/rne-*", NULL, 0, 0, 0, NULL, PRE, .level = NG_CI, .thresholds = true},
    /* every input there is */
    {"sweep16", NG_OP_CAST, "cast/bf16->*", NULL, 0, 0, 0, NULL, PRE, .level = NG_CI},
    {"sweep16", NG_OP_CAST, "cast/fp16->*", NULL, 0, 0, 0, NULL, PRE, .level = NG_CI},
    {"sweep", NG_OP_CAST, "cast/fp32->e4m3/*/rne-*", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},
    {"sweep", NG_OP_CAST, "cast/fp32->e5m2/*/rne-*", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},
    {"sweep", NG_OP_CAST, "cast/fp32->e3m2/*/rne-sat", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},
    {"sweep", NG_OP_CAST, "cast/fp32->e2m3/*/rne-sat", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},
    {"sweep", NG_OP_CAST, "cast/fp32->e2m1/*/rne-sat", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},
    {"sweep", NG_OP_CAST, "cast/fp32->ue4m3/*/rne-sat", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},
    {"sweep", NG_OP_CAST, "cast/fp32->e8m0/*/r?-sat", NULL, 0, 0, 0, NULL, PRE, .level = NG_NIGHTLY},

    /* ---- quantization --------------------------------------------------------------------------------------------*/
    {"quantize", NG_OP_QUANTIZE, "quantize/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", "tails", 129, 257, 0, DATA(NG_BLOCK_EDGES, NG_ZERO_BLOCKS), PRE, .level = NG_CI},
    /* square, so that a transposed scale has a place to go; several blocks, so that a neighbour's scale has one too */
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*-128x128/*", NULL, 256, 256, 0, DATA(NG_LOGNORMAL), PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", NULL, 128, 128, 0, DATA(NG_LOGNORMAL, NG_OUTLIERS), PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/fp32->*", NULL, 64, 256, 0, DATA(NG_BLOCK_EDGES, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/fp16->*", NULL, 32, 256, 0, DATA(NG_BLOCK_EDGES, NG_SUBNORMAL, NG_NEAR_OVERFLOW), PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", NULL, 32, 256, 0, DATA(NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE, NG_POSITIVE), PRE, .level = NG_CI},
    /* a maximum so small that max / amax overflows, or that its scale is subnormal */
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", "tiny", 32, 256, 0, DATA(NG_SUBNORMAL), PRE, .level = NG_CI, .for_input = true},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", NULL, 64, 128, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    /* a million draws, as of casts */
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/*/te-sr8-carry", NULL, 1024, 1024, 0, ORDINARY, PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/*/te-rht16-columns-sr8-carry", NULL, 1024, 1024, 0, ORDINARY, PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/*/cuda/*", NULL, 256, 512, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .repeats = 100},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->mxfp?/*/round-up", "rows", 65600, 16, 0, ORDINARY, PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/*/te", "rows", 65600, 16, 0, ORDINARY, PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->e4m3*/*/max-over-amax", "rows", 65600, 16, 0, ORDINARY, PRE, .level = NG_CI},
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->*", NULL, 4096, 4096, 0, DATA(NG_NORMAL, NG_STUDENT), PRE, .level = NG_NIGHTLY},
    /* 100,663,296 blocks of 16, every code and scale against the reference's derivation */
    {"quantize", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/cuda/te", "1e8-blocks", 16384, 98304, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    /* activations of a large layer: held against the copy bandwidth */
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->e4m3/cuda/max-over-amax", "activations", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->mxfp8/cuda/round-up", "activations", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/cuda/te", "activations", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->e4m3/cuda/max-over-amax", "activations", 8192, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->mxfp8/cuda/round-up", "activations", 8192, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/cuda/te", "activations", 8192, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},

    /* ---- random Hadamard transform -------------------------------------------------------------------------------*/
    {"hadamard", NG_OP_HADAMARD, "hadamard/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    /* whole groups of every size; one outlier in a group, which the transform spreads; sums that no order rounds */
    {"hadamard", NG_OP_HADAMARD, "hadamard/*", NULL, 64, 256, 0, DATA(NG_OUTLIERS, NG_INTEGERS, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI},
    {"hadamard", NG_OP_HADAMARD, "hadamard/*", "rows", 65600, 16, 0, ORDINARY, PRE, .level = NG_CI},
    {"hadamard", NG_OP_HADAMARD, "hadamard/*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    {"hadamard", NG_OP_HADAMARD, "hadamard/*", NULL, 4096, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_HADAMARD, "hadamard/bf16->bf16/cuda/16-over-4", "activations", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_QUANTIZE, "quantize/bf16->nvfp4/cuda/te-rht16-columns-sr8-carry", "gradients", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},

    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    /* nonfinite: every code of elements and scales */
    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*", NULL, 128, 256, 0, DATA(NG_LOGNORMAL, NG_NONFINITE), PRE, .level = NG_CI},
    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*", "tails", 129, 257, 0, DATA(NG_ZERO_BLOCKS, NG_SUBNORMAL), PRE, .level = NG_CI},
    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*->bf16/*", "rows", 65600, 16, 0, ORDINARY, PRE, .level = NG_CI},
    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*", NULL, 64, 128, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*/cuda/*", NULL, 256, 512, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .repeats = 100},
    {"dequantize", NG_OP_DEQUANTIZE, "dequantize/*", NULL, 4096, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},

    /* ---- optimizers ----------------------------------------------------------------------------------------------*/
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "step 7", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE, .scalars = ADAM(7, 0)},
    /* moments of 0: the correction divides by 1 - beta */
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "step 1", 16, 256, 0, DATA(NG_NORMAL, NG_OUTLIERS, NG_SUBNORMAL, NG_NONFINITE), PRE, .level = NG_CI, .scalars = ADAM(1, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "step 100", 16, 256, 0, DATA(NG_LOGNORMAL, NG_NEAR_OVERFLOW, NG_ZERO_BLOCKS), PRE, .level = NG_CI, .scalars = ADAM(100, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "step 1000000", 16, 256, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(1000000, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "scaled", 16, 256, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 65536)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "found-inf", 16, 256, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "rows", 65600, 3, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adamw/bf16/*/torch", "rows", 65600, 1, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "wide", 1, 20011, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "repeated", 8, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 10, .scalars = ADAM(3, 0)},
    /* thousands of tensors in one launch; what lies between them stays as it was */
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "list", 37, 384, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adamw/bf16/*/torch", "list of 2000", 2000, 60, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(3, 0)},
    /* each step from what the kernel itself left */
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "trajectory", 1, 8, 120, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(2, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adamw/*/torch", "trajectory", 1, 24, 10000, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(2, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adamw/fp32/cpu/*", "trajectory", 1, 8, 10000, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(2, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "adam*", "trajectory", 1, 24, 10000, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(2, 0)},
    {"optimizers", NG_OP_OPTIMIZER, "unscale/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"optimizers", NG_OP_OPTIMIZER, "unscale/*", NULL, 32, 256, 0, DATA(NG_NONFINITE, NG_NEAR_OVERFLOW, NG_LOGNORMAL), PRE, .level = NG_CI},
    {"optimizers", NG_OP_OPTIMIZER, "unscale/*", "nan", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"optimizers", NG_OP_OPTIMIZER, "unscale/*", "list", 500, 60, 0, DATA(NG_NORMAL, NG_NONFINITE), PRE, .level = NG_CI},
    {"optimizers", NG_OP_OPTIMIZER, "scaler/*", "growth", 1, 1, 2100, ORDINARY, PRE, .level = NG_CI, .scalars = SCALER(65536, 2000)},
    /* grows only while it stays finite */
    {"optimizers", NG_OP_OPTIMIZER, "scaler/*", "largest", 1, 1, 60, ORDINARY, PRE, .level = NG_SMOKE, .scalars = SCALER(0x1p125, 4)},
    {"optimizers", NG_OP_OPTIMIZER, "norm2/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"optimizers", NG_OP_OPTIMIZER, "norm2/*", NULL, 32, 256, 0, DATA(NG_NONFINITE, NG_SUBNORMAL, NG_OUTLIERS), PRE, .level = NG_CI},
    {"optimizers", NG_OP_OPTIMIZER, "norm2/*", "wide", 3, 100003, 0, ORDINARY, PRE, .level = NG_CI},
    {"optimizers", NG_OP_OPTIMIZER, "norm2/*", "list", 2000, 60, 0, ORDINARY, PRE, .level = NG_CI},
    {"optimizers", NG_OP_OPTIMIZER, "clip/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE, .scalars = CLIP},
    {"optimizers", NG_OP_OPTIMIZER, "clip/*", "below", 33, 161, 0, ORDINARY, PRE, .level = NG_CI, .scalars = CLIP},
    {"optimizers", NG_OP_OPTIMIZER, "clip/*", "list", 500, 60, 0, DATA(NG_NORMAL, NG_NONFINITE), PRE, .level = NG_CI, .scalars = CLIP},
    /* held against the copy bandwidth; as one tensor and as 2,000 of the same elements */
    {"speed", NG_OP_OPTIMIZER, "adamw/fp32/cuda/torch", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "adamw/fp32/cuda/apex", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "adamw/fp32/cuda/torch-capturable", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "adamw/bf16/cuda/torch-master", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "adamw/bf16/cuda/torch-remainder", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "adamw/fp32/cuda/torch-*-moments", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "adamw/fp32/cuda/torch", "list of 2000", 2000, 33554, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = ADAM(3, 0)},
    {"speed", NG_OP_OPTIMIZER, "unscale/fp32/cuda/*", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_OPTIMIZER, "norm2/fp32/cuda/*", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_OPTIMIZER, "clip/fp32/cuda/*", "parameters", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = CLIP},

    /* ---- attention, rotary position, embedding: problems are tokens x width, with heads of a token and tokens of a sequence ------*/
#define ATTENTION_OF(kernels, problem, m, n, data, level_, heads, sequence)                                                              \
    {"attention", NG_OP_ATTENTION_FORWARD, kernels, problem, m, n, 0, data, PRE, .level = level_, .scalars = HEADS(heads, sequence)},   \
    {"attention", NG_OP_ATTENTION_BACKWARD, kernels, problem, m, n, 0, data, PRE, .level = level_, .scalars = HEADS(heads, sequence)}
#define ATTENTION(...) ATTENTION_OF("*", __VA_ARGS__)
    ATTENTION("tails", 74, 30, ORDINARY, NG_SMOKE, 3, 37),
    /* one query sees one key; one head; a head of one element */
    ATTENTION("single tokens", 5, 48, ORDINARY, NG_CI, 3, 1),
    ATTENTION("one head", 65, 20, ORDINARY, NG_CI, 1, 65),
    ATTENTION("thin", 24, 2, ORDINARY, NG_CI, 2, 12),
    ATTENTION("tiles", 129, 2 * 64, ORDINARY, NG_CI, 2, 129),
    /* logits of tens and hundreds; heads alike; weights that vanish; nothing rounded; not finite */
    ATTENTION("heads", 96, 128, DATA(NG_OUTLIERS, NG_STUDENT, NG_CONSTANT, NG_INTEGERS, NG_SUBNORMAL, NG_LOGNORMAL, NG_NONFINITE), NG_CI, 4, 48),
    ATTENTION("sharp", 40, 32, DATA(NG_NONFINITE), NG_CI, 2, 20),
    {"attention", NG_OP_ATTENTION_FORWARD, "*/[bf]*", NULL, 32, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30, .scalars = HEADS(2, 16)},
    {"attention", NG_OP_ATTENTION_BACKWARD, "*/[bf]*", NULL, 32, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30, .scalars = HEADS(2, 16)},
    /* layers of real models: 32 heads of 64 and 128 */
    ATTENTION_OF("*/bf16/*", "32 heads of 64", 2 * 512, 2048, ORDINARY, NG_NIGHTLY, 32, 512),
    ATTENTION_OF("*/bf16/cuda/*", "32 heads of 128", 1024, 4096, ORDINARY, NG_NIGHTLY, 32, 1024),
    ATTENTION_OF("*/bf16/cuda/*-mma", "32 heads of 128", 2048, 4096, ORDINARY, NG_NIGHTLY, 32, 2048),
    ATTENTION_OF("*/cuda/*", "training", 16 * 256, 512, ORDINARY, NG_NIGHTLY, 8, 256),
    ATTENTION_OF("*/cuda/*", "training", 32 * 512, 512, ORDINARY, NG_NIGHTLY, 8, 512),
    {"attention", NG_OP_ATTENTION_FORWARD, "*/fp64/*", "tails", 46, 12, 0, DATA(NG_NORMAL, NG_STUDENT), PRE, .level = NG_SMOKE, .scalars = HEADS(2, 23)},
    {"attention", NG_OP_ATTENTION_BACKWARD, "*/fp64/*", "tails", 46, 12, 0, DATA(NG_NORMAL, NG_STUDENT), PRE, .level = NG_SMOKE, .scalars = HEADS(2, 23)},
    {"attention", NG_OP_ATTENTION_FORWARD, "*/fp64/*", NULL, 32, 16, 0, DATA(NG_NONFINITE), PRE, .level = NG_CI, .scalars = HEADS(2, 16)},
    {"rope", NG_OP_ROPE, "*", "tails", 74, 30, 0, ORDINARY, PRE, .level = NG_SMOKE, .scalars = HEADS(3, 37)},
    {"rope", NG_OP_ROPE, "*/fp64/*", "tails", 74, 30, 0, ORDINARY, PRE, .level = NG_SMOKE, .scalars = HEADS(3, 37)},
    {"rope", NG_OP_ROPE, "*", "heads", 64, 128, 0, DATA(NG_OUTLIERS, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI, .scalars = HEADS(2, 16)},
    {"rope", NG_OP_ROPE, "*", "single tokens", 7, 18, 0, ORDINARY, PRE, .level = NG_CI, .scalars = HEADS(9, 1)},
    {"rope", NG_OP_ROPE, "*/bf16/*", "rows", 65600, 4, 0, ORDINARY, PRE, .level = NG_CI, .scalars = HEADS(1, 64)},
    {"rope", NG_OP_ROPE, "*/cuda/*", "32 heads of 128", 2048, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .scalars = HEADS(32, 2048)},
    {"layers", NG_OP_ADD, "*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"layers", NG_OP_ADD, "*/fp64/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"layers", NG_OP_ADD, "*", NULL, 16, 256, 0, DATA(NG_OUTLIERS, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE), PRE, .level = NG_CI},
    {"layers", NG_OP_ADD, "*", "rows", 65600, 3, 0, ORDINARY, PRE, .level = NG_CI},
    {"layers", NG_OP_ADD, "*/cuda/*", "residual", 4096, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"layers", NG_OP_TRANSPOSE, "*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"layers", NG_OP_TRANSPOSE, "*/fp64/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"layers", NG_OP_TRANSPOSE, "*", NULL, 64, 128, 0, DATA(NG_NONFINITE), PRE, .level = NG_CI},
    {"layers", NG_OP_TRANSPOSE, "*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    {"layers", NG_OP_TRANSPOSE, "*", "rows", 65600, 5, 0, ORDINARY, PRE, .level = NG_CI},
    {"layers", NG_OP_TRANSPOSE, "*", "wide", 3, 65600, 0, ORDINARY, PRE, .level = NG_CI},
    {"layers", NG_OP_TRANSPOSE, "*/cuda/*", "activations", 4096, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"embedding", NG_OP_EMBEDDING_FORWARD, "*", "tails", 75, 37, 41, ORDINARY, PRE, .level = NG_SMOKE},
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*", "tails", 75, 37, 41, ORDINARY, PRE, .level = NG_SMOKE},
    {"embedding", NG_OP_EMBEDDING_FORWARD, "*/fp64/*", "tails", 75, 37, 41, ORDINARY, PRE, .level = NG_SMOKE},
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*/fp64/*", "tails", 75, 37, 41, ORDINARY, PRE, .level = NG_SMOKE},
    {"embedding", NG_OP_EMBEDDING_FORWARD, "*", NULL, 64, 64, 16, DATA(NG_NONFINITE), PRE, .level = NG_CI},
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*", NULL, 64, 64, 16, DATA(NG_OUTLIERS, NG_SUBNORMAL, NG_NONFINITE, NG_INTEGERS), PRE, .level = NG_CI},
    /* every token the same; a vocabulary that most tokens are not of */
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*", "one token", 300, 16, 1, ORDINARY, PRE, .level = NG_CI},
    {"embedding", NG_OP_EMBEDDING_FORWARD, "*", "vocabulary", 64, 24, 70000, ORDINARY, PRE, .level = NG_CI},
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*", "vocabulary", 64, 8, 70000, ORDINARY, PRE, .level = NG_CI},
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*", NULL, 64, 32, 9, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    {"embedding", NG_OP_EMBEDDING_FORWARD, "*/cuda/*", "training", 16384, 512, 256, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"embedding", NG_OP_EMBEDDING_BACKWARD, "*/cuda/*", "training", 16384, 512, 256, ORDINARY, PRE, .level = NG_NIGHTLY},

    /* ---- binary64 throughout: what a training run's exact side is made of ------------------------------------------*/
    {"fp64", NG_OP_GEMM, "gemm/fp64/*", "tails", 17, 23, 41, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_GEMM, "gemm/fp64/*", "one", 1, 1, 1, ORDINARY, PRE, .level = NG_CI},
    {"fp64", NG_OP_GEMM, "gemm/fp64/*", NULL, 9, 70, 130, DATA(NG_LOGNORMAL, NG_NONFINITE), PRE, .level = NG_CI},
    {"fp64", NG_OP_NORM_FORWARD, "*norm/fp64->*", "tails", 13, 77, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_NORM_BACKWARD, "*norm-backward/fp64/*", "tails", 13, 77, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_NORM_FORWARD, "*norm/fp64->*", NULL, 8, 64, 0, DATA(NG_LARGE_MEAN, NG_CONSTANT, NG_NONFINITE), PRE, .level = NG_CI},
    {"fp64", NG_OP_NORM_BACKWARD, "*norm-backward/fp64/*", NULL, 8, 64, 0, DATA(NG_LARGE_MEAN, NG_OUTLIERS), PRE, .level = NG_CI},
    {"fp64", NG_OP_ACTIVATION, "*/fp64->*", "tails", 9, 33, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_ACTIVATION_BACKWARD, "*/fp64/*", "tails", 9, 33, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_ACTIVATION, "*/fp64->*", NULL, 8, 32, 0, DATA(NG_OUTLIERS, NG_NONFINITE), PRE, .level = NG_CI},
    {"fp64", NG_OP_ACTIVATION_BACKWARD, "*/fp64/*", NULL, 8, 32, 0, DATA(NG_OUTLIERS), PRE, .level = NG_CI},
    {"fp64", NG_OP_LOSS, "*/fp64/*", "tails", 13, 77, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_LOSS_BACKWARD, "*/fp64/*", "tails", 13, 77, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_LOSS, "*/fp64/*", NULL, 12, 40, 0, DATA(NG_OUTLIERS, NG_LARGE_MEAN, NG_NONFINITE), PRE, .level = NG_CI},
    {"fp64", NG_OP_LOSS_BACKWARD, "*/fp64/*", NULL, 12, 40, 0, DATA(NG_OUTLIERS, NG_LARGE_MEAN), PRE, .level = NG_CI},
    {"fp64", NG_OP_OPTIMIZER, "adamw/fp64/*", "step 7", 5, 61, 0, ORDINARY, PRE, .level = NG_SMOKE, .scalars = ADAM(7, 0)},
    {"fp64", NG_OP_OPTIMIZER, "adamw/fp64/*", "step 1", 4, 32, 0, DATA(NG_OUTLIERS, NG_NONFINITE), PRE, .level = NG_CI, .scalars = ADAM(1, 0)},
    {"fp64", NG_OP_OPTIMIZER, "adamw/fp64/*", "step 1000000", 4, 32, 0, ORDINARY, PRE, .level = NG_CI, .scalars = ADAM(1000000, 0)},
    {"fp64", NG_OP_OPTIMIZER, "norm2/fp64/*", "tails", 5, 61, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"fp64", NG_OP_OPTIMIZER, "clip/fp64/*", "tails", 5, 61, 0, ORDINARY, PRE, .level = NG_SMOKE, .scalars = CLIP},

    /* ---- activations, cross-entropy ------------------------------------------------------------------------------*/
    {"activations", NG_OP_ACTIVATION, "*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"activations", NG_OP_ACTIVATION, "*", NULL, 16, 256, 0, DATA(NG_OUTLIERS, NG_STUDENT, NG_SUBNORMAL, NG_NONFINITE, NG_ZERO_BLOCKS), PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "*", NULL, 16, 256, 0, DATA(NG_OUTLIERS, NG_STUDENT, NG_SUBNORMAL, NG_NONFINITE, NG_ZERO_BLOCKS), PRE, .level = NG_CI},
    /* where squares do not overflow on the way to a bounded result */
    {"activations", NG_OP_ACTIVATION, "*->[bf]*", NULL, 16, 256, 0, DATA(NG_NEAR_OVERFLOW), PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "gelu-erf-backward/*", NULL, 16, 256, 0, DATA(NG_NEAR_OVERFLOW), PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "swiglu-backward/*", NULL, 16, 256, 0, DATA(NG_NEAR_OVERFLOW), PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION, "*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION, "*", "wide", 2, 5003, 0, ORDINARY, PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "*", "wide", 2, 5003, 0, ORDINARY, PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION, "*/bf16->*", "rows", 65600, 3, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"activations", NG_OP_ACTIVATION, "swiglu/bf16->bf16*", "rows", 65600, 3, 0, ORDINARY, PRE, .level = NG_CI},
    {"activations", NG_OP_ACTIVATION, "*", NULL, 8, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    {"activations", NG_OP_ACTIVATION_BACKWARD, "*", NULL, 8, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    {"losses", NG_OP_LOSS, "*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"losses", NG_OP_LOSS_BACKWARD, "*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"losses", NG_OP_LOSS, "*", NULL, 32, 256, 0, DATA(NG_OUTLIERS, NG_LARGE_MEAN, NG_CONSTANT, NG_SUBNORMAL, NG_NONFINITE, NG_STUDENT), PRE, .level = NG_CI},
    {"losses", NG_OP_LOSS_BACKWARD, "*", NULL, 32, 256, 0, DATA(NG_OUTLIERS, NG_LARGE_MEAN, NG_CONSTANT, NG_SUBNORMAL, NG_NONFINITE, NG_STUDENT), PRE, .level = NG_CI},
    /* a vocabulary; one class; more rows than a grid's second dimension may have */
    {"losses", NG_OP_LOSS, "*", "vocabulary", 5, 50257, 0, ORDINARY, PRE, .level = NG_CI},
    {"losses", NG_OP_LOSS_BACKWARD, "*", "vocabulary", 5, 50257, 0, ORDINARY, PRE, .level = NG_CI},
    {"losses", NG_OP_LOSS, "*", "rows", 65600, 3, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"losses", NG_OP_LOSS_BACKWARD, "*", "rows", 65600, 3, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"losses", NG_OP_LOSS, "*", NULL, 12, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    {"losses", NG_OP_LOSS_BACKWARD, "*", NULL, 12, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 30},
    {"speed", NG_OP_ACTIVATION, "*/bf16->*/cuda/*", "activations", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_ACTIVATION_BACKWARD, "*/bf16/cuda/*", "activations", 8192, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_LOSS, "*/bf16/cuda/*", "vocabulary", 2048, 128256, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_LOSS_BACKWARD, "*/bf16/cuda/*", "vocabulary", 2048, 128256, 0, ORDINARY, PRE, .level = NG_NIGHTLY},

    /* ---- products ------------------------------------------------------------------------------------------------*/
    {"gemm", NG_OP_GEMM, "gemm/*", "tails", 33, 65, 97, ORDINARY, PRE, .level = NG_SMOKE},
    /* K <= 128 and positive data: the bound is close to what truncation does */
    {"gemm", NG_OP_GEMM, "gemm/*", NULL, 64, 64, 128, DATA(NG_POSITIVE), PRE, .level = NG_SMOKE},
    {"gemm", NG_OP_GEMM, "gemm/*", "one", 1, 1, 1, ORDINARY, PRE, .level = NG_CI},
    /* sums that no order can round; cancellation; wide ranges */
    {"gemm", NG_OP_GEMM, "gemm/*", "tails", 33, 65, 97, DATA(NG_INTEGERS, NG_ILL_CONDITIONED, NG_OUTLIERS, NG_STUDENT, NG_NONFINITE), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/fp16/*", "tails", 33, 65, 97, DATA(NG_SUBNORMAL, NG_NEAR_OVERFLOW), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/e?m?*", "tails", 33, 65, 97, DATA(NG_ZERO_BLOCKS, NG_SUBNORMAL), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/mx*", "tails", 33, 65, 97, DATA(NG_ZERO_BLOCKS, NG_SUBNORMAL), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/nvfp4*", "tails", 33, 65, 97, DATA(NG_ZERO_BLOCKS, NG_SUBNORMAL), PRE, .level = NG_CI},
    /* scales of B in several rows and columns of blocks: transposed or shifted ones have a place to go */
    {"gemm", NG_OP_GEMM, "gemm/*-128/*", "blocks", 8, 200, 300, ORDINARY, PRE, .level = NG_CI},
    /* scales at the lower end of their range, over elements that are not zero */
    {"gemm", NG_OP_GEMM, "gemm/mx*", "tiny", 33, 65, 97, DATA(NG_SUBNORMAL), PRE, .level = NG_CI, .for_input = true},
    /* square: a transposed operand fits */
    {"gemm", NG_OP_GEMM, "gemm/*", NULL, 96, 96, 96, ORDINARY, PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/*", "tails", 65, 97, 272, ORDINARY, PRE, .level = NG_CI},
    /* long K: a missing promotion, a narrow accumulator, a split that overflows */
    {"gemm", NG_OP_GEMM, "gemm/*", "long", 16, 32, 4096, DATA(NG_NORMAL, NG_POSITIVE), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/*", "long", 4, 16, 16384, DATA(NG_POSITIVE), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/bf16/*/bf16-out", "rows", 65600, 2, 8, ORDINARY, PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/*", NULL, 32, 64, 64, ORDINARY, PRE, .level = NG_CI, .repeats = 50},
    {"gemm", NG_OP_GEMM, "gemm/*/cuda/*", NULL, 128, 256, 512, ORDINARY, PRE, .level = NG_NIGHTLY, .repeats = 100},
    /* several tiles either way, the last of them cut; an odd K beyond the short ones, and one beyond the long ones */
    {"gemm", NG_OP_GEMM, "gemm/*", "wide", 136, 264, 309, ORDINARY, PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/*", "long", 8, 16, 5003, ORDINARY, PRE, .level = NG_CI},
    /* the gradient path */
    {"gemm", NG_OP_GEMM, "gemm/*", "layer", 64, 96, 160, ORDINARY, PRE, .level = NG_CI, .phases = PHASES},
    {"gemm", NG_OP_GEMM, "gemm/*/bf16-out", NULL, 96, 160, 288, ORDINARY, NG_AUTOCAST, .level = NG_SMOKE},
    {"gemm", NG_OP_GEMM, "gemm/*", "llama3-8b.mlp_down", 512, 4096, 14336, ORDINARY, PRE, .level = NG_NIGHTLY, .phases = PHASES},
    /* whole library products, all algorithms, every bit: long and short K, K that no tile divides, a layer of CodonFM */
    {"gemm", NG_OP_GEMM, "gemm/*/cublaslt/*-out", NULL, 256, 256, 8192, DATA(NG_NORMAL, NG_POSITIVE), PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*/cublaslt/*-out", NULL, 4096, 4096, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*/cublaslt/*-out", NULL, 2048, 8192, 1040, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*/cublaslt/*-out", NULL, 128, 14336, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*/cublaslt/*-out", NULL, 640, 384, 4112, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*/cublaslt/*bf16-out", "codonfm-5b.qkv", 15872, 12288, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    /* few rows: one, those of one and of two groups of columns; fewer chunks of K than parts, parts that are not alike; decoding */
    {"gemm", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "few-rows", 5, 200, 384, ORDINARY, PRE, .level = NG_SMOKE},
    {"gemm", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "few-rows", 1, 1, 128, ORDINARY, PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "few-rows", 16, 67, 1152, DATA(NG_NORMAL, NG_ZERO_BLOCKS, NG_SUBNORMAL, NG_OUTLIERS, NG_NONFINITE, NG_POSITIVE), PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "few-rows", 8, 9000, 1024, ORDINARY, PRE, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "few-rows", 11, 64, 512, ORDINARY, PRE, .level = NG_CI, .repeats = 100},
    {"speed", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "llama3-8b.mlp_up", 16, 28672, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "llama3-8b.mlp_down", 16, 4096, 14336, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_GEMM, "gemm/nvfp4/cuda/few-rows/*", "llama3-8b.mlp_up", 1, 28672, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_GEMM, "gemm/bf16/cublaslt/bf16-out", "llama3-8b.mlp_up", 16, 28672, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_GEMM, "gemm/bf16/cublaslt/bf16-out", "llama3-8b.mlp_down", 16, 4096, 14336, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_GEMM, "gemm/bf16/cublaslt/bf16-out", "llama3-8b.mlp_up", 1, 28672, 4096, ORDINARY, PRE, .level = NG_NIGHTLY},
    /* what a software block-scaled product costs beside bf16 */
    {"speed", NG_OP_GEMM, "gemm/*/cublaslt/dequantized/bf16-out", NULL, 8192, 8192, 8192, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_GEMM, "gemm/bf16/cublaslt/bf16-out", NULL, 8192, 8192, 8192, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*", "tails", 129, 257, 1040, DATA(NG_NORMAL, NG_POSITIVE), PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*", NULL, 512, 512, 1024, DATA(NG_NORMAL, NG_UNIFORM, NG_LOGNORMAL, NG_STUDENT), PRE, .level = NG_NIGHTLY},
    {"gemm", NG_OP_GEMM, "gemm/*", NULL, 96, 160, 288, DATA(NG_OUTLIERS), NG_AUTOCAST, .level = NG_NIGHTLY},

    /* ---- norms ---------------------------------------------------------------------------------------------------*/
    {"norms", NG_OP_NORM_FORWARD, "*norm/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*", "tails", 33, 161, 0, ORDINARY, PRE, .level = NG_SMOKE},
    /* mean 1e4 deviations; variance 0; beside eps; squares that underflow and overflow; NaN and infinities */
    {"norms", NG_OP_NORM_FORWARD, "*norm/*", NULL, 32, 256, 0, DATA(NG_LARGE_MEAN, NG_CONSTANT, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE, NG_OUTLIERS, NG_ZERO_BLOCKS), PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*", NULL, 32, 256, 0, DATA(NG_LARGE_MEAN, NG_CONSTANT, NG_SUBNORMAL, NG_NEAR_OVERFLOW, NG_NONFINITE, NG_OUTLIERS, NG_ZERO_BLOCKS), PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_FORWARD, "*norm/*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*", "one", 1, 1, 0, ORDINARY, PRE, .level = NG_CI},
    /* a row in one warp, in two, in several; more than a lane holds; one element past each */
    {"norms", NG_OP_NORM_FORWARD, "*norm/*", "wide", 5, 1025, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_FORWARD, "*norm/bf16*", "wide", 3, 4097, 0, DATA(NG_NORMAL, NG_LARGE_MEAN), PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_FORWARD, "*norm/fp32*", "wide", 2, 16387, 0, DATA(NG_NORMAL, NG_LARGE_MEAN), PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_FORWARD, "*norm/*/fp32-params", "widest", 2, 65536, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*", "wide", 5, 1025, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/bf16/*", "wide", 3, 4097, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*/fp32-params", "wide", 300, 8193, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/fp32/*/fp32-params", "wide", 70, 16387, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*/fp32-params", "widest", 2, 65536, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_FORWARD, "*norm/*", "narrow", 40, 3, 0, ORDINARY, PRE, .level = NG_CI},
    /* several rows in each group of the sums over rows, in some one more than in others */
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*", "groups", 4300, 3, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*/fp32-params", "groups", 1100, 2056, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    /* NVIDIA/apex#411: rows beyond a grid's 65535 */
    {"norms", NG_OP_NORM_FORWARD, "*norm/bf16*/fp32-params", "rows", 65600, 8, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/bf16/*/fp32-params", "rows", 65600, 8, 0, ORDINARY, PRE, .level = NG_CI},
    {"norms", NG_OP_NORM_FORWARD, "*norm/bf16*", NULL, 16, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 50},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*", NULL, 32, 64, 0, ORDINARY, PRE, .level = NG_CI, .repeats = 50},
    {"norms", NG_OP_NORM_FORWARD, "*norm/*/cuda/*", NULL, 512, 1024, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .repeats = 100},
    {"norms", NG_OP_NORM_BACKWARD, "*norm-backward/*/cuda/*", NULL, 600, 1024, 0, ORDINARY, PRE, .level = NG_NIGHTLY, .repeats = 100},
    /* 2^27 elements, the longest way and the widest */
    {"norms", NG_OP_NORM_FORWARD, "layernorm/bf16->bf16/*/fp32-params", "long", 1 << 20, 128, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"norms", NG_OP_NORM_BACKWARD, "rmsnorm-backward/bf16/*/fp32-params", "long", 1 << 20, 128, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"norms", NG_OP_NORM_FORWARD, "rmsnorm/bf16->bf16/*/fp32-params", "widest", 2048, 65536, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"norms", NG_OP_NORM_BACKWARD, "layernorm-backward/bf16/*/fp32-params", "widest", 2048, 65536, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    /* activations of a large layer: held against the copy bandwidth */
    {"speed", NG_OP_NORM_FORWARD, "*norm/bf16->*/cuda/fp32-params*", "activations", 8192, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_NORM_FORWARD, "*norm/bf16->bf16/cuda/fp32-params", "activations", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_NORM_FORWARD, "*norm/bf16->bf16/cuda/fp32-params", "activations", 32768, 1024, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_NORM_BACKWARD, "*norm-backward/bf16/cuda/fp32-params*", "activations", 8192, 4096, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_NORM_BACKWARD, "*norm-backward/bf16/cuda/fp32-params", "activations", 16384, 8192, 0, ORDINARY, PRE, .level = NG_NIGHTLY},
    {"speed", NG_OP_NORM_BACKWARD, "*norm-backward/bf16/cuda/fp32-params", "activations", 32768, 1024, 0, ORDINARY, PRE, .level = NG_NIGHTLY},

    /* ---- delayed scaling -----------------------------------------------------------------------------------------*/
    {"scale-update", NG_OP_SCALE_UPDATE, "scale-update/*", NULL, 16, 64, 0, ORDINARY, PRE, .level = NG_SMOKE},
    /* TransformerEngine's 1,024 steps; a history of one step, of two; NaN and infinities in it */
    {"scale-update", NG_OP_SCALE_UPDATE, "scale-update/*", "history", 1024, 97, 0, DATA(NG_LOGNORMAL, NG_NONFINITE), PRE, .level = NG_CI},
    {"scale-update", NG_OP_SCALE_UPDATE, "scale-update/*", "one", 1, 33, 0, ORDINARY, PRE, .level = NG_CI},
    {"scale-update", NG_OP_SCALE_UPDATE, "scale-update/*", "two", 2, 33, 0, DATA(NG_NORMAL, NG_NONFINITE), PRE, .level = NG_CI},

    /* ---- whole recipes: quantize, multiply, compare with the product of the operands before -------------------------*/
    {"recipe", NG_OP_GEMM, "*", NULL, 96, 160, 288, ORDINARY, PRE, .level = NG_SMOKE, .phases = PHASES, .recipes = true},
    /* extents that no block divides; a zero block, an outlier, infinities */
    {"recipe", NG_OP_GEMM, "*", "tails", 33, 65, 97, DATA(NG_NORMAL, NG_ZERO_BLOCKS, NG_OUTLIERS, NG_NONFINITE), PRE, .level = NG_CI, .phases = PHASES, .recipes = true},
    {"recipe", NG_OP_GEMM, "*", "one", 1, 1, 1, ORDINARY, PRE, .level = NG_CI, .phases = PHASES, .recipes = true},
    {"recipe", NG_OP_GEMM, "*", "llama3-8b.mlp_down", 512, 4096, 14336, ORDINARY, PRE, .level = NG_NIGHTLY, .phases = PHASES, .recipes = true},

    /* ---- --model, and --x --w --dy: the recipes that training chooses from ---------------------------------------*/
    {"model", NG_OP_GEMM, "gemm/bf16/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/e4m3/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/e4m3-row/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = PHASES},
    /* 1x128 by 128x128 where the weight is an operand, 1x128 by 1x128 for its gradient (DeepSeek-V3) */
    {"model", NG_OP_GEMM, "gemm/e4m3-128/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = FORWARD_DATA},
    {"model", NG_OP_GEMM, "gemm/e4m3-1x128/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = 1u << NG_WGRAD},
    {"model", NG_OP_GEMM, "gemm/mxfp8/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/mxfp4/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/nvfp4/cpu/fp32-chain/bf16-out", .use = NG_ROW_MODEL, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/bf16/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/fp16/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/fp32/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/tf32/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/e4m3/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/e5m2/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    /* gradients in e5m2 */
    {"model", NG_OP_GEMM, "gemm/e5m2-e4m3/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = 1u << NG_DGRAD | 1u << NG_WGRAD},
    {"model", NG_OP_GEMM, "gemm/fp8-hybrid/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = 1u << NG_DGRAD | 1u << NG_WGRAD},
    {"model", NG_OP_GEMM, "gemm/e4m3-row/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/e4m3-128/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = FORWARD_DATA},
    {"model", NG_OP_GEMM, "gemm/e4m3-1x128/*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = 1u << NG_WGRAD},
    {"model", NG_OP_GEMM, "gemm/mxfp*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},
    {"model", NG_OP_GEMM, "gemm/nvfp4*", .use = NG_ROW_MODEL_ON_REQUEST, .phases = PHASES},

    /* ---- --tensors -----------------------------------------------------------------------------------------------*/
    {"tensors", NG_OP_QUANTIZE, "quantize/*->e4m3/cpu/max-over-amax", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->e4m3-row/cpu/max-over-amax", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->e4m3-1x128/cpu/max-over-amax", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->e4m3-128x128/cpu/max-over-amax", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->e5m2/cpu/max-over-amax", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->mxfp8/cpu/round-up", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->mxfp6-e3m2/cpu/round-up", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->mxfp6-e2m3/cpu/round-up", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->mxfp4/cpu/round-up", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->nvfp4/cpu/te", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->nvfp4-16x16/cpu/te", .use = NG_ROW_TENSORS},
    {"tensors", NG_OP_QUANTIZE, "quantize/*->nvfp4-4over6-mse/cpu/te", .use = NG_ROW_TENSORS},
};
const size_t ng_case_row_count = sizeof ng_case_rows / sizeof *ng_case_rows;
