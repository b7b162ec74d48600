// Programs that run at once, and what orders them. What a thread releases at a place of memory is all that it knows to
// be before it: its own past, that of its program up to the last barrier, and what it has acquired. Who acquires it
// there knows that too, and so do the other threads of its program behind their next barrier. What is known of another
// program is one position in it, which may be less than all there is to know, and never more.

enum { NOBODY = -1, SEVERAL = -2 };  // acquirers; else a warp

static inline int is_before(const Access* past, const Position* position) {
  if (past->warp != position->warp) return past->epoch < position->epoch;
  if (past->lane != position->lane) return past->epoch < position->epoch || past->warp_epoch < position->warp_epoch;
  return past->stamp <= position->stamp;
}
static void join(Position* into, const Position* from, int programs) {
  for (int k = 0; k < programs; k++) if (from[k].stamp > into[k].stamp) into[k] = from[k];
}
// Whether a thread has all that its program has acquired since the last barrier.
static inline int has_acquired(const Run* run, int lane) {
  return run->acquirer == run->number && (run->warp->epoch > run->acquired_epoch || run->acquired_lanes >> lane & 1);
}
static int is_ordered(const Run* run, const Access* past, int lane) {  // an access of another program
  return run->grid && (is_before(past, &run->known[past->program]) ||
                       (has_acquired(run, lane) && is_before(past, &run->acquired[past->program])));
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
  Position* clock = clock_at(run->grid, cell);
  join(clock, run->known, run->grid->programs);
  if (has_acquired(run, lane)) join(clock, run->acquired, run->grid->programs);
  clock[run->program] = (Position){run->epoch, run->warp->epoch, run->stamp, (u8)run->number, (u8)lane};
}
static void acquire(Run* run, Cell* cell, int lane) {
  int is_same = run->acquired_stamp == run->stamp && run->acquired_clock == cell->clock;  // as another lane just has
  if (is_same && run->acquired_lanes) run->acquired_lanes |= 1u << lane;
  else if (run->acquirer == NOBODY || has_acquired(run, lane)) {
    run->acquirer = run->number; run->acquired_lanes = 1u << lane;
  } else {
    if (run->acquirer != run->number) run->acquirer = SEVERAL;
    run->acquired_lanes = 0;
  }
  run->acquired_epoch = run->warp->epoch; run->acquired_stamp = run->stamp; run->acquired_clock = cell->clock;
  if (cell->clock) join(run->acquired, clock_at(run->grid, cell), run->grid->programs);
}
static void know_acquired(Run* run) {  // a barrier of all threads
  if (!run->grid || run->acquirer == NOBODY) return;
  join(run->known, run->acquired, run->grid->programs);
  memset(run->acquired, 0, run->grid->programs * sizeof(Position));
  run->acquirer = NOBODY;
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
// Who looks at a place once more, and finds there what it has found before, waits for another program.
static void look(Run* run, int pc, u64 address, u64 value, int lane) {
  Look *last = &run->look, now = {address, value, run->stamp, pc, run->number, lane};
  if (!run->grid || last->stamp == now.stamp) return;  // the first lane speaks for its warp
  if (last->address == address && last->value == value) run->spins = 1; else run->advances = 1;
  *last = now;
}
