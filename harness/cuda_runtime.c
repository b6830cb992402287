/* The CUDA runtime as a table (harness/device.h). Linked statically, so that the program starts where there is no driver. */
#include "harness/device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

_Static_assert((int)cudaSuccess == NG_CUDA_OK && (int)cudaErrorMemoryAllocation == NG_CUDA_NO_MEMORY &&
                   (int)cudaErrorInsufficientDriver == NG_CUDA_OLD_DRIVER && (int)cudaErrorDevicesUnavailable == NG_CUDA_UNAVAILABLE &&
                   (int)cudaErrorNoDevice == NG_CUDA_NO_DEVICE && (int)cudaErrorNoKernelImageForDevice == NG_CUDA_NO_IMAGE &&
                   (int)cudaErrorUnsupportedPtxVersion == NG_CUDA_NEW_PTX,
               "the codes of device.h are the runtime's");

static int driver_version(int *version) { return cudaDriverGetVersion(version); }
static int runtime_version(int *version) { return cudaRuntimeGetVersion(version); }
static int device_count(int *count) { return cudaGetDeviceCount(count); }

static void print_uuid(const unsigned char *b, char *text, size_t bytes) {
    snprintf(text, bytes, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
             b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static int properties(int device, ng_gpu_properties *properties) {
    struct cudaDeviceProp p;
    int mode = 0;
    cudaError_t code = cudaGetDeviceProperties(&p, device);
    if (!code) code = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
    if (code) return code;
    *properties = (ng_gpu_properties){.sm = 10 * p.major + p.minor, .processors = p.multiProcessorCount, .compute_mode = mode,
                                      .memory = p.totalGlobalMem, .l2 = p.l2CacheSize > 0 ? (size_t)p.l2CacheSize : 0};
    snprintf(properties->name, sizeof properties->name, "%.95s", p.name);
    print_uuid((const unsigned char *)p.uuid.bytes, properties->uuid, sizeof properties->uuid);
    return cudaDeviceGetPCIBusId(properties->pci, sizeof properties->pci, device);
}

static int set_device(int device) { return cudaSetDevice(device); }
static int memory(size_t *available, size_t *total) { return cudaMemGetInfo(available, total); }
static int device_malloc(void **data, size_t bytes) { return cudaMalloc(data, bytes); }
static int device_free(void *data) { return cudaFree(data); }

static int copy(void *to, const void *from, size_t bytes, ng_copy_kind kind, void *stream) {
    static const enum cudaMemcpyKind kinds[NG_COPY_KINDS] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                                             cudaMemcpyDeviceToDevice};
    return cudaMemcpyAsync(to, from, bytes, kinds[kind], stream);
}

static int set(void *data, int byte, size_t bytes, void *stream) { return cudaMemsetAsync(data, byte, bytes, stream); }
static int synchronize(void) { return cudaDeviceSynchronize(); }

/* Blocking with respect to the default stream: a kernel that ignores the stream it is given is still in order. */
static int stream_create(void **stream) { return cudaStreamCreate((cudaStream_t *)stream); }
static int stream_destroy(void *stream) { return cudaStreamDestroy(stream); }

static int event_create(void **event) { return cudaEventCreate((cudaEvent_t *)event); }
static int event_destroy(void *event) { return cudaEventDestroy(event); }
static int event_record(void *event, void *stream) { return cudaEventRecord(event, stream); }
static int event_synchronize(void *event) { return cudaEventSynchronize(event); }
static int event_elapsed(float *ms, void *from, void *to) { return cudaEventElapsedTime(ms, from, to); }

static int capture_begin(void *stream) { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); }
static int capture_end(void *stream, void **graph) { return cudaStreamEndCapture(stream, (cudaGraph_t *)graph); }
static int graph_instantiate(void **executable, void *graph) {
    return cudaGraphInstantiate((cudaGraphExec_t *)executable, graph, 0);
}
static int graph_launch(void *executable, void *stream) { return cudaGraphLaunch(executable, stream); }
static int graph_free(void *graph) { return cudaGraphDestroy(graph); }
static int executable_free(void *executable) { return cudaGraphExecDestroy(executable); }

static int last_error(void) { return cudaGetLastError(); }
static const char *error_name(int error) { return cudaGetErrorName((cudaError_t)error); }
static const char *error_text(int error) { return cudaGetErrorString((cudaError_t)error); }

static const ng_runtime runtime = {
    .driver_version = driver_version, .runtime_version = runtime_version,
    .device_count = device_count, .properties = properties, .set_device = set_device, .memory = memory,
    .malloc = device_malloc, .free = device_free, .copy = copy, .set = set,
    .stream_create = stream_create, .stream_destroy = stream_destroy, .synchronize = synchronize,
    .event_create = event_create, .event_destroy = event_destroy, .event_record = event_record,
    .event_synchronize = event_synchronize, .event_elapsed = event_elapsed,
    .capture_begin = capture_begin, .capture_end = capture_end, .graph_instantiate = graph_instantiate,
    .graph_launch = graph_launch, .graph_free = graph_free, .executable_free = executable_free,
    .last_error = last_error, .error_name = error_name, .error_text = error_text,
};

const ng_runtime *ng_cuda_runtime(void) { return &runtime; }
