// Copies of one value that differ. After a butterfly shuffle lane i combines its value with that of lane i ^ d, and
// lane i ^ d does the same the other way round: both hold one total. Where the compiler fuses a product into one side's
// sum, the two totals are not the same bits. So a sum, product or extremum of a shuffled value is looked at, if what it
// is combined with is, in the other lane, just what was shuffled (but for the rounding of a product).

// `half` of a pair of 16 bits.
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
static int near(f64 a, f64 b, int number) {
  return a == b || (a != a && b != b) || fabs(a - b) <= last_digits(number) * fabs(a);
}

// One that was shuffled: the last one.
static int shuffled_operand(const Warp* w, const Instruction* i, const s32* operands) {
  int k = i->operands - 1;
  while (!w->distance[operands[k] / REGISTER_BYTES]) k--;
  return k;
}

// Whether the lanes that take part in this instruction meet in it; before it writes.
static int lanes_meet(const Warp* w, const Instruction* i, const s32* operands, u32 mask) {
  int shuffled = shuffled_operand(w, i, operands), distance = w->distance[operands[shuffled] / REGISTER_BYTES];
  if (i->operands == 3 && shuffled != 2) return 0;
  if (distance & (distance - 1)) return 0;  // one shuffle after another turns lanes around, and sums none
  for (int half = 0; half <= is_pair(i->number); half++)
    EACH_LANE(l, mask) {
      int other = l ^ distance;
      if (!(mask >> other & 1)) return 0;
      f64 its = number_in(w->registers + operands[shuffled], i->number, l, half);
      f64 own = number_in(w->registers + operands[shuffled ? 0 : 1], i->number, other, half);
      if (i->operands == 3) own *= number_in(w->registers + operands[1], i->number, other, half);
      if (!near(its, own, i->number)) return 0;
    }
  return 1;
}
// Whether two lanes that met hold different bits; after it has written.
static int copies_differ(const Warp* w, const Instruction* i, u32 mask, int distance) {
  const u8* result = w->registers + i->slots[0];
  for (int half = 0; half <= is_pair(i->number); half++)
    EACH_LANE(l, mask) {
      f64 mine = number_in(result, i->number, l, half), its = number_in(result, i->number, l ^ distance, half);
      if (mine != its && mine == mine) return 1;  // whoever is alone with NaN is seen from the other side
    }
  return 0;
}
