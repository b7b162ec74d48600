/* Streams run at once, events are over when they are recorded. A stream that captures puts what it is given into a graph. */
#include "standin.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct CUstream_st null_stream;
static __thread int captures; /* that this thread has begun and not ended */
static cuuint64_t last_capture;

CUstream stream_of(CUstream stream) { return (uintptr_t)stream <= 2 ? &null_stream : stream; }
int is_capturing(void) { return captures > 0; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

ENTRY cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    static int last;
    *out = calloc(1, sizeof **out);
    (*out)->id = __sync_add_and_fetch(&last, 1);
    (*out)->priority = priority;
    return OK;
}
ENTRY cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
ENTRY cuStreamDestroy(CUstream stream) {
    free(stream);
    return OK;
}
ENTRY cuStreamGetPriority(CUstream stream, int *priority) {
    *priority = stream_of(stream)->priority;
    return OK;
}
ENTRY cuStreamGetFlags(CUstream stream, unsigned *flags) {
    *flags = CU_STREAM_NON_BLOCKING;
    return OK;
}
ENTRY cuStreamGetCtx(CUstream stream, CUcontext *out) {
    *out = the_context();
    return OK;
}
ENTRY cuStreamGetId(CUstream stream, unsigned long long *id) {
    *id = stream_of(stream)->id;
    return OK;
}

static CUresult unless_capturing(CUstream stream, CUresult error) { return stream_of(stream)->capture ? error : OK; }
ENTRY cuStreamQuery(CUstream stream) { return unless_capturing(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); }
ENTRY cuStreamSynchronize(CUstream stream) {
    event(SYNC, 0, ", \"call\": \"cuStreamSynchronize\", \"stream\": %d", stream_of(stream)->id);
    return unless_capturing(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

ENTRY cuEventCreate(CUevent *out, unsigned flags) {
    *out = calloc(1, sizeof **out);
    return OK;
}
ENTRY cuEventDestroy(CUevent e) {
    free(e);
    return OK;
}
ENTRY cuEventRecord(CUevent e, CUstream stream) {
    stream = stream_of(stream);
    e->capture = stream->capture, e->node = stream->last, e->capture_id = stream->capture_id;
    if (!stream->capture) e->when = now();
    return OK;
}
ENTRY cuEventRecordWithFlags(CUevent e, CUstream stream, unsigned flags) { return cuEventRecord(e, stream); }
ENTRY cuEventQuery(CUevent e) { return e->capture ? CUDA_ERROR_CAPTURED_EVENT : OK; }
ENTRY cuEventSynchronize(CUevent e) {
    event(SYNC, 0, ", \"call\": \"cuEventSynchronize\"");
    return e->capture ? CUDA_ERROR_CAPTURED_EVENT : OK;
}
#undef cuEventElapsedTime
ENTRY cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to) {
    *ms = to->when > from->when ? to->when - from->when : 1e-3f;
    return OK;
}
ENTRY cuEventElapsedTime(float *ms, CUevent from, CUevent to) { return cuEventElapsedTime_v2(ms, from, to); }
ENTRY cuStreamWaitEvent(CUstream stream, CUevent e, unsigned flags) {
    stream = stream_of(stream);
    if (e->capture && !stream->capture)
        stream->capture = e->capture, stream->last = e->node, stream->capture_id = e->capture_id;
    return OK;
}

ENTRY cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    stream = stream_of(stream);
    event(HOST, 0, ", \"stream\": %d", stream->id);
    if (!stream->capture) {
        function(data);
        return OK;
    }
    lock();
    CUgraphNode node = captured(stream, HOST_NODE);
    node->host = function, node->host_data = data;
    unlock();
    return OK;
}

/* capture */

static CUresult begin_capture(CUstream stream, CUgraph graph, const CUgraphNode *after, size_t count,
                              CUstreamCaptureMode mode) {
    stream = stream_of(stream);
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = graph;
    stream->last = count ? after[count - 1] : NULL;
    stream->capture_id = __sync_add_and_fetch(&last_capture, 1);
    captures++;
    event(CAPTURE, 0, ", \"stream\": %d, \"mode\": %d", stream->id, mode);
    return OK;
}
ENTRY cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    return begin_capture(stream, new_graph(), NULL, 0, mode);
}
ENTRY cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                  const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
    return begin_capture(stream, graph, after, count, mode);
}
ENTRY cuStreamEndCapture(CUstream stream, CUgraph *out) {
    stream = stream_of(stream);
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    *out = stream->capture;
    stream->capture = NULL, stream->last = NULL;
    captures--;
    return OK;
}
static CUstreamCaptureStatus status_of(CUstream stream) {
    return stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
}
ENTRY cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    *status = status_of(stream_of(stream));
    return OK;
}
#undef cuStreamGetCaptureInfo
ENTRY cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                const CUgraphNode **after, const CUgraphEdgeData **edges, size_t *count) {
    stream = stream_of(stream);
    *status = status_of(stream);
    if (id) *id = stream->capture_id;
    if (graph) *graph = stream->capture;
    if (after) *after = &stream->last;
    if (edges) *edges = NULL;
    if (count) *count = stream->last != NULL;
    return OK;
}
ENTRY cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                const CUgraphNode **after, size_t *count) {
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, after, NULL, count);
}
#undef cuStreamUpdateCaptureDependencies
ENTRY cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *after, size_t count, unsigned flags) {
    stream_of(stream)->last = count ? after[count - 1] : NULL;
    return OK;
}
ENTRY cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *after, const CUgraphEdgeData *edges,
                                           size_t count, unsigned flags) {
    return cuStreamUpdateCaptureDependencies(stream, after, count, flags);
}
ENTRY cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static __thread CUstreamCaptureMode mine = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode before = mine;
    mine = *mode, *mode = before;
    return OK;
}
