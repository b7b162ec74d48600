/* The conditions of loops and branches.

   XLA reads the condition of a loop that it runs from the host with a copy of one byte. In CUDA graphs two small kernels
   of its own, known by their names, hand conditions to the nodes. With an executor the conditions are what was computed.
   Without one nothing was: a loop then runs a given number of rounds, and the first branch is taken. */
#include "standin.h"
#include <string.h>

enum { HANDLES = 1 << 16, LOOPS = 1 << 12, BRANCHES = 8 };

static int rounds_of_loops = 1;
static struct {
    unsigned value;
    int rounds;
} conditions[HANDLES];
static struct {
    CUdeviceptr to, from;
    int rounds;
} loops[LOOPS];
static unsigned last_handle;
static long guesses;

EXPORT void standin_rounds(int rounds) { rounds_of_loops = rounds; }
EXPORT long standin_guesses(void) { return guesses; }

/* true, true, …, true, false, and again from the start */
static unsigned next(int *rounds) {
    guesses++;
    if (++*rounds <= rounds_of_loops) return 1;
    *rounds = 0;
    return 0;
}

/* Each loop has a place of its own on the host, so that a loop inside of another one counts by itself. */
void guess_condition(const Copy *copy) {
    if (copy->bytes != 1) return;
    lock();
    unsigned i = (copy->to * 31 + copy->from) % LOOPS;
    for (; loops[i].to && (loops[i].to != copy->to || loops[i].from != copy->from); i = (i + 1) % LOOPS) {
    }
    loops[i].to = copy->to, loops[i].from = copy->from;
    *(unsigned char *)copy->to = next(&loops[i].rounds);
    unlock();
}

ENTRY cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext c, unsigned value,
                                     unsigned flags) {
    *handle = __sync_add_and_fetch(&last_handle, 1) % HANDLES;
    conditions[*handle].value = flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? value : 0;
    conditions[*handle].rounds = 0;
    return OK;
}

unsigned condition_of(unsigned long long handle) { return conditions[handle % HANDLES].value; }

static uint64_t value_of(const Launch *launch, int i) {
    uint64_t value = 0;
    Parameter p = launch->function->parameters[i];
    memcpy(&value, launch->values + p.offset, p.size < 8 ? p.size : 8);
    return value;
}

/* handle, where the condition is */
static void set_while(const Launch *launch) {
    uint64_t handle = value_of(launch, 0) % HANDLES, at = value_of(launch, 1);
    conditions[handle].value = has_executor() ? *(unsigned char *)at : next(&conditions[handle].rounds);
}

/* eight handles, where the index is, whether it is one byte, the first branch here, how many, whether the last one here
   is also for all other indices */
static void set_case(const Launch *launch) {
    guesses += !has_executor();
    uint64_t at = value_of(launch, BRANCHES), is_byte = value_of(launch, BRANCHES + 1) & 1;
    int first = value_of(launch, BRANCHES + 2), count = value_of(launch, BRANCHES + 3),
        ends = value_of(launch, BRANCHES + 4) & 1;
    int index = !has_executor() ? 0 : is_byte ? *(signed char *)at : *(int *)at;
    int chosen = index - first;
    if (ends && (index < 0 || chosen >= count)) chosen = count - 1;
    for (int k = 0; k < count && k < BRANCHES; k++) conditions[value_of(launch, k) % HANDLES].value = k == chosen;
}

/* Whether it is one of these kernels; it has then been done. */
int sets_condition(const Launch *launch) {
    const char *name = launch->function->name;
    if (!launch->values) return 0;
    if (!strcmp(name, "set_while_condition") && launch->function->count >= 2) set_while(launch);
    else if (!strcmp(name, "set_case_condition") && launch->function->count == BRANCHES + 5) set_case(launch);
    else return 0;
    return 1;
}
