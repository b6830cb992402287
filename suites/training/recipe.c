#include "suites/training/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMS(forward, data, weight) {[NG_FPROP] = forward, [NG_DGRAD] = data, [NG_WGRAD] = weight}
#define PLAIN .forms = {NULL}
#define E4M3(rule) {.form = "e4m3", .variant = rule}
#define E5M2(rule) {.form = "e5m2", .variant = rule}
#define HYBRID(rule)                                                                                                          \
    .x = E4M3(rule), .x_columns = E4M3(rule), .w = E4M3(rule), .dy = E5M2(rule), .dy_columns = E5M2(rule),                    \
    .forms = FORMS("e4m3", "e5m2-e4m3", "e5m2-e4m3"), .mode = "promoted/"
#define LINES {.form = "e4m3-1x128", .variant = "amax-over-max", .gpu_variant = "amax-over-max-transposed"}
#define MX(rule) {.form = "mxfp8", .variant = rule}
#define NV(...) {.form = "nvfp4", .variant = "te", __VA_ARGS__}

/* Deltas: twice the published gaps of FP8 (0.25 %, arXiv:2412.19437) and NVFP4 (1.5 %, arXiv:2509.25149), and for what is published as without
 * a gap a part of FP8's. */
const ng_training_recipe ng_training_recipes[] = {
    {"fp64", "binary64 throughout", NG_FP64, PLAIN, .delta = 0.0001},
    {"fp32", "binary32 throughout", NG_FP32, PLAIN, .delta = 0.001},
    {"tf32", "binary32, operands of products rounded to tf32", NG_FP32, .x = {.form = "tf32", .variant = "rne-nosat", .cast = true},
     .x_columns = {.form = "tf32", .variant = "rne-nosat", .cast = true}, .w = {.form = "tf32", .variant = "rne-nosat", .cast = true},
     .dy = {.form = "tf32", .variant = "rne-nosat", .cast = true}, .dy_columns = {.form = "tf32", .variant = "rne-nosat", .cast = true},
     .forms = FORMS("tf32", "tf32", "tf32"), .delta = 0.002},
    {"bf16", "autocast to bf16, binary32 master weights", NG_BF16, PLAIN, .delta = 0.005},
    {"fp16", "autocast to fp16 with dynamic loss scaling", NG_FP16, PLAIN, .scaled = true, .delta = 0.005},
    {"fp8-delayed", "e4m3 and e5m2 gradients, scales from the maxima of earlier steps", NG_BF16, HYBRID("given"), .delayed = true, .delta = 0.005},
    {"fp8-current", "e4m3 and e5m2 gradients, scales from each tensor's own maximum", NG_BF16, HYBRID("max-over-amax"), .delta = 0.005},
    {"fp8-128", "e4m3: 1x128 activations and gradients, 128x128 weights", NG_BF16, .x = LINES, .x_columns = LINES,
     .w = {.form = "e4m3-128x128", .variant = "amax-over-max", .gpu_variant = "amax-over-max-padded"}, .dy = LINES, .dy_columns = LINES,
     .forms = FORMS("e4m3-128", "e4m3-128", "e4m3-1x128"), .mode = "", .delta = 0.005},
    {"mxfp8", "e4m3 in blocks of 32, scales rounded up", NG_BF16, .x = MX("round-up"), .x_columns = MX("round-up"), .w = MX("round-up"),
     .dy = MX("round-up"), .dy_columns = MX("round-up"), .forms = FORMS("mxfp8", "mxfp8", "mxfp8"), .mode = "dequantized/", .delta = 0.005},
    {"nvfp4", "16x16 weights, Hadamard transform for weight gradients, gradients rounded stochastically", NG_BF16, .x = NV(.rotated = true),
     .x_columns = NV(.rotated = true), .w = {.form = "nvfp4-16x16", .variant = "te", .line_form = "nvfp4"}, .dy = NV(.random = true, .rotated = true),
     .dy_columns = NV(.random = true, .rotated = true), .forms = FORMS("nvfp4", "nvfp4", "nvfp4"), .mode = "dequantized/", .delta = 0.03},
};
const size_t ng_training_recipe_count = sizeof ng_training_recipes / sizeof *ng_training_recipes;

bool ng_recipe_quantizes(const ng_training_recipe *recipe) { return recipe->x.form && !recipe->x.cast; }

/* ---- names --------------------------------------------------------------------------------------------------------*/
typedef struct ingredient {
    const char *name;
    size_t offset;
} ingredient;
static const ingredient ingredients[] = {
    {"no-sr", offsetof(ng_recipe_choice, no_random)},       {"no-hadamard", offsetof(ng_recipe_choice, no_hadamard)},
    {"1d-weights", offsetof(ng_recipe_choice, line_weights)}, {"fast-accum", offsetof(ng_recipe_choice, fast)},
    {"unscaled", offsetof(ng_recipe_choice, unscaled)},     {"unfused", offsetof(ng_recipe_choice, unfused)},
    {"exact-gradients", offsetof(ng_recipe_choice, exact)},
};

/* Whether the ingredient is one that the recipe has. */
static bool applies(const ng_training_recipe *r, const char *name) {
    if (!strcmp(name, "no-sr")) return r->dy.random;
    if (!strcmp(name, "no-hadamard")) return r->dy_columns.rotated;
    if (!strcmp(name, "1d-weights")) return r->w.line_form;
    if (!strcmp(name, "fast-accum")) return r->mode && !strcmp(r->mode, "promoted/");
    if (!strcmp(name, "unscaled")) return r->scaled;
    if (!strcmp(name, "exact-gradients")) return ng_recipe_quantizes(r);
    return true;
}

static ng_status change(const char *word, size_t length, ng_recipe_choice *c, ng_error *error) {
    int used = 0;
    for (size_t i = 0; i < sizeof ingredients / sizeof *ingredients; i++)
        if (strlen(ingredients[i].name) == length && !strncmp(word, ingredients[i].name, length)) {
            if (!applies(c->recipe, ingredients[i].name))
                return ng_fail(error, NG_BAD_ARGUMENT, "recipe %s has no ingredient that '%s' changes", c->recipe->name, ingredients[i].name);
            *(bool *)((char *)c + ingredients[i].offset) = true;
            return NG_OK;
        }
    if (sscanf(word, "bf16-layers=first%dlast%d%n", &c->keep_first, &c->keep_last, &used) == 2 && (size_t)used == length &&
        c->keep_first >= 0 && c->keep_last >= 0 && ng_recipe_quantizes(c->recipe))
        return NG_OK;
    return ng_fail(error, NG_BAD_ARGUMENT,
                   "recipe %s: unknown ingredient '%.*s'; there are no-sr, no-hadamard, 1d-weights, fast-accum, unscaled, unfused, "
                   "exact-gradients, bf16-layers=first1last1", c->recipe->name, (int)length, word);
}

ng_status ng_recipe_parse(const char *text, ng_recipe_choice *choice, ng_error *error) {
    const size_t length = strcspn(text, ":");
    *choice = (ng_recipe_choice){.recipe = NULL};
    if (snprintf(choice->name, sizeof choice->name, "%s", text) >= (int)sizeof choice->name)
        return ng_fail(error, NG_BAD_ARGUMENT, "recipe '%.40s...' is too long", text);
    for (size_t i = 0; i < ng_training_recipe_count; i++)
        if (strlen(ng_training_recipes[i].name) == length && !strncmp(text, ng_training_recipes[i].name, length)) choice->recipe = &ng_training_recipes[i];
    if (!choice->recipe) return ng_fail(error, NG_BAD_ARGUMENT, "unknown recipe '%.*s'; --help names them", (int)length, text);
    for (const char *word = text + length; *word;) {
        const size_t next = strcspn(++word, ",");
        ng_status status = change(word, next, choice, error);
        if (status) return status;
        word += next;
    }
    return NG_OK;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------*/
static ng_status quantizer(const ng_engine *engine, const ng_recipe_choice *c, const ng_operand_row *row, const ng_kernel **kernel, ng_error *error) {
    const bool gpu = engine->device.backend == NG_BACKEND_CUDA;
    const char *form = c->line_weights && row->line_form ? row->line_form : row->form;
    *kernel = NULL;
    if (!form) return NG_OK;
    if (row->cast) return ng_engine_find(engine, NG_OP_CAST, kernel, error, "cast/%s->%s/*/%s", c->recipe->format == NG_FP32 ? "fp32" : "bf16", form, row->variant);
    return ng_engine_find(engine, NG_OP_QUANTIZE, kernel, error, "quantize/bf16->%s/*/%s%s%s", form, gpu && row->gpu_variant ? row->gpu_variant : row->variant,
                          row->rotated && !c->no_hadamard ? "-rht16-columns" : "", row->random && !c->no_random ? "-sr8-carry" : "");
}

static const char *name_of(ng_format_id format) {
    return format == NG_FP64 ? "fp64" : format == NG_FP32 ? "fp32" : format == NG_FP16 ? "fp16" : "bf16";
}

/* A CPU's product is one chain in binary32, which costs least; with fast-accum, Hopper's tensor cores without promotion. A weight's gradient
 * is binary32, whatever the rest is. */
static ng_status product(const ng_engine *engine, const ng_recipe_choice *c, bool quantized, ng_phase phase, const ng_kernel **kernel, ng_error *error) {
    const ng_training_recipe *r = c->recipe;
    const char *form = quantized ? r->forms[phase] : NULL, *plain = name_of(r->format), *mode = form && r->mode ? r->mode : "";
    const char *out = phase == NG_WGRAD ? "fp32" : plain, *layout = phase == NG_DGRAD ? "nn/" : phase == NG_WGRAD ? "nt/" : "";
    const bool halves = r->format == NG_BF16 || r->format == NG_FP16;
    if (r->format == NG_FP64) return ng_engine_find(engine, NG_OP_GEMM, kernel, error, "gemm/fp64/*/fp64-chain/%sfp64-out", layout);
    if (engine->device.backend == NG_BACKEND_CPU && c->fast && form)
        return ng_engine_find(engine, NG_OP_GEMM, kernel, error, "gemm/%s/cpu/hopper-fast/%s-out", strcmp(form, "e4m3") ? "fp8-hybrid" : form, out);
    if (engine->device.backend == NG_BACKEND_CPU)
        return ng_engine_find(engine, NG_OP_GEMM, kernel, error, "gemm/%s/cpu/fp32-chain/%s-out", form ? form : plain, out);
    if (!form && halves) /* read as they lie; a gradient is added to zeros */
        return ng_engine_find(engine, NG_OP_GEMM, kernel, error, "gemm/%s/cublaslt/%s%s-out%s", plain, layout, out, phase == NG_WGRAD ? "-acc" : "");
    return ng_engine_find(engine, NG_OP_GEMM, kernel, error, "gemm/%s/cublaslt/%s%s-out", form ? form : plain, c->fast && form ? "fast-accum/" : mode, out);
}

/* Dgrad and wgrad of plain gradients with the values that x's and w's codes stand for: what is left against the recipe itself is the
 * gradient quantizers' doing. */
static ng_status exact_gradients(const ng_engine *engine, const ng_recipe_choice *c, ng_product_rules *rules, ng_error *error) {
    const ng_operand_row *const rows[2] = {&c->recipe->w, &c->recipe->x_columns};
    const ng_operand_place places[2] = {NG_W_COLUMNS, NG_X_COLUMNS};
    const char *library = engine->device.backend == NG_BACKEND_CPU ? "cpu/fp32-chain/" : "cublaslt/";
    ng_status status = NG_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = ng_engine_find(engine, NG_OP_DEQUANTIZE, &rules->dequantizers[places[i]], error, "dequantize/%s->bf16/*/rne",
                                c->line_weights && rows[i]->line_form ? rows[i]->line_form : rows[i]->form);
    if (!status && c->recipe->dy_columns.rotated && !c->no_hadamard)
        status = ng_engine_find(engine, NG_OP_HADAMARD, &rules->rotation, error, "hadamard/bf16->bf16/*/16-over-4");
    if (!status) status = ng_engine_find(engine, NG_OP_GEMM, &rules->products[NG_DGRAD], error, "gemm/bf16/%sbf16-out", library);
    if (!status) status = ng_engine_find(engine, NG_OP_GEMM, &rules->products[NG_WGRAD], error, "gemm/bf16/%sfp32-out", library);
    rules->quantizers[NG_DY] = rules->quantizers[NG_DY_COLUMNS] = NULL;
    return status;
}

ng_status ng_recipe_rules(const ng_engine *engine, const ng_recipe_choice *c, bool quantized, ng_product_rules *rules, ng_error *error) {
    const ng_training_recipe *r = c->recipe;
    const ng_operand_row *const rows[NG_OPERANDS] = {[NG_X] = &r->x, [NG_X_COLUMNS] = &r->x_columns, [NG_W] = &r->w,
                                                     [NG_W_COLUMNS] = &r->w, [NG_DY] = &r->dy, [NG_DY_COLUMNS] = &r->dy_columns};
    ng_status status = NG_OK;
    *rules = (ng_product_rules){0};
    for (int place = 0; place < NG_OPERANDS && quantized && !status; place++)
        status = quantizer(engine, c, rows[place], &rules->quantizers[place], error);
    for (int phase = NG_FPROP; phase <= NG_WGRAD && !status; phase++)
        status = product(engine, c, quantized, (ng_phase)phase, &rules->products[phase], error);
    return status || !quantized || !c->exact ? status : exact_gradients(engine, c, rules, error);
}
