/* Faulty kernels as rows: a right kernel, whose contract is claimed, and one deviation from it. A deviation is data (another
 * kernel's code, a changed contract) or a short function at a hook: of the inputs, of the outputs, of one element, of a
 * block's scale, of one addition. launch.c puts hooks together; the files of an operation hold its hooks and rows. */
#ifndef NG_FAULT_H
#define NG_FAULT_H

#include "kernels/common/cast.h"
#include "kernels/common/decode.h"
#include "kernels/common/scale.h"
#include "kernels/kernel.h"

typedef struct ng_fault ng_fault;

/* One number on its way into a narrower format. */
typedef struct ng_element {
    const ng_cast *cast;
    ng_format_id to;
    double value;  /* the input (quantization: after its scale) */
    uint32_t bits; /* value as a binary32 that narrower formats round alike */
    uint32_t word; /* stochastic rounding */
    bool drawn;    /* the word is the kernel's own */
} ng_element;

/* Where a word is drawn for. */
typedef struct ng_draw {
    uint64_t seed, offset;
    int64_t row, column, columns;
    bool transposed; /* for the transposed copy */
} ng_draw;

/* A block of a tensor that is quantized, [row, row + rows) x [column, column + columns), blocks [down][across] in all. */
typedef struct ng_fault_block {
    const ng_quantization *q;
    const ng_tensor *in;
    ng_tensor_level level;
    int64_t row, rows, column, columns;
    int64_t index_down, index_across, down, across;
} ng_fault_block;

/* Hooks of quantization and dequantization; NULL: as it should be. */
typedef struct ng_block_hooks {
    uint32_t (*amax)(const ng_fault_block *block);
    ng_tensor_level (*level)(const ng_quantization *q, uint32_t amax);
    ng_block_scale (*scale)(const ng_fault_block *block, uint32_t amax);
    void (*stored)(const ng_fault_block *block, ng_block_scale *scale); /* what is written is not what was used */
    void (*which)(int64_t down, int64_t across, int64_t *i, int64_t *j); /* whose scale elements of block (i, j) take */
    float (*scaled)(const ng_quantization *q, float x, ng_block_scale scale);
    float (*element)(ng_format_id format, uint32_t code); /* dequantization: an element's value */
    float (*decode)(ng_format_id format, uint32_t code);  /* dequantization: a scale's value */
    double (*product)(float element, float scale, float tensor_scale);
    bool skips_tail; /* the last block of a row, where it is cut, is not written */
} ng_block_hooks;

/* One step of a chain of products. */
typedef float ng_fault_add(float sum, float a, float b);

struct ng_fault {
    const char *name;     /* stands in place of the backend in the kernel's name */
    const char *right;    /* whose contract is claimed */
    const char *imitates;
    const char *runs;     /* the kernel whose code runs under its own contract; NULL: the right one */
    void (*change)(ng_kernel *subject);                      /* of the contract that the code computes by */
    void (*inputs)(const ng_launch *launch);                 /* of private copies of all inputs */
    ng_status (*compute)(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch); /* in place of the kernel's code */
    void (*outputs)(const ng_launch *launch, const ng_tensor *before); /* after it; before: OUT as it was */
    uint32_t (*code)(const ng_element *element);
    uint32_t (*word)(const ng_draw *draw);
    const ng_block_hooks *blocks;
    ng_fault_add *add;
    int twist; /* which of the faults that one `compute` has */
};

typedef struct ng_fault_list {
    const ng_fault *faults;
    size_t count;
} ng_fault_list;

extern const ng_fault_list ng_cast_faults, ng_quantize_faults, ng_dequantize_faults, ng_gemm_faults, ng_random_faults, ng_hadamard_faults, ng_norm_faults,
    ng_optimizer_faults, ng_activation_faults, ng_layer_faults;

/* ---- code that faults share --------------------------------------------------------------------------------------- */
/* Every element by fault->code and fault->word. */
ng_status ng_fault_cast(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch);
/* Block by block, by fault->blocks, code and word. No transposed outputs: NG_UNSUPPORTED. */
ng_status ng_fault_quantize(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch);
ng_status ng_fault_dequantize(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch);
/* A product of operands without scales, or with scales that are applied at the end, as a chain by fault->add. */
ng_status ng_fault_chain(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch);

/* The code that the contract asks for. */
uint32_t ng_right_code(const ng_element *element);
uint32_t ng_right_word(const ng_draw *draw);
uint32_t ng_right_amax(const ng_fault_block *block);

/* Elements in host tensors, as stored (tf32: 32 bits). */
uint32_t ng_element_get(const ng_tensor *tensor, int64_t row, int64_t column);
void ng_element_set(const ng_tensor *tensor, int64_t row, int64_t column, uint32_t code);
float ng_element_value(const ng_tensor *tensor, int64_t row, int64_t column);
double ng_element_double(const ng_tensor *tensor, int64_t row, int64_t column);
/* Stores a right-aligned code of a cast (tf32's goes up by 13 bits). */
void ng_element_store(const ng_tensor *tensor, int64_t row, int64_t column, uint32_t code);
/* A copy of its own memory; data NULL where there was none to copy, or no memory. */
ng_tensor ng_tensor_twin(const ng_tensor *tensor);

/* Random words drawn once for both copies of a tensor. */
ng_status ng_shares_words(const ng_fault *fault, const ng_kernel *subject, const ng_launch *launch);

/* ---- outputs, of any operation ------------------------------------------------------------------------------------ */
void ng_all_zero(const ng_launch *launch, const ng_tensor *before);
void ng_all_nan(const ng_launch *launch, const ng_tensor *before);
void ng_unwritten(const ng_launch *launch, const ng_tensor *before);
void ng_tail_unwritten(const ng_launch *launch, const ng_tensor *before);   /* columns behind the last whole 16 */
void ng_corner_unwritten(const ng_launch *launch, const ng_tensor *before); /* the last element */
void ng_last_row_wrong(const ng_launch *launch, const ng_tensor *before);   /* where there are 65536 or more */
void ng_one_in_16_million(const ng_launch *launch, const ng_tensor *before);
void ng_writes_behind(const ng_launch *launch, const ng_tensor *before);    /* OUT's last row */
void ng_changes_input(const ng_launch *launch, const ng_tensor *before);    /* A */
void ng_dies_of_tails(const ng_launch *launch, const ng_tensor *before);    /* K no multiple of 16 */
void ng_flips_a_bit(const ng_launch *launch, const ng_tensor *before);      /* in one launch of ten */

#endif
