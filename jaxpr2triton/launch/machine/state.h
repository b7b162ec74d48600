// A program that runs: its warps, what they wait for, and what was found. And the grid, where programs run at once.

typedef struct { s32 pc; u32 mask; int waits; } Group;  // lanes of a warp that go together

typedef struct {  // cp.async: read when it is issued, and in shared memory once it is awaited
  s32 pc, lane; u32 group; s64 offset; int size; u8 bytes[16]; int undefined;
} Copy;

typedef struct { u32 taken, passed; } Decisions;  // of one warp at one branch

// A register of products: the last one whose sum, a copy of its sum, or left factor it is, and the wgmma.fence before
// it was written.
typedef struct { s32 pc; u32 sum, copy, factor, written; } Use;

typedef struct { u32 epoch, warp_epoch, stamp; u8 warp, lane; } Position;  // of a thread, in what its program does

typedef struct { s32 pc; u32 number, epoch, warps; } Reading;  // of a granule of shared memory by products

typedef struct {
  u8* registers;
  u64* faults;      // for each register: lanes whose value is undefined, and above them lanes whose copies differ
  u8* distance;     // for each register: how far away the lane is whose value it holds, straight from butterflies
  u8* local;
  u32 carry[LANES];
  Group groups[LANES];
  int group_count, now;  // now: the group that runs
  enum { READY, AT_BARRIER, ENDED } state;
  u32 live, epoch;
  Copy* copies; int copy_count, copy_room; u32 copy_group;
  Decisions* decisions;  // for each way out of a loop of the source
  // products of a warpgroup have numbers, from 1 on; up to `awaited` they have ended, at the last barrier up to …_before
  u32 products, committed, awaited, awaited_before;
  u32* product_ends; int product_groups, product_room;  // the last product of each group that is under way
  u32 fences, fences_before;  // wgmma.fence, from 1 on: now, and at the last product
  Use* uses;        // for each register
  u32 proxy_fence, proxy_fence_before, proxy_epoch;  // fence.proxy.async: its stamp, that at the last barrier
  Position* acquired;  // in each program: what its lanes have acquired since the last barrier
  int acquires; u32 acquired_lanes, acquired_stamp, acquired_clock;  // whether they have; which lanes have all of it
  u64 multiplied; s32 last_product;  // tells which products there were; the instruction of the last one
} Warp;

typedef struct { u64 address, value; u32 stamp; s32 pc; int warp, lane; } Look;  // at memory that others change

typedef struct {
  int programs;
  Position* clocks; u32 clock_count;  // for each place where something was released: a position in every program
  Reader* readers; u32 reader_count, reader_room, free_reader;  // from 1 on
} Grid;

typedef struct {
  Machine* machine;
  Warp* warps; int warp_count;
  Warp* warp; int number;  // the one that runs
  s32 program;
  u32 epoch, stamp;
  u8 order;  // of the access that has this stamp
  u8* shared; Cell* shared_cells; Reading* readings;
  Grid* grid;  // null where programs run one after the other
  Position* known;  // in each program: what is before all threads of this one
  Look look;        // the last one
  int looks, advances;  // in this turn: whether it looks for what others do; whether it finds something new, or writes
  int waits;        // turns in which it only waits, since any program did something else
} Run;

#define UNDEFINED(faults) ((u32)(faults))
#define DIFFERENT(faults) ((u32)((faults) >> 32))
#define ALL_LANES 0xffffffffu
#define REGISTER_BYTES 128  // what the smallest one takes; one of 64 bits takes two of them
#define EACH_LANE(l, mask) for (int l = 0; l < LANES; l++) if ((mask) >> l & 1)

enum { IN_SHARED = -1, IN_LOCAL = -2, NOWHERE = -3 };

static void report_both(Run* run, int kind, int pc, int other_pc, int buffer, s64 offset, int lane,
                        int other_program, int other_warp, int other_lane) {
  Machine* m = run->machine;
  int alike = 0;
  for (int i = 0; i < m->finding_count; i++) {
    Finding* f = &m->findings[i];
    if (f->kind == kind && f->pc == pc && f->other_pc == other_pc) { f->count++; return; }
    alike += f->kind == kind;
  }
  if (m->finding_count < m->most_findings && alike < m->most_findings / 4)  // no kind leaves no room for the others
    m->findings[m->finding_count++] = (Finding){
      1, offset, kind, pc, other_pc, buffer, run->program, run->number, lane, other_program, other_warp, other_lane};
}
static void report(Run* run, int kind, int pc, int other_pc, int buffer, s64 offset, int lane, int other_warp,
                   int other_lane) {
  report_both(run, kind, pc, other_pc, buffer, offset, lane, -1, other_warp, other_lane);
}
static void report_lane(Run* run, int kind, int pc, u32 lanes) {
  report(run, kind, pc, -1, NOWHERE, 0, __builtin_ctz(lanes), -1, -1);
}
static void report_clash(Run* run, int kind, int pc, const Access* other, int buffer, s64 offset, int lane) {
  int other_program = other->program == run->program ? -1 : other->program;
  report_both(run, kind, pc, other->pc, buffer, offset, lane, other_program, other->warp, other->lane);
}

static inline u64 faults_of(const Warp* w, s32 slot) { return w->faults[slot / REGISTER_BYTES]; }
static inline void set_faults(Warp* w, s32 slot, u32 mask, u64 faults) {
  u64 both = (u64)mask << 32 | mask, *at = &w->faults[slot / REGISTER_BYTES];
  *at = (*at & ~both) | (faults & both);
  w->distance[slot / REGISTER_BYTES] = 0;
  w->uses[slot / REGISTER_BYTES].written = w->fences;
  w->uses[slot / REGISTER_BYTES].copy = 0;
}
static inline u32 lanes_that_hold(const u32* predicate) {
  u32 mask = 0;
  for (int l = 0; l < LANES; l++) mask |= (predicate[l] & 1u) << l;
  return mask;
}
static inline u64 random_number(u64* state) {
  *state ^= *state << 13; *state ^= *state >> 7; *state ^= *state << 17;
  return *state;
}
