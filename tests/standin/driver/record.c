/* What happened: how often each kind of thing, and one line of JSON for each. */
#include "standin.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[KINDS] = {
    [LAUNCH] = "launch",           [GRAPH] = "graph",   [COPY] = "copy",
    [MEMSET] = "memset",           [SYNC] = "sync",     [HOST] = "host",
    [ALLOCATE] = "allocate",       [FREE] = "free",     [CAPTURE] = "capture",
    [INSTANTIATE] = "instantiate", [UPDATE] = "update", [CONDITIONAL] = "conditional",
    [MODULE] = "module",           [UNLOAD] = "unload", [WRONG] = "wrong",
    [MISSING] = "missing",
};
enum { LONGEST = 1 << 16, KEPT_AT_MOST = 512 << 20 };

static pthread_mutex_t mutex;
static long totals[KINDS][2]; /* alone, and inside of graphs */
static int keeps_lines = 1;
static char *lines;
static size_t used, room;
static long lost;

__attribute__((constructor)) static void begin(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attributes);
}

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

void event(enum Kind kind, int graph, const char *format, ...) {
    lock();
    totals[kind][graph > 0]++;
    if (keeps_lines && used + LONGEST > KEPT_AT_MOST) lost++;
    if (keeps_lines && used + LONGEST <= KEPT_AT_MOST) {
        if (used + LONGEST > room) lines = realloc(lines, room = 2 * room + LONGEST);
        char *line = lines + used;
        int length = snprintf(line, LONGEST, "{\"kind\": \"%s\", \"graph\": %d", names[kind], graph);
        va_list values;
        va_start(values, format);
        int left = LONGEST - length - 2, more = vsnprintf(line + length, left, format, values);
        va_end(values);
        if (more >= left) lost++, more = 0;
        used += length + more + sprintf(line + length + more, "}\n");
    }
    unlock();
}

CUresult missing(const char *name) {
    fprintf(stderr, "the stand-in driver has no %s\n", name);
    event(MISSING, 0, ", \"call\": \"%s\"", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult wrong(CUresult result, const char *what) {
    event(WRONG, 0, ", \"what\": \"%s\"", what);
    return result;
}

/* The lines since the last call. Returns how long they are, and hands them over only where they fit. */
EXPORT size_t standin_lines(char *out, size_t size) {
    lock();
    size_t length = used;
    if (out && length <= size) memcpy(out, lines, length), used = 0;
    unlock();
    return length;
}

EXPORT void standin_keep_lines(int keep) { keeps_lines = keep; }
EXPORT long standin_lost(void) { return lost; }
EXPORT int standin_kinds(void) { return KINDS; }
EXPORT const char *standin_kind(int kind) { return names[kind]; }
EXPORT long standin_total(int kind, int in_graph) { return totals[kind][in_graph]; }
