/* What a run ran on: everything that may change bits or speed. Collected once a run; unknown texts are empty. */
#ifndef NG_HARNESS_FINGERPRINT_H
#define NG_HARNESS_FINGERPRINT_H

#include "harness/json.h"
#include "harness/plugin.h"

/* Facts of the build, handed in by the program. */
typedef struct ng_build {
    const char *version;
    const char *commit;         /* 40 hexadecimal digits, "-dirty" after them if the tree was changed; "" unknown */
    const char *compiler, *compiler_flags;
    const char *nvcc, *nvcc_flags;
    const char *kernels_digest; /* of the built-in kernels' object code */
} ng_build;

typedef struct ng_gpu_info {
    bool present;
    char name[96], uuid[64], pci[32], vbios[32], driver[32], cuda_runtime[16], cublaslt[16];
    int sm;
    int ecc;                    /* 1 on, 0 off, -1 unknown */
    double sm_clock_mhz, memory_clock_mhz; /* largest allowed; NaN unknown */
    double power_cap_w;         /* NaN unknown */
    double memory_bytes;
} ng_gpu_info;

/* Fills info about a device without creating a context on it (the caller forks afterwards): NVML, not the runtime. */
typedef ng_status (*ng_gpu_probe)(int device, ng_gpu_info *info, ng_error *error);

enum { NG_DIGEST_BYTES = 33 }; /* XXH3-128 in hexadecimal */

typedef struct ng_fingerprint {
    char host[17];              /* hash of the host's name */
    char cpu_model[128], cpu_flags[128];
    int cores;
    char os[192];               /* kernel name, release, machine */
    ng_build build;
    ng_gpu_info gpu;
    char mpfr[32], gmp[32], openblas[160], cjson[32], xxhash[32];
    char program_digest[NG_DIGEST_BYTES], plugins_digest[NG_DIGEST_BYTES];
    char goldens_digest[NG_DIGEST_BYTES], expectations_digest[NG_DIGEST_BYTES]; /* of the files that the run compares with */
} ng_fingerprint;

/* probe NULL: no GPU backend in this program. */
void ng_fingerprint_collect(const ng_build *build, const ng_plugins *plugins, ng_gpu_probe probe, int device,
                            ng_fingerprint *fingerprint);

void ng_fingerprint_write(ng_json *json, const char *name, const ng_fingerprint *fingerprint);

/* The members that two parts of one run must share, by name. */
typedef struct ng_identity {
    const char *name, *value;
} ng_identity;
enum { NG_IDENTITIES = 10 };
void ng_fingerprint_identity(const ng_fingerprint *fingerprint, ng_identity identity[NG_IDENTITIES]);

/* Version of a library whose bits may differ from one to the next, by the name that kernels and expectations use: cublaslt,
 * cuda-runtime, openblas, mpfr. "" unknown, or no such library. */
const char *ng_fingerprint_library(const ng_fingerprint *fingerprint, const char *name);

/* XXH3-128 of a file's bytes, in hexadecimal. */
ng_status ng_digest_file(const char *path, char digest[NG_DIGEST_BYTES], ng_error *error);

#endif
