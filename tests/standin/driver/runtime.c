/* libcudart: the public entries that XLA calls, on top of the driver. NVIDIA's own wants private tables of its driver. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define ENTRY __attribute__((visibility("default"))) cudaError_t
#define EXPORT __attribute__((visibility("default")))
#define PASS(call) return (cudaError_t)(call)
enum { VERSION = 13000 };

EXPORT int cudart_missing(const char *name) {
    fprintf(stderr, "the stand-in runtime has no %s\n", name);
    return cudaErrorNotSupported;
}

/* kernels that are part of a library, known by the address of a function on the host */

typedef struct {
    const void *image;
    CUmodule module;
} Fat;
typedef struct Symbol {
    struct Symbol *next;
    const void *host;
    char *name;
    Fat *fat;
    CUfunction function;
} Symbol;
typedef struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} Configuration;
static Symbol *symbols;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread Configuration pushed;

EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    Fat *fat = calloc(1, sizeof *fat);
    fat->image = ((void **)wrapper)[1];
    return (void **)fat;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **fat) {}
EXPORT void __cudaUnregisterFatBinary(void **fat) {}
EXPORT void __cudaRegisterFunction(void **fat, const char *host, char *name, const char *device, int limit, void *a,
                                   void *b, void *c, void *d, int *e) {
    Symbol *symbol = calloc(1, sizeof *symbol);
    symbol->host = host, symbol->name = strdup(device), symbol->fat = (Fat *)fat;
    pthread_mutex_lock(&mutex);
    symbol->next = symbols, symbols = symbol;
    pthread_mutex_unlock(&mutex);
}
EXPORT void __cudaRegisterVar(void **fat, char *host, char *address, const char *name, int e, size_t size, int c,
                              int g) {}
EXPORT void __cudaRegisterManagedVar(void **fat, void **host, char *address, const char *name, int e, size_t size,
                                     int c, int g) {}
EXPORT char __cudaInitModule(void **fat) { return 1; }
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    pushed = (Configuration){grid, block, shared, stream};
    return 0;
}
ENTRY __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *(void **)stream = pushed.stream;
    return cudaSuccess;
}

static CUfunction function_of(const void *host) {
    pthread_mutex_lock(&mutex);
    Symbol *symbol = symbols;
    while (symbol && symbol->host != host) symbol = symbol->next;
    if (symbol && !symbol->function) {
        if (!symbol->fat->module) cuModuleLoadFatBinary(&symbol->fat->module, symbol->fat->image);
        if (cuModuleGetFunction(&symbol->function, symbol->fat->module, symbol->name)) symbol->function = NULL;
    }
    pthread_mutex_unlock(&mutex);
    return symbol ? symbol->function : NULL;
}

ENTRY cudaGetFuncBySymbol(cudaFunction_t *out, const void *host) {
    return (*out = function_of(host)) ? cudaSuccess : cudaErrorSymbolNotFound;
}
ENTRY cudaGetKernel(cudaKernel_t *out, const void *host) {
    return (*out = (cudaKernel_t)function_of(host)) ? cudaSuccess : cudaErrorSymbolNotFound;
}
ENTRY __cudaGetKernel(cudaKernel_t *out, const void *host) { return cudaGetKernel(out, host); }
ENTRY __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **values, size_t shared, cudaStream_t stream) {
    PASS(cuLaunchKernel((CUfunction)k, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, values, NULL));
}
ENTRY cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **values, size_t shared, cudaStream_t stream) {
    CUfunction f = function_of(host);
    return f ? __cudaLaunchKernel((cudaKernel_t)f, grid, block, values, shared, stream)
             : cudaErrorInvalidDeviceFunction;
}
ENTRY cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value) {
    CUfunction f = function_of(host);
    if (!f) return cudaErrorInvalidDeviceFunction;
    PASS(cuFuncSetAttribute(f, (CUfunction_attribute)attribute, value));
}
ENTRY cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *host) {
    memset(out, 0, sizeof *out);
    out->maxThreadsPerBlock = 1024, out->numRegs = 32, out->binaryVersion = out->ptxVersion = 90;
    return cudaSuccess;
}

/* the device */

ENTRY cudaDriverGetVersion(int *version) { PASS(cuDriverGetVersion(version)); }
ENTRY cudaRuntimeGetVersion(int *version) {
    *version = VERSION;
    return cudaSuccess;
}
ENTRY cudaGetDeviceCount(int *count) { PASS(cuDeviceGetCount(count)); }
ENTRY cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
ENTRY cudaSetDevice(int device) {
    CUcontext context;
    cuDevicePrimaryCtxRetain(&context, device);
    PASS(cuCtxSetCurrent(context));
}
ENTRY cudaInitDevice(int device, unsigned a, unsigned b) { return cudaSuccess; }
ENTRY cudaGetLastError(void) { return cudaSuccess; }
ENTRY cudaPeekAtLastError(void) { return cudaSuccess; }
EXPORT const char *cudaGetErrorName(cudaError_t e) { return e ? "an error of the stand-in runtime" : "cudaSuccess"; }
EXPORT const char *cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
ENTRY cudaDeviceSynchronize(void) { PASS(cuCtxSynchronize()); }
ENTRY cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int device) {
    PASS(cuDeviceGetAttribute(value, (CUdevice_attribute)a, device));
}
ENTRY cudaDeviceGetPCIBusId(char *out, int size, int device) { PASS(cuDeviceGetPCIBusId(out, size, device)); }
static int attribute(CUdevice_attribute a) {
    int value = 0;
    cuDeviceGetAttribute(&value, a, 0);
    return value;
}
#undef cudaGetDeviceProperties
ENTRY cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    memset(out, 0, sizeof *out);
    cuDeviceGetName(out->name, sizeof out->name, device);
    cuDeviceTotalMem(&out->totalGlobalMem, device);
    out->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    out->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    out->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    out->warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    out->maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    out->regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    out->sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    out->sharedMemPerBlockOptin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    out->sharedMemPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    return cudaSuccess;
}
ENTRY cudaGetDeviceProperties_v2(struct cudaDeviceProp *out, int device) {
    return cudaGetDeviceProperties(out, device);
}

/* memory and streams */

ENTRY cudaMalloc(void **out, size_t size) { PASS(cuMemAlloc((CUdeviceptr *)out, size)); }
ENTRY cudaFree(void *at) { PASS(cuMemFree((CUdeviceptr)at)); }
ENTRY cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    PASS(cuMemcpy((CUdeviceptr)to, (CUdeviceptr)from, n));
}
ENTRY cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
    PASS(cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, n, s));
}
ENTRY cudaMemsetAsync(void *at, int value, size_t n, cudaStream_t s) {
    PASS(cuMemsetD8Async((CUdeviceptr)at, value, n, s));
}
ENTRY cudaMemGetInfo(size_t *is_free, size_t *total) { PASS(cuMemGetInfo(is_free, total)); }
ENTRY cudaStreamSynchronize(cudaStream_t s) { PASS(cuStreamSynchronize(s)); }
ENTRY cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out) {
    PASS(cuStreamIsCapturing(s, (CUstreamCaptureStatus *)out));
}
ENTRY cudaProfilerStart(void) { return cudaSuccess; }
ENTRY cudaProfilerStop(void) { return cudaSuccess; }
ENTRY cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *host, int threads, size_t shared,
                                                             unsigned flags) {
    CUfunction f = function_of(host);
    if (!f) return cudaErrorInvalidDeviceFunction;
    PASS(cuOccupancyMaxActiveBlocksPerMultiprocessor(out, f, threads, shared));
}
ENTRY cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *host, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, host, threads, shared, 0);
}
