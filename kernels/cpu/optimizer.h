/* Optimizers on the CPU: what Adam and the steps around it share. */
#ifndef NG_KERNELS_CPU_OPTIMIZER_H
#define NG_KERNELS_CPU_OPTIMIZER_H

#include "kernels/common/optimizer.h"
#include "kernels/cpu/norm.h"

/* The tensors of a launch, one or many, cut into pieces of at most `piece` elements of a row. */
typedef struct ng_cpu_pieces {
    const ng_launch *launch;
    int64_t tensors, piece, count;
    int64_t *first; /* [tensors + 1]: number of each tensor's first piece */
} ng_cpu_pieces;

typedef struct ng_cpu_piece {
    int64_t tensor, row, from, n;
} ng_cpu_piece;

/* By the extents of the role's tensors. */
ng_status ng_cpu_cut(const ng_launch *launch, ng_role role, int64_t piece, ng_cpu_pieces *pieces);
void ng_cpu_uncut(ng_cpu_pieces *pieces);
ng_cpu_piece ng_cpu_piece_of(const ng_cpu_pieces *pieces, ng_role role, int64_t index);

static inline const ng_tensor *ng_cpu_listed(const ng_launch *launch, ng_role role, int64_t tensor) {
    return launch->list_count ? &launch->lists[role][tensor] : &launch->tensors[role];
}

/* Every tensor of a role, each of the extents of `like`'s (its columns in blocks of `block`). */
ng_status ng_cpu_check_listed(const ng_launch *launch, ng_role role, ng_format_id format, ng_role like, int64_t block);
ng_status ng_cpu_check_number(const ng_launch *launch, ng_role role, bool needed);

static inline float ng_cpu_number(const ng_launch *launch, ng_role role, float absent) {
    return launch->tensors[role].data ? *(const ng_f32 *)launch->tensors[role].data : absent;
}

ng_status ng_cpu_launch_steps(const ng_kernel *kernel, const ng_launch *launch);

#endif
