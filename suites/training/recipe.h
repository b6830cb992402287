/* Training recipes as data: what each of a linear layer's operands becomes, which product takes them, what is done about gradients that
 * underflow. "nvfp4:no-sr,bf16-layers=first1last1" is a row with ingredients changed. Globs on kernel names hold a star where the backend
 * stands. Sources: TransformerEngine's recipes; arXiv:2412.19437 (fp8-128), arXiv:2506.08027 (mxfp8), arXiv:2509.25149 (nvfp4),
 * arXiv:1710.03740 (fp16 with loss scaling). */
#ifndef NG_SUITES_TRAINING_RECIPE_H
#define NG_SUITES_TRAINING_RECIPE_H

#include "suites/training/engine.h"

typedef struct ng_operand_row { /* form NULL: as it is; cast: by NG_OP_CAST into that format */
    const char *form, *variant;
    const char *gpu_variant; /* NULL: the same; scales laid out as the GPU's product wants them */
    bool cast, random, rotated; /* random: "-sr8-carry" unless no-sr; rotated: "-rht16-columns" unless no-hadamard */
    const char *line_form;      /* with 1d-weights */
} ng_operand_row;

typedef enum ng_operand_place { NG_X, NG_X_COLUMNS, NG_W, NG_W_COLUMNS, NG_DY, NG_DY_COLUMNS, NG_OPERANDS } ng_operand_place;

typedef struct ng_training_recipe {
    const char *name, *says;
    ng_format_id format;  /* of activations, and of operands that are not quantized */
    ng_operand_row x, x_columns, w, dy, dy_columns; /* columns: transposed, for the weight's gradient; w serves both ways */
    const char *forms[NG_PHASES]; /* of the products; NULL: plain ones of `format` */
    const char *mode;     /* a word of the GPU product's name, "promoted/" */
    bool scaled;          /* dynamic loss scaling */
    bool delayed;         /* scales from the maxima of earlier steps */
    double delta;         /* relative loss that may be lost against the baseline */
} ng_training_recipe;

extern const ng_training_recipe ng_training_recipes[];
extern const size_t ng_training_recipe_count;

/* A recipe with its ingredients. */
typedef struct ng_recipe_choice {
    char name[96];
    const ng_training_recipe *recipe;
    bool no_random, no_hadamard, line_weights, fast, unscaled, unfused, exact; /* exact: gradients are not quantized, what they meet is */
    int keep_first, keep_last; /* blocks whose linear layers are not quantized */
} ng_recipe_choice;

ng_status ng_recipe_parse(const char *text, ng_recipe_choice *choice, ng_error *error);

/* What a recipe means on an engine. quantizers NULL: the operand as it is. */
typedef struct ng_product_rules {
    const ng_kernel *quantizers[NG_OPERANDS];
    const ng_kernel *products[NG_PHASES];
    const ng_kernel *dequantizers[NG_OPERANDS]; /* exact-gradients: of x and w where they meet gradients */
    const ng_kernel *rotation;                  /* and the transform that the gradient's quantizer would have done */
} ng_product_rules;

/* quantized false: the plain products of the recipe's format. */
ng_status ng_recipe_rules(const ng_engine *engine, const ng_recipe_choice *choice, bool quantized, ng_product_rules *rules, ng_error *error);

bool ng_recipe_quantizes(const ng_training_recipe *recipe);

#endif
