/* Tensors that notice what a kernel should not do, on the host or mirrored in device memory: guard zones on both sides (and between rows that are padded), outputs
 * poisoned before a launch so that an unwritten element shows, inputs digested so that a changed one shows. */
#ifndef NG_HARNESS_BUFFERS_H
#define NG_HARNESS_BUFFERS_H

#include "harness/device.h"

enum { NG_GUARD_BYTES = 65536 }; /* on each side */

typedef struct ng_guarded {
    ng_tensor tensor;
    unsigned char *base; /* guard, tensor, guard */
    size_t bytes;        /* of the tensor, row padding included */
    uint64_t digest;     /* as sealed */
    unsigned char *device; /* base's mirror in device memory; NULL: none */
} ng_guarded;

/* A host tensor of that shape; `padding` bytes of guard follow each row. */
ng_status ng_guarded_create(ng_format_id format, int64_t rows, int64_t columns, int64_t padding, ng_guarded *guarded,
                            ng_error *error);
/* A guarded copy of a host tensor, sealed. */
ng_status ng_guarded_copy(const ng_tensor *from, int64_t padding, ng_guarded *guarded, ng_error *error);
void ng_guarded_free(ng_guarded *guarded);

/* Fills the elements with one of the poisons. 0 is all ones: NaN in every format that has one; 1 is another pattern, so
 * that an element which still shows its poison after a launch under each was written by neither. */
enum { NG_POISONS = 2 };
void ng_guarded_poison(ng_guarded *guarded, int poison);
uint64_t ng_poison_code(ng_format_id format, int poison);

/* Remembers the elements' digest; whether they still have it. */
void ng_guarded_seal(ng_guarded *guarded);
bool ng_guarded_unchanged(const ng_guarded *guarded);
/* Whether every guard byte is as it was made. */
bool ng_guarded_intact(const ng_guarded *guarded);

/* The mirror in device memory: made at the first call, then the same bytes as on the host, guards included. */
ng_status ng_guarded_send(ng_guarded *guarded, ng_gpu *gpu, ng_error *error);
/* What the device has, back to the host: everything, or the two guards alone. */
ng_status ng_guarded_fetch(ng_guarded *guarded, ng_gpu *gpu, bool guards_only, ng_error *error);
void ng_guarded_free_device(ng_guarded *guarded, ng_gpu *gpu);
/* The tensor as a kernel gets it: in device memory if it has a mirror there. */
ng_tensor ng_guarded_view(const ng_guarded *guarded);

/* Plain dense host tensors, and the copying of elements between tensors of one format and shape. */
ng_status ng_tensor_create(ng_format_id format, int64_t rows, int64_t columns, ng_tensor *tensor, ng_error *error);
void ng_tensor_free(ng_tensor *tensor);
void ng_tensor_copy(const ng_tensor *from, ng_tensor *to);
/* Whether all elements have the same bits. */
bool ng_tensor_equal(const ng_tensor *a, const ng_tensor *b);

#endif
