/* What a run compares with: the goldens that apply to its cases. */
#include "harness/golden.h"
#include "harness/input.h"
#include "harness/verdict.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static void key_of(const ng_goldens *goldens, const ng_case *one, ng_golden_key *key) {
    const ng_fingerprint *f = goldens->fingerprint;
    bool on_gpu = one->kernel->backend == NG_BACKEND_CUDA;
    ng_golden_key_of(one->kernel->name, on_gpu, f->gpu.present ? f->gpu.sm : 0, "", goldens->seed, key);
    snprintf(key->library, sizeof key->library, "%s", on_gpu ? ng_fingerprint_library(f, key->backend) : "");
}

/* ---- opening ------------------------------------------------------------------------------------------------------*/
/* A set without a path says that there is no file of its key. */
static ng_status open_set(ng_goldens *goldens, const ng_golden_key *key, ng_error *error) {
    ng_golden_set *sets = realloc(goldens->sets, (goldens->count + 1) * sizeof *sets), *set;
    char *path = NULL;
    if (!sets) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    goldens->sets = sets;
    set = &sets[goldens->count++];
    *set = (ng_golden_set){.key = *key};
    ng_status status = ng_golden_path(goldens->folder, key, false, &path, error);
    if (!status && path) status = ng_golden_read(path, set, error);
    free(path);
    if (status) {
        goldens->count--;
        return status;
    }
    return NG_OK;
}

static ng_golden_set *find_set(const ng_goldens *goldens, const ng_golden_key *key) {
    for (size_t i = 0; i < goldens->count; i++)
        if (ng_golden_key_equal(&goldens->sets[i].key, key)) return &goldens->sets[i];
    return NULL;
}

ng_status ng_goldens_open(const char *folder, const ng_case_list *list, const ng_fingerprint *fingerprint, uint64_t seed,
                          ng_goldens *goldens, ng_error *error) {
    *goldens = (ng_goldens){.fingerprint = fingerprint, .seed = seed};
    if (!folder) return NG_OK;
    goldens->folder = strdup(folder);
    ng_status status = goldens->folder ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    if (!status && access(folder, R_OK | X_OK)) status = ng_fail(error, NG_IO, "%s: cannot be read", folder);
    for (size_t i = 0; i < list->count && !status; i++) {
        ng_golden_key key;
        key_of(goldens, &list->cases[i], &key);
        if (!find_set(goldens, &key)) status = open_set(goldens, &key, error);
    }
    if (status) ng_goldens_close(goldens);
    return status;
}

void ng_goldens_close(ng_goldens *goldens) {
    for (size_t i = 0; i < goldens->count; i++)
        ng_golden_free(&goldens->sets[i]);
    free(goldens->sets);
    free(goldens->folder);
    *goldens = (ng_goldens){0};
}

void ng_goldens_digest(const ng_goldens *goldens, char digest[NG_DIGEST_BYTES]) {
    XXH64_hash_t low = 0, high = 0;
    digest[0] = 0;
    for (size_t i = 0; i < goldens->count; i++) {
        if (!goldens->sets[i].path) continue;
        high = XXH3_64bits_withSeed(goldens->sets[i].digest, NG_DIGEST_BYTES, high + 1);
        low = XXH3_64bits_withSeed(goldens->sets[i].digest, NG_DIGEST_BYTES, low ^ high);
        snprintf(digest, NG_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
    }
}

/* ---- comparing ----------------------------------------------------------------------------------------------------*/
const ng_golden_set *ng_goldens_set(const ng_goldens *goldens, const ng_case *one) {
    ng_golden_key key;
    if (!goldens->folder) return NULL;
    key_of(goldens, one, &key);
    const ng_golden_set *set = find_set(goldens, &key);
    return set && set->path ? set : NULL;
}

static const char *base_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

static void accuse(const ng_golden_set *set, const ng_golden_case *golden, ng_result *result) {
    const ng_error_figures *e = &result->error;
    char figures[96] = "";
    if (e->present && e->bound_ratio == e->bound_ratio && golden->figures[0] == golden->figures[0])
        snprintf(figures, sizeof figures, "; error / bound %.4g, there %.4g", e->bound_ratio, golden->figures[0]);
    ng_accuse(result, NG_MOVED, "bits differ from those of %s (%.8s, there %.8s)%s", base_name(set->path), result->digest,
              golden->digest, figures);
}

void ng_goldens_apply(const ng_goldens *goldens, const ng_case *one, ng_result *result) {
    const char *word = "unset";
    const ng_golden_set *set = goldens ? ng_goldens_set(goldens, one) : NULL;
    bool comparable = *result->digest && one->kernel->contract.determinism != NG_NONDETERMINISTIC && !result->nondeterministic;
    if (set && comparable) {
        const ng_golden_case *golden = ng_golden_find(set, one->id);
        word = !golden ? "absent" : strcmp(golden->digest, result->digest) ? "differ" : "match";
        if (*word == 'd') accuse(set, golden, result); /* a failure stays one */
    }
    snprintf(result->golden, sizeof result->golden, "%s", word);
}
