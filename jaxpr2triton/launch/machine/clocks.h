// Programs that run at once, and what orders them. What a thread releases at a place of memory is all that it knows to
// be before it: its own past, that of its program up to the last barrier, and what it has acquired. Who acquires it
// there knows that too, and so do the other threads of its program behind their next barrier. What is known of another
// program is one position in it, which may be less than all there is to know, and never more.

static inline int is_before(const Access* past, const Position* position) {
  if (past->warp != position->warp) return past->epoch < position->epoch;
  if (past->lane != position->lane) return past->epoch < position->epoch || past->warp_epoch < position->warp_epoch;
  return past->stamp <= position->stamp;
}
static void join(Position* into, const Position* from, int programs) {
  for (int k = 0; k < programs; k++) if (from[k].stamp > into[k].stamp) into[k] = from[k];
}
static int is_ordered(const Run* run, const Access* past, int lane) {  // an access of another program
  if (!run->grid) return 0;
  if (is_before(past, &run->known[past->program])) return 1;
  return run->warp->acquired_lanes >> lane & 1 && is_before(past, &run->warp->acquired[past->program]);
}

static Position* clock_at(Grid* grid, Cell* cell) {
  if (!cell->clock) {
    grid->clocks = realloc(grid->clocks, (grid->clock_count + 1) * grid->programs * sizeof(Position));
    memset(grid->clocks + grid->clock_count * grid->programs, 0, grid->programs * sizeof(Position));
    cell->clock = ++grid->clock_count;
  }
  return grid->clocks + (cell->clock - 1) * grid->programs;
}
static void forget_released(Grid* grid, Cell* cell) {  // another value is there now
  if (cell->clock) memset(clock_at(grid, cell), 0, grid->programs * sizeof(Position));
}
static void release(Run* run, Cell* cell, int lane) {
  Warp* w = run->warp;
  Position* clock = clock_at(run->grid, cell);
  join(clock, run->known, run->grid->programs);
  if (w->acquired_lanes >> lane & 1) join(clock, w->acquired, run->grid->programs);
  clock[run->program] = (Position){run->epoch, w->epoch, run->stamp, (u8)run->number, (u8)lane};
}
// Lanes that have not acquired all that their warp has are taken for such as have acquired nothing, until a barrier.
static void acquire(Run* run, Cell* cell, int lane) {
  Warp* w = run->warp;
  int is_same = w->acquired_stamp == run->stamp && w->acquired_clock == cell->clock;  // as another lane just has
  if (!is_same) w->acquired_lanes &= 1u << lane;
  if (!w->acquires || w->acquired_lanes) w->acquired_lanes |= 1u << lane;
  w->acquires = 1; w->acquired_stamp = run->stamp; w->acquired_clock = cell->clock;
  if (cell->clock) join(w->acquired, clock_at(run->grid, cell), run->grid->programs);
}
static void forget_acquired(const Run* run, Warp* w) {
  memset(w->acquired, 0, run->grid->programs * sizeof(Position));
  w->acquires = 0; w->acquired_lanes = 0;
}
static void hand_on(Run* run) {  // a barrier of the program
  for (int n = 0; run->grid && n < run->warp_count; n++) if (run->warps[n].acquires) {
    join(run->known, run->warps[n].acquired, run->grid->programs);
    forget_acquired(run, &run->warps[n]);
  }
}
static void hand_on_in_warp(Run* run) {
  if (run->warp_count == 1) hand_on(run);
  else if (run->warp->acquires) run->warp->acquired_lanes = ALL_LANES;
}

// ---- who has read a granule since it was written, each of them unordered with the others ---------------------------
static void add_reader(Grid* grid, Cell* cell) {
  u32 at = grid->free_reader;
  if (at) grid->free_reader = grid->readers[at].next;
  else {
    if (++grid->reader_count >= grid->reader_room) {
      grid->reader_room = 2 * grid->reader_room + 64;
      grid->readers = realloc(grid->readers, grid->reader_room * sizeof(Reader));
    }
    at = grid->reader_count;
  }
  grid->readers[at] = (Reader){cell->read, cell->readers};
  cell->readers = at;
}
static void drop_readers(Grid* grid, Cell* cell) {
  while (cell->readers) {
    u32 at = cell->readers;
    cell->readers = grid->readers[at].next;
    grid->readers[at].next = grid->free_reader;
    grid->free_reader = at;
  }
}

// ---- waiting -------------------------------------------------------------------------------------------------------
// A program that looks for what others do lets them have their turns. If it finds what it has found there before, it
// waits.
static void look(Run* run, int pc, u64 address, u64 value, int lane) {
  Look *last = &run->look, now = {address, value, run->stamp, pc, run->number, lane};
  if (!run->grid || last->stamp == now.stamp) return;  // the first lane speaks for its warp
  run->looks = 1;
  if (last->address != address || last->value != value) run->advances = 1;
  *last = now;
}
