/* A kernel's algorithms for one problem: each under the contract that it describes, all on the same operands. */
#include "harness/judge_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ng_status ng_take_variant(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device, int variant, ng_contract *contract,
                          char algorithm[NG_ALGORITHM_BYTES]) {
    *contract = kernel->contract;
    algorithm[0] = 0;
    if (!kernel->describe) return variant ? NG_UNSUPPORTED : NG_OK;
    return kernel->describe(kernel, problem, device, variant, contract, algorithm, NG_ALGORITHM_BYTES);
}

static void publish(const ng_kernel *kernel, const char *algorithm, const ng_result *from, ng_result *result) {
    if (!kernel->describe || result->variant_count >= NG_VARIANTS) return;
    ng_variant_result *v = &result->variants[result->variant_count++];
    snprintf(v->algorithm, sizeof v->algorithm, "%s", algorithm);
    memcpy(v->digest, from->digest, sizeof v->digest);
    v->differ = from->prediction.present ? from->prediction.differ : -1;
    v->bound_ratio = from->error.present ? from->error.bound_ratio : NAN;
    v->median_s = from->speed.present ? from->speed.median_s : NAN;
}

/* All of them where they are asked for, and for the tables of the nightly level; models take the first choice. */
static int variants_wanted(const ng_judge *judge, const ng_case *one, const ng_problem *problem, const ng_device *device) {
    const ng_kernel *kernel = one->kernel;
    bool wanted = judge->settings.variants || (one->level == NG_NIGHTLY && !*one->model);
    if (!kernel->describe || !kernel->variants || !wanted) return 1;
    int count = kernel->variants(kernel, problem, device);
    return count < NG_VARIANTS ? count : NG_VARIANTS;
}

ng_status ng_each_variant(const ng_judge *judge, const ng_case *one, const ng_problem *problem, const ng_device *device, const char *algorithm,
                          ng_variant_judge judge_one, void *context, ng_result *result, ng_error *error) {
    int count = variants_wanted(judge, one, problem, device);
    publish(one->kernel, algorithm, result, result);
    for (int v = 1; v < count; v++) {
        ng_result own = {.verdict = NG_PASS};
        ng_status status = judge_one(context, v, result, &own, error);
        if (status == NG_UNSUPPORTED) return NG_OK; /* fewer than were announced */
        if (status) return status;
        if (own.verdict != NG_PASS) ng_accuse(result, own.verdict, "variant %d (%s): %.300s", v, algorithm, own.reason);
        publish(one->kernel, algorithm, &own, result);
    }
    return NG_OK;
}
