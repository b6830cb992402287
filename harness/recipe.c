#include "harness/recipe.h"

#include <fnmatch.h>

const ng_kernel *ng_find_kernel(const ng_catalogue *catalogue, ng_op op, ng_backend backend, const char *glob) {
    for (size_t i = 0; i < catalogue->count; i++) {
        const ng_kernel *k = catalogue->kernels[i];
        if (k->op == op && k->backend == backend && !fnmatch(glob, k->name, 0)) return k;
    }
    return NULL;
}

const char *ng_operand_misfit(const ng_quantization *made, const ng_quantization *wanted) {
    if (wanted->rule == NG_SCALE_ABSENT) return "the product takes no scales";
    if (made->element != wanted->element) return "the product takes another element format";
    if (made->scale != wanted->scale) return "the product takes another scale format";
    if (made->tensor_scale != wanted->tensor_scale) return "only one of quantizer and product has a tensor scale";
    if (made->blocks.columns != wanted->blocks.columns) return "the product takes blocks of another width";
    if (made->blocks.rows != wanted->blocks.rows && wanted->blocks.rows != 1) return "the product takes blocks of another height";
    return NULL;
}
