// Copies of one value that differ. After a butterfly shuffle lane i combines its value with that of lane i ^ d, and lane
// i ^ d does the same the other way round: both hold one total. Where the compiler fuses a product into one side's sum,
// the two totals are not the same bits. So a sum, product or extremum of a shuffled value is looked at, if what it is
// combined with is, in the other lane, just what was shuffled (but for the rounding of a product).

typedef struct { int distance; f64 largest[2][LANES]; } Meeting;  // [half of a pair of 16 bits]

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
static f64 last_digits(int number) {  // what differs by no more than this share is a matter of rounding
  switch (number) {
    case NUMBER_F16: case NUMBER_F16_PAIR: return 0x1p-8;
    case NUMBER_BF16: case NUMBER_BF16_PAIR: return 0x1p-5;
    case NUMBER_F32: return 0x1p-20;
    default: return 0x1p-48;
  }
}
static int is_pair(int number) { return number == NUMBER_F16_PAIR || number == NUMBER_BF16_PAIR; }
static int near(f64 a, f64 b, f64 largest, int number) { return a == b || (a != a && b != b) || fabs(a - b) <= last_digits(number) * largest; }

// The only operand that was shuffled, or -1.
static int shuffled_operand(const Warp* w, const Instruction* i, const s32* operands) {
  int found = -1;
  for (int k = 0; k < i->operands; k++) {
    if (!w->distance[operands[k] / REGISTER_BYTES]) continue;
    if (found >= 0) return -1;
    found = k;
  }
  return found;
}

// How far away all of what was shuffled among the operands comes from; 0 if from several places. The halves of 64 bits are
// shuffled one by one.
static int only_distance(const Warp* w, const Instruction* i, const s32* operands) {
  int found = 0;
  for (int k = 0; k < i->operands; k++) {
    int distance = w->distance[operands[k] / REGISTER_BYTES];
    if (distance && found && distance != found) return 0;
    found = distance ? distance : found;
  }
  return found;
}

// Whether lanes meet in this instruction; before it writes.
static int lanes_meet(const Warp* w, const Instruction* i, const s32* operands, Meeting* meeting) {
  int shuffled = shuffled_operand(w, i, operands);
  if (shuffled < 0 || (i->operands == 3 && shuffled != 2)) return 0;
  meeting->distance = w->distance[operands[shuffled] / REGISTER_BYTES];
  for (int half = 0; half <= is_pair(i->number); half++)
    for (int l = 0; l < LANES; l++) {
      int other = l ^ meeting->distance;
      f64 its = number_in(w->registers + operands[shuffled], i->number, l, half);
      f64 own = number_in(w->registers + operands[shuffled ? 0 : 1], i->number, other, half);
      if (i->operands == 3) own *= number_in(w->registers + operands[1], i->number, other, half);
      if (!near(its, own, fabs(its), i->number)) return 0;
      meeting->largest[half][l] = fabs(its);
    }
  return 1;
}
// Whether two lanes that met hold different bits; after it has written.
static int copies_differ(const Warp* w, const Instruction* i, const Meeting* meeting) {
  int differ = 0;
  for (int half = 0; half <= is_pair(i->number); half++)
    for (int l = 0; l < LANES; l++) {
      int other = l ^ meeting->distance;
      const u8* result = w->registers + i->slots[0];
      f64 mine = number_in(result, i->number, l, half), its = number_in(result, i->number, other, half);
      if (mine == its || (mine != mine && its != its)) continue;
      if (!near(mine, its, fmax(fmax(fabs(mine), fabs(its)), fmax(meeting->largest[half][l], meeting->largest[half][other])), i->number)) return 0;
      differ = 1;
    }
  return differ;
}
