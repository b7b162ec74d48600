// Loads and stores: where they go, what they move, and what may be wrong with them.

static inline void addresses_of(const Warp* w, const Instruction* i, int slot, u64 addresses[LANES]) {
  const u8* base = w->registers + slot;
  if (i->wide) for (int l = 0; l < LANES; l++) addresses[l] = ((const u64*)base)[l] + (u64)i->offset;
  else for (int l = 0; l < LANES; l++) addresses[l] = (u32)(((const u32*)base)[l] + (u32)i->offset);
}

typedef struct { u8* bytes; int buffer; s64 offset; Cell* cells; int granule, defined; } Place;

// Where `size` bytes at an address lie; without bytes, after a report, if they lie nowhere.
static inline Place place_of(Run* run, int space, int pc, u64 address, int size, int lane) {
  Machine* m = run->machine;
  if (space == SPACE_GENERIC) {
    space = address >> BUFFER_SHIFT ? SPACE_GLOBAL : address & SHARED_WINDOW ? SPACE_SHARED : SPACE_LOCAL;
    address -= space == SPACE_GLOBAL ? 0 : space == SPACE_SHARED ? SHARED_WINDOW : LOCAL_WINDOW;
  }
  Place place = {0, space == SPACE_SHARED ? IN_SHARED : IN_LOCAL, (s64)address, 0, 1, 0};
  s64 room = space == SPACE_SHARED ? m->shared : m->local;
  u8* base = space == SPACE_SHARED ? run->shared : run->warp->local + (s64)lane * m->local;
  if (space == SPACE_SHARED && m->check) place.cells = run->shared_cells, place.granule = m->shared_granule;
  if (space == SPACE_GLOBAL) {
    place.buffer = (int)(address >> BUFFER_SHIFT) - 1;
    place.offset = (s64)(address & ((1ull << BUFFER_SHIFT) - 1));
    if (place.buffer < 0 || place.buffer >= m->buffer_count) {
      report(run, KIND_OUT_OF_BOUNDS, pc, -1, NOWHERE, (s64)address, lane, -1, -1);
      return place;
    }
    Buffer* buffer = &m->buffers[place.buffer];
    room = buffer->size; base = buffer->data;
    place.defined = buffer->defined;
    if (m->check) place.cells = buffer->cells, place.granule = buffer->granule;
  }
  if (place.offset < 0 || place.offset + size > room) {
    report(run, KIND_OUT_OF_BOUNDS, pc, -1, place.buffer, place.offset, lane, -1, -1);
    return place;
  }
  if (place.offset & (size - 1)) report(run, KIND_MISALIGNED, pc, -1, place.buffer, place.offset, lane, -1, -1);
  place.bytes = base + place.offset;
  return place;
}

static int read_place(Run* run, const Place* place, int pc, s64 from, int size, int lane) {
  int undefined = 0;
  if (place->cells)
    for (s64 g = (place->offset + from) / place->granule; g <= (place->offset + from + size - 1) / place->granule; g++)
      undefined |= reads(run, place->cells + g, place->defined, pc, place->buffer, g * place->granule, lane);
  return undefined;
}
static void write_place(Run* run, const Place* place, int pc, s64 from, const void* value, int size, int undefined,
                        int lane) {
  u8* to = place->bytes + from;
  if (place->cells) {
    int same = !memcmp(to, value, size);
    for (s64 g = (place->offset + from) / place->granule; g <= (place->offset + from + size - 1) / place->granule; g++)
      writes(run, place->cells + g, same, undefined, pc, place->buffer, g * place->granule, lane);
  }
  memcpy(to, value, size);
}
static int update_place(Run* run, const Place* place, int pc, int size, int undefined, int replaces, int lane) {
  int before = 0;
  if (place->cells)
    for (s64 g = place->offset / place->granule; g <= (place->offset + size - 1) / place->granule; g++)
      before |= updates(run, place->cells + g, place->defined, undefined, replaces, pc, place->buffer,
                        g * place->granule, lane);
  return before;
}
static int may_write(Run* run, const Place* place, int pc, int lane) {
  if (place->buffer < 0 || run->machine->buffers[place->buffer].writable) return 1;
  report(run, KIND_INPUT_WRITTEN, pc, -1, place->buffer, place->offset, lane, -1, -1);
  return 0;
}

// Sectors of 32 bytes of global memory that a warp touches, and the least that would hold as many bytes.
static void count_sectors(Counts* counts, const u64* addresses, u32 mask, int size) {
  u64 seen[2 * LANES]; int n = 0;  // 32 bytes at most, which may lie in two
  EACH_LANE(l, mask)
    for (u64 sector = addresses[l] >> 5; sector <= (addresses[l] + size - 1) >> 5; sector++) {
      int k = n;
      while (k > 0 && seen[k - 1] != sector) k--;
      if (!k) seen[n++] = sector;
    }
  counts->sectors += n; counts->least += ((u64)__builtin_popcount(mask) * size + 31) / 32;
}
// Rounds that shared memory needs: in each, every one of 32 banks serves one word. Wide accesses go in parts of the
// warp.
static void count_wavefronts(Counts* counts, const u64* addresses, u32 mask, int size) {
  int together = size <= 4 ? LANES : size == 8 ? LANES / 2 : LANES / 4;
  for (int first = 0; first < LANES; first += together) {
    u64 words[4 * LANES]; int n = 0, in_bank[32] = {0}, most = 0;
    for (int l = first; l < first + together; l++) if (mask >> l & 1)
      for (u64 word = addresses[l] >> 2; word <= (addresses[l] + size - 1) >> 2; word++) {
        int k = n;
        while (k > 0 && words[k - 1] != word) k--;
        if (k) continue;
        words[n++] = word;
        if (++in_bank[word & 31] > most) most = in_bank[word & 31];
      }
    if (most) { counts->sectors += most; counts->least++; }
  }
}
static void look_at_address(Run* run, const Instruction* i, int pc, int slot, const u64* addresses, u32 mask,
                            int size) {
  Machine* m = run->machine;
  if (m->check) {
    u64 faults = faults_of(run->warp, slot);
    if (UNDEFINED(faults) & mask) report_lane(run, KIND_UNDEFINED_ADDRESS, pc, UNDEFINED(faults) & mask);
    if (DIFFERENT(faults) & mask) report_lane(run, KIND_COPIES_ADDRESS, pc, DIFFERENT(faults) & mask);
  }
  if (m->count && i->space == SPACE_GLOBAL) count_sectors(&m->counts[pc], addresses, mask, size);
  if (m->count && i->space == SPACE_SHARED) count_wavefronts(&m->counts[pc], addresses, mask, size);
  run->stamp++;
  run->order = i->order;
}
static inline Cell* cell_of(const Place* place) { return place->cells + place->offset / place->granule; }

static void load(Run* run, const Instruction* i, int pc, u32 mask) {
  Warp* w = run->warp;
  int size = i->width * i->parts, slot = i->slots[i->results];
  u64 addresses[LANES];
  u32 nowhere = 0, undefined[RESULTS] = {0};
  addresses_of(w, i, slot, addresses);
  look_at_address(run, i, pc, slot, addresses, mask, size);
  EACH_LANE(l, mask) {
    Place place = place_of(run, i->space, pc, addresses[l], size, l);
    if (!place.bytes) { nowhere |= 1u << l; continue; }
    if (i->flags && place.cells) report(run, KIND_STALE_LOAD, pc, -1, place.buffer, place.offset, l, -1, -1);
    for (int k = 0; k < i->parts; k++) {
      if (read_place(run, &place, pc, k * i->width, i->width, l)) undefined[k] |= 1u << l;
      u64 value = 0;
      memcpy(&value, place.bytes + k * i->width, i->width);
      if (i->number == NUMBER_SIGNED) { int rest = 64 - 8 * i->width; value = (u64)((s64)(value << rest) >> rest); }
      memcpy(w->registers + i->slots[k] + l * i->row, &value, i->row);
      if (i->order) look(run, pc, addresses[l], value, l);
    }
    if (run->grid && i->order & ORDER_ACQUIRE && place.cells) acquire(run, cell_of(&place), l);
  }
  for (int k = 0; k < i->parts; k++) set_faults(w, i->slots[k], mask, nowhere | undefined[k]);
}

// Copies of one value that differ, and that more than one lane stores to one place.
static void look_at_copies(Run* run, int pc, const u64* addresses, u32 different) {
  if (!different) return;
  EACH_LANE(l, different)
    for (int k = 0; k < l; k++)
      if (different >> k & 1 && addresses[k] == addresses[l]) {
        report_lane(run, KIND_COPIES_STORED, pc, 1u << l);
        return;
      }
}

static void store(Run* run, const Instruction* i, int pc, u32 mask) {
  Warp* w = run->warp;
  int size = i->width * i->parts, check = run->machine->check;
  u64 addresses[LANES], faults = 0;
  addresses_of(w, i, i->slots[0], addresses);
  look_at_address(run, i, pc, i->slots[0], addresses, mask, size);
  if (check) {
    for (int k = 0; k < i->parts; k++) faults |= faults_of(w, i->slots[1 + k]);
    if (i->space == SPACE_GLOBAL && UNDEFINED(faults) & mask)
      report_lane(run, KIND_UNDEFINED_STORED, pc, UNDEFINED(faults) & mask);
    look_at_copies(run, pc, addresses, DIFFERENT(faults) & mask);
  }
  EACH_LANE(l, mask) {
    Place place = place_of(run, i->space, pc, addresses[l], size, l);
    if (!place.bytes || !may_write(run, &place, pc, l)) continue;
    for (int k = 0; k < i->parts; k++) {
      s32 slot = i->slots[1 + k];
      int undefined = UNDEFINED(faults_of(w, slot)) >> l & 1;
      write_place(run, &place, pc, k * i->width, w->registers + slot + l * i->row, i->width, undefined, l);
    }
    if (place.buffer > IN_SHARED) run->advances = 1;
    if (run->grid && i->order & ORDER_RELEASE && place.cells) release(run, cell_of(&place), l);
  }
}

// ldmatrix and stmatrix: 8 x 8 elements of 16 bits; lane r of each eight says where row r lies, and two neighbours of a
// row (of a column, if transposed) are in one register.
static void matrices(Run* run, const Instruction* i, int pc) {
  Warp* w = run->warp;
  int loads = i->action == ACTION_LOAD_MATRIX, transposed = i->flags;
  int slot = i->slots[i->results];  // stmatrix has no results
  u64 addresses[LANES];
  u32 rows = i->parts == 4 ? ALL_LANES : (1u << 8 * i->parts) - 1;
  addresses_of(w, i, slot, addresses);
  look_at_address(run, i, pc, slot, addresses, rows, 16);
  for (int k = 0; k < i->parts; k++) {
    int at = i->slots[loads ? k : 1 + k];
    u32 undefined = 0;
    for (int n = 0; n < 2 * LANES; n++) {
      int l = n / 2, row = l / 4, column = 2 * (l % 4) + n % 2;
      if (transposed) { int other = row; row = column; column = other; }
      Place place = place_of(run, SPACE_SHARED, pc, addresses[8 * k + row], 16, 8 * k + row);
      if (!place.bytes) { undefined |= 1u << l; continue; }
      u16* value = (u16*)(w->registers + at) + n;
      if (loads) {
        if (read_place(run, &place, pc, 2 * column, 2, l)) undefined |= 1u << l;
        memcpy(value, place.bytes + 2 * column, 2);
      } else write_place(run, &place, pc, 2 * column, value, 2, UNDEFINED(faults_of(w, at)) >> l & 1, l);
    }
    if (loads) set_faults(w, at, ALL_LANES, undefined);
  }
}

// cp.async. What it reads it reads now; what it writes is undefined until the warp has waited for it.
static void copy(Run* run, const Instruction* i, int pc, u32 mask) {
  Warp* w = run->warp;
  u64 to[LANES], from[LANES];
  Instruction source = *i;
  source.space = SPACE_GLOBAL;  // cp.async has two addresses
  addresses_of(w, i, i->slots[0], to);
  for (int l = 0; l < LANES; l++) from[l] = ((const u64*)(w->registers + i->slots[1]))[l] + (u64)(s64)i->target;
  const u32* sizes = i->operands > 2 ? (const u32*)(w->registers + i->slots[2]) : 0;
  look_at_address(run, i, pc, i->slots[0], to, mask, i->width);
  look_at_address(run, &source, pc, i->slots[1], from, mask, i->width);
  EACH_LANE(l, mask) {
    Copy made = {pc, l, w->copy_group, 0, i->width, {0}, 0};
    int size = sizes && sizes[l] < i->width ? (int)sizes[l] : i->width;
    Place target = place_of(run, SPACE_SHARED, pc, to[l], i->width, l);
    if (!target.bytes) continue;
    if (size) {
      Place place = place_of(run, SPACE_GLOBAL, pc, from[l], size, l);
      if (!place.bytes) continue;
      made.undefined = read_place(run, &place, pc, 0, size, l);
      memcpy(made.bytes, place.bytes, size);
    }
    made.offset = target.offset;
    u8 nothing[16]; memset(nothing, 0xa5, 16);
    write_place(run, &target, pc, 0, nothing, i->width, IN_FLIGHT, l);
    if (w->copy_count == w->copy_room) {
      w->copy_room = 2 * w->copy_room + LANES;
      w->copies = realloc(w->copies, w->copy_room * sizeof(Copy));
    }
    w->copies[w->copy_count++] = made;
  }
}
static void await_copies(Run* run, u32 left) {
  Warp* w = run->warp;
  int kept = 0;
  run->stamp++;
  run->order = 0;
  for (int k = 0; k < w->copy_count; k++) {
    Copy* c = &w->copies[k];
    if (w->copy_group - c->group <= left) { w->copies[kept++] = *c; continue; }
    Place place = place_of(run, SPACE_SHARED, c->pc, (u64)c->offset, c->size, c->lane);
    if (place.cells)
      for (s64 g = place.offset / place.granule; g <= (place.offset + c->size - 1) / place.granule; g++)
        place.cells[g].undefined = 0;
    write_place(run, &place, c->pc, 0, c->bytes, c->size, c->undefined, c->lane);
    if (place.cells)
      for (s64 g = place.offset / place.granule; g <= (place.offset + c->size - 1) / place.granule; g++)
        place.cells[g].wrote.copied = 1;
  }
  w->copy_count = kept;
}

static u64 combined(int reduces, int number, u64 old, u64 value, u64 other, int width) {
  f32 a, b; f64 c, d;
  memcpy(&a, &old, 4); memcpy(&b, &value, 4); memcpy(&c, &old, 8); memcpy(&d, &value, 8);
  s64 x = width == 8 ? (s64)old : (s32)old, y = width == 8 ? (s64)value : (s32)value;
  int less = number == NUMBER_SIGNED ? y < x : value < old;
  switch (reduces) {
    case REDUCES_ADD:
      if (number == NUMBER_F32) { a += b; memcpy(&old, &a, 4); return old; }
      if (number == NUMBER_F64) { c += d; memcpy(&old, &c, 8); return old; }
      return old + value;
    case REDUCES_MIN: return less ? value : old;
    case REDUCES_MAX: return less ? old : value;
    case REDUCES_AND: return old & value;
    case REDUCES_OR: return old | value;
    case REDUCES_XOR: return old ^ value;
    case REDUCES_EXCHANGE: return value;
    case REDUCES_COMPARE: return old == value ? other : old;
    case REDUCES_INCREMENT: return old >= value ? 0 : old + 1;
    default: return old == 0 || old > value ? value : old - 1;
  }
}
// One lane after the other.
static void atomic(Run* run, const Instruction* i, int pc, u32 mask) {
  Warp* w = run->warp;
  int first = i->results;  // red has none
  u64 addresses[LANES];
  u32 undefined = 0;
  addresses_of(w, i, i->slots[first], addresses);
  look_at_address(run, i, pc, i->slots[first], addresses, mask, i->width);
  u64 given = faults_of(w, i->slots[first + 1]) | (i->operands > 2 ? faults_of(w, i->slots[first + 2]) : 0);
  EACH_LANE(l, mask) {
    Place place = place_of(run, i->space, pc, addresses[l], i->width, l);
    if (!place.bytes || !may_write(run, &place, pc, l)) { undefined |= 1u << l; continue; }
    int replaces = i->reduces == REDUCES_EXCHANGE;
    if (update_place(run, &place, pc, i->width, UNDEFINED(given) >> l & 1, replaces, l)) undefined |= 1u << l;
    u64 old = 0, value = 0, other = 0;
    memcpy(&old, place.bytes, i->width);
    memcpy(&value, w->registers + i->slots[first + 1] + l * i->width, i->width);
    if (i->reduces == REDUCES_COMPARE) memcpy(&other, w->registers + i->slots[first + 2] + l * i->width, i->width);
    u64 now = combined(i->reduces, i->number, old, value, other, i->width);
    memcpy(place.bytes, &now, i->width);
    if (place.buffer > IN_SHARED && now == old) look(run, pc, addresses[l], old, l);
    else run->advances = 1;
    if (run->grid && i->order & ORDER_ACQUIRE && place.cells) acquire(run, cell_of(&place), l);
    if (run->grid && i->order & ORDER_RELEASE && place.cells) release(run, cell_of(&place), l);
    if (first) memcpy(w->registers + i->slots[0] + l * i->width, &old, i->width);
  }
  if (first) set_faults(w, i->slots[0], mask, undefined);
}
