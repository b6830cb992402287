#include "harness/gpu_probe.h"

#include "harness/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 60000 };

#ifndef NG_CUBLASLT_DIRECTORY
#define NG_CUBLASLT_DIRECTORY "/usr/local/cuda/lib64"
#endif

/* The library that kernels/cublaslt finds, in the same order. */
static void *open_cublaslt(void) {
    static const char *const names[] = {"libcublasLt.so.13", NG_CUBLASLT_DIRECTORY "/libcublasLt.so.13", "libcublasLt.so"};
    const char *asked = getenv("NARROWGAUGE_CUBLASLT");
    void *library = NULL;
    if (asked && *asked) return dlopen(asked, RTLD_LAZY | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    return library;
}

/* cublasLtGetVersion: major * 10000 + minor * 100 + patch (cuBLAS documentation). */
void ng_cublaslt_version(char *text, size_t bytes) {
    void *library = open_cublaslt();
    size_t (*version)(void) = NULL;
    text[0] = 0;
    if (!library) return;
    void *found = dlsym(library, "cublasLtGetVersion");
    memcpy(&version, &found, sizeof found);
    unsigned v = version ? (unsigned)version() : 0;
    if (v) snprintf(text, bytes, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
    dlclose(library);
}

static void print_version(int version, char *text, size_t bytes) {
    if (version > 0) snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

ng_status ng_describe_gpu(const ng_runtime *runtime, int device, ng_gpu_info *info) {
    ng_gpu_properties properties;
    ng_nvml nvml;
    int count = 0, version = 0;
    *info = (ng_gpu_info){.ecc = -1, .sm_clock_mhz = NAN, .memory_clock_mhz = NAN, .power_cap_w = NAN, .memory_bytes = NAN};
    if (!runtime || runtime->device_count(&count) || device < 0 || device >= count || runtime->properties(device, &properties)) {
        if (runtime) runtime->last_error();
        return NG_UNSUPPORTED;
    }
    info->present = true;
    info->sm = properties.sm;
    info->memory_bytes = (double)properties.memory;
    snprintf(info->name, sizeof info->name, "%s", properties.name);
    snprintf(info->uuid, sizeof info->uuid, "%s", properties.uuid);
    snprintf(info->pci, sizeof info->pci, "%s", properties.pci);
    if (!runtime->runtime_version(&version)) print_version(version, info->cuda_runtime, sizeof info->cuda_runtime);
    if (!ng_nvml_open(properties.pci, &nvml)) {
        ng_nvml_facts(&nvml, info);
        ng_nvml_close(&nvml);
    }
    char known[16] = "";
    if (!info->driver[0] && !runtime->driver_version(&version)) print_version(version, known, sizeof known);
    if (known[0]) snprintf(info->driver, sizeof info->driver, "CUDA %s", known);
    ng_cublaslt_version(info->cublaslt, sizeof info->cublaslt);
    return NG_OK;
}

/* ---- in a process of its own --------------------------------------------------------------------------------------*/
static void answer(int channel, int device) {
    ng_gpu_info info;
    if (!ng_describe_gpu(ng_cuda_runtime(), device, &info) && write(channel, &info, sizeof info) != (ssize_t)sizeof info) _exit(2);
    _exit(0); /* no atexit: the runtime and the driver go with the process */
}

/* The whole answer, nothing (0), or what went wrong (-1). */
static ssize_t hear(int channel, ng_gpu_info *info) {
    struct pollfd wait = {channel, POLLIN, 0};
    ssize_t got;
    if (poll(&wait, 1, LIMIT_MS) <= 0) return -1;
    do
        got = read(channel, info, sizeof *info); /* smaller than PIPE_BUF: written at once, read at once */
    while (got < 0 && errno == EINTR);
    return got;
}

ng_status ng_probe_gpu(int device, ng_gpu_info *info, ng_error *error) {
    int pair[2], how = 0;
    *info = (ng_gpu_info){0};
    if (!ng_cuda_runtime()) return ng_fail(error, NG_UNSUPPORTED, "this program was built without CUDA");
    if (pipe(pair)) return ng_fail(error, NG_IO, "no pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        close(pair[0]);
        answer(pair[1], device);
    }
    close(pair[1]);
    ssize_t got = pid > 0 ? hear(pair[0], info) : -1;
    close(pair[0]);
    if (pid < 0) return ng_fail(error, NG_IO, "no process: %s", strerror(errno));
    if (got < 0) kill(pid, SIGKILL);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        ;
    if (got == (ssize_t)sizeof *info) return NG_OK;
    *info = (ng_gpu_info){0};
    if (got == 0 && WIFEXITED(how) && !WEXITSTATUS(how)) return ng_fail(error, NG_UNSUPPORTED, "no CUDA device %d", device);
    return ng_fail(error, NG_DEVICE, "the process that asked about CUDA device %d died or did not answer", device);
}
