/* What the driver says of a GPU, through the management library, opened at run time: facts for the fingerprint, clocks and
 * reasons for throttling around a measurement. Where the library is absent, everything is unknown. */
#ifndef NG_HARNESS_NVML_H
#define NG_HARNESS_NVML_H

#include "harness/fingerprint.h"

/* NVML's own types: an opaque handle, an int that is 0 on success (NVML API reference). */
typedef struct ng_nvml {
    void *library, *device;
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned bytes);
    int (*vbios)(void *device, char *text, unsigned bytes);
    int (*ecc)(void *device, int *current, int *pending);
    int (*clock)(void *device, int which, unsigned *mhz);
    int (*largest_clock)(void *device, int which, unsigned *mhz);
    int (*power_limit)(void *device, unsigned *mw);
    int (*throttle)(void *device, unsigned long long *reasons);
    int (*lock_clocks)(void *device, unsigned least_mhz, unsigned most_mhz);
    int (*reset_clocks)(void *device);
} ng_nvml;

/* pci: "0000:1b:00.0". NG_UNSUPPORTED: no library, or it does not know the device; then nvml is all zero, which every
 * function here takes. */
ng_status ng_nvml_open(const char *pci, ng_nvml *nvml);
void ng_nvml_close(ng_nvml *nvml);

/* Fills what it knows; leaves the rest as it is. */
void ng_nvml_facts(const ng_nvml *nvml, ng_gpu_info *info);

/* The clock of the multiprocessors, NaN unknown; why it is not higher, as NVML's bits. */
double ng_nvml_sm_mhz(const ng_nvml *nvml);
unsigned long long ng_nvml_throttle(const ng_nvml *nvml);
/* Holds the clock of the multiprocessors at mhz until ng_nvml_unlock_sm (nvidia-smi --reset-gpu-clocks does the same). Takes
 * administrator's rights: NG_UNSUPPORTED without them, or without the function. */
ng_status ng_nvml_lock_sm(const ng_nvml *nvml, unsigned mhz);
ng_status ng_nvml_unlock_sm(const ng_nvml *nvml);
/* "none", or "power cap, thermal"; idling and clocks that the user has set are no throttling. */
void ng_throttle_text(unsigned long long reasons, char *text, size_t bytes);

#endif
