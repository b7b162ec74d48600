/* Graphs as they run: copies of those that were built, whose nodes can be given other arguments. */
#include "graphs.h"
#include <stdlib.h>
#include <string.h>

static CUresult instantiate(CUgraphExec *out, CUgraph graph) {
    static int last;
    *out = calloc(1, sizeof **out);
    (*out)->graph = copy_of(graph);
    (*out)->id = __sync_add_and_fetch(&last, 1);
    event(INSTANTIATE, 0, ", \"exec\": %d, \"kernels\": %zu, \"copies\": %zu, \"conditionals\": %zu", (*out)->id,
          nodes_of(graph, KERNEL_NODE), nodes_of(graph, COPY_NODE), nodes_of(graph, CONDITIONAL_NODE));
    return OK;
}
ENTRY cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    return instantiate(out, graph);
}
ENTRY cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p) {
    p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(out, graph);
}
ENTRY cuGraphExecDestroy(CUgraphExec exec) {
    drop(exec->graph);
    free(exec);
    return OK;
}
ENTRY cuGraphUpload(CUgraphExec exec, CUstream stream) { return OK; }

static CUgraphNode updated(CUgraphExec exec, CUgraphNode node) {
    event(UPDATE, 0, ", \"exec\": %d", exec->id);
    return copy_made_from(exec->graph, node);
}
ENTRY cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result) {
    CUgraph before = exec->graph;
    exec->graph = copy_of(graph);
    for (size_t i = 0; i < graph->count && i < before->count; i++)
        exec->graph->nodes[i]->made_from = before->nodes[i]->made_from;
    drop(before);
    event(UPDATE, 0, ", \"exec\": %d", exec->id);
    result->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return OK;
}
ENTRY cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode of, const CUDA_KERNEL_NODE_PARAMS *p) {
    CUgraphNode node = updated(exec, of);
    if (node) set_kernel(&node->launch, p);
    return node ? OK : BAD;
}
ENTRY cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode of, const CUDA_MEMCPY3D *p, CUcontext c) {
    CUgraphNode node = updated(exec, of);
    if (node) node->copy = copy_in(p);
    return node ? OK : BAD;
}
ENTRY cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode of, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext c) {
    CUgraphNode node = updated(exec, of);
    if (node) node->fill = fill_in(p);
    return node ? OK : BAD;
}
ENTRY cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode of, CUgraph child) {
    CUgraphNode node = updated(exec, of);
    if (!node) return BAD;
    drop(node->bodies[0]);
    node->bodies[0] = copy_of(child);
    return OK;
}
ENTRY cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode of, unsigned enabled) {
    CUgraphNode node = updated(exec, of);
    if (node) node->disabled = !enabled;
    return node ? OK : BAD;
}
ENTRY cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode of, CUgraphNodeParams *p) {
    CUgraphNode node = updated(exec, of);
    if (!node) return BAD;
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) set_kernel_v3(&node->launch, &p->kernel);
    else if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY) node->copy = copy_in(&p->memcpy.copyParams);
    else return missing("cuGraphExecNodeSetParams of that type");
    return OK;
}

static CUresult run_graph(CUgraph graph, int exec, int stream);

static CUresult run_conditional(const CUgraphNode node, int exec, int stream) {
    CUresult result = OK;
    unsigned value = condition_of(node->condition);
    event(CONDITIONAL, exec, ", \"type\": %d, \"value\": %u", node->condition_type, value);
    switch (node->condition_type) {
        case CU_GRAPH_COND_TYPE_WHILE:
            while (result == OK && condition_of(node->condition)) result = run_graph(node->bodies[0], exec, stream);
            return result;
        case CU_GRAPH_COND_TYPE_IF:
            if (value) return run_graph(node->bodies[0], exec, stream);
            return node->body_count > 1 ? run_graph(node->bodies[1], exec, stream) : OK;
        default: return (int)value < node->body_count ? run_graph(node->bodies[value], exec, stream) : OK;
    }
}

static CUresult run_node(const CUgraphNode node, int exec, int stream) {
    switch (node->kind) {
        case KERNEL_NODE: return run(&node->launch, stream, exec);
        case COPY_NODE: return do_copy("graph", &node->copy, 0, exec);
        case FILL_NODE: return do_fill(&node->fill, exec);
        case CHILD_NODE: return run_graph(node->bodies[0], exec, stream);
        case CONDITIONAL_NODE: return run_conditional(node, exec, stream);
        case HOST_NODE: node->host(node->host_data); return OK;
        case EMPTY_NODE: return OK;
    }
    return BAD;
}

static CUresult run_graph(CUgraph graph, int exec, int stream) {
    CUresult result = OK;
    for (size_t i = 0; i < graph->count && result == OK; i++)
        if (!graph->nodes[i]->disabled) result = run_node(graph->nodes[i], exec, stream);
    return result;
}

ENTRY cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    stream = stream_of(stream);
    if (stream->capture) return missing("cuGraphLaunch inside of a capture");
    event(GRAPH, 0, ", \"exec\": %d, \"stream\": %d", exec->id, stream->id);
    return run_graph(exec->graph, exec->id, stream->id);
}
