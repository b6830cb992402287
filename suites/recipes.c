/* What each recipe does to the operands of a layer's three products. Names of kernels hold a star where the backend stands.
 * Sources: TransformerEngine's recipes (fp8-*, mxfp8, nvfp4), arXiv:2412.19437 (fp8-128), arXiv:2506.08027 (mxfp8),
 * arXiv:2509.25149 (nvfp4), arXiv:2512.02010 (4over6), arXiv:2502.20586 (mxfp4-rht-sr). */
#include "suites/recipes.h"

#define Q(form) "quantize/bf16->" form
#define CPU(form) "gemm/" form "/cpu/fp32-chain/bf16-out"
#define LT(form) "gemm/" form "/cublaslt/*bf16-out"
/* The same product in every phase; one where the gradients' format is another. */
#define SAME(form) {CPU(form), LT(form)}
#define PRODUCT(a, b, ...) {a, b, __VA_ARGS__}
/* x, w, dy as fprop, dgrad and wgrad use them, and x and dy as wgrad does. */
#define RECIPE(name, says, x, w, dy, dy_columns, x_columns, forward, data, weight)                                                     \
    {name, says, {[NG_FPROP] = PRODUCT(x, w, forward), [NG_DGRAD] = PRODUCT(dy, w, data), [NG_WGRAD] = PRODUCT(dy_columns, x_columns, weight)}}
#define UNIFORM(name, says, q, form) RECIPE(name, says, q, q, q, q, q, SAME(form), SAME(form), SAME(form))
#define HYBRID(name, says, rule)                                                                                              \
    RECIPE(name, says, Q("e4m3/*/" rule), Q("e4m3/*/" rule), Q("e5m2/*/" rule), Q("e5m2/*/" rule), Q("e4m3/*/" rule), \
           FP8("e4m3"), FP8("e5m2-e4m3"), FP8("e5m2-e4m3"))
#define FP8(form) {CPU(form), "gemm/" form "/cublaslt/promoted/bf16-out"}
#define BLOCKS(name, says, rule)                                                                                                 \
    RECIPE(name, says, Q("e4m3-1x128/*/" rule), Q("e4m3-128x128/*/" rule), Q("e4m3-1x128/*/" rule), Q("e4m3-1x128/*/" rule), \
           Q("e4m3-1x128/*/" rule), SAME("e4m3-128"), SAME("e4m3-128"), SAME("e4m3-1x128"))
#define MX(form) {CPU(form), "gemm/" form "/c*/dequantized/bf16-out"}
#define NVFP4(name, says, x, w, dy, dy_columns, x_columns) \
    RECIPE(name, says, Q(x), Q(w), Q(dy), Q(dy_columns), Q(x_columns), MX("nvfp4"), MX("nvfp4"), MX("nvfp4"))
#define TE "nvfp4/*/te"
#define TE_2D "nvfp4-16x16/*/te"

static const ng_recipe recipes[] = {
    UNIFORM("bf16", "bf16 operands, no quantization", NULL, "bf16"),
    HYBRID("fp8-current", "one scale a tensor from its own maximum; gradients e5m2", "max-over-amax"),
    HYBRID("fp8-delayed", "one scale a tensor from the maximum of an earlier one; gradients e5m2", "given"),
    RECIPE("fp8-current-e4m3", "one scale a tensor, e4m3 throughout", Q("e4m3/*/max-over-amax"), Q("e4m3/*/max-over-amax"), Q("e4m3/*/max-over-amax"),
           Q("e4m3/*/max-over-amax"), Q("e4m3/*/max-over-amax"), FP8("e4m3"), FP8("e4m3"), FP8("e4m3")),
    RECIPE("fp8-row", "one scale a row of each operand, e4m3", Q("e4m3-row/*/max-over-amax"), Q("e4m3-row/*/max-over-amax"), Q("e4m3-row/*/max-over-amax"),
           Q("e4m3-row/*/max-over-amax"), Q("e4m3-row/*/max-over-amax"), FP8("e4m3-row"), FP8("e4m3-row"), FP8("e4m3-row")),
    BLOCKS("fp8-128", "1x128 activations and gradients, 128x128 weights, fp32 scales", "amax-over-max"),
    BLOCKS("fp8-128-pow2", "the same with scales that are powers of two", "pow2"),
    RECIPE("mxfp8", "1x32 blocks, scales rounded up", Q("mxfp8/*/round-up"), Q("mxfp8/*/round-up"), Q("mxfp8/*/round-up"), Q("mxfp8/*/round-up"),
           Q("mxfp8/*/round-up"), MX("mxfp8"), MX("mxfp8"), MX("mxfp8")),
    RECIPE("mxfp8-floor", "1x32 blocks, OCP's floor", Q("mxfp8/*/floor"), Q("mxfp8/*/floor"), Q("mxfp8/*/floor"), Q("mxfp8/*/floor"),
           Q("mxfp8/*/floor"), MX("mxfp8"), MX("mxfp8"), MX("mxfp8")),
    RECIPE("mxfp8-2d", "32x32 weights, 1x32 elsewhere", Q("mxfp8/*/round-up"), Q("mxfp8-32x32/*/round-up"), Q("mxfp8/*/round-up"),
           Q("mxfp8/*/round-up"), Q("mxfp8/*/round-up"), MX("mxfp8"), MX("mxfp8"), MX("mxfp8")),
    RECIPE("mxfp4-rht-sr", "mxfp4; Hadamard 32 on wgrad's operands, gradients rounded stochastically", Q("mxfp4/*/round-up"), Q("mxfp4/*/round-up"),
           Q("mxfp4/*/round-up-sr8-carry"), Q("mxfp4/*/round-up-rht32-sr8-carry"), Q("mxfp4/*/round-up-rht32-second"), MX("mxfp4"), MX("mxfp4"), MX("mxfp4")),
    NVFP4("nvfp4", "16x16 weights; Hadamard 16 on wgrad's operands; gradients rounded stochastically", TE, TE_2D, TE "-sr8-carry",
          TE "-rht16-columns-sr8-carry", TE "-rht16-columns"),
    NVFP4("nvfp4-no-sr", "nvfp4 without stochastic rounding", TE, TE_2D, TE, TE "-rht16-columns", TE "-rht16-columns"),
    NVFP4("nvfp4-no-rht", "nvfp4 without the Hadamard transform", TE, TE_2D, TE "-sr8-carry", TE "-sr8-carry", TE),
    NVFP4("nvfp4-no-2d", "nvfp4 with 1x16 weights", TE, TE, TE "-sr8-carry", TE "-rht16-columns-sr8-carry", TE "-rht16-columns"),
    NVFP4("nvfp4-plain", "1x16 blocks to nearest, nothing else", TE, TE, TE, TE, TE),
    NVFP4("nvfp4-paper", "nvfp4-plain in the paper's order of operations", "nvfp4/*/paper", "nvfp4/*/paper", "nvfp4/*/paper", "nvfp4/*/paper", "nvfp4/*/paper"),
    NVFP4("nvfp4-rht128", "nvfp4 with Hadamard 128", TE, TE_2D, TE "-sr8-carry", TE "-rht128-sr8-carry", TE "-rht128-second"),
    NVFP4("nvfp4-4over6-mae", "nvfp4-plain, each block scaled to 4 or to 6", "nvfp4-4over6-mae/*/te", "nvfp4-4over6-mae/*/te", "nvfp4-4over6-mae/*/te",
          "nvfp4-4over6-mae/*/te", "nvfp4-4over6-mae/*/te"),
    NVFP4("nvfp4-4over6-mse", "the same by squared errors", "nvfp4-4over6-mse/*/te", "nvfp4-4over6-mse/*/te", "nvfp4-4over6-mse/*/te",
          "nvfp4-4over6-mse/*/te", "nvfp4-4over6-mse/*/te"),
};

const ng_recipes ng_suite_recipes = {recipes, sizeof recipes / sizeof *recipes};
