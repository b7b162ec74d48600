// What the lanes of a warp do together: shuffles, votes, reductions, and products of matrices.

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };

// The lane that lane `l` reads of; itself if there is none in its segment.
static int source_lane(int way, int l, u32 b, u32 c, int* inside) {
  int by = b & 31, clamp = c & 31, segment = c >> 8 & 31, last = (l & segment) | (clamp & ~segment), source;
  switch (way) {
    case SHUFFLE_UP: source = l - by; *inside = source >= last; break;
    case SHUFFLE_DOWN: source = l + by; *inside = source <= last; break;
    case SHUFFLE_BUTTERFLY: source = l ^ by; *inside = source <= last; break;
    default: source = (l & segment) | (by & ~segment); *inside = source <= last;
  }
  return *inside ? source : l;
}

static void shuffle(Run* run, const Instruction* i, int pc, u32 mask) {
  if (!mask) return;
  Warp* w = run->warp;
  const s32* slots = i->slots + i->results;
  const u32 *value = (u32*)(w->registers + slots[0]), *b = (u32*)(w->registers + slots[1]);
  const u32* c = (u32*)(w->registers + slots[2]);
  u64 of_value = faults_of(w, slots[0]), of_place = faults_of(w, slots[1]) | faults_of(w, slots[2]), faults = 0;
  u32 out[LANES], all_inside = 0;
  int first = __builtin_ctz(mask), distance = b[first] & 31, same_distance = 1;
  int moved = w->distance[slots[0] / REGISTER_BYTES];
  int whole = (c[first] & 0x1f1f) == 0x1f;  // not in segments
  EACH_LANE(l, mask) {
    int inside, source = source_lane(i->flags, l, b[l], c[l], &inside);
    out[l] = value[source];
    all_inside |= (u32)inside << l;
    same_distance &= b[l] == b[first];
    u64 one = ((of_value >> source) & 0x100000001ull) | ((of_place >> l) & 0x100000001ull);
    if (!(mask >> source & 1)) {
      report(run, KIND_ABSENT_LANE, pc, -1, NOWHERE, 0, l, -1, source);
      one = 1;
    }
    faults |= one << l;
  }
  u32* result = (u32*)(w->registers + i->slots[0]);
  EACH_LANE(l, mask) result[l] = out[l];
  set_faults(w, i->slots[0], mask, faults);
  if (i->results > 1) {
    u32* predicate = (u32*)(w->registers + i->slots[1]);
    EACH_LANE(l, mask) predicate[l] = all_inside >> l & 1;
    set_faults(w, i->slots[1], mask, of_place);
  }
  if (!same_distance) return;
  if (i->flags == SHUFFLE_BUTTERFLY) w->distance[i->slots[0] / REGISTER_BYTES] = (u8)(moved ^ distance);
  if (i->flags == SHUFFLE_INDEX && whole)  // all that take part have one lane's copy now
    set_faults(w, i->slots[0], mask, UNDEFINED(faults));
}

static u32 reduced(const Instruction* i, const u32* values, u32 mask) {
  u64 total = values[__builtin_ctz(mask)];
  EACH_LANE(l, mask & (mask - 1)) total = combined(i->reduces, i->number, total, values[l], 0, 4);
  return (u32)total;
}
static u32 voted(const Instruction* i, const u32* values, u32 mask) {
  u32 for_it = (i->negated & 2 ? ~lanes_that_hold(values) : lanes_that_hold(values)) & mask;
  switch (i->flags) {
    case 0: return for_it;
    case 1: return for_it == mask;
    case 2: return for_it != 0;
    default: return for_it == mask || !for_it;
  }
}
static void together(Run* run, const Instruction* i, u32 mask) {  // redux and vote: all lanes get one result
  Warp* w = run->warp;
  if (!mask) return;
  const u32* values = (u32*)(w->registers + i->slots[1]);
  u32 result = i->action == ACTION_REDUX ? reduced(i, values, mask) : voted(i, values, mask);
  u32* out = (u32*)(w->registers + i->slots[0]);
  EACH_LANE(l, mask) out[l] = result;
  set_faults(w, i->slots[0], mask, UNDEFINED(faults_of(w, i->slots[1])) & mask ? ALL_LANES : 0);
}

// ---- mma.sync ----------------------------------------------------------------------------------------------------
// Lane l has elements of row l / 4 (and 8 below), and of columns that l % 4 picks: each register holds as many
// neighbours as fit into it. Sums are exact in the machine, and rounded once; a device rounds oftener, and says not
// where.

static f64 element(const u8* bits, int number, int n) {
  switch (number) {
    case NUMBER_F16: return f16_value(((const u16*)bits)[n]);
    case NUMBER_BF16: return bf16_value(((const u16*)bits)[n]);
    case NUMBER_F64: { f64 x; memcpy(&x, bits, 8); return x; }
    case NUMBER_SIGNED: return ((const s8*)bits)[n];
    case NUMBER_UNSIGNED: return bits[n];
    case NUMBER_E4M3: return e4m3_value(bits[n]);
    case NUMBER_E5M2: return e5m2_value(bits[n]);
    default: {
      u32 word; f32 x;
      memcpy(&word, bits + 4 * n, 4);
      word &= number == NUMBER_TF32 ? ~0x1fffu : ~0u;
      memcpy(&x, &word, 4);
      return x;
    }
  }
}
static void put_sum(u8* to, int number, int n, f64 sum) {
  switch (number) {
    case NUMBER_F16: ((u16*)to)[n] = f16_rn(sum); break;
    case NUMBER_F32: { f32 x = (f32)sum; memcpy(to, &x, 4); break; }
    case NUMBER_F64: memcpy(to, &sum, 8); break;
    default: { s32 x = (s32)(u32)(s64)sum; memcpy(to, &x, 4); }
  }
}
static int number_bytes(int number) {
  switch (number) {
    case NUMBER_F16: case NUMBER_BF16: return 2;
    case NUMBER_F64: return 8;
    case NUMBER_SIGNED: case NUMBER_UNSIGNED: case NUMBER_E4M3: case NUMBER_E5M2: return 1;
    default: return 4;
  }
}
static void product(Run* run, const Instruction* i) {
  Warp* w = run->warp;
  int m = i->shape[0], k = i->shape[2], tall = m / 8;
  int bytes = number_bytes(i->number), row = bytes == 8 ? 8 : 4, packed = row / bytes, across = 4 * packed;
  int sum = i->flags, sum_bytes = sum == NUMBER_SIGNED ? 4 : number_bytes(sum);
  int sum_row = i->row, sum_packed = sum_row / sum_bytes;
  int of_a = tall * k / across, of_b = k / across, of_c = tall * 2 / sum_packed;
  const s32 *d = i->slots, *a = d + of_c, *b = a + of_a, *c = b + of_b;
  static _Thread_local f64 left[16][64], right[64][8], total[16][8];
  u64 faults = 0;
  for (int r = 0; r < of_a + of_b + of_c; r++) faults |= faults_of(w, a[r]);
  for (int l = 0; l < LANES; l++) {
    int line = l / 4, column = packed * (l % 4);
    for (int r = 0; r < of_a; r++) for (int n = 0; n < packed; n++)
      left[line + 8 * (r % tall)][column + n + across * (r / tall)] =
        element(w->registers + a[r] + l * row, i->number, n);
    for (int r = 0; r < of_b; r++) for (int n = 0; n < packed; n++)
      right[column + n + across * r][line] = element(w->registers + b[r] + l * row, i->number, n);
    for (int n = 0; n < 2 * tall; n++) {
      const u8* at = w->registers + c[n / sum_packed] + l * sum_row;
      s32 whole; memcpy(&whole, at, 4);
      total[line + 8 * (n / 2)][2 * (l % 4) + n % 2] = sum == NUMBER_SIGNED ? whole : element(at, sum, n % sum_packed);
    }
  }
  for (int r = 0; r < m; r++) for (int n = 0; n < 8; n++) {
    for (int t = 0; t < k; t++) total[r][n] += left[r][t] * right[t][n];
    if (i->wide) total[r][n] = fmax(INT32_MIN, fmin(INT32_MAX, total[r][n]));
  }
  for (int l = 0; l < LANES; l++) for (int n = 0; n < 2 * tall; n++) {
    u8* to = w->registers + d[n / sum_packed] + l * sum_row;
    put_sum(to, sum, n % sum_packed, total[l / 4 + 8 * (n / 2)][2 * (l % 4) + n % 2]);
  }
  for (int r = 0; r < of_c; r++) set_faults(w, d[r], ALL_LANES, UNDEFINED(faults) ? ALL_LANES : 0);
}
