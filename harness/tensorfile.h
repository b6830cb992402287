/* Tensors of .safetensors and .npy files, memory-mapped: a 10 GB file needs no memory of its size. Files are input from
 * outside: every length, offset and shape is checked against the file's size before use. The size is taken once, when the
 * file is opened: who truncates it while it is mapped ends the process that reads it with SIGBUS, as with any mapping.
 * Formats: huggingface/safetensors README ("Format"); NumPy Enhancement Proposal 1 and numpy.lib.format (versions 1 to 3). */
#ifndef NG_HARNESS_TENSORFILE_H
#define NG_HARNESS_TENSORFILE_H

#include "harness/error.h"

typedef struct ng_file_tensor {
    const char *name;       /* owned by the file */
    const char *type;       /* the file's own word for it: "BF16", "<f4" */
    ng_format_id format;    /* fp64, fp32, bf16, fp16, e4m3 or e5m2; NG_NO_FORMAT: listed, but not an operand */
    int64_t rows, columns;  /* all leading dimensions folded into rows; a vector is one row */
    const void *data;       /* inside the mapping, row-major, contiguous; may be unaligned */
} ng_file_tensor;

typedef struct ng_tensor_file ng_tensor_file;

ng_status ng_tensor_file_open(const char *path, ng_tensor_file **file, ng_error *error);
/* The same from memory, which must outlive *file. path is for messages, and ends in ".npy" for a NumPy array. */
ng_status ng_tensor_file_parse(const void *bytes, size_t size, const char *path, ng_tensor_file **file, ng_error *error);
void ng_tensor_file_close(ng_tensor_file *file);
const char *ng_tensor_file_path(const ng_tensor_file *file);
size_t ng_tensor_file_count(const ng_tensor_file *file);
const ng_file_tensor *ng_tensor_file_tensor(const ng_tensor_file *file, size_t index);
/* Whether the tensor can be an operand: NG_UNSUPPORTED with the reason where its type is none of ours or it is empty. */
ng_status ng_tensor_file_operand(const ng_tensor_file *file, size_t index, ng_error *error);
/* The tensor of that name, which must be fit as an operand; the error lists the nearest names. */
ng_status ng_tensor_file_find(const ng_tensor_file *file, const char *name, size_t *index, ng_error *error);

#endif
