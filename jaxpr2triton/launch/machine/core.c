// A machine for PTX: warps of 32 lanes in lockstep, one warp at a time, every access to memory checked.
//
// A register is a row of 32 values; so are literals and special registers. Arithmetic is a function for each opcode
// that works on rows; under a guard or in divergent code it writes aside, and the lanes that take part are copied.
// Lanes that went apart take turns, those that are further back first (order.py), and meet again at labels. Warps take
// turns in random order between barriers. Programs run one after the other, or, where they wait for each other, at
// once: then they take turns, too.
#include <fenv.h>
#include <stdlib.h>
#include "arithmetic.h"
#include "layout.h"
#include "state.h"
#include "clocks.h"
#include "shadow.h"
#include "memory.h"
#include "lanes.h"
#include "copies.h"
#include "warpgroups.h"

typedef void Arithmetic(u8* const results[RESULTS], const u8* const operands[SLOTS], u32* carry);

static void blend(u8* to, const u8* from, int row, u32 mask) {
  switch (row) {
    case 2: EACH_LANE(l, mask) ((u16*)to)[l] = ((const u16*)from)[l]; break;
    case 4: EACH_LANE(l, mask) ((u32*)to)[l] = ((const u32*)from)[l]; break;
    default: EACH_LANE(l, mask) ((u64*)to)[l] = ((const u64*)from)[l];
  }
}

static u64 mixed_faults(const Warp* w, const Instruction* i, const s32* operands) {
  u64 all = 0;
  for (int k = 0; k < i->operands; k++) all |= faults_of(w, operands[k]);
  if (!all || i->mixes == MIXES_ALL) return all;
  u64 first = faults_of(w, operands[0]), second = faults_of(w, operands[1]);
  if (i->mixes == MIXES_CHOICE) {
    u64 chosen = lanes_that_hold((u32*)(w->registers + operands[2]));
    chosen |= chosen << 32;
    return faults_of(w, operands[2]) | (chosen & first) | (~chosen & second);
  }
  const u32 *a = (u32*)(w->registers + operands[0]), *b = (u32*)(w->registers + operands[1]);
  u32 decides = i->mixes == MIXES_AND ? 0 : i->flags ? 1 : ALL_LANES, by_a = 0, by_b = 0;
  for (int l = 0; l < LANES; l++) { by_a |= (u32)(a[l] == decides) << l; by_b |= (u32)(b[l] == decides) << l; }
  by_a &= ~(u32)(first | first >> 32); by_b &= ~(u32)(second | second >> 32);
  u64 either = by_a | by_b;
  return all & ~(either << 32 | either);
}

// A select is a branch of the source, too: where copies differ, some lanes must not take one side and others the other.
static void chosen_by_copies(Run* run, s32 predicate, int pc, u32 mask) {
  u32 among = DIFFERENT(faults_of(run->warp, predicate)) & mask;
  u32 taken = lanes_that_hold((u32*)(run->warp->registers + predicate)) & among;
  if (taken && taken != among) report_lane(run, KIND_COPIES_CHOOSE, pc, among);
}

static inline __attribute__((always_inline)) void compute(Warp* w, const Instruction* i, u32 mask) {
  static _Thread_local u8 aside[RESULTS][2 * REGISTER_BYTES] __attribute__((aligned(64)));
  u8* results[RESULTS]; const u8* operands[SLOTS];
  for (int k = 0; k < i->operands; k++) operands[k] = w->registers + i->slots[i->results + k];
  if (mask == ALL_LANES) {
    for (int k = 0; k < i->results; k++) results[k] = w->registers + i->slots[k];
    ((Arithmetic*)i->run)(results, operands, w->carry);
  } else {
    u32 carry[LANES];
    memcpy(carry, w->carry, sizeof carry);
    for (int k = 0; k < i->results; k++) results[k] = aside[k];
    ((Arithmetic*)i->run)(results, operands, carry);
    for (int k = 0; k < i->results; k++) blend(w->registers + i->slots[k], aside[k], i->row, mask);
    blend((u8*)w->carry, (u8*)carry, 4, mask);
  }
}

static void arithmetic(Run* run, const Instruction* i, int pc, u32 mask) {
  Warp* w = run->warp;
  if (!run->machine->check) { compute(w, i, mask); return; }
  const s32* sources = i->slots + i->results;
  u64 faults = mixed_faults(w, i, sources);  // before the operands may be overwritten
  if (i->equality && DIFFERENT(faults) & mask) report_lane(run, KIND_COPIES_CHOOSE, pc, DIFFERENT(faults) & mask);
  if (i->mixes == MIXES_CHOICE && faults) chosen_by_copies(run, sources[2], pc, mask);
  int distance = 0;
  for (int k = 0; k < i->operands; k++) distance |= w->distance[sources[k] / REGISTER_BYTES];
  if (distance) distance = w->distance[sources[shuffled_operand(w, i, sources)] / REGISTER_BYTES];
  int meet = distance && i->number && lanes_meet(w, i, sources, mask);
  compute(w, i, mask);
  if (meet && copies_differ(w, i, mask, distance)) faults |= (u64)ALL_LANES << 32;
  for (int k = 0; k < i->results; k++) set_faults(w, i->slots[k], mask, faults);
  if (distance && !i->number)  // only moved
    for (int k = 0; k < i->results; k++) w->distance[i->slots[k] / REGISTER_BYTES] = (u8)distance;
  if (i->moves) move_uses(w, i);
}

// ---- control -----------------------------------------------------------------------------------------------------
static void drop_group(Warp* w, int g) { w->groups[g] = w->groups[--w->group_count]; }
static void meet(Warp* w) {  // lanes at one place go on together
  for (int g = 0; g < w->group_count; g++)
    for (int h = g + 1; h < w->group_count;) {
      if (w->groups[g].pc != w->groups[h].pc) { h++; continue; }
      w->groups[g].mask |= w->groups[h].mask; w->groups[g].waits = 0;
      drop_group(w, h);
    }
}
static int before(const Machine* m, s32 a, s32 b) {
  s32 first = m->code[a].rank, second = m->code[b].rank;
  return first != second ? first < second : a < b;
}
static int next_group(const Machine* m, const Warp* w) {  // the one that is further back; -1: all of them wait
  int best = -1;
  for (int g = 0; g < w->group_count; g++)
    if (!w->groups[g].waits && (best < 0 || before(m, w->groups[g].pc, w->groups[best].pc))) best = g;
  return best;
}
static void all_go_on(Warp* w) { for (int g = 0; g < w->group_count; g++) w->groups[g].waits = 0; }

// Is the guard's choice sound? And which lanes take it?
static u32 guarded(Run* run, const Instruction* i, int pc, u32 active) {
  if (i->guard < 0) return active;
  u32 holds = lanes_that_hold((u32*)(run->warp->registers + i->guard));
  if (run->machine->check) {
    u64 faults = faults_of(run->warp, i->guard);
    if (UNDEFINED(faults) & active) report_lane(run, KIND_UNDEFINED_CHOICE, pc, UNDEFINED(faults) & active);
    if (DIFFERENT(faults) & active) report_lane(run, KIND_COPIES_CHOOSE, pc, DIFFERENT(faults) & active);
  }
  return active & (i->negated & 1 ? ~holds : holds);
}

static void branch(Run* run, const Instruction* i, int pc, u32 active, u32 mask) {
  Warp* w = run->warp;
  Group* now = &w->groups[w->now];
  if (i->control && run->machine->check) {
    if (mask && mask != active) report_lane(run, KIND_LANES_DISAGREE, pc, mask);
    if (mask) w->decisions[i->slots[0]].taken++; else w->decisions[i->slots[0]].passed++;
  }
  if (mask == active) now->pc = i->target;
  else {
    *now = (Group){pc + 1, active & ~mask, 0};
    if (mask) w->groups[w->group_count++] = (Group){i->target, mask, 0};
  }
}

static void leave(Run* run, int pc, u32 active, u32 mask) {
  Warp* w = run->warp;
  w->live &= ~mask;
  if (mask == active) drop_group(w, w->now); else w->groups[w->now] = (Group){pc + 1, active & ~mask, 0};
  all_go_on(w);
  if (w->group_count) return;
  w->state = ENDED;
  if (run->machine->check && w->committed < w->products)
    report(run, KIND_NEVER_COMMITTED, pc, -1, NOWHERE, 0, -1, -1, -1);
}

// Instructions of the whole warp: waits until all lanes that live are there. Returns whether they are.
static int all_here(Run* run, int pc, u32 active) {
  Warp* w = run->warp;
  if (active == w->live) return 1;
  w->groups[w->now].waits = 1;
  meet(w);
  if (next_group(run->machine, w) >= 0) return 0;
  report_lane(run, KIND_DIVERGENT_BARRIER, pc, active);
  all_go_on(w);
  return 1;
}

static void whole_warp(Run* run, const Instruction* i, int pc, u32 mask) {
  switch (i->action) {
    case ACTION_BARRIER: run->warp->state = AT_BARRIER; run->warp->epoch++; break;
    case ACTION_WARP_BARRIER: run->warp->epoch++; hand_on_in_warp(run); break;
    case ACTION_SHUFFLE: shuffle(run, i, pc, mask); break;
    case ACTION_MMA: product(run, i); break;
    case ACTION_PRODUCT: warpgroup_product(run, i, pc); break;
    case ACTION_PRODUCT_FENCE: run->warp->fences++; break;
    case ACTION_PRODUCT_COMMIT: commit_products(run->warp); break;
    case ACTION_PRODUCT_WAIT: await_products(run->warp, (int)i->offset); break;
    case ACTION_LOAD_MATRIX: case ACTION_STORE_MATRIX: matrices(run, i, pc); break;
    default: together(run, i, mask);
  }
}

static void straight(Run* run, const Instruction* i, int pc, u32 mask) {
  switch (i->action) {
    case ACTION_ARITHMETIC: arithmetic(run, i, pc, mask); break;
    case ACTION_LOAD: load(run, i, pc, mask); break;
    case ACTION_STORE: store(run, i, pc, mask); break;
    case ACTION_ATOMIC: atomic(run, i, pc, mask); break;
    case ACTION_COPY: copy(run, i, pc, mask); break;
    case ACTION_COMMIT: run->warp->copy_group++; break;
    case ACTION_PROXY_FENCE: proxy_fence(run); break;
    case ACTION_WAIT:
      run->warp->copy_group += i->flags;  // all: this group too
      await_copies(run, (u32)i->offset);
  }
}

static void fail(Run* run, const Instruction* i, int pc, u32 mask) {
  int lane = __builtin_ctz(mask);
  u64 address = ((u64*)(run->warp->registers + i->slots[0]))[lane];
  Place says = place_of(run, SPACE_GLOBAL, pc, address, 1, lane);
  report(run, KIND_ASSERTION_FAILS, pc, -1, says.buffer, says.offset, lane, -1, -1);
  run->warp->state = ENDED;
  run->machine->stopped = 1;
}

// Runs a warp until it waits at a barrier, ends, or goes back in its text: with `share` instructions executed, or to
// look once more for what another program does.
static void run_warp(Run* run, u64 share) {
  Machine* m = run->machine; Warp* w = run->warp;
  meet(w);
  w->now = next_group(m, w);
  while (w->state == READY) {
    s32 pc = w->groups[w->now].pc; u32 active = w->groups[w->now].mask;
    const Instruction* i = &m->code[pc];
    if (i->action == ACTION_LABEL) {
      w->groups[w->now].pc = pc + 1;
      if (w->group_count > 1) { meet(w); w->now = next_group(m, w); }
      if (m->executed >= m->budget) { report(run, KIND_NO_END, pc, -1, NOWHERE, 0, 0, -1, -1); w->state = ENDED; }
      continue;
    }
    u32 mask = guarded(run, i, pc, active);
    if (i->action >= ACTION_BARRIER && !all_here(run, pc, active)) { w->now = next_group(m, w); continue; }
    m->executed++;
    if (m->check && w->awaited < w->products) registers_under_way(run, i, pc);
    m->counts[pc].warps++; m->counts[pc].lanes += __builtin_popcount(mask);
    switch (i->action) {
      case ACTION_BRANCH:
        branch(run, i, pc, active, mask);
        if (w->group_count > 1) { meet(w); w->now = next_group(m, w); }
        if ((m->executed >= share || run->looks) && i->target <= pc) return;
        continue;
      case ACTION_ASSERTION: fail(run, i, pc, active); break;
      case ACTION_TRAP: if (mask) report_lane(run, KIND_TRAPPED, pc, mask);  // and the lanes end
      case ACTION_RETURN:
        if (!mask) break;
        leave(run, pc, active, mask);
        if (w->state != ENDED) { meet(w); w->now = next_group(m, w); }
        continue;
      default:
        if (i->action >= ACTION_BARRIER) whole_warp(run, i, pc, mask);
        else if (mask) straight(run, i, pc, mask);
    }
    w->groups[w->now].pc = pc + 1;
  }
}

// ---- programs ----------------------------------------------------------------------------------------------------
static void fill(Warp* w, s32 slot, u32 value) {
  if (slot >= 0) for (int l = 0; l < LANES; l++) ((u32*)(w->registers + slot))[l] = value;
}
static int registers_of(const Machine* m) { return m->file / REGISTER_BYTES; }

static void make_warp(const Machine* m, Warp* w) {
  w->registers = aligned_alloc(64, (m->file + 511) / 64 * 64);
  w->faults = malloc(registers_of(m) * sizeof(u64));
  w->distance = malloc(registers_of(m));
  w->uses = malloc(registers_of(m) * sizeof(Use));
  w->local = calloc(LANES, m->local + 1);
  w->decisions = calloc(m->controls + 1, sizeof(Decisions));
  memset(w->registers, 0xa5, m->file);
  for (int k = 0; k < m->constant_count; k++) {
    const Constant* c = &m->constants[k];
    for (int l = 0; l < LANES; l++) memcpy(w->registers + c->slot + l * c->width, &c->value, c->width);
  }
}
static void free_warp(Warp* w) {
  free(w->registers); free(w->faults); free(w->distance);
  free(w->local); free(w->decisions); free(w->copies);
  free(w->uses); free(w->product_ends); free(w->acquired);
}

static void fill_special(const Machine* m, Warp* w, int number, s32 program) {
  const s32 *threads = m->threads, *grid = m->grid, *special = m->special;
  for (int l = 0; l < LANES; l++) {
    int thread = number * LANES + l;
    u32 place[] = {thread % threads[0], thread / threads[0] % threads[1], thread / threads[0] / threads[1]};
    for (int k = 0; k < 3; k++)
      if (special[SPECIAL_TID_X + k] >= 0) ((u32*)(w->registers + special[SPECIAL_TID_X + k]))[l] = place[k];
    if (special[SPECIAL_LANEID] >= 0) ((u32*)(w->registers + special[SPECIAL_LANEID]))[l] = l;
  }
  u32 of_program[] = {program % grid[0], program / grid[0] % grid[1], program / grid[0] / grid[1]};
  for (int k = 0; k < 3; k++) {
    fill(w, special[SPECIAL_CTAID_X + k], of_program[k]);
    fill(w, special[SPECIAL_NTID_X + k], threads[k]);
    fill(w, special[SPECIAL_NCTAID_X + k], grid[k]);
  }
  fill(w, special[SPECIAL_WARPID], number);
}

static void start_warp(const Machine* m, Warp* w, int number, s32 program) {
  int rest = m->threads[0] * m->threads[1] * m->threads[2] - number * LANES;
  for (int r = 0; r < registers_of(m); r++) w->faults[r] = ALL_LANES;  // nothing is written yet
  memset(w->distance, 0, registers_of(m));
  memset(w->uses, 0, registers_of(m) * sizeof(Use));
  for (int k = 0; k < m->constant_count; k++) w->faults[m->constants[k].slot / REGISTER_BYTES] = 0;
  for (int k = 0; k < SPECIALS; k++) if (m->special[k] >= 0) w->faults[m->special[k] / REGISTER_BYTES] = 0;
  fill_special(m, w, number, program);
  memset(w->decisions, 0, m->controls * sizeof(Decisions));
  w->live = rest >= LANES ? ALL_LANES : (1u << rest) - 1;
  w->groups[0] = (Group){0, w->live, 0};
  w->group_count = 1; w->state = READY; w->copy_count = 0;
  w->products = w->committed = w->awaited = w->awaited_before = w->product_groups = 0;
  w->fences = w->fences_before = 1; w->multiplied = w->last_product = 0;
  w->proxy_fence = w->proxy_fence_before = w->proxy_epoch = 0;
}

// All warps of a program leave the loops of its source after the same number of steps.
static void compare_decisions(Run* run) {
  Machine* m = run->machine;
  for (int pc = 0; pc < m->instructions; pc++) {
    if (!m->code[pc].control) continue;
    int k = m->code[pc].slots[0];
    for (int n = 1; n < run->warp_count; n++) {
      run->number = n;
      if (memcmp(&run->warps[n].decisions[k], &run->warps[0].decisions[k], sizeof(Decisions)))
        report(run, KIND_WARPS_DISAGREE, pc, -1, NOWHERE, 0, 0, 0, -1);
    }
  }
}

static void release_barrier(Run* run) {
  run->epoch++;
  hand_on(run);
  for (int n = 0; n < run->warp_count; n++) {
    Warp* w = &run->warps[n];
    run->number = n;
    w->awaited_before = w->awaited; w->proxy_fence_before = w->proxy_fence;
    if (w->state == AT_BARRIER) w->state = READY;
    else report(run, KIND_BARRIER_NOT_REACHED, w->groups[0].pc, -1, NOWHERE, 0, 0, -1, -1);
  }
}

static void start_program(Run* run, s32 program) {
  Machine* m = run->machine;
  const Cell nobody = {.wrote.program = -1, .read.program = -1};
  int cells = m->shared / m->shared_granule + 1;
  run->program = program; run->epoch++;
  memset(run->shared, 0xa5, m->shared);
  for (int k = 0; m->check && k < cells; k++) run->shared_cells[k] = nobody;
  memset(run->readings, 0, cells * sizeof(Reading));
  for (int n = 0; n < run->warp_count; n++) start_warp(m, &run->warps[n], n, program);
  if (!run->grid) return;
  memset(run->known, 0, run->grid->programs * sizeof(Position));
  for (int n = 0; n < run->warp_count; n++) forget_acquired(run, &run->warps[n]);
}

// Runs a program until it ends, or looks for what others do, or has executed instructions up to `end`; whether it goes
// on.
static int take_turn(Run* run, u64 end, u64* seed) {
  Machine* m = run->machine;
  run->looks = run->advances = 0;
  while (!run->looks && m->executed < end && !m->stopped) {
    int ready = 0, waiting = 0, list[32];
    for (int n = 0; n < run->warp_count; n++) {
      if (run->warps[n].state == READY) list[ready++] = n;
      waiting += run->warps[n].state == AT_BARRIER;
    }
    if (!ready && (!waiting || m->executed >= m->budget)) return 0;
    if (!ready) { release_barrier(run); continue; }
    run->number = list[random_number(seed) % ready];
    run->warp = &run->warps[run->number];
    u64 share = m->quantum ? m->executed + random_number(seed) % m->quantum : UINT64_MAX;
    run_warp(run, share < end ? share : end);
  }
  return 1;
}

static void end_program(Run* run) {
  if (run->machine->executed >= run->machine->budget) return;
  compare_decisions(run);
  if (run->machine->check) compare_products(run);
}

static void run_one_after_the_other(Run* run, u64* seed) {
  Machine* m = run->machine;
  for (s32 program = m->first; program < m->end && m->executed < m->budget && !m->stopped; program += m->step) {
    start_program(run, program);
    if (!take_turn(run, UINT64_MAX, seed)) end_program(run);
  }
}

// Whether none of them has done anything but wait, in all the turns that there is patience for.
static int is_deadlock(Run** running, int count) {
  for (int k = 0; k < count; k++) if (running[k]->waits < running[k]->machine->patience) return 0;
  return 1;
}
static void report_deadlock(Run** running, int count) {
  for (int k = 0; k < count; k++) {
    const Look* look = &running[k]->look;
    running[k]->number = look->warp;
    report(running[k], KIND_DEADLOCK, look->pc, -1, NOWHERE, 0, look->lane, -1, -1);
  }
}

// In each round every program that runs has a turn, in random order. Where one ends, the next one begins. Some turns are
// short, so that others look at what it has released so far.
static void run_at_once(Run* runs, u64* seed) {
  Machine* m = runs->machine;
  Run** running = malloc(m->resident * sizeof(Run*));
  int count = 0;
  s32 next = m->first;
  for (; count < m->resident && next < m->end; next += m->step) {
    running[count] = &runs[count];
    start_program(running[count++], next);
  }
  while (count && !m->stopped) {
    for (int k = count - 1; k > 0; k--) {
      int other = random_number(seed) % (k + 1);
      Run* aside = running[k]; running[k] = running[other]; running[other] = aside;
    }
    for (int k = count - 1; k >= 0 && !m->stopped; k--) {
      int goes_on = take_turn(running[k], m->executed + 1 + (m->turn >> random_number(seed) % 8), seed);
      running[k]->waits += running[k]->looks;
      if (!goes_on || running[k]->advances) for (int n = 0; n < count; n++) running[n]->waits = 0;
      if (!goes_on) {
        end_program(running[k]);
        if (next < m->end && m->executed < m->budget) { start_program(running[k], next); next += m->step; }
        else running[k] = running[--count];
      }
    }
    if (m->stopped || !is_deadlock(running, count)) continue;
    report_deadlock(running, count);
    m->stopped = 1;
  }
  free(running);
}

static void make_run(Run* run, Machine* m, Grid* grid) {
  int threads = m->threads[0] * m->threads[1] * m->threads[2], cells = m->shared / m->shared_granule + 1;
  *run = (Run){.machine = m, .warp_count = (threads + LANES - 1) / LANES, .grid = grid};
  run->warps = calloc(run->warp_count, sizeof(Warp));
  run->shared = aligned_alloc(64, (m->shared + 127) / 64 * 64);
  run->shared_cells = calloc(cells, sizeof(Cell));
  run->readings = calloc(cells, sizeof(Reading));
  for (int n = 0; n < run->warp_count; n++) make_warp(m, &run->warps[n]);
  if (!grid) return;
  run->known = calloc(grid->programs, sizeof(Position));
  for (int n = 0; n < run->warp_count; n++) run->warps[n].acquired = calloc(grid->programs, sizeof(Position));
}
static void free_run(Run* run) {
  for (int n = 0; n < run->warp_count; n++) free_warp(&run->warps[n]);
  free(run->warps); free(run->shared); free(run->shared_cells); free(run->readings);
  free(run->known);
}

int run_machine(Machine* m) {
  fenv_t callers;  // XLA's threads flush denormals
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  u64 seed = m->seed * 2654435761u + 88172645463325252ull;
  Grid grid = {.programs = m->programs};
  int count = m->resident ? m->resident : 1;
  Run* runs = calloc(count, sizeof(Run));
  for (int k = 0; k < count; k++) make_run(&runs[k], m, m->resident ? &grid : 0);
  if (m->resident) run_at_once(runs, &seed); else run_one_after_the_other(runs, &seed);
  for (int k = 0; k < count; k++) free_run(&runs[k]);
  free(runs); free(grid.clocks); free(grid.readers);
  fesetenv(&callers);
  return m->finding_count;
}
