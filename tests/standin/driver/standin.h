/* What the parts of the stand-in driver share. NVIDIA's public header cuda.h says how the driver is called; nothing else
   of it is used.

   Every pointer of the "device" is memory of this process, every stream runs at once, and a kernel is looked at and
   written down; it is computed only when somebody has registered an executor. */
#pragma once
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define ENTRY __attribute__((visibility("default"))) CUresult
#define EXPORT __attribute__((visibility("default")))
#define OK CUDA_SUCCESS
#define BAD CUDA_ERROR_INVALID_VALUE

/* The device that it stands in for: an H100 with 80 GB. */
enum {
    PROCESSORS = 132,
    SHARED_AT_MOST = 232448,
    SHARED_BY_DEFAULT = 49152,
    SHARED_OF_PROCESSOR = 233472,
    REGISTERS = 65536,
    SCHEDULERS = 4, /* each has a part of the registers */
    THREADS_OF_BLOCK = 1024,
    THREADS_OF_PROCESSOR = 2048,
    BLOCKS_OF_PROCESSOR = 32,
    DRIVER_VERSION = 13000,
    ARCH = 90
};
#define MEMORY (80ull << 30)
#define DEVICE_NAME "NVIDIA H100 80GB HBM3"

typedef struct {
    unsigned offset, size;
} Parameter;

typedef struct Global {
    struct Global *next;
    char *name;
    CUdeviceptr at;
    size_t size;
} Global;

enum Image { UNKNOWN, CUBIN, PTX, FATBIN };

typedef struct Module {
    struct Module *next;
    int id;
    enum Image kind;
    char *image; /* a copy of what was handed in, and a zero */
    size_t size;
    const char *ptx; /* inside of the image: its text, or what our ptxas has put behind a cubin */
    struct CUfunc_st *functions;
    Global *globals;
} Module;

struct CUfunc_st {
    struct CUfunc_st *next;
    Module *module;
    char *name;
    Parameter *parameters;
    int count;
    unsigned bytes; /* of all parameters */
    int registers, shared, required[3], threads_at_most, dynamic_at_most;
};

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    unsigned char *values; /* of the parameters, as the kernel has them */
    unsigned bytes;
} Launch;

typedef struct {
    CUdeviceptr to, from;
    size_t bytes;
} Copy;

typedef struct {
    CUdeviceptr at;
    size_t pitch, width, height;
    unsigned value, element;
} Fill;

enum NodeKind { KERNEL_NODE, COPY_NODE, FILL_NODE, CHILD_NODE, EMPTY_NODE, CONDITIONAL_NODE, HOST_NODE };

struct CUgraphNode_st {
    enum NodeKind kind;
    CUgraphNode made_from; /* in the graph that this one is a copy of */
    CUgraphNode *after;
    size_t after_count;
    int disabled;
    Launch launch;
    Copy copy;
    Fill fill;
    CUgraph *bodies; /* of a conditional node, or the one child */
    int body_count;
    unsigned long long condition;
    CUgraphConditionalNodeType condition_type;
    CUhostFn host;
    void *host_data;
};

struct CUgraph_st {
    CUgraphNode *nodes;
    size_t count, room;
};
struct CUgraphExec_st {
    CUgraph graph;
    int id;
};

struct CUstream_st {
    int id, priority;
    CUgraph capture; /* the graph that it records into, if it does */
    CUgraphNode last;
    cuuint64_t capture_id;
};

struct CUevent_st {
    double when;
    CUgraph capture;
    CUgraphNode node;
    cuuint64_t capture_id;
};

/* record.c */
enum Kind {
    LAUNCH,
    GRAPH,
    COPY,
    MEMSET,
    SYNC,
    HOST,
    ALLOCATE,
    FREE,
    CAPTURE,
    INSTANTIATE,
    UPDATE,
    CONDITIONAL,
    MODULE,
    UNLOAD,
    WRONG,
    MISSING,
    KINDS
};
void lock(void);
void unlock(void);
void event(enum Kind kind, int graph, const char *format, ...) __attribute__((format(printf, 3, 4)));
CUresult missing(const char *name);
CUresult wrong(CUresult result, const char *what);

/* memory.c */
enum MemoryKind { DEVICE_MEMORY, GLOBAL_MEMORY, HOST_MEMORY, MANAGED_MEMORY, MEMORY_KINDS };
typedef struct {
    CUdeviceptr at;
    size_t size, mapped;
    enum MemoryKind kind;
    long serial;
} Block;
CUdeviceptr allocate(size_t size, enum MemoryKind kind);
CUresult release(CUdeviceptr at);
int block_with(CUdeviceptr at, size_t size, Block *found);
CUresult do_copy(const char *call, const Copy *copy, int checked, int graph);
CUresult do_fill(const Fill *fill, int graph);

/* device.c */
CUcontext the_context(void);

/* streams.c */
CUstream stream_of(CUstream stream);
int is_capturing(void);

/* graphs.c */
CUgraph new_graph(void);
CUgraphNode add_node(CUgraph graph, enum NodeKind kind, const CUgraphNode *after, size_t count);
CUgraphNode captured(CUstream stream, enum NodeKind kind);
CUgraph copy_of(CUgraph graph);
void drop(CUgraph graph);

/* conditions.c */
unsigned condition_of(unsigned long long handle);
int sets_condition(const Launch *launch);
void guess_condition(const Copy *copy);

/* launches.c */
void set_launch(Launch *launch, CUfunction function, const unsigned *grid, const unsigned *block, unsigned shared,
                void **values, void **extra);
CUresult run(const Launch *launch, int stream, int graph);
int has_executor(void);

/* cubin.c */
size_t length_of(const void *image);
void read_image(Module *module);
CUfunction add_function(Module *module, const char *name, size_t length);
int arch_of(const Module *module);
