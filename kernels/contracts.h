/* The named contracts of tensor cores and of library products: rows of data, no code. Kernels point at them, and
 * `narrowgauge replay --contract NAME` finds them by name. */
#ifndef NG_KERNELS_CONTRACTS_H
#define NG_KERNELS_CONTRACTS_H

#include "contract.h"

typedef struct ng_named_contract {
    const char *name;      /* "hopper-wgmma-fp8", "hopper-fp8-promoted", "cublaslt-hopper-fp8-1x128-128x128" ... */
    ng_format_id in[6];    /* formats that it is defined for, ended by NG_NO_FORMAT */
    ng_accumulation sum;
    const char *source;    /* what the model rests on */
} ng_named_contract;

extern const ng_named_contract ng_named_contracts[];
extern const size_t ng_named_contract_count;
const ng_named_contract *ng_contract_by_name(const char *name); /* NULL: none */

#endif
