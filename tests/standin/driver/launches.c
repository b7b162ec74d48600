/* A launch: refused where a driver would refuse it, written down with its arguments, and handed to an executor. */
#include "standin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Executor(const char *name, const char *ptx, const unsigned *grid, const unsigned *block, unsigned shared,
                     int count, const Parameter *parameters, const unsigned char *values);
static Executor *executor;
EXPORT void standin_set_executor(Executor *chosen) { executor = chosen; }
int has_executor(void) { return executor != NULL; }

/* Arguments come as one packed buffer, or as a pointer for each; of those nobody says how many there are. */
void set_launch(Launch *launch, CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared,
                void **values, void **extra) {
    free(launch->values);
    *launch = (Launch){.function = f, .shared = shared};
    memcpy(launch->grid, grid, sizeof launch->grid);
    memcpy(launch->block, block, sizeof launch->block);
    void *packed = NULL;
    size_t size = 0;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(size_t *)extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = extra[i + 1];
    }
    launch->bytes = packed ? size : values ? f->bytes : 0;
    if (!packed && !launch->bytes) return;
    launch->values = calloc(1, launch->bytes + 8);
    if (packed) memcpy(launch->values, packed, size);
    else
        for (int i = 0; i < f->count; i++)
            memcpy(launch->values + f->parameters[i].offset, values[i], f->parameters[i].size);
}

static unsigned long threads_of(const Launch *launch) {
    return (unsigned long)launch->block[0] * launch->block[1] * launch->block[2];
}

static unsigned long registers_of(const Launch *launch) {
    unsigned long each = (launch->function->registers + 7) / 8 * 8;
    return each * ((threads_of(launch) + 31) / 32 * 32);
}

/* Whether the programs of a kernel wait for each other: it asks for what others have stored, and what it asserts is that
   they come. */
static int meets(CUfunction f) {
    const char *ptx = f->module->ptx;
    return ptx && strstr(ptx, "ld.global.gpu.acquire") && strstr(ptx, "__assertfail");
}

static unsigned long at_once(const Launch *launch) {
    int of_a_processor = 0;
    cuOccupancyMaxActiveBlocksPerMultiprocessor(&of_a_processor, launch->function, (int)threads_of(launch),
                                                launch->shared);
    return (unsigned long)of_a_processor * PROCESSORS;
}

#define REFUSE(result, ...) return snprintf(why, size, __VA_ARGS__), result
static CUresult refused(const Launch *launch, char *why, size_t size) {
    const CUfunction f = launch->function;
    const unsigned *grid = launch->grid;
    unsigned long threads = threads_of(launch), shared = launch->shared + f->shared;
    why[0] = 0;
    if (!threads || threads > THREADS_OF_BLOCK) REFUSE(BAD, "a block of %lu threads", threads);
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535)
        REFUSE(BAD, "a grid of %u x %u x %u", grid[0], grid[1], grid[2]);
    for (int k = 0; k < 3 && f->required[0]; k++)
        if (f->required[k] != (int)launch->block[k])
            REFUSE(BAD, "%u threads, but the kernel requires %d", launch->block[k], f->required[k]);
    if (f->threads_at_most && threads > (unsigned)f->threads_at_most)
        REFUSE(BAD, "%lu threads, but the kernel allows %d", threads, f->threads_at_most);
    if (launch->shared > (unsigned)f->dynamic_at_most)
        REFUSE(BAD, "%u bytes of shared memory, but %d are allowed", launch->shared, f->dynamic_at_most);
    if (shared > SHARED_AT_MOST) REFUSE(BAD, "%lu bytes of shared memory", shared);
    if (registers_of(launch) > REGISTERS)
        REFUSE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "%lu registers", registers_of(launch));
    /* A device would begin, wait in vain, and assert. */
    unsigned long programs = (unsigned long)grid[0] * grid[1] * grid[2];
    if (meets(f) && programs > at_once(launch))
        REFUSE(CUDA_ERROR_ASSERT, "%lu programs that wait for each other, and %lu run at once", programs,
               at_once(launch));
    return OK;
}

/* {"at": 4096, "block": 7, "offset": 0, "left": 1024}: an address, the allocation that it lies in, and the bytes from
   there to its end; {"value": 3}: anything else of up to eight bytes; {"bytes": 64}: more than that. */
static int describe(const Launch *launch, int i, char *out, size_t size) {
    Parameter p = launch->function->parameters[i];
    uint64_t value = 0;
    Block block;
    if (p.offset + p.size > launch->bytes) return snprintf(out, size, "null");
    if (p.size > 8) return snprintf(out, size, "{\"bytes\": %u}", p.size);
    memcpy(&value, launch->values + p.offset, p.size);
    if (p.size < 8 || !block_with(value, 1, &block))
        return snprintf(out, size, "{\"value\": %llu}", (unsigned long long)value);
    return snprintf(out, size, "{\"at\": %llu, \"block\": %ld, \"offset\": %llu, \"left\": %llu}",
                    (unsigned long long)value, block.serial, (unsigned long long)value - block.at,
                    block.at + block.size - (unsigned long long)value);
}

static void record(const Launch *launch, int stream, int graph, const char *why) {
    const CUfunction f = launch->function;
    size_t size = 64 + 128 * (size_t)f->count, used = 0;
    char *arguments = malloc(size);
    arguments[0] = 0;
    for (int i = 0; i < f->count && used + 128 < size; i++) {
        if (i) used += sprintf(arguments + used, ", ");
        used += describe(launch, i, arguments + used, 126);
    }
    event(LAUNCH, graph,
          ", \"kernel\": \"%s\", \"module\": %d, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %u, "
          "\"stream\": %d, \"registers\": %d, \"arguments\": [%s]%s%s%s",
          f->name, f->module->id, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
          launch->block[2], launch->shared, stream, f->registers, arguments, why[0] ? ", \"refused\": \"" : "", why,
          why[0] ? "\"" : "");
    free(arguments);
}

CUresult run(const Launch *launch, int stream, int graph) {
    char why[200];
    CUfunction f = launch->function;
    CUresult result = refused(launch, why, sizeof why);
    record(launch, stream, graph, why);
    if (result != OK || sets_condition(launch) || !executor) return result;
    int failed = executor(f->name, f->module->ptx, launch->grid, launch->block, launch->shared, f->count, f->parameters,
                          launch->values);
    return failed ? CUDA_ERROR_LAUNCH_FAILED : OK;
}

static CUresult queue(CUfunction f, const unsigned *grid, const unsigned *block, unsigned shared, CUstream stream,
                      void **values, void **extra) {
    Launch launch = {0};
    stream = stream_of(stream);
    set_launch(&launch, f, grid, block, shared, values, extra);
    if (!stream->capture) {
        CUresult result = run(&launch, stream->id, 0);
        free(launch.values);
        return result;
    }
    char why[200];
    CUresult result = refused(&launch, why, sizeof why);
    if (result != OK) {
        record(&launch, stream->id, 0, why);
        free(launch.values);
        return result;
    }
    lock();
    captured(stream, KERNEL_NODE)->launch = launch;
    unlock();
    return OK;
}

#define THREE(x, y, z)                                                                                                 \
    (unsigned[]) { x, y, z }
ENTRY cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared, CUstream stream, void **values, void **extra) {
    return queue(f, THREE(gx, gy, gz), THREE(bx, by, bz), shared, stream, values, extra);
}
ENTRY cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **values, void **extra) {
    return queue(f, &c->gridDimX, &c->blockDimX, c->sharedMemBytes, c->hStream, values, extra);
}
ENTRY cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                unsigned bz, unsigned shared, CUstream stream, void **values) {
    return queue(f, THREE(gx, gy, gz), THREE(bx, by, bz), shared, stream, values, NULL);
}
