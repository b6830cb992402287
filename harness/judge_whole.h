/* What the files judge_whole*.c share: a product of full size on a GPU, its operands, buffers and launches. Private to them. */
#ifndef NG_HARNESS_JUDGE_WHOLE_H
#define NG_HARNESS_JUDGE_WHOLE_H

#include "harness/judge_internal.h"
#include "reference/exact_cuda.h"

enum { NG_WHOLE_SIDES = 2, NG_WHOLE_BUFFERS = 96 };

typedef struct ng_whole_half { /* an operand */
    const ng_data_spec *spec;
    ng_quantization q;          /* as quantized; plain formats: element alone */
    bool plain, turned;
    ng_format_id source_format;
    int64_t rows;
    const ng_kernel *quantizer, *timed; /* of plain scales; with the layout that the product wants */
    ng_problem problem;         /* of the quantizer */
    ng_tensor source, stored;   /* [rows][k]; as the quantizer reads it: the same, or [k][rows] */
    ng_operand operand;         /* codes, plain scales; tensor_scale read back */
    ng_tensor codes, scales, tensor_scale; /* as the product takes them */
    ng_launch launch, timed_launch;
} ng_whole_half;

typedef struct ng_whole {
    ng_judge *judge;
    ng_gpu *gpu;
    const ng_case *one;
    const ng_kernel *kernel;
    ng_contract contract;
    char algorithm[NG_ALGORITHM_BYTES];
    ng_problem problem;
    ng_whole_half sides[NG_WHOLE_SIDES];
    ng_tensor out, first, predicted; /* out between guards */
    unsigned char *base;
    size_t out_bytes;
    ng_tensor held, added, bias;     /* what OUT holds; what the reference adds; BIAS */
    ng_accumulation predicted_sum;   /* of `predicted` */
    bool has_predicted, unpredicted;
    ng_launch launch;
    char message[256];
    void *made[NG_WHOLE_BUFFERS];
    int made_count;
} ng_whole;

/* Device memory that lives as long as the product. */
ng_status ng_whole_make(ng_whole *w, size_t bytes, void **made, ng_error *error);
ng_status ng_whole_tensor(ng_whole *w, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *t, ng_error *error);
size_t ng_whole_bytes(const ng_tensor *t);
ng_status ng_whole_upload(ng_whole *w, const ng_tensor *from, ng_tensor *to, ng_error *error);
/* Rows [row, row + rows) of a device tensor in a dense host tensor, which the caller frees. */
ng_status ng_whole_fetch_rows(ng_whole *w, const ng_tensor *from, int64_t row, int64_t rows, ng_tensor *to, ng_error *error);
/* What the reference's device code said, as the case's own error. */
ng_status ng_whole_on_device(ng_whole *w, ng_status status, ng_error *error);

ng_status ng_whole_launch_of(ng_whole *w, const ng_kernel *kernel, const ng_problem *problem, ng_launch *launch, ng_error *error);
/* False: *status says that the device failed, or the result is accused. */
bool ng_whole_run(ng_whole *w, const ng_kernel *kernel, const ng_launch *launch, ng_result *result, ng_status *status, ng_error *error);

/* judge_whole_operands.c: operand s, made and quantized; what the sum is added to. */
ng_status ng_whole_side(ng_whole *w, int s, ng_result *result, ng_error *error);
ng_status ng_whole_quantizer_launch(ng_whole *w, ng_whole_half *d, const ng_kernel *kernel, ng_launch *launch, ng_error *error);
ng_status ng_whole_added(ng_whole *w, ng_error *error);

/* judge_whole_sample.c: elements that the certified product leaves open, by MPFR and the CPU's bound; and what the device says of
 * a sample held to the CPU's reference. */
ng_status ng_whole_settle(ng_whole *w, const ng_witness *from, ng_result *result, ng_error *error);
ng_status ng_whole_check_sample(ng_whole *w, ng_result *result, ng_error *error);

/* judge_whole_time.c */
ng_status ng_whole_time(ng_whole *w, ng_result *result, ng_error *error);

#endif
