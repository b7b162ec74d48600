/* libnvidia-ml: XLA counts devices with it. Every other entry is generated, and says that it is not supported. */
#include <stdio.h>
#define EXPORT __attribute__((visibility("default")))
enum { FINE, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3 };
typedef void *Device;

EXPORT int nvml_missing(const char *name) { return NOT_SUPPORTED; }
EXPORT int nvmlInit(void) { return FINE; }
EXPORT int nvmlInit_v2(void) { return FINE; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return FINE; }
EXPORT int nvmlShutdown(void) { return FINE; }
EXPORT const char *nvmlErrorString(int error) { return error ? "not supported by the stand-in driver" : "success"; }
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    snprintf(out, size, "580.00.00");
    return FINE;
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
    *version = 13000;
    return FINE;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13000;
    return FINE;
}
EXPORT int nvmlDeviceGetCount(unsigned *count) {
    *count = 1;
    return FINE;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return FINE;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device *device) {
    *device = (Device)1;
    return i ? BAD_ARGUMENT : FINE;
}
EXPORT int nvmlDeviceGetHandleByIndex(unsigned i, Device *device) { return nvmlDeviceGetHandleByIndex_v2(i, device); }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *device) {
    *device = (Device)1;
    return FINE;
}
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, Device *device) {
    *device = (Device)1;
    return FINE;
}
EXPORT int nvmlDeviceGetName(Device d, char *out, unsigned size) {
    snprintf(out, size, "NVIDIA H100 80GB HBM3");
    return FINE;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(Device d, int *major, int *minor) {
    *major = 9, *minor = 0;
    return FINE;
}
EXPORT int nvmlDeviceGetIndex(Device d, unsigned *i) {
    *i = 0;
    return FINE;
}
EXPORT int nvmlDeviceGetUUID(Device d, char *out, unsigned size) {
    snprintf(out, size, "GPU-7374616e-642d-696e-2064-657669636500");
    return FINE;
}
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned *n) {
    *n = 5;
    return FINE;
}
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(Device d, unsigned *n) {
    *n = 5;
    return FINE;
}
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned *n) {
    *n = 16;
    return FINE;
}
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(Device d, unsigned *n) {
    *n = 16;
    return FINE;
}
EXPORT int nvmlDeviceGetMigMode(Device d, unsigned *now, unsigned *later) {
    *now = *later = 0;
    return FINE;
}
EXPORT int nvmlDeviceGetGpuFabricInfoV(Device d, void *out) {
    return FINE;
} /* the caller has set it to "there is none" */
typedef struct {
    unsigned field, scope;
    long long time, delay;
    int type, result;
    unsigned long long value;
} Field;
EXPORT int nvmlDeviceGetFieldValues(Device d, int count, Field *fields) { /* of links to other devices */
    for (int i = 0; i < count; i++) fields[i].type = 1, fields[i].result = FINE, fields[i].value = 0;
    return FINE;
}
EXPORT int nvmlDeviceGetMemoryInfo(Device d, unsigned long long *out) {
    out[0] = 80ull << 30, out[1] = 79ull << 30, out[2] = 1ull << 30;
    return FINE;
}
