/* Modules, their kernels and global variables; a library is a module, and a kernel is a function. */
#include "standin.h"
#include <stdlib.h>
#include <string.h>

static Module *modules;

static CUresult load(Module **out, const void *image) {
    static int last;
    Module *module = calloc(1, sizeof *module);
    module->size = length_of(image);
    module->image = malloc(module->size + 1);
    memcpy(module->image, image, module->size);
    module->image[module->size] = 0;
    lock();
    module->id = ++last;
    module->next = modules, modules = module;
    unlock();
    read_image(module);
    event(MODULE, 0, ", \"id\": %d, \"bytes\": %zu, \"first\": \"%s\", \"ptx\": %d, \"capturing\": %d", module->id,
          module->size, module->functions ? module->functions->name : "", module->ptx != NULL, is_capturing());
    *out = module;
    if (module->kind == UNKNOWN) return CUDA_ERROR_INVALID_IMAGE;
    int arch = arch_of(module); /* a cubin runs within its generation alone */
    if (arch && arch / 10 != ARCH / 10) return wrong(CUDA_ERROR_NO_BINARY_FOR_GPU, "a cubin of another generation");
    return OK;
}

static CUresult find(CUfunction *out, Module *module, const char *name) {
    lock();
    CUfunction f = module->functions;
    while (f && strcmp(f->name, name)) f = f->next;
    if (!f && module->kind == FATBIN)
        f = add_function(module, name, strlen(name)); /* compressed: the name is believed */
    unlock();
    *out = f;
    return f ? OK : CUDA_ERROR_NOT_FOUND;
}

ENTRY cuModuleLoadData(CUmodule *out, const void *image) { return load((Module **)out, image); }
ENTRY cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, CUjit_option *options, void **values) {
    return load((Module **)out, image);
}
ENTRY cuModuleLoadFatBinary(CUmodule *out, const void *image) { return load((Module **)out, image); }
ENTRY cuModuleUnload(CUmodule unloaded) { /* whoever still holds a function may look at it */
    Module *module = (Module *)unloaded;
    lock();
    for (Module **each = &modules; *each; each = &(*each)->next)
        if (*each == module) {
            *each = module->next;
            break;
        }
    unlock();
    event(UNLOAD, 0, ", \"id\": %d", module->id);
    for (Global *global = module->globals; global; global = global->next) release(global->at);
    return OK;
}
ENTRY cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    return find(out, (Module *)module, name);
}
ENTRY cuModuleGetGlobal(CUdeviceptr *at, size_t *size, CUmodule module, const char *name) {
    Global *global = ((Module *)module)->globals;
    while (global && strcmp(global->name, name)) global = global->next;
    if (!global) return CUDA_ERROR_NOT_FOUND;
    if (at) *at = global->at;
    if (size) *size = global->size;
    return OK;
}
ENTRY cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    *mode = CU_MODULE_LAZY_LOADING;
    return OK;
}

enum { WRAPPED = 0x466243b1 };
ENTRY cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *options, void **values, unsigned n,
                        CUlibraryOption *library_options, void **library_values, unsigned m) {
    struct {
        unsigned magic, version;
        const void *image;
    } wrapper;
    memcpy(&wrapper, code, sizeof wrapper);
    return load((Module **)out, wrapper.magic == WRAPPED ? wrapper.image : code);
}
ENTRY cuLibraryUnload(CUlibrary library) { return cuModuleUnload((CUmodule)library); }
ENTRY cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
    return find((CUfunction *)out, (Module *)library, name);
}
ENTRY cuLibraryGetModule(CUmodule *out, CUlibrary library) {
    *out = (CUmodule)library;
    return OK;
}
ENTRY cuLibraryGetGlobal(CUdeviceptr *at, size_t *size, CUlibrary library, const char *name) {
    return cuModuleGetGlobal(at, size, (CUmodule)library, name);
}
ENTRY cuKernelGetFunction(CUfunction *out, CUkernel kernel) {
    *out = (CUfunction)kernel;
    return OK;
}
ENTRY cuKernelGetName(const char **out, CUkernel kernel) {
    *out = ((CUfunction)kernel)->name;
    return OK;
}
ENTRY cuFuncGetName(const char **out, CUfunction f) {
    *out = f->name;
    return OK;
}
ENTRY cuFuncGetModule(CUmodule *out, CUfunction f) {
    *out = (CUmodule)f->module;
    return OK;
}
ENTRY cuFuncLoad(CUfunction f) { return OK; }
ENTRY cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config) { return OK; }

ENTRY cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = f->threads_at_most ? f->threads_at_most : THREADS_OF_BLOCK;
            return OK;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = f->shared; return OK;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = f->registers; return OK;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = ARCH; return OK;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->dynamic_at_most; return OK;
        default: *value = 0; return OK;
    }
}
ENTRY cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return OK;
    if (value + f->shared > SHARED_AT_MOST) return BAD;
    f->dynamic_at_most = value;
    return OK;
}
ENTRY cuKernelGetAttribute(int *value, CUfunction_attribute a, CUkernel k, CUdevice d) {
    return cuFuncGetAttribute(value, a, (CUfunction)k);
}
ENTRY cuKernelSetAttribute(CUfunction_attribute a, int value, CUkernel k, CUdevice d) {
    return cuFuncSetAttribute((CUfunction)k, a, value);
}
ENTRY cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size) {
    if (i >= (size_t)f->count) return BAD;
    *offset = f->parameters[i].offset;
    if (size) *size = f->parameters[i].size;
    return OK;
}
ENTRY cuKernelGetParamInfo(CUkernel k, size_t i, size_t *offset, size_t *size) {
    return cuFuncGetParamInfo((CUfunction)k, i, offset, size);
}

static int least(int a, int b) { return a < b ? a : b; }
ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction f, int threads, size_t shared) {
    int warps = threads > 0 ? (threads + 31) / 32 : 1, registers = (f->registers + 7) / 8 * 8 * 32;
    int n = least(BLOCKS_OF_PROCESSOR, THREADS_OF_PROCESSOR / 32 / warps);
    if (registers) n = least(n, SCHEDULERS * (REGISTERS / SCHEDULERS / registers) / warps);
    *out = least(n, SHARED_OF_PROCESSOR / (int)(shared + f->shared + 1024));
    return OK;
}
ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, CUfunction f, int threads, size_t shared,
                                                           unsigned flags) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(out, f, threads, shared);
}
ENTRY cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, CUoccupancyB2DSize shared_of, size_t shared,
                                       int limit) {
    *block = limit ? limit : THREADS_OF_BLOCK, *grid = 2 * PROCESSORS;
    return OK;
}
ENTRY cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f, CUoccupancyB2DSize shared_of,
                                                size_t shared, int limit, unsigned flags) {
    return cuOccupancyMaxPotentialBlockSize(grid, block, f, shared_of, shared, limit);
}
