/* Goldens: the bits that cases gave before, one file for each set of kernels whose bits belong together.
 *
 * The key of a set is the backend that kernels name as their third word (cpu, cuda, cublaslt, a plug-in's), the architecture
 * that they ran on (sm90; any for what runs on a CPU: those bits are the same on every one), the version of the library of that
 * name, where the fingerprint knows one, and the seed. The file's name says the key: cpu-seed1.json, cuda-sm90-seed1.json,
 * cublaslt-13.1.0-sm90-seed1.json. So a run opens the files that apply to it and no others.
 *
 * A file holds where it comes from (fingerprint, date, command) and one line a case, sorted by id: its digest and, for readers,
 * figures of its error. What the digest covers: every output of the case's first launch. */
#ifndef NG_HARNESS_GOLDEN_H
#define NG_HARNESS_GOLDEN_H

#include "harness/fingerprint.h"
#include "harness/expand.h"

#define NG_GOLDEN_SCHEMA "narrowgauge.golden/1"

struct cJSON;

enum { NG_GOLDEN_FIGURES = 4, NG_GOLDEN_WORD = 48 };
extern const char *const ng_golden_figure_names[NG_GOLDEN_FIGURES]; /* bound_ratio, max_ulp, rms_rel, bias */

typedef struct ng_golden_key {
    char backend[NG_GOLDEN_WORD];      /* third word of a kernel's name */
    char architecture[NG_GOLDEN_WORD]; /* "any", "sm90" */
    char library[NG_GOLDEN_WORD];      /* version of the library named `backend`; "" where there is none or it is unknown */
    uint64_t seed;
} ng_golden_key;

typedef struct ng_golden_case {
    const char *id, *digest;
    double figures[NG_GOLDEN_FIGURES]; /* NaN: none */
} ng_golden_case;

/* One file. Cases are sorted by id; their texts belong to `json` or to whoever filled them. */
typedef struct ng_golden_set {
    ng_golden_key key;
    char *path;
    ng_level level;             /* recorded from the case tables of this level */
    char recorded[32], command[512];
    ng_golden_case *cases;
    size_t count;
    char digest[NG_DIGEST_BYTES]; /* of the file that was read */
    struct cJSON *json;         /* holds the texts; NULL where they are someone else's */
} ng_golden_set;

/* The key of a kernel's golden. version: of the library that the kernel names ("" none); sm: of the GPU. */
void ng_golden_key_of(const char *kernel, bool on_gpu, int sm, const char *version, uint64_t seed, ng_golden_key *key);
bool ng_golden_key_equal(const ng_golden_key *a, const ng_golden_key *b);
/* "cublaslt-13.1.0-sm90-seed1.json" */
void ng_golden_file_name(const ng_golden_key *key, char *name, size_t capacity);

/* The path of a key's file in a folder, to be freed; NULL: there is none. any_version: where the library's version has none, the
 * file of the latest of its other versions will do. */
ng_status ng_golden_path(const char *folder, const ng_golden_key *key, bool any_version, char **path, ng_error *error);

/* Reads and checks one file. NG_IO: cannot be read; NG_BAD_ARGUMENT: is none, or not a sound one. */
ng_status ng_golden_read(const char *path, ng_golden_set *set, ng_error *error);
void ng_golden_free(ng_golden_set *set);
const ng_golden_case *ng_golden_find(const ng_golden_set *set, const char *id); /* NULL: absent */

/* Writes a set, sorting its cases. fingerprint: of a record, parsed; what names one machine (host, uuid) is left out. */
void ng_golden_write(FILE *out, ng_golden_set *set, const struct cJSON *fingerprint);

/* ---- what a run compares with -------------------------------------------------------------------------------------*/
typedef struct ng_goldens {
    char *folder;               /* NULL: none */
    const ng_fingerprint *fingerprint;
    uint64_t seed;
    ng_golden_set *sets;        /* of the keys of the case list; count 0 and path NULL: no file of that key */
    size_t count;
} ng_goldens;

/* Opens the files in `folder` that apply to the cases of the list; folder NULL: every golden is unset. */
ng_status ng_goldens_open(const char *folder, const ng_case_list *list, const ng_fingerprint *fingerprint, uint64_t seed,
                          ng_goldens *goldens, ng_error *error);
void ng_goldens_close(ng_goldens *goldens);

/* The set that applies to a case, or NULL: none was recorded for its key. */
const ng_golden_set *ng_goldens_set(const ng_goldens *goldens, const ng_case *one);

/* Sets result->golden to match, differ, absent (the file does not know the case) or unset (no file, or nothing to compare:
 * a case that did not run, a kernel whose contract promises no bits). A pass whose bits differ becomes moved. */
void ng_goldens_apply(const ng_goldens *goldens, const ng_case *one, ng_result *result);

/* Digest of the files that were opened, for the fingerprint; empty: none. */
void ng_goldens_digest(const ng_goldens *goldens, char digest[NG_DIGEST_BYTES]);

#endif
