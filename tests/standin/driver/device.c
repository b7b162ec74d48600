/* One device, one context. */
#define _GNU_SOURCE
#include "standin.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int context, retained;
static unsigned context_flags;
static __thread CUcontext current;
CUcontext the_context(void) { return (CUcontext)&context; }

ENTRY cuInit(unsigned flags) { return OK; }
ENTRY cuDriverGetVersion(int *version) {
    *version = DRIVER_VERSION;
    return OK;
}
ENTRY cuDeviceGetCount(int *count) {
    *count = 1;
    return OK;
}
ENTRY cuDeviceGet(CUdevice *device, int i) {
    *device = 0;
    return i ? CUDA_ERROR_INVALID_DEVICE : OK;
}
ENTRY cuDeviceGetName(char *out, int size, CUdevice d) {
    snprintf(out, size, DEVICE_NAME);
    return OK;
}
#undef cuDeviceGetUuid
ENTRY cuDeviceGetUuid_v2(CUuuid *out, CUdevice d) {
    memcpy(out->bytes, "stand-in device", 16);
    return OK;
}
ENTRY cuDeviceGetUuid(CUuuid *out, CUdevice d) { return cuDeviceGetUuid_v2(out, d); }
ENTRY cuDeviceTotalMem(size_t *size, CUdevice d) {
    *size = MEMORY;
    return OK;
}
ENTRY cuDeviceComputeCapability(int *major, int *minor, CUdevice d) {
    *major = ARCH / 10, *minor = ARCH % 10;
    return OK;
}
ENTRY cuDeviceGetPCIBusId(char *out, int size, CUdevice d) {
    snprintf(out, size, "0000:00:04.0");
    return OK;
}
ENTRY cuDeviceGetByPCIBusId(CUdevice *d, const char *id) {
    *d = 0;
    return OK;
}
ENTRY cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
    *can = a == b;
    return OK;
}
ENTRY cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute a, CUdevice from, CUdevice to) {
    *value = 0;
    return OK;
}

#define IS(name, value) [CU_DEVICE_ATTRIBUTE_##name] = value
static const int attributes[CU_DEVICE_ATTRIBUTE_MAX] = {
    IS(MAX_THREADS_PER_BLOCK, THREADS_OF_BLOCK),
    IS(MAX_BLOCK_DIM_X, 1024),
    IS(MAX_BLOCK_DIM_Y, 1024),
    IS(MAX_BLOCK_DIM_Z, 64),
    IS(MAX_GRID_DIM_X, 2147483647),
    IS(MAX_GRID_DIM_Y, 65535),
    IS(MAX_GRID_DIM_Z, 65535),
    IS(WARP_SIZE, 32),
    IS(MAX_SHARED_MEMORY_PER_BLOCK, SHARED_BY_DEFAULT),
    IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_AT_MOST),
    IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SHARED_OF_PROCESSOR),
    IS(RESERVED_SHARED_MEMORY_PER_BLOCK, 1024),
    IS(TOTAL_CONSTANT_MEMORY, 65536),
    IS(MAX_PITCH, 2147483647),
    IS(MAX_REGISTERS_PER_BLOCK, REGISTERS),
    IS(MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS),
    IS(CLOCK_RATE, 1980000),
    IS(MEMORY_CLOCK_RATE, 2619000),
    IS(GLOBAL_MEMORY_BUS_WIDTH, 5120),
    IS(L2_CACHE_SIZE, 52428800),
    IS(MULTIPROCESSOR_COUNT, PROCESSORS),
    IS(MAX_THREADS_PER_MULTIPROCESSOR, THREADS_OF_PROCESSOR),
    IS(MAX_BLOCKS_PER_MULTIPROCESSOR, BLOCKS_OF_PROCESSOR),
    IS(COMPUTE_CAPABILITY_MAJOR, ARCH / 10),
    IS(COMPUTE_CAPABILITY_MINOR, ARCH % 10),
    IS(TEXTURE_ALIGNMENT, 512),
    IS(TEXTURE_PITCH_ALIGNMENT, 32),
    IS(SURFACE_ALIGNMENT, 512),
    IS(GPU_OVERLAP, 1),
    IS(CAN_MAP_HOST_MEMORY, 1),
    IS(CONCURRENT_KERNELS, 1),
    IS(ECC_ENABLED, 1),
    IS(PCI_DEVICE_ID, 4),
    IS(ASYNC_ENGINE_COUNT, 3),
    IS(UNIFIED_ADDRESSING, 1),
    IS(STREAM_PRIORITIES_SUPPORTED, 1),
    IS(GLOBAL_L1_CACHE_SUPPORTED, 1),
    IS(LOCAL_L1_CACHE_SUPPORTED, 1),
    IS(MANAGED_MEMORY, 1),
    IS(CONCURRENT_MANAGED_ACCESS, 1),
    IS(COMPUTE_PREEMPTION_SUPPORTED, 1),
    IS(COOPERATIVE_LAUNCH, 1),
    IS(HOST_REGISTER_SUPPORTED, 1),
    IS(MEMORY_POOLS_SUPPORTED, 1),
    IS(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
    IS(CLUSTER_LAUNCH, 1),
    IS(TENSOR_MAP_ACCESS_SUPPORTED, 1),
    IS(MAX_PERSISTING_L2_CACHE_SIZE, 32768000),
    IS(MAX_ACCESS_POLICY_WINDOW_SIZE, 134217728),
    IS(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
    IS(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1),
    IS(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
};
ENTRY cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice d) {
    *value = (unsigned)attribute < CU_DEVICE_ATTRIBUTE_MAX ? attributes[attribute] : 0;
    return OK;
}

ENTRY cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
    retained++;
    *out = the_context();
    return OK;
}
ENTRY cuDevicePrimaryCtxRelease(CUdevice d) {
    retained--;
    return OK;
}
ENTRY cuDevicePrimaryCtxReset(CUdevice d) { return OK; }
ENTRY cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned flags) {
    context_flags = flags;
    return OK;
}
ENTRY cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    *flags = context_flags, *active = retained > 0;
    return OK;
}
ENTRY cuCtxGetCurrent(CUcontext *out) {
    *out = current;
    return OK;
}
ENTRY cuCtxSetCurrent(CUcontext c) {
    current = c;
    return OK;
}
ENTRY cuCtxPushCurrent(CUcontext c) {
    current = c;
    return OK;
}
ENTRY cuCtxPopCurrent(CUcontext *out) {
    if (out) *out = current;
    return OK;
}
ENTRY cuCtxGetDevice(CUdevice *d) {
    *d = 0;
    return current ? OK : CUDA_ERROR_INVALID_CONTEXT;
}
ENTRY cuCtxGetDevice_v2(CUdevice *d, CUcontext c) {
    *d = 0;
    return OK;
}
ENTRY cuCtxGetFlags(unsigned *flags) {
    *flags = context_flags;
    return OK;
}
ENTRY cuCtxGetId(CUcontext c, unsigned long long *id) {
    *id = 1;
    return OK;
}
ENTRY cuCtxGetApiVersion(CUcontext c, unsigned *version) {
    *version = 3020;
    return OK;
}
ENTRY cuCtxGetLimit(size_t *value, CUlimit limit) {
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : 8 << 20;
    return OK;
}
ENTRY cuCtxSetLimit(CUlimit limit, size_t value) { return OK; }
ENTRY cuCtxGetCacheConfig(CUfunc_cache *out) {
    *out = CU_FUNC_CACHE_PREFER_NONE;
    return OK;
}
ENTRY cuCtxSetCacheConfig(CUfunc_cache config) { return OK; }
ENTRY cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return OK;
}
ENTRY cuCtxSynchronize(void) {
    event(SYNC, 0, ", \"call\": \"cuCtxSynchronize\"");
    return OK;
}

ENTRY cuGetErrorName(CUresult error, const char **out) {
    static __thread char text[40];
    switch (error) {
#define NAMED(name)                                                                                                    \
    case name: *out = #name; return OK
        NAMED(CUDA_SUCCESS);
        NAMED(CUDA_ERROR_INVALID_VALUE);
        NAMED(CUDA_ERROR_OUT_OF_MEMORY);
        NAMED(CUDA_ERROR_NOT_FOUND);
        NAMED(CUDA_ERROR_NOT_SUPPORTED);
        NAMED(CUDA_ERROR_INVALID_IMAGE);
        NAMED(CUDA_ERROR_NO_BINARY_FOR_GPU);
        NAMED(CUDA_ERROR_LAUNCH_FAILED);
        NAMED(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        NAMED(CUDA_ERROR_ASSERT);
        NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        default:
            sprintf(text, "CUDA_ERROR_%d", error);
            *out = text;
            return OK;
    }
}
ENTRY cuGetErrorString(CUresult error, const char **out) { return cuGetErrorName(error, out); }

/* The newest form of an entry has the highest number: cuMemAlloc → cuMemAlloc_v2. */
#undef cuGetProcAddress
ENTRY cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status) {
    static void *self;
    Dl_info here;
    if (!self && dladdr((void *)cuGetProcAddress_v2, &here)) self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    char longer[256];
    *out = NULL;
    for (int v = 4; v > 1 && !*out; v--) {
        snprintf(longer, sizeof longer, "%s_v%d", name, v);
        *out = dlsym(self, longer);
    }
    if (!*out) *out = dlsym(self, name);
    if (status) *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *out ? OK : CUDA_ERROR_NOT_FOUND;
}
ENTRY cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

/* Tables that NVIDIA's own libraries know; there are none here. */
ENTRY cuGetExportTable(const void **table, const CUuuid *id) {
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
