#include "harness/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };

/* The second name is the one that drivers before 535 know. */
static const struct {
    size_t offset;
    const char *name, *old_name;
} functions[] = {
    {offsetof(ng_nvml, shutdown), "nvmlShutdown", NULL},
    {offsetof(ng_nvml, driver_version), "nvmlSystemGetDriverVersion", NULL},
    {offsetof(ng_nvml, vbios), "nvmlDeviceGetVbiosVersion", NULL},
    {offsetof(ng_nvml, ecc), "nvmlDeviceGetEccMode", NULL},
    {offsetof(ng_nvml, clock), "nvmlDeviceGetClockInfo", NULL},
    {offsetof(ng_nvml, largest_clock), "nvmlDeviceGetMaxClockInfo", NULL},
    {offsetof(ng_nvml, power_limit), "nvmlDeviceGetPowerManagementLimit", NULL},
    {offsetof(ng_nvml, throttle), "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"},
    {offsetof(ng_nvml, lock_clocks), "nvmlDeviceSetGpuLockedClocks", NULL},
    {offsetof(ng_nvml, reset_clocks), "nvmlDeviceResetGpuLockedClocks", NULL},
};

/* Object and function pointers have one size wherever there is dlsym (POSIX). */
static void find_functions(ng_nvml *nvml) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(nvml->library, functions[i].name);
        if (!found && functions[i].old_name) found = dlsym(nvml->library, functions[i].old_name);
        memcpy((char *)nvml + functions[i].offset, &found, sizeof found);
    }
}

ng_status ng_nvml_open(const char *pci, ng_nvml *nvml) {
    int (*init)(void) = NULL;
    int (*by_pci)(const char *, void **) = NULL;
    *nvml = (ng_nvml){0};
    void *found, *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return NG_UNSUPPORTED;
    found = dlsym(library, "nvmlInit_v2");
    memcpy(&init, &found, sizeof found);
    found = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    memcpy(&by_pci, &found, sizeof found);
    if (!init || !by_pci || init()) {
        dlclose(library);
        return NG_UNSUPPORTED;
    }
    nvml->library = library;
    find_functions(nvml);
    if (!by_pci(pci, &nvml->device)) return NG_OK;
    ng_nvml_close(nvml);
    return NG_UNSUPPORTED;
}

void ng_nvml_close(ng_nvml *nvml) {
    if (nvml->library && nvml->shutdown) nvml->shutdown();
    if (nvml->library) dlclose(nvml->library);
    *nvml = (ng_nvml){0};
}

void ng_nvml_facts(const ng_nvml *nvml, ng_gpu_info *info) {
    unsigned value;
    int on, pending;
    if (nvml->driver_version && nvml->driver_version(info->driver, sizeof info->driver)) info->driver[0] = 0;
    if (nvml->vbios && nvml->vbios(nvml->device, info->vbios, sizeof info->vbios)) info->vbios[0] = 0;
    if (nvml->ecc && !nvml->ecc(nvml->device, &on, &pending)) info->ecc = on != 0;
    if (nvml->largest_clock && !nvml->largest_clock(nvml->device, CLOCK_SM, &value)) info->sm_clock_mhz = value;
    if (nvml->largest_clock && !nvml->largest_clock(nvml->device, CLOCK_MEMORY, &value)) info->memory_clock_mhz = value;
    if (nvml->power_limit && !nvml->power_limit(nvml->device, &value)) info->power_cap_w = 1e-3 * value;
}

double ng_nvml_sm_mhz(const ng_nvml *nvml) {
    unsigned mhz;
    return nvml->clock && !nvml->clock(nvml->device, CLOCK_SM, &mhz) ? (double)mhz : (double)NAN;
}

unsigned long long ng_nvml_throttle(const ng_nvml *nvml) {
    unsigned long long reasons = 0;
    return nvml->throttle && !nvml->throttle(nvml->device, &reasons) ? reasons : 0;
}

ng_status ng_nvml_lock_sm(const ng_nvml *nvml, unsigned mhz) {
    return nvml->lock_clocks && !nvml->lock_clocks(nvml->device, mhz, mhz) ? NG_OK : NG_UNSUPPORTED;
}

ng_status ng_nvml_unlock_sm(const ng_nvml *nvml) {
    return nvml->reset_clocks && !nvml->reset_clocks(nvml->device) ? NG_OK : NG_UNSUPPORTED;
}

void ng_throttle_text(unsigned long long reasons, char *text, size_t bytes) {
    static const struct {
        unsigned long long bit;
        const char *name;
    } names[] = {
        {0x04, "power cap"}, {0x08, "hardware slowdown"}, {0x10, "sync boost"},
        {0x20, "thermal"},   {0x40, "hardware thermal"},  {0x80, "power brake"},
    };
    size_t used = 0;
    snprintf(text, bytes, "none");
    for (size_t i = 0; i < sizeof names / sizeof *names && used < bytes; i++)
        if (reasons & names[i].bit) used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", names[i].name);
}
