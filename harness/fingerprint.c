#include "harness/fingerprint.h"

#include <cJSON.h>
#include <cblas.h>
#include <errno.h>
#include <gmp.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

/* Instruction sets that choose between our own code paths or OpenBLAS's. */
static const char *const telling_flags[] = {"avx",      "f16c",      "fma",      "avx2",     "avx512f", "avx512bw",
                                            "avx512vl", "avx512_vnni", "amx_tile", "asimd",  "fphp",    "sve",
                                            "sve2",     "bf16"};

static void keep_telling_flags(char *line, char *flags, size_t capacity) {
    size_t used = 0;
    for (char *rest = line, *word; (word = strtok_r(rest, " \t\n", &rest));)
        for (size_t i = 0; i < sizeof telling_flags / sizeof *telling_flags; i++)
            if (!strcmp(word, telling_flags[i]) && used < capacity)
                used += (size_t)snprintf(flags + used, capacity - used, "%s%s", used ? " " : "", word);
}

static void copy_line(const char *from, char *to, size_t capacity) {
    snprintf(to, capacity, "%.*s", (int)strcspn(from, "\n"), from);
}

/* x86 names its model in "model name" and "flags"; ARM gives "CPU implementer", "CPU part" and "Features". */
static void read_cpu(ng_fingerprint *f) {
    char *line = NULL, implementer[32] = "", part[32] = "";
    size_t capacity = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && getline(&line, &capacity, file) > 0) {
        char *value = strchr(line, ':');
        if (!value) continue;
        value += strspn(value, ": \t");
        if (!strncmp(line, "model name", 10) && !*f->cpu_model) copy_line(value, f->cpu_model, sizeof f->cpu_model);
        else if (!strncmp(line, "CPU implementer", 15)) copy_line(value, implementer, sizeof implementer);
        else if (!strncmp(line, "CPU part", 8)) copy_line(value, part, sizeof part);
        else if ((!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) && !*f->cpu_flags)
            keep_telling_flags(value, f->cpu_flags, sizeof f->cpu_flags);
    }
    if (!*f->cpu_model && *part) snprintf(f->cpu_model, sizeof f->cpu_model, "ARM %s part %s", implementer, part);
    free(line);
    if (file) fclose(file);
    f->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void read_system(ng_fingerprint *f) {
    struct utsname system;
    if (uname(&system)) return;
    snprintf(f->host, sizeof f->host, "%016llx",
             (unsigned long long)XXH3_64bits(system.nodename, strlen(system.nodename)));
    snprintf(f->os, sizeof f->os, "%.48s %.64s %.48s", system.sysname, system.release, system.machine);
}

static void read_libraries(ng_fingerprint *f) {
    snprintf(f->mpfr, sizeof f->mpfr, "%s", mpfr_get_version());
    snprintf(f->gmp, sizeof f->gmp, "%s", gmp_version);
    snprintf(f->openblas, sizeof f->openblas, "%s", openblas_get_config());
    for (size_t n = strlen(f->openblas); n && f->openblas[n - 1] == ' '; n--)
        f->openblas[n - 1] = 0;
    snprintf(f->cjson, sizeof f->cjson, "%s", cJSON_Version());
    unsigned v = XXH_versionNumber();
    snprintf(f->xxhash, sizeof f->xxhash, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
}

static void print_digest(XXH128_hash_t hash, char digest[NG_DIGEST_BYTES]) {
    snprintf(digest, NG_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

ng_status ng_digest_file(const char *path, char digest[NG_DIGEST_BYTES], ng_error *error) {
    enum { CHUNK = 1 << 20 };
    ng_status status = NG_OK;
    FILE *file = fopen(path, "re");
    unsigned char *chunk = malloc(CHUNK);
    XXH3_state_t *state = XXH3_createState();
    size_t got;
    digest[0] = 0;
    if (!file) {
        status = ng_fail(error, NG_IO, "%s: cannot be read: %s", path, strerror(errno));
        goto done;
    }
    if (!chunk || !state) {
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
        goto done;
    }
    XXH3_128bits_reset(state);
    while ((got = fread(chunk, 1, CHUNK, file)) > 0)
        XXH3_128bits_update(state, chunk, got);
    if (ferror(file)) status = ng_fail(error, NG_IO, "%s: cannot be read: %s", path, strerror(errno));
    else print_digest(XXH3_128bits_digest(state), digest);
done:
    XXH3_freeState(state);
    free(chunk);
    if (file) fclose(file);
    return status;
}

static void digest_plugins(const ng_plugins *plugins, char digest[NG_DIGEST_BYTES]) {
    char all[4096] = "";
    size_t used = 0;
    for (size_t i = 0; plugins && i < plugins->count; i++) {
        char one[NG_DIGEST_BYTES];
        if (!ng_digest_file(plugins->items[i].path, one, NULL) && used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s", one);
    }
    if (used) print_digest(XXH3_128bits(all, strlen(all)), digest);
}

void ng_fingerprint_collect(const ng_build *build, const ng_plugins *plugins, ng_gpu_probe probe, int device,
                            ng_fingerprint *fingerprint) {
    *fingerprint = (ng_fingerprint){.build = *build};
    read_cpu(fingerprint);
    read_system(fingerprint);
    read_libraries(fingerprint);
    ng_digest_file("/proc/self/exe", fingerprint->program_digest, NULL);
    digest_plugins(plugins, fingerprint->plugins_digest);
    if (probe && probe(device, &fingerprint->gpu, NULL)) fingerprint->gpu.present = false;
}

static const char *known(const char *text) { return text && *text ? text : NULL; }

static void write_gpu(ng_json *json, const ng_gpu_info *gpu) {
    if (!gpu->present) {
        ng_json_null(json, "gpu");
        return;
    }
    ng_json_object(json, "gpu");
    ng_json_text(json, "name", known(gpu->name));
    ng_json_integer(json, "sm", gpu->sm);
    ng_json_text(json, "uuid", known(gpu->uuid));
    ng_json_text(json, "vbios", known(gpu->vbios));
    if (gpu->ecc < 0) ng_json_null(json, "ecc");
    else ng_json_bool(json, "ecc", gpu->ecc != 0);
    ng_json_double(json, "memory_bytes", gpu->memory_bytes);
    ng_json_object(json, "clocks");
    ng_json_double(json, "sm_mhz", gpu->sm_clock_mhz);
    ng_json_double(json, "memory_mhz", gpu->memory_clock_mhz);
    ng_json_end_object(json);
    ng_json_double(json, "power_cap_w", gpu->power_cap_w);
    ng_json_end_object(json);
}

static void write_cpu(ng_json *json, const ng_fingerprint *f) {
    ng_json_object(json, "cpu");
    ng_json_text(json, "model", known(f->cpu_model));
    ng_json_text(json, "flags", known(f->cpu_flags));
    ng_json_integer(json, "cores", f->cores);
    ng_json_end_object(json);
}

static void write_libraries(ng_json *json, const ng_fingerprint *f) {
    ng_json_object(json, "libraries");
    ng_json_text(json, "mpfr", known(f->mpfr));
    ng_json_text(json, "gmp", known(f->gmp));
    ng_json_text(json, "openblas", known(f->openblas));
    ng_json_text(json, "cjson", known(f->cjson));
    ng_json_text(json, "xxhash", known(f->xxhash));
    ng_json_end_object(json);
}

static void write_git(ng_json *json, const char *commit) {
    size_t digits = commit ? strspn(commit, "0123456789abcdef") : 0;
    char name[65];
    snprintf(name, sizeof name, "%.*s", (int)(digits < 64 ? digits : 64), commit ? commit : "");
    ng_json_object(json, "git");
    ng_json_text(json, "commit", digits >= 40 ? name : NULL);
    if (digits >= 40) ng_json_bool(json, "dirty", commit[digits] != 0);
    else ng_json_null(json, "dirty");
    ng_json_end_object(json);
}

void ng_fingerprint_write(ng_json *json, const char *name, const ng_fingerprint *f) {
    ng_json_object(json, name);
    ng_json_text(json, "host", known(f->host));
    write_cpu(json, f);
    ng_json_text(json, "os", known(f->os));
    write_gpu(json, &f->gpu);
    ng_json_text(json, "driver", known(f->gpu.driver));
    ng_json_text(json, "cuda_runtime", known(f->gpu.cuda_runtime));
    ng_json_text(json, "cublaslt", known(f->gpu.cublaslt));
    ng_json_text(json, "version", known(f->build.version));
    ng_json_text(json, "compiler", known(f->build.compiler));
    ng_json_text(json, "compiler_flags", known(f->build.compiler_flags));
    ng_json_text(json, "nvcc", known(f->build.nvcc));
    ng_json_text(json, "nvcc_flags", known(f->build.nvcc_flags));
    write_libraries(json, f);
    write_git(json, f->build.commit);
    ng_json_object(json, "digests");
    ng_json_text(json, "kernels", known(f->build.kernels_digest));
    ng_json_text(json, "program", known(f->program_digest));
    ng_json_text(json, "plugins", known(f->plugins_digest));
    ng_json_text(json, "goldens", known(f->goldens_digest));
    ng_json_text(json, "expectations", known(f->expectations_digest));
    ng_json_end_object(json);
    ng_json_end_object(json);
}

void ng_fingerprint_identity(const ng_fingerprint *f, ng_identity identity[NG_IDENTITIES]) {
    const ng_identity members[NG_IDENTITIES] = {
        {"host", f->host},
        {"cpu", f->cpu_model},
        {"program", f->program_digest},
        {"plug-ins", f->plugins_digest},
        {"gpu", f->gpu.uuid},
        {"driver", f->gpu.driver},
        {"cuda runtime", f->gpu.cuda_runtime},
        {"cublaslt", f->gpu.cublaslt},
        {"goldens", f->goldens_digest},
        {"expectations", f->expectations_digest},
    };
    memcpy(identity, members, sizeof members);
}

const char *ng_fingerprint_library(const ng_fingerprint *f, const char *name) {
    const ng_identity libraries[] = {
        {"cublaslt", f->gpu.cublaslt},
        {"cuda-runtime", f->gpu.cuda_runtime},
        {"openblas", f->openblas},
        {"mpfr", f->mpfr},
    };
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (!strcmp(libraries[i].name, name)) return libraries[i].value;
    return "";
}
