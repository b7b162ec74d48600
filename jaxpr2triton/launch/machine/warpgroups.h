// wgmma: products of matrices by four warps at once, which go on beside the program until it waits for them.
//
// Warp w of a warpgroup has rows 16 w to 16 w + 15 of the left factor and of the sums, so that each warp computes by
// itself. It does so where the product begins. What the program does to registers and to shared memory before the
// product is awaited is a finding, whatever the values are.

#define MOST_COLUMNS 256
#define MOST_TERMS 32
#define PIECE 16  // bytes that lie beside each other in any layout

// How a factor lies in shared memory: all fields of its descriptor, in bytes.
typedef struct { u32 start, leading, stride, width, phase; } Layout;

static Layout layout_of(u64 descriptor) {
  static const u32 widths[] = {PIECE, 128, 64, 32};  // 16 bytes are not swizzled
  return (Layout){
    (u32)(descriptor & 0x3fff) << 4, (u32)(descriptor >> 16 & 0x3fff) << 4, (u32)(descriptor >> 32 & 0x3fff) << 4,
    widths[descriptor >> 62], (u32)(descriptor >> 49 & 7)};
}

// Where piece `across` of line `along` begins. Lines are rows of the left factor, or columns of the right one, whose
// pieces are neighbours in a sum; a transposed factor has it the other way round.
static u32 piece_address(const Layout* layout, int transposed, int along, int across) {
  int swizzled = layout->width > PIECE, pieces = layout->width / PIECE;
  u32 address = layout->start + along % 8 * layout->width;
  if (!swizzled)
    address += transposed ? across * layout->stride + along / 8 * layout->leading
                          : along / 8 * layout->stride + across * layout->leading;
  else address += along / 8 * layout->stride + across / pieces * layout->leading + across % pieces * PIECE;
  return address ^ (((address >> 7) - layout->phase) & (pieces - 1)) << 4;
}

// ---- shared memory, which products read through the async proxy ---------------------------------------------------
static int is_fenced(const Run* run, const Access* past) {
  const Warp *its = &run->warps[past->warp], *mine = run->warp;
  if (past->copied || past->warp == run->number) return past->copied || mine->proxy_fence > past->stamp;
  return its->proxy_fence_before > past->stamp || mine->proxy_epoch > past->epoch;
}
static int read_by_product(Run* run, Cell* cell, int pc, s64 offset) {
  const Access* past = &cell->wrote;
  Reading* reading = &run->readings[cell - run->shared_cells];
  reading->pc = pc; reading->number = run->warp->products; reading->epoch = run->epoch;
  reading->warps |= 1u << run->number;
  if (past->program < 0) return 1;
  if (past->epoch == run->epoch && past->warp != run->number)
    report_clash(run, KIND_RACE_OF_WARPS, pc, past, IN_SHARED, offset, -1);
  else if (!is_fenced(run, past)) report_clash(run, KIND_MEMORY_NOT_FENCED, pc, past, IN_SHARED, offset, -1);
  return cell->undefined;
}
static const u8* piece(Run* run, int pc, u32 address, int* undefined) {
  static const u8 nothing[PIECE];
  Place place = place_of(run, SPACE_SHARED, pc, address, PIECE, -1);
  *undefined = !place.bytes;
  if (!place.bytes) return nothing;
  if (place.cells)
    for (s64 g = place.offset / place.granule; g <= (place.offset + PIECE - 1) / place.granule; g++)
      *undefined |= read_by_product(run, place.cells + g, pc, g * place.granule);
  return place.bytes;
}

// ---- factors ------------------------------------------------------------------------------------------------------
typedef struct { f64 left[16][MOST_TERMS], right[MOST_TERMS][MOST_COLUMNS]; u8 no_row[16], no_column[MOST_COLUMNS]; } Factors;

// Line `first` and those that follow it: to[line * by_line + term * by_term], and whether a line has undefined terms.
static void factor_in_memory(Run* run, int pc, u64 descriptor, int number, int transposed, int first, int lines,
                             int terms, f64* to, int by_line, int by_term, u8* undefined) {
  Layout layout = layout_of(descriptor);
  int together = PIECE / number_bytes(number), missing;
  if (!transposed)
    for (int line = 0; line < lines; line++) for (int p = 0; p < terms / together; p++) {
      const u8* bytes = piece(run, pc, piece_address(&layout, 0, first + line, p), &missing);
      undefined[line] |= missing;
      for (int n = 0; n < together; n++) to[line * by_line + (p * together + n) * by_term] = element(bytes, number, n);
    }
  else
    for (int term = 0; term < terms; term++) for (int p = 0; p < lines / together; p++) {
      const u8* bytes = piece(run, pc, piece_address(&layout, 1, term, first / together + p), &missing);
      for (int n = 0; n < together; n++) {
        undefined[p * together + n] |= missing;
        to[(p * together + n) * by_line + term * by_term] = element(bytes, number, n);
      }
    }
}
static void factor_in_registers(const Warp* w, const s32* slots, int number, int terms, Factors* f) {
  int packed = 4 / number_bytes(number);
  for (int r = 0; r < 4; r++) for (int l = 0; l < LANES; l++) {
    int row = l / 4 + 8 * (r % 2);
    f->no_row[row] |= UNDEFINED(faults_of(w, slots[r])) >> l & 1;
    for (int n = 0; n < packed; n++)
      f->left[row][packed * (l % 4) + n + terms / 2 * (r / 2)] =
        element(w->registers + slots[r] + l * 4, number, n);
  }
}

// ---- registers ----------------------------------------------------------------------------------------------------
static void report_register(Run* run, int pc, const Use* use) {
  report(run, KIND_REGISTER_UNDER_WAY, pc, use->pc, NOWHERE, 0, -1, -1, -1);
}
// What any other instruction does to registers of products that nobody has awaited. Sums may be moved: where ptxas does
// not make one register of the two, it waits.
static void registers_under_way(Run* run, const Instruction* i, int pc) {
  u32 awaited = run->warp->awaited;
  for (int k = 0; k < i->results + i->operands; k++) {
    const Use* use = &run->warp->uses[i->slots[k] / REGISTER_BYTES];
    int is_result = k < i->results, other = is_result ? use->factor > awaited : use->copy > awaited;
    if ((is_result || !i->moves) && (use->sum > awaited || other)) report_register(run, pc, use);
  }
}
// A copy of a sum that is under way is under way, too.
static void move_uses(Warp* w, const Instruction* i) {
  Use from = {0};
  for (int k = i->results; k < i->results + i->operands; k++) {
    const Use* use = &w->uses[i->slots[k] / REGISTER_BYTES];
    u32 sum = use->sum > use->copy ? use->sum : use->copy;
    if (sum > from.copy) from = (Use){use->pc, 0, sum, 0, 0};
  }
  for (int k = 0; k < i->results && from.copy > w->awaited; k++) {
    Use* use = &w->uses[i->slots[k] / REGISTER_BYTES];
    use->copy = from.copy; use->pc = from.pc;
  }
}
// ptxas puts the fence right before the product: what LLVM has moved in between them is fenced, but a product that
// comes after another one needs a fence of its own for what was written since.
static void registers_of_product(Run* run, int pc, const s32* sums, int sum_count, const s32* factors, int count) {
  Warp* w = run->warp;
  int none_since = w->fences == w->fences_before, unfenced = w->fences == 1;
  for (int r = 0; r < sum_count + count; r++) {
    int is_sum = r < sum_count, slot = is_sum ? sums[r] : factors[r - sum_count];
    Use* use = &w->uses[slot / REGISTER_BYTES];
    unfenced |= none_since && use->written == w->fences;
    if (is_sum ? use->factor > w->awaited : use->sum > w->awaited || use->copy > w->awaited) report_register(run, pc, use);
    use->pc = pc;
    if (is_sum) use->sum = w->products; else use->factor = w->products;
  }
  w->fences_before = w->fences;
  if (unfenced) report(run, KIND_REGISTER_NOT_FENCED, pc, -1, NOWHERE, 0, -1, -1, -1);
}

// ---- the product --------------------------------------------------------------------------------------------------
static u64 same_in_all_lanes(Run* run, int pc, s32 slot, int wide) {
  const Warp* w = run->warp;
  const u32* words = (const u32*)(w->registers + slot);
  u32 undefined = UNDEFINED(faults_of(w, slot)), others = 0;
  for (int k = 0; k < LANES << wide; k++) others |= (u32)(words[k] != words[k & wide]) << (k >> wide);
  if (run->machine->check && undefined) report_lane(run, KIND_UNDEFINED_ADDRESS, pc, undefined);
  else if (run->machine->check && others) report_lane(run, KIND_WARPGROUP_DISAGREES, pc, others);
  return wide ? (u64)words[1] << 32 | words[0] : words[0];
}
static void sums_of(Run* run, const Instruction* i, const Factors* f, const s32* slots, int keeps) {
  Warp* w = run->warp;
  static _Thread_local f64 total[16][MOST_COLUMNS];
  int columns = 8 * i->shape[1], packed = i->total == NUMBER_F16 ? 2 : 1, of_lane = columns / 2;
  f64 sign = !(i->flags & CHANGES_NEGATED_LEFT) == !(i->flags & CHANGES_NEGATED_RIGHT) ? 1 : -1;
  for (int r = 0; r < 16; r++) {
    for (int n = 0; n < columns; n++) total[r][n] = 0;
    for (int t = 0; t < i->shape[2]; t++) {
      f64 factor = sign * f->left[r][t];
      for (int n = 0; n < columns; n++) total[r][n] += factor * f->right[t][n];
    }
  }
  for (int e = 0; e < of_lane; e++) {
    s32 slot = slots[e / packed];
    u32 before = UNDEFINED(faults_of(w, slot)), undefined = 0;
    for (int l = 0; l < LANES; l++) {
      int row = l / 4 + 8 * (e / 2 % 2), column = 8 * (e / 4) + 2 * (l % 4) + e % 2;
      u8* at = w->registers + slot + 4 * l;
      s32 whole; memcpy(&whole, at, 4);
      f64 old = !keeps ? 0 : i->total == NUMBER_SIGNED ? whole : element(at, i->total, e % packed);
      f64 sum = old + total[row][column];
      if (i->wide) sum = fmax(INT32_MIN, fmin(INT32_MAX, sum));
      put_sum(at, i->total, e % packed, sum);
      undefined |= (u32)(f->no_row[row] | f->no_column[column]) << l;
    }
    if (keeps || e % packed) undefined |= before;
    w->faults[slot / REGISTER_BYTES] = undefined;
    w->distance[slot / REGISTER_BYTES] = 0;
  }
}
static void warpgroup_product(Run* run, const Instruction* i, int pc) {
  Warp* w = run->warp;
  static _Thread_local Factors factors;
  Factors* f = &factors;
  int columns = 8 * i->shape[1], terms = i->shape[2], first = run->number % WARPGROUP * 16;
  int sum_count = columns / 2 / (i->total == NUMBER_F16 ? 2 : 1), in_memory = i->operands > 2;
  const s32 *sums = run->machine->lists + i->target, *left = sums + sum_count;
  u64 right = same_in_all_lanes(run, pc, i->slots[0], 1), keeps = same_in_all_lanes(run, pc, i->slots[1], 0);
  u64 other = in_memory ? same_in_all_lanes(run, pc, i->slots[2], 1) : 0;
  w->products++; w->last_product = pc;
  w->multiplied = (w->multiplied ^ pc ^ right ^ other << 1) * 0x9e3779b97f4a7c15ull;
  memset(f->no_row, 0, sizeof f->no_row);
  memset(f->no_column, 0, sizeof f->no_column);
  if (run->machine->check) registers_of_product(run, pc, sums, sum_count, left, in_memory ? 0 : 4);
  if (in_memory)
    factor_in_memory(run, pc, other, i->number, i->flags & CHANGES_TRANSPOSED_LEFT, first, 16, terms, f->left[0], MOST_TERMS, 1,
                     f->no_row);
  else factor_in_registers(w, left, i->number, terms, f);
  factor_in_memory(run, pc, right, i->right, i->flags & CHANGES_TRANSPOSED_RIGHT, 0, columns, terms, f->right[0], 1,
                   MOST_COLUMNS, f->no_column);
  sums_of(run, i, f, sums, keeps & 1);
}

// ---- groups -------------------------------------------------------------------------------------------------------
static void commit_products(Warp* w) {
  if (w->product_groups == w->product_room) {
    w->product_room = 2 * w->product_room + 8;
    w->product_ends = realloc(w->product_ends, w->product_room * sizeof(u32));
  }
  w->product_ends[w->product_groups++] = w->products;
  w->committed = w->products;
}
static void await_products(Warp* w, int left) {  // until at most so many groups are under way
  int done = w->product_groups - left;
  if (done <= 0) return;
  w->awaited = w->product_ends[done - 1];
  w->product_groups = left;
  memmove(w->product_ends, w->product_ends + done, left * sizeof(u32));
}
static void proxy_fence(Run* run) {
  run->warp->proxy_fence = ++run->stamp;
  run->warp->proxy_epoch = run->epoch;
}
static void compare_products(Run* run) {  // all warps of a warpgroup multiply the same
  for (int n = 0; n < run->warp_count; n++) {
    const Warp *its = &run->warps[n], *first = &run->warps[n - n % WARPGROUP];
    int pc = its->last_product ? its->last_product : first->last_product;
    run->number = n;
    if (its->multiplied != first->multiplied)
      report(run, KIND_WARPGROUP_DISAGREES, pc, -1, NOWHERE, 0, -1, n - n % WARPGROUP, -1);
  }
}
