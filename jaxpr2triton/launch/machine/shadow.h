// Races. Each granule of memory remembers who wrote it last and who read it last, and when: between which barriers of
// the program, and between which of the warp. Two accesses by different threads, at least one of them a write, need a
// barrier between them: bar.sync if they belong to two warps, bar.warp.sync (or bar.sync) if they belong to two lanes
// of one; no barrier lies between two programs, which only releasing and acquiring orders (clocks.h), if they run at
// once. So what is found does not depend on the order that the machine took.

#define MANY 255  // warps, or lanes
#define IN_FLIGHT 2  // undefined, for a copy that nobody has awaited comes here

static inline int same_time(const Run* run, const Access* past) {
  return past->program == run->program && past->epoch == run->epoch;
}

static inline Access access_now(const Run* run, int pc, int lane) {
  u8 atomic = run->order & ORDER_STRONG;
  return (Access){run->program, pc, run->epoch, run->warp->epoch, run->stamp, (u8)run->number, (u8)lane, atomic, 0};
}
static inline int both_atomic(const Run* run, const Access* past) { return past->atomic && run->order & ORDER_STRONG; }

static void remember_reader(const Run* run, Cell* cell, int pc, int lane) {
  Access* past = &cell->read;
  Access now = access_now(run, pc, lane);
  if (past->program >= 0 && past->program != run->program) {
    if (!run->grid) cell->programs_read = 1;
    else if (!is_ordered(run, past, lane)) add_reader(run->grid, cell);
  }
  if (past->program >= 0) now.atomic &= past->atomic;
  if (same_time(run, past)) {
    if (past->warp != now.warp) now.warp = MANY;
    else if (past->warp_epoch == now.warp_epoch && past->lane != now.lane) now.lane = MANY;
  }
  *past = now;
}

// Returns whether what is read is undefined.
static int reads(Run* run, Cell* cell, int defined, int pc, int buffer, s64 offset, int lane) {
  const Access* past = &cell->wrote;
  if (past->program >= 0 && past->program != run->program) {
    if (!both_atomic(run, past) && !is_ordered(run, past, lane))
      report_clash(run, KIND_RACE_OF_PROGRAMS, pc, past, buffer, offset, lane);
  } else if (same_time(run, past) && !both_atomic(run, past)) {
    if (past->warp != run->number) report_clash(run, KIND_RACE_OF_WARPS, pc, past, buffer, offset, lane);
    else if (past->lane != lane && past->warp_epoch == run->warp->epoch)
      report_clash(run, KIND_RACE_IN_WARP, pc, past, buffer, offset, lane);
  }
  remember_reader(run, cell, pc, lane);
  return past->program < 0 ? !defined : cell->undefined;
}

static void clash_with_writer(Run* run, const Access* past, int pc, int buffer, s64 offset, int lane) {
  if (both_atomic(run, past)) return;
  if (past->program != run->program) {
    if (!is_ordered(run, past, lane)) report_clash(run, KIND_RACE_OF_PROGRAMS, pc, past, buffer, offset, lane);
  } else if (past->epoch != run->epoch) return;
  else if (past->warp != run->number) report_clash(run, KIND_RACE_OF_WARPS, pc, past, buffer, offset, lane);
  else if (past->lane == lane) return;
  else if (past->stamp == run->stamp) report_clash(run, KIND_TWO_VALUES, pc, past, buffer, offset, lane);
  else if (past->warp_epoch == run->warp->epoch)
    report_clash(run, KIND_RACE_IN_WARP, pc, past, buffer, offset, lane);
}
static void clash_with_reader(Run* run, const Access* past, int programs, int pc, int buffer, s64 offset, int lane) {
  if (both_atomic(run, past)) return;
  if (past->program != run->program || programs) {
    if (!is_ordered(run, past, lane)) report_clash(run, KIND_RACE_OF_PROGRAMS, pc, past, buffer, offset, lane);
  } else if (past->epoch != run->epoch) return;
  else if (past->warp != run->number) report_clash(run, KIND_RACE_OF_WARPS, pc, past, buffer, offset, lane);
  else if (past->lane != lane && past->warp_epoch == run->warp->epoch)
    report_clash(run, KIND_RACE_IN_WARP, pc, past, buffer, offset, lane);
}
static void clash_with_readers(Run* run, Cell* cell, int pc, int buffer, s64 offset, int lane) {
  if (cell->read.program < 0) return;
  clash_with_reader(run, &cell->read, cell->programs_read, pc, buffer, offset, lane);
  for (u32 at = cell->readers; at; at = run->grid->readers[at].next)
    clash_with_reader(run, &run->grid->readers[at].access, 0, pc, buffer, offset, lane);
  if (cell->readers) drop_readers(run->grid, cell);
}

// What products of warpgroups read, they may read until they are awaited, and other warps know of that at a barrier.
static void clash_with_product(Run* run, const Cell* cell, int pc, s64 offset, int lane) {
  const Reading* reading = &run->readings[cell - run->shared_cells];
  u32 others = reading->warps & ~(1u << run->number);
  int under_way = -1;
  for (int n = 0; n < run->warp_count; n++) {
    const Warp* its = &run->warps[n];
    u32 ended = n == run->number ? its->awaited : its->awaited_before;
    if (reading->warps >> n & 1 && ended < reading->number) under_way = n;
  }
  if (others && reading->epoch == run->epoch)
    report(run, KIND_RACE_OF_WARPS, pc, reading->pc, IN_SHARED, offset, lane, __builtin_ctz(others), -1);
  else if (under_way >= 0)
    report(run, KIND_MEMORY_UNDER_WAY, pc, reading->pc, IN_SHARED, offset, lane, under_way, -1);
}

// `same`: memory holds that value already; many threads may write one value that all of them know, if nobody reads it
// at that time.
static void writes(Run* run, Cell* cell, int same, int undefined, int pc, int buffer, s64 offset, int lane) {
  int written = cell->wrote.program >= 0;
  int kind = cell->wrote.warp == run->number ? KIND_RACE_IN_WARP : KIND_RACE_OF_WARPS;
  if (cell->undefined == IN_FLIGHT) report_clash(run, kind, pc, &cell->wrote, buffer, offset, lane);
  if (written && !same) clash_with_writer(run, &cell->wrote, pc, buffer, offset, lane);
  clash_with_readers(run, cell, pc, buffer, offset, lane);
  if (buffer == IN_SHARED) clash_with_product(run, cell, pc, offset, lane);
  if (cell->clock) forget_released(run->grid, cell);
  cell->wrote = access_now(run, pc, lane);
  cell->undefined = undefined;
}

// Atomics clash with other accesses, but not with each other. Returns whether what they read is undefined.
static int updates(Run* run, Cell* cell, int defined, int undefined, int replaces, int pc, int buffer, s64 offset,
                   int lane) {
  int before = cell->wrote.program < 0 ? !defined : cell->undefined;
  if (cell->wrote.program >= 0) clash_with_writer(run, &cell->wrote, pc, buffer, offset, lane);
  clash_with_readers(run, cell, pc, buffer, offset, lane);
  if (buffer == IN_SHARED) clash_with_product(run, cell, pc, offset, lane);
  cell->wrote = access_now(run, pc, lane);
  cell->undefined = undefined | (before & !replaces);
  return before;
}
