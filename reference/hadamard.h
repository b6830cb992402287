/* The random Hadamard transform (kernels/contract_hadamard.h): its bits, its exact value, and how far a kernel that adds in
 * any order may be off. */
#ifndef NG_REFERENCE_HADAMARD_H
#define NG_REFERENCE_HADAMARD_H

#include "reference/format.h"

/* The bits that the contract fixes, in OUT's format (fp32: y itself). Each element on its own, from the definition by
 * recursion, not by butterflies. NG_BAD_ARGUMENT: shapes that differ, a size that is no power of two up to 128. */
ng_status ng_reference_hadamard(const ng_hadamard *hadamard, const ng_cast *cast, const ng_tensor *in, int threads, ng_tensor *out);

/* high + low = 2^-shift (H diag(s) x)_i [rows][columns], exact as in ng_exact_gemm, which computes it from the matrix. bound: what y
 * may be off, whatever the order of additions. */
ng_status ng_hadamard_exact(const ng_hadamard *hadamard, const ng_tensor *in, int threads, double *high, double *low, double *bound);

#endif
