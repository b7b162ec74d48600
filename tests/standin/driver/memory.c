/* Memory of the device is memory of this process; which addresses are allocated is known exactly. */
#define _GNU_SOURCE
#include "standin.h"
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, GARBAGE = 0xa5, GARBAGE_AT_MOST = 64 << 20 };

static const char *const kind_names[] = {"device", "global", "host", "managed"};
static Block *blocks; /* by address */
static int count, room;
static long serial;
static size_t peak;

static int last_at_or_before(CUdeviceptr at) {
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (blocks[middle].at <= at) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

/* Whether one block holds all of it. */
int block_with(CUdeviceptr at, size_t size, Block *found) {
    lock();
    int i = last_at_or_before(at);
    int is_inside =
        i >= 0 && at - blocks[i].at + size <= blocks[i].size && (at < blocks[i].at + blocks[i].size || !size);
    if (is_inside && found) *found = blocks[i];
    unlock();
    return is_inside;
}

static size_t live(enum MemoryKind kind, size_t *number) {
    size_t bytes = 0, n = 0;
    for (int i = 0; i < count; i++)
        if (blocks[i].kind == kind) n++, bytes += blocks[i].size;
    if (number) *number = n;
    return bytes;
}

static void note(CUdeviceptr at, size_t size, size_t mapped, enum MemoryKind kind) {
    lock();
    int i = last_at_or_before(at) + 1;
    if (count == room) blocks = realloc(blocks, (room = 2 * room + 64) * sizeof *blocks);
    memmove(blocks + i + 1, blocks + i, (count - i) * sizeof *blocks);
    blocks[i] = (Block){at, size, mapped, kind, ++serial};
    count++;
    size_t bytes = live(DEVICE_MEMORY, NULL);
    if (bytes > peak) peak = bytes;
    unlock();
    event(ALLOCATE, 0, ", \"memory\": \"%s\", \"bytes\": %zu, \"at\": %llu", kind_names[kind], size, at);
}

static CUresult forget(CUdeviceptr at, Block *block) {
    lock();
    int i = last_at_or_before(at), is_there = i >= 0 && blocks[i].at == at;
    if (is_there) {
        *block = blocks[i];
        memmove(blocks + i, blocks + i + 1, (--count - i) * sizeof *blocks);
    }
    unlock();
    if (!is_there) return wrong(BAD, "what is freed is not allocated");
    event(FREE, 0, ", \"memory\": \"%s\", \"bytes\": %zu, \"at\": %llu", kind_names[block->kind], block->size, at);
    return OK;
}

/* A device's memory holds what somebody left there; zeros would hide a kernel that forgets to write. */
static void leave_garbage(CUdeviceptr at, size_t size) {
    if (has_executor() && size <= GARBAGE_AT_MOST) memset((void *)at, GARBAGE, size);
}

CUdeviceptr allocate(size_t size, enum MemoryKind kind) {
    size_t mapped = (size + PAGE - 1) / PAGE * PAGE;
    char *at = mmap(NULL, mapped + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return 0;
    mprotect(at + mapped, PAGE, PROT_NONE);
    if (kind == DEVICE_MEMORY) leave_garbage((CUdeviceptr)at, size);
    note((CUdeviceptr)at, size, mapped + PAGE, kind);
    return (CUdeviceptr)at;
}

CUresult release(CUdeviceptr at) {
    Block block;
    if (!at) return OK;
    CUresult result = forget(at, &block);
    if (result == OK) munmap((void *)at, block.mapped);
    return result;
}

static CUresult allocated(CUdeviceptr *at, size_t size, enum MemoryKind kind) {
    if (!size) return BAD;
    if (is_capturing()) wrong(OK, "memory is allocated by a thread that captures");
    if (size > MEMORY || !(*at = allocate(size, kind))) return CUDA_ERROR_OUT_OF_MEMORY;
    return OK;
}

ENTRY cuMemGetInfo(size_t *is_free, size_t *total) {
    lock();
    size_t bytes = live(DEVICE_MEMORY, NULL);
    unlock();
    *total = MEMORY;
    *is_free = MEMORY - (bytes < MEMORY ? bytes : MEMORY);
    return OK;
}
ENTRY cuMemAlloc(CUdeviceptr *at, size_t size) { return allocated(at, size, DEVICE_MEMORY); }
ENTRY cuMemFree(CUdeviceptr at) { return release(at); }
ENTRY cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned flags) { return allocated(at, size, MANAGED_MEMORY); }
ENTRY cuMemHostAlloc(void **at, size_t size, unsigned flags) { return allocated((CUdeviceptr *)at, size, HOST_MEMORY); }
ENTRY cuMemAllocHost(void **at, size_t size) { return allocated((CUdeviceptr *)at, size, HOST_MEMORY); }
ENTRY cuMemFreeHost(void *at) { return release((CUdeviceptr)at); }
ENTRY cuMemHostRegister(void *at, size_t size, unsigned flags) { return OK; }
ENTRY cuMemHostUnregister(void *at) { return OK; }
ENTRY cuMemHostGetDevicePointer(CUdeviceptr *device, void *at, unsigned flags) {
    *device = (CUdeviceptr)at;
    return OK;
}
ENTRY cuMemAllocAsync(CUdeviceptr *at, size_t size, CUstream stream) { return allocated(at, size, DEVICE_MEMORY); }
ENTRY cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t size, CUmemoryPool pool, CUstream stream) {
    return allocated(at, size, DEVICE_MEMORY);
}
ENTRY cuMemFreeAsync(CUdeviceptr at, CUstream stream) { return release(at); }

ENTRY cuMemGetAddressRange(CUdeviceptr *start, size_t *size, CUdeviceptr at) {
    Block block;
    if (!block_with(at, 0, &block)) return CUDA_ERROR_NOT_FOUND;
    if (start) *start = block.at;
    if (size) *size = block.size;
    return OK;
}

ENTRY cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr at) {
    Block block;
    if (!block_with(at, 0, &block)) return BAD;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)out = the_context(); return OK;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)out = block.kind == HOST_MEMORY ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            return OK;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(CUdeviceptr *)out = at; return OK;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned char *)out = block.kind == MANAGED_MEMORY; return OK;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)out = block.at; return OK;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)out = block.size; return OK;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)out = block.serial; return OK;
        default: *(int *)out = 0; return OK;
    }
}
ENTRY cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **out, CUdeviceptr at) {
    for (unsigned i = 0; i < n; i++)
        if (cuPointerGetAttribute(out[i], attributes[i], at)) return BAD;
    return OK;
}
ENTRY cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr at) { return OK; }

/* Pools: there is one, and it has no properties. */
static int the_pool;
ENTRY cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    *pool = (CUmemoryPool)&the_pool;
    return OK;
}
ENTRY cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    *pool = (CUmemoryPool)&the_pool;
    return OK;
}
ENTRY cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) { return OK; }
ENTRY cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    *pool = (CUmemoryPool)&the_pool;
    return OK;
}
ENTRY cuMemPoolDestroy(CUmemoryPool pool) { return OK; }
ENTRY cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) { return OK; }
ENTRY cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    *(cuuint64_t *)value = 0;
    return OK;
}
ENTRY cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n) { return OK; }
ENTRY cuMemPoolTrimTo(CUmemoryPool pool, size_t size) { return OK; }

/* Virtual memory: a reservation may not be touched until something is mapped there. A device's granules have 2 MiB;
   small ones keep the sizes of arrays visible. */
enum { GRANULE = 256 };
ENTRY cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *properties,
                                    CUmemAllocationGranularity_flags flags) {
    *size = GRANULE;
    return OK;
}
ENTRY cuMemAddressReserve(CUdeviceptr *at, size_t size, size_t align, CUdeviceptr wanted, unsigned long long flags) {
    void *found = mmap(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *at = (CUdeviceptr)found;
    return found == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : OK;
}
ENTRY cuMemAddressFree(CUdeviceptr at, size_t size) {
    munmap((void *)at, size + PAGE);
    return OK;
}
ENTRY cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *p,
                  unsigned long long flags) {
    static unsigned long long last;
    *handle = __sync_add_and_fetch(&last, 1);
    return OK;
}
ENTRY cuMemRelease(CUmemGenericAllocationHandle handle) { return OK; }
ENTRY cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
               unsigned long long flags) {
    mprotect((void *)at, size, PROT_READ | PROT_WRITE);
    leave_garbage(at, size);
    note(at, size, size, DEVICE_MEMORY);
    return OK;
}
ENTRY cuMemUnmap(CUdeviceptr at, size_t size) {
    Block block;
    CUresult result = forget(at, &block);
    if (result == OK) mprotect((void *)at, size, PROT_NONE);
    return result;
}
ENTRY cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t n) { return OK; }
ENTRY cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at) {
    *handle = 1;
    return OK;
}

/* copies and fills */

enum { TO_DEVICE = 1, FROM_DEVICE = 2 }; /* which of the two addresses must be allocated */

CUresult do_copy(const char *call, const Copy *copy, int checked, int graph) {
    int is_bad = copy->bytes && (((checked & TO_DEVICE) && !block_with(copy->to, copy->bytes, NULL)) ||
                                 ((checked & FROM_DEVICE) && !block_with(copy->from, copy->bytes, NULL)));
    event(COPY, graph, ", \"call\": \"%s\", \"bytes\": %zu, \"to\": %llu, \"from\": %llu%s", call, copy->bytes,
          copy->to, copy->from, is_bad ? ", \"refused\": \"it is not inside of an allocation\"" : "");
    if (is_bad) return BAD;
    if (copy->bytes) memmove((void *)copy->to, (void *)copy->from, copy->bytes);
    if (checked == FROM_DEVICE && !has_executor()) guess_condition(copy);
    return OK;
}

static CUresult queue_copy(const char *call, Copy copy, int checked, CUstream stream) {
    stream = stream_of(stream);
    if (!stream->capture) return do_copy(call, &copy, checked, 0);
    lock();
    captured(stream, COPY_NODE)->copy = copy;
    unlock();
    return OK;
}

#define AT(pointer) ((CUdeviceptr)(pointer))
ENTRY cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n) {
    return do_copy("HtoD", &(Copy){to, AT(from), n}, TO_DEVICE, 0);
}
ENTRY cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n) {
    return do_copy("DtoH", &(Copy){AT(to), from, n}, FROM_DEVICE, 0);
}
ENTRY cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t n) {
    return do_copy("DtoD", &(Copy){to, from, n}, TO_DEVICE | FROM_DEVICE, 0);
}
ENTRY cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) { return do_copy("any", &(Copy){to, from, n}, 0, 0); }
ENTRY cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream s) {
    return queue_copy("HtoD", (Copy){to, AT(from), n}, TO_DEVICE, s);
}
ENTRY cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream s) {
    return queue_copy("DtoH", (Copy){AT(to), from, n}, FROM_DEVICE, s);
}
ENTRY cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    return queue_copy("DtoD", (Copy){to, from, n}, TO_DEVICE | FROM_DEVICE, s);
}
ENTRY cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    return queue_copy("any", (Copy){to, from, n}, 0, s);
}

CUresult do_fill(const Fill *fill, int graph) {
    size_t span =
        fill->height > 1 ? fill->pitch * (fill->height - 1) + fill->width * fill->element : fill->width * fill->element;
    int is_bad = !block_with(fill->at, span, NULL);
    event(MEMSET, graph, ", \"bytes\": %zu, \"to\": %llu%s", fill->width * fill->height * fill->element, fill->at,
          is_bad ? ", \"refused\": \"it is not inside of an allocation\"" : "");
    if (is_bad) return BAD;
    for (size_t y = 0; y < fill->height; y++)
        for (size_t x = 0; x < fill->width; x++)
            memcpy((char *)fill->at + y * fill->pitch + x * fill->element, &fill->value, fill->element);
    return OK;
}

static CUresult queue_fill(CUdeviceptr at, unsigned value, unsigned element, size_t n, CUstream stream) {
    Fill fill = {.at = at, .width = n, .height = 1, .value = value, .element = element};
    stream = stream_of(stream);
    if (!stream->capture) return do_fill(&fill, 0);
    lock();
    captured(stream, FILL_NODE)->fill = fill;
    unlock();
    return OK;
}
ENTRY cuMemsetD8(CUdeviceptr at, unsigned char v, size_t n) { return queue_fill(at, v, 1, n, NULL); }
ENTRY cuMemsetD32(CUdeviceptr at, unsigned v, size_t n) { return queue_fill(at, v, 4, n, NULL); }
ENTRY cuMemsetD8Async(CUdeviceptr at, unsigned char v, size_t n, CUstream s) { return queue_fill(at, v, 1, n, s); }
ENTRY cuMemsetD16Async(CUdeviceptr at, unsigned short v, size_t n, CUstream s) { return queue_fill(at, v, 2, n, s); }
ENTRY cuMemsetD32Async(CUdeviceptr at, unsigned v, size_t n, CUstream s) { return queue_fill(at, v, 4, n, s); }

/* for Python */

EXPORT size_t standin_live(const char *kind, size_t *number) {
    size_t bytes = 0;
    lock();
    for (int k = 0; k < MEMORY_KINDS; k++)
        if (!strcmp(kind_names[k], kind)) bytes = live(k, number);
    unlock();
    return bytes;
}
EXPORT size_t standin_peak(int start_again) {
    lock();
    size_t bytes = peak;
    if (start_again) peak = live(DEVICE_MEMORY, NULL);
    unlock();
    return bytes;
}
EXPORT int standin_block(CUdeviceptr at, CUdeviceptr *start, size_t *size) {
    Block block;
    if (!block_with(at, 1, &block)) return 0;
    *start = block.at, *size = block.size;
    return 1;
}
