// Copies of one value that differ. After a butterfly shuffle lane i combines its value with that of lane i ^ d, and lane
// i ^ d does the same the other way round: both hold one total. Where the compiler fuses a product into one side's sum,
// the two totals are not the same bits. So the first sum, product or choice after a butterfly is looked at: all pairs of
// lanes agree but for the last digits, and some of them not in those.

static f64 number_in(const u8* row, int number, int lane, int half) {
  switch (number) {
    case NUMBER_F16: return f16_value(((const u16*)row)[lane]);
    case NUMBER_BF16: return bf16_value(((const u16*)row)[lane]);
    case NUMBER_F16_PAIR: return f16_value(((const u16*)row)[2 * lane + half]);
    case NUMBER_BF16_PAIR: return bf16_value(((const u16*)row)[2 * lane + half]);
    case NUMBER_F32: return ((const f32*)row)[lane];
    default: return ((const f64*)row)[lane];
  }
}
static f64 digits_of(int number) {  // what differs by less than this share is a matter of rounding
  switch (number) {
    case NUMBER_F16: case NUMBER_F16_PAIR: return 0x1p-7;
    case NUMBER_BF16: case NUMBER_BF16_PAIR: return 0x1p-4;
    case NUMBER_F32: return 0x1p-18;
    default: return 0x1p-46;
  }
}
static int is_pair(int number) { return number == NUMBER_F16_PAIR || number == NUMBER_BF16_PAIR; }

// The largest operand of each lane: a total of numbers that cancel is as exact as they are.
static void sizes_of(const Warp* w, const Instruction* i, const s32* operands, f64 size[LANES]) {
  for (int l = 0; l < LANES; l++) {
    size[l] = 0;
    for (int k = 0; k < i->operands; k++)
      for (int half = 0; half <= is_pair(i->number); half++) size[l] = fmax(size[l], fabs(number_in(w->registers + operands[k], i->number, l, half)));
  }
}

static int copies_differ(const Warp* w, const Instruction* i, int distance, const f64 size[LANES]) {
  int differ = 0;
  for (int l = 0; l < LANES; l++)
    for (int half = 0; half <= is_pair(i->number); half++) {
      int other = l ^ distance;
      f64 mine = number_in(w->registers + i->slots[0], i->number, l, half), its = number_in(w->registers + i->slots[0], i->number, other, half);
      if (mine == its || (mine != mine && its != its)) continue;
      f64 largest = fmax(fmax(fabs(mine), fabs(its)), fmax(size[l], size[other]));
      if (!(fabs(mine - its) <= digits_of(i->number) * largest)) return 0;  // two values, not two copies
      differ = 1;
    }
  return differ;
}
