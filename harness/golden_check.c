#include "harness/golden_check.h"

#include <stdlib.h>
#include <string.h>

const char *const ng_golden_words[NG_GOLDEN_KINDS] = {"differs", "lacks", "lost", "gone"};

enum { MOST_SETS = 16 };

/* The files of a record's keys: few, and cases sorted by id nearly always share their neighbour's. */
typedef struct opened {
    ng_golden_key keys[MOST_SETS];
    ng_golden_set sets[MOST_SETS]; /* path NULL: no such file */
    size_t count;
} opened;

typedef struct checker {
    const ng_record_file *record;
    bool of_tables, filtered;
    ng_status (*found)(void *context, const ng_golden_finding *finding, ng_error *error);
    void *context;
    ng_golden_tally *tally;
    ng_error *error;
} checker;

void ng_golden_key_of_record(const ng_record_file *record, const ng_recorded_case *one, ng_golden_key *key) {
    bool on_gpu = strcmp(one->backend, ng_backend_names[NG_BACKEND_CPU]) != 0;
    ng_golden_key_of(one->kernel, on_gpu, record->sm, "", record->seed, key);
    if (on_gpu) snprintf(key->library, sizeof key->library, "%s", ng_record_library(record, key->backend));
}

static ng_status open_set(const char *folder, const ng_golden_key *key, bool any_version, opened *all, ng_golden_set **set, ng_error *error) {
    char *path;
    size_t s = 0;
    while (s < all->count && !ng_golden_key_equal(&all->keys[s], key))
        s++;
    *set = &all->sets[s];
    if (s < all->count) return NG_OK;
    if (s == MOST_SETS) return ng_fail(error, NG_UNSUPPORTED, "a record of kernels of more than %d backends", MOST_SETS);
    all->keys[all->count++] = *key;
    ng_status status = ng_golden_path(folder, key, any_version, &path, error);
    if (!status && path) status = ng_golden_read(path, *set, error);
    free(path);
    return status;
}

static ng_status tell(const checker *c, ng_golden_kind kind, const ng_golden_set *set, const ng_golden_case *golden, const ng_recorded_case *one) {
    size_t *counts[NG_GOLDEN_KINDS] = {&c->tally->differ, &c->tally->lacking, &c->tally->lost, &c->tally->gone};
    const ng_golden_finding finding = {kind, one ? one->id : golden->id, golden, one, set};
    ++*counts[kind];
    return c->found(c->context, &finding, c->error);
}

static ng_status check_case(const checker *c, const ng_golden_set *set, const ng_recorded_case *one) {
    const ng_golden_case *golden = set->path ? ng_golden_find(set, one->id) : NULL;
    if (one->result.verdict == NG_SKIP) return golden ? tell(c, NG_GOLDEN_LOST, set, golden, one) : NG_OK;
    if (!*one->result.digest || one->result.nondeterministic) return NG_OK; /* crashed, or promises no bits */
    if (!set->path) c->tally->unset++;
    else if (!golden && c->of_tables && c->record->level <= set->level) return tell(c, NG_GOLDEN_LACKS, set, NULL, one);
    else if (!golden) c->tally->elsewhere++;
    else if (strcmp(golden->digest, one->result.digest)) return tell(c, NG_GOLDEN_DIFFERS, set, golden, one);
    else c->tally->match++;
    return NG_OK;
}

/* Goldens of no case, where the record should have all. */
static ng_status check_gone(const checker *c, const ng_golden_set *set) {
    ng_status status = NG_OK;
    if (!set->path || c->record->level != set->level || !c->of_tables || c->filtered) return NG_OK;
    for (size_t i = 0; i < set->count && !status; i++)
        if (!ng_record_find(c->record, set->cases[i].id)) status = tell(c, NG_GOLDEN_GONE, set, &set->cases[i], NULL);
    return status;
}

ng_status ng_golden_check(const char *folder, const ng_record_file *record, bool any_version,
                          ng_status (*found)(void *context, const ng_golden_finding *finding, ng_error *error), void *context,
                          ng_golden_tally *tally, ng_error *error) {
    const checker c = {record, !ng_record_strange_option(record), ng_record_is_filtered(record), found, context, tally, error};
    ng_status status = NG_OK;
    opened *all = calloc(1, sizeof *all);
    if (!all) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < record->count && !status; i++) {
        ng_golden_key key;
        ng_golden_set *set;
        ng_golden_key_of_record(record, &record->cases[i], &key);
        status = open_set(folder, &key, any_version, all, &set, error);
        if (!status) status = check_case(&c, set, &record->cases[i]);
    }
    for (size_t s = 0; s < all->count && !status; s++)
        status = check_gone(&c, &all->sets[s]);
    for (size_t s = 0; s < all->count; s++)
        ng_golden_free(&all->sets[s]);
    free(all);
    return status;
}
