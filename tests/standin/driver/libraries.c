/* cuBLAS, cuBLASLt and cuDNN that are there and can do nothing: XLA then writes its matrix products itself. Every other
   entry is generated, and says that it is not initialized. */
#include <stddef.h>
#define EXPORT __attribute__((visibility("default")))
enum { CUBLAS = 130000, CUDNN = 91200, CUDART = 13000 };

EXPORT int library_missing(const char *name) { return 1; }
EXPORT const char *cublasGetStatusString(int s) { return "the stand-in does not start"; }
EXPORT const char *cublasGetStatusName(int s) { return "CUBLAS_STATUS_NOT_INITIALIZED"; }
EXPORT const char *cublasLtGetStatusString(int s) { return "the stand-in does not start"; }
EXPORT const char *cublasLtGetStatusName(int s) { return "CUBLAS_STATUS_NOT_INITIALIZED"; }
EXPORT size_t cublasLtGetVersion(void) { return CUBLAS; }
EXPORT size_t cublasLtGetCudartVersion(void) { return CUDART; }
EXPORT int cublasGetVersion_v2(void *handle, int *version) {
    *version = CUBLAS;
    return 0;
}
EXPORT int cublasGetProperty(int kind, int *value) {
    *value = kind == 0 ? CUBLAS / 10000 : 0;
    return 0;
}
EXPORT int cublasLtGetProperty(int kind, int *value) { return cublasGetProperty(kind, value); }
EXPORT const char *cudnnGetErrorString(int s) { return "CUDNN_STATUS_NOT_INITIALIZED"; }
EXPORT void cudnnGetLastErrorString(char *out, size_t size) {
    if (size) *out = 0;
}
EXPORT size_t cudnnGetVersion(void) { return CUDNN; }
EXPORT size_t cudnnGetCudartVersion(void) { return CUDART; }
EXPORT int cudnnGetProperty(int kind, int *value) {
    *value = kind == 0 ? CUDNN / 10000 : kind == 1 ? CUDNN / 100 % 100 : 0;
    return 0;
}
/* jax 0.10 compiles nothing without a handle. */
EXPORT int cudnnCreate(void **handle) {
    static int it;
    *handle = &it;
    return 0;
}
EXPORT int cudnnDestroy(void *handle) { return 0; }
EXPORT int cudnnSetStream(void *handle, void *stream) { return 0; }
