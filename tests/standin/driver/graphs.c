/* Graphs as they are built: nodes in the order in which they were added, which is an order they may run in. */
#include "graphs.h"
#include <stdlib.h>
#include <string.h>

CUgraph new_graph(void) { return calloc(1, sizeof(struct CUgraph_st)); }

/* Nodes that wait for none of their graph, which is not empty: a device may run them beside others. */
static long beside;
EXPORT long standin_beside(void) { return beside; }

CUgraphNode add_node(CUgraph graph, enum NodeKind kind, const CUgraphNode *after, size_t count) {
    CUgraphNode node = calloc(1, sizeof *node);
    node->kind = kind;
    node->after = calloc(count + 1, sizeof *after);
    node->after_count = count;
    beside += !count && graph->count;
    if (count) memcpy(node->after, after, count * sizeof *after);
    if (graph->count == graph->room)
        graph->nodes = realloc(graph->nodes, (graph->room = 2 * graph->room + 16) * sizeof *graph->nodes);
    return graph->nodes[graph->count++] = node;
}

CUgraphNode captured(CUstream stream, enum NodeKind kind) {
    return stream->last = add_node(stream->capture, kind, &stream->last, stream->last != NULL);
}

static void give_bodies(CUgraphNode node, int count) {
    node->bodies = calloc(count, sizeof *node->bodies);
    node->body_count = count;
}

static void set_child(CUgraphNode node, CUgraph child) {
    give_bodies(node, 1);
    node->bodies[0] = child;
}

void drop(CUgraph graph) {
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->nodes[i];
        for (int b = 0; b < node->body_count; b++) drop(node->bodies[b]);
        free(node->bodies);
        free(node->launch.values);
        free(node->after);
        free(node);
    }
    free(graph->nodes);
    free(graph);
}

CUgraph copy_of(CUgraph graph) {
    CUgraph made = new_graph();
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode from = graph->nodes[i], to = add_node(made, from->kind, from->after, from->after_count);
        CUgraphNode *after = to->after;
        *to = *from;
        to->after = after, to->made_from = from;
        if (from->launch.values) {
            to->launch.values = malloc(from->launch.bytes + 8);
            memcpy(to->launch.values, from->launch.values, from->launch.bytes);
        }
        if (from->body_count) give_bodies(to, from->body_count);
        for (int b = 0; b < from->body_count; b++) to->bodies[b] = copy_of(from->bodies[b]);
    }
    return made;
}

CUgraphNode copy_made_from(CUgraph graph, CUgraphNode node) {
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode each = graph->nodes[i], found;
        if (each->made_from == node || each == node) return each;
        for (int b = 0; b < each->body_count; b++)
            if ((found = copy_made_from(each->bodies[b], node))) return found;
    }
    return NULL;
}

size_t nodes_of(CUgraph graph, enum NodeKind kind) {
    size_t count = 0;
    for (size_t i = 0; i < graph->count; i++) {
        count += graph->nodes[i]->kind == kind;
        for (int b = 0; b < graph->nodes[i]->body_count; b++) count += nodes_of(graph->nodes[i]->bodies[b], kind);
    }
    return count;
}

/* what nodes are given */

void set_kernel(Launch *launch, const CUDA_KERNEL_NODE_PARAMS *p) {
    set_launch(launch, p->func ? p->func : (CUfunction)p->kern, &p->gridDimX, &p->blockDimX, p->sharedMemBytes,
               p->kernelParams, p->extra);
}
void set_kernel_v3(Launch *launch, const CUDA_KERNEL_NODE_PARAMS_v3 *p) {
    set_launch(launch, p->func ? p->func : (CUfunction)p->kern, &p->gridDimX, &p->blockDimX, p->sharedMemBytes,
               p->kernelParams, p->extra);
}
Copy copy_in(const CUDA_MEMCPY3D *p) {
    size_t rows = (p->Height ? p->Height : 1) * (p->Depth ? p->Depth : 1);
    return (Copy){p->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)p->dstHost : p->dstDevice,
                  p->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)p->srcHost : p->srcDevice,
                  p->WidthInBytes * rows};
}
Fill fill_in(const CUDA_MEMSET_NODE_PARAMS *p) {
    return (Fill){p->dst, p->pitch, p->width, p->height ? p->height : 1, p->value, p->elementSize};
}

/* entries */

ENTRY cuGraphCreate(CUgraph *out, unsigned flags) {
    *out = new_graph();
    return OK;
}
ENTRY cuGraphDestroy(CUgraph graph) {
    drop(graph);
    return OK;
}
ENTRY cuGraphAddKernelNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                           const CUDA_KERNEL_NODE_PARAMS *p) {
    *out = add_node(g, KERNEL_NODE, after, n);
    set_kernel(&(*out)->launch, p);
    return OK;
}
ENTRY cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
    set_kernel(&node->launch, p);
    return OK;
}
ENTRY cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *p) {
    memset(p, 0, sizeof *p);
    p->func = node->launch.function;
    memcpy(&p->gridDimX, node->launch.grid, sizeof node->launch.grid);
    memcpy(&p->blockDimX, node->launch.block, sizeof node->launch.block);
    p->sharedMemBytes = node->launch.shared;
    return OK;
}
ENTRY cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value) {
    return OK;
}
ENTRY cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value) {
    memset(value, 0, sizeof *value);
    return OK;
}
ENTRY cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) { return OK; }
ENTRY cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n, const CUDA_MEMCPY3D *p,
                           CUcontext c) {
    *out = add_node(g, COPY_NODE, after, n);
    (*out)->copy = copy_in(p);
    return OK;
}
ENTRY cuGraphAddMemsetNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                           const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c) {
    *out = add_node(g, FILL_NODE, after, n);
    (*out)->fill = fill_in(p);
    return OK;
}
ENTRY cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n) {
    *out = add_node(g, EMPTY_NODE, after, n);
    return OK;
}
ENTRY cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n, CUgraph child) {
    *out = add_node(g, CHILD_NODE, after, n);
    set_child(*out, copy_of(child));
    return OK;
}
ENTRY cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out) {
    *out = node->bodies[0];
    return OK;
}
ENTRY cuGraphAddHostNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                         const CUDA_HOST_NODE_PARAMS *p) {
    *out = add_node(g, HOST_NODE, after, n);
    (*out)->host = p->fn, (*out)->host_data = p->userData;
    return OK;
}

static void add_conditional(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                            CUDA_CONDITIONAL_NODE_PARAMS *p) {
    CUgraphNode node = *out = add_node(g, CONDITIONAL_NODE, after, n);
    node->condition = p->handle, node->condition_type = p->type;
    give_bodies(node, p->size);
    for (unsigned b = 0; b < p->size; b++) node->bodies[b] = new_graph();
    p->phGraph_out = node->bodies;
}

/* Whether a child is handed over, and not to be copied: cuda.h has no name for that field before CUDA 13. */
static int is_moved(const CUgraphNodeParams *p) {
    struct {
        CUgraph graph;
        int moved;
    } child;
    memcpy(&child, (const char *)p + offsetof(CUgraphNodeParams, graph), sizeof child);
    return child.moved == 1;
}

#undef cuGraphAddNode
ENTRY cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n, CUgraphNodeParams *p) {
    switch (p->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            *out = add_node(g, KERNEL_NODE, after, n);
            set_kernel_v3(&(*out)->launch, &p->kernel);
            return OK;
        case CU_GRAPH_NODE_TYPE_MEMCPY: return cuGraphAddMemcpyNode(out, g, after, n, &p->memcpy.copyParams, NULL);
        case CU_GRAPH_NODE_TYPE_EMPTY: return cuGraphAddEmptyNode(out, g, after, n);
        case CU_GRAPH_NODE_TYPE_GRAPH:
            *out = add_node(g, CHILD_NODE, after, n);
            set_child(*out, is_moved(p) ? p->graph.graph : copy_of(p->graph.graph));
            return OK;
        case CU_GRAPH_NODE_TYPE_CONDITIONAL: add_conditional(out, g, after, n, &p->conditional); return OK;
        default: return missing("cuGraphAddNode of that type");
    }
}
ENTRY cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
                        CUgraphNodeParams *p) {
    return cuGraphAddNode(out, g, after, n, p);
}

ENTRY cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *n) {
    for (size_t i = 0; out && i < *n && i < graph->count; i++) out[i] = graph->nodes[i];
    *n = graph->count;
    return OK;
}
ENTRY cuGraphGetRootNodes(CUgraph graph, CUgraphNode *out, size_t *n) {
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->after_count) continue;
        if (out && found < *n) out[found] = graph->nodes[i];
        found++;
    }
    *n = found;
    return OK;
}
ENTRY cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *out) {
    static const CUgraphNodeType types[] = {
        [KERNEL_NODE] = CU_GRAPH_NODE_TYPE_KERNEL, [COPY_NODE] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [FILL_NODE] = CU_GRAPH_NODE_TYPE_MEMSET,   [CHILD_NODE] = CU_GRAPH_NODE_TYPE_GRAPH,
        [EMPTY_NODE] = CU_GRAPH_NODE_TYPE_EMPTY,   [CONDITIONAL_NODE] = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        [HOST_NODE] = CU_GRAPH_NODE_TYPE_HOST};
    *out = types[node->kind];
    return OK;
}
#undef cuGraphNodeGetDependencies
ENTRY cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *out, size_t *n) {
    if (out) memcpy(out, node->after, (*n < node->after_count ? *n : node->after_count) * sizeof *out);
    *n = node->after_count;
    return OK;
}
ENTRY cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *edges, size_t *n) {
    return cuGraphNodeGetDependencies(node, out, n);
}
ENTRY cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags) { return OK; }
