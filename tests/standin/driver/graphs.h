/* How graphs.c and execs.c see graphs. */
#pragma once
#include "standin.h"

size_t nodes_of(CUgraph graph, enum NodeKind kind);
CUgraphNode copy_made_from(CUgraph graph, CUgraphNode node);
void set_kernel(Launch *launch, const CUDA_KERNEL_NODE_PARAMS *given);
void set_kernel_v3(Launch *launch, const CUDA_KERNEL_NODE_PARAMS_v3 *given);
Copy copy_in(const CUDA_MEMCPY3D *given);
Fill fill_in(const CUDA_MEMSET_NODE_PARAMS *given);
