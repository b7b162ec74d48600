// What operations of PTX are made of, for one lane. Values are those of the hardware: one NaN, denormals unless .ftz.
//
// The flags matter: no contraction (each product and sum is rounded where it stands), wrapping integers, no fast math.
// The rounding mode is never changed: directed rounding is computed from exact sums, so that -fno-trapping-math is harmless.
#ifndef ARITHMETIC_H
#define ARITHMETIC_H
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef float f32;
typedef double f64;
typedef __float128 f128;
typedef __int128 s128;
typedef unsigned __int128 u128;

// ---- numbers and their bits

static inline u32 bits32(f32 x) { u32 u; memcpy(&u, &x, 4); return u; }
static inline f32 float32(u32 u) { f32 x; memcpy(&x, &u, 4); return x; }
static inline u64 bits64(f64 x) { u64 u; memcpy(&u, &x, 8); return u; }
static inline f64 float64(u64 u) { f64 x; memcpy(&x, &u, 8); return x; }
static inline u128 bits128(f128 x) { u128 u; memcpy(&u, &x, 16); return u; }
static inline f128 float128(u128 u) { f128 x; memcpy(&x, &u, 16); return x; }

// The hardware answers every NaN by the same one; a CPU keeps payloads, and lanes that agree would seem to differ.
static inline f32 one_nan32(f32 x) { return x != x ? float32(0x7fffffffu) : x; }
static inline f64 one_nan64(f64 x) { return x != x ? float64(0x7fffffffffffffffull) : x; }

// .ftz: denormals are zeros of the same sign, as operands and as results
static inline f32 ftz32(f32 x) {
  u32 u = bits32(x);
  return float32(u & 0x7f800000u ? u : u & 0x80000000u);
}
static inline f64 ftz64(f64 x) {
  u64 u = bits64(x);
  return float64(u & 0x7ff0000000000000ull ? u : u & 0x8000000000000000ull);
}
static inline u16 ftz_f16(u16 u) { return u & 0x7c00 ? u : u & 0x8000; }
static inline u16 ftz_bf16(u16 u) { return u & 0x7f80 ? u : u & 0x8000; }

// .sat: into [0, 1]; NaN and -0 become +0
static inline f64 sat64(f64 x) { return x > 0 ? (x < 1 ? x : 1.0) : 0.0; }
static inline f32 sat32(f32 x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// .relu: what is negative becomes +0; NaN stays
static inline f64 relu64(f64 x) { return x > 0 || x != x ? x : 0.0; }
static inline f32 relu32(f32 x) { return x > 0 || x != x ? x : 0.0f; }

// ---- rounding to odd, and in a direction
//
// A result that is cut towards zero, its last bit set where anything was lost, may be rounded again to any format that is
// two bits shorter: the outcome is that of rounding once. Sums of products are made so in the next wider type.

// sum is nearest to the exact value, which is sum + rest
static inline f64 odd_of64(f64 sum, f64 rest) {
  u64 u = bits64(sum);
  if (!(rest < 0 || rest > 0) || (u & 1)) return sum;
  return float64((rest > 0) == (sum > 0) ? u + 1 : u - 1);
}
static inline f128 odd_of128(f128 sum, f128 rest) {
  u128 u = bits128(sum);
  if (!(rest < 0 || rest > 0) || (u & 1)) return sum;
  return float128((rest > 0) == (sum > 0) ? u + 1 : u - 1);
}
// the rest of a sum is a number of the same type (Knuth's two-sum); it is NaN where the sum is not finite
static inline f64 sum_odd64(f64 a, f64 b) {
  f64 sum = a + b, part = sum - a;
  return odd_of64(sum, (a - (sum - part)) + (b - part));
}
static inline f128 sum_odd128(f128 a, f128 b) {
  f128 sum = a + b, part = sum - a;
  return odd_of128(sum, (a - (sum - part)) + (b - part));
}
// the remainders of quotients and roots of f32 are exact in f64
static inline f64 quotient_odd64(f64 a, f64 b) {
  f64 quotient = a / b;
  return odd_of64(quotient, __builtin_fma(-quotient, b, a) / b);
}
static inline f64 root_odd64(f64 a) {
  f64 root = __builtin_sqrt(a);
  return odd_of64(root, __builtin_fma(-root, root, a));
}

// towards zero: one step back from the nearest, if that lies beyond
static inline f32 rz32(f64 x) {
  f32 nearest = (f32)x;
  return __builtin_fabs((f64)nearest) > __builtin_fabs(x) ? float32(bits32(nearest) - 1) : nearest;
}
static inline f64 rz64(f128 x) {
  f64 nearest = (f64)x;
  f128 found = nearest;
  return (found < 0 ? -found : found) > (x < 0 ? -x : x) ? float64(bits64(nearest) - 1) : nearest;
}
// upwards: one step up from the nearest, if that lies below. Downwards is the negative of upwards of the negative.
static inline f32 rp32(f64 x) {
  f32 nearest = (f32)x;
  u32 u = bits32(nearest);
  return (f64)nearest < x ? float32(nearest == 0 ? 1 : nearest > 0 ? u + 1 : u - 1) : nearest;
}
static inline f64 rp64(f128 x) {
  f64 nearest = (f64)x;
  u64 u = bits64(nearest);
  return (f128)nearest < x ? float64(nearest == 0 ? 1 : nearest > 0 ? u + 1 : u - 1) : nearest;
}
static inline f32 rm32(f64 x) { return -rp32(-x); }
static inline f64 rm64(f128 x) { return -rp64(-x); }

// integers of 64 bits are exact in f128
static inline f64 odd64(f128 x) {
  f64 cut = rz64(x);
  return (f128)cut == x ? cut : float64(bits64(cut) | 1);
}

// ---- small floats, kept as bits

// The code of a magnitude (which is no NaN, and below 2^1000) in a format of `fraction` bits behind the point whose
// smallest normal number is 2^lowest: counted in units of its last place. A count that is rounded up to the next power of
// two carries into the exponent by itself.
static inline u32 code_of(f64 magnitude, s32 fraction, s32 lowest, int cut) {
  s32 exponent = (s32)(bits64(magnitude) >> 52) - 1023;
  exponent = exponent < lowest ? lowest : exponent;
  f64 count = magnitude * float64((u64)(1023 + fraction - exponent) << 52);
  return ((u32)(exponent - lowest) << fraction) + (u32)(s32)(cut ? __builtin_trunc(count) : __builtin_rint(count));
}
static inline u16 f16_code(f64 x, int cut) {
  f64 magnitude = __builtin_fabs(x);
  f64 most = cut && magnitude < INFINITY ? 65504.0 : 65536.0;  // 2^16 has the code of infinity
  u16 code = (u16)code_of(magnitude < most ? magnitude : most, 10, -14, cut);
  return x != x ? 0x7fff : (u16)(bits64(x) >> 63 << 15 | code);
}
static inline u16 bf16_code(f64 x, int cut) {
  f64 magnitude = __builtin_fabs(x);
  f64 most = cut && magnitude < INFINITY ? 0x1.fep127 : 0x1p128;
  u16 code = (u16)code_of(magnitude < most ? magnitude : most, 7, -126, cut);
  return x != x ? 0x7fff : (u16)(bits64(x) >> 63 << 15 | code);
}
static inline u16 f16_rn(f64 x) { return f16_code(x, 0); }
static inline u16 f16_rz(f64 x) { return f16_code(x, 1); }
static inline u16 bf16_rn(f64 x) { return bf16_code(x, 0); }
static inline u16 bf16_rz(f64 x) { return bf16_code(x, 1); }

// .satfinite: what is too large, and infinity, becomes the largest number
static inline u16 e4m3_rn(f64 x) {
  f64 magnitude = __builtin_fabs(x);
  u32 code = code_of(magnitude < 448.0 ? magnitude : 448.0, 3, -6, 0);
  return x != x ? 0x7f : (u16)(bits64(x) >> 63 << 7 | code);
}
static inline u16 e5m2_rn(f64 x) {
  f64 magnitude = __builtin_fabs(x);
  u32 code = code_of(magnitude < 57344.0 ? magnitude : 57344.0, 2, -14, 0);
  return x != x ? 0x7f : (u16)(bits64(x) >> 63 << 7 | code);
}

static inline f32 bf16_value(u16 u) { return float32((u32)u << 16); }
// the exponent of a half is 112 less than that of the same float; the largest one stands for infinity and NaN
static inline f32 f16_value(u16 u) {
  f32 magnitude = float32((u32)(u & 0x7fff) << 13) * 0x1p112f;
  u32 special = (u & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
  return float32(bits32(magnitude) | special | (u32)(u & 0x8000) << 16);
}
// e4m3 has no infinity, e5m2 is the upper half of a half
static inline f32 e4m3_value(u8 u) {
  f32 magnitude = float32((u32)(u & 0x7f) << 20) * 0x1p120f;
  return (u & 0x7f) == 0x7f ? float32(0x7fffffffu) : float32(bits32(magnitude) | (u32)(u & 0x80) << 24);
}
static inline f32 e5m2_value(u8 u) { return f16_value((u16)(u << 8)); }

// tf32 are floats whose last 13 bits are zero; `half` is what is added before they are cut, to infinity too
static inline u32 tf32_of(f32 x, u32 half) { return x != x ? 0x7fffffffu : (bits32(x) + half) & 0xffffe000u; }
static inline u32 tf32_rna(f32 x) { return tf32_of(x, 0x1000); }
static inline u32 tf32_rn(f32 x) { return tf32_of(x, 0xfff + (bits32(x) >> 13 & 1)); }
static inline u32 tf32_rz(f32 x) { return tf32_of(x, 0); }

// ---- the smaller and the larger: -0 is below +0, a NaN counts for nothing, unless it counts for everything (.NaN)

static inline f32 min32(f32 a, f32 b) {
  f32 less = a < b ? a : b < a ? b : float32(bits32(a) | bits32(b));
  return a != a ? b : b != b ? a : less;
}
static inline f32 max32(f32 a, f32 b) {
  f32 more = a > b ? a : b > a ? b : float32(bits32(a) & bits32(b));
  return a != a ? b : b != b ? a : more;
}
static inline f64 min64(f64 a, f64 b) {
  f64 less = a < b ? a : b < a ? b : float64(bits64(a) | bits64(b));
  return a != a ? b : b != b ? a : less;
}
static inline f64 max64(f64 a, f64 b) {
  f64 more = a > b ? a : b > a ? b : float64(bits64(a) & bits64(b));
  return a != a ? b : b != b ? a : more;
}
static inline f32 min_nan32(f32 a, f32 b) { return a != a || b != b ? a + b : min32(a, b); }
static inline f32 max_nan32(f32 a, f32 b) { return a != a || b != b ? a + b : max32(a, b); }
// .xorsign: the sign is that of a·b
static inline f32 xorsign32(f32 x, f32 a, f32 b) {
  u32 sign = (bits32(a) ^ bits32(b)) & 0x80000000u;
  return float32((bits32(x) & 0x7fffffffu) | sign);
}

// ---- approximations: the nearest value, or with -DNOISE one up to two units beside it
//
// Which one follows from the value, so that lanes that compute the same agree, as they do on a device.

#ifdef NOISE
static inline s32 deviation(u64 u) { return (s32)((u * 0x9e3779b97f4a7c15ull) >> 59) % 5 - 2; }
static inline f32 noisy32(f32 x) {
  f32 magnitude = __builtin_fabsf(x);  // zero, infinity and NaN are what they are, and no denormal comes into being
  return magnitude > 0x1p-125f && magnitude < 0x1p127f ? float32(bits32(x) + (u32)deviation(bits32(x))) : x;
}
static inline f64 noisy64(f64 x) {
  f64 magnitude = __builtin_fabs(x);
  return magnitude > 0x1p-1021 && magnitude < 0x1p1023 ? float64(bits64(x) + (u64)(s64)deviation(bits64(x))) : x;
}
#define NOISY(x) _Generic((x), f32: noisy32, f64: noisy64)(x)
#else
#define NOISY(x) (x)
#endif

static inline f32 exp2_32(f32 x) { return (f32)exp2((f64)x); }
static inline f32 log2_32(f32 x) { return (f32)log2((f64)x); }
static inline f32 sin_32(f32 x) { return (f32)sin((f64)x); }
static inline f32 cos_32(f32 x) { return (f32)cos((f64)x); }
static inline f32 tanh_32(f32 x) { return (f32)tanh((f64)x); }
static inline f32 rsqrt_32(f32 x) { return (f32)(1.0 / __builtin_sqrt((f64)x)); }
// what is nearly right, times (1 - wrong)^-1/2 as 1 + wrong/2 + 3/8 wrong², in f128
static inline f64 rsqrt_64(f64 x) {
  f64 found = 1.0 / __builtin_sqrt(x);
  f128 wrong = 1 - (f128)x * found * found;
  return x > 0 && x < INFINITY ? (f64)(found + found * wrong * (0.5 + 0.375 * wrong)) : found;
}

// div.approx multiplies by the reciprocal, which is zero for the largest divisors
static inline f32 div_approx32(f32 a, f32 b) {
  f32 size = __builtin_fabsf(b);
  return size > 0x1p126f && size < INFINITY ? a * (b < 0 ? -0.0f : 0.0f) : a / b;
}
// .approx.ftz.f64 sees and sets the upper halves only
static inline f64 upper64(f64 x) { return float64(bits64(x) & 0xffffffff00000000ull); }

// ---- integers from floats: the nearest that there is; of NaN see `conversions.py`

static inline s32 s32_of(f64 x) { return x >= 0x1p31 ? 2147483647 : x <= -0x1p31 ? -2147483647 - 1 : (s32)x; }
static inline u32 u32_of(f64 x) { return x >= 0x1p32 ? 0xffffffffu : x > 0 ? (u32)(s64)x : 0; }
static inline s64 s64_of(f64 x) { return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (s64)x; }
static inline u64 u64_of(f64 x) { return x >= 0x1p64 ? UINT64_MAX : x > 0 ? (u64)x : 0; }

// ---- bits

static inline s64 clamp(s64 x, s64 least, s64 most) { return x < least ? least : x > most ? most : x; }

// each of the four lower nibbles of `how` chooses a byte of b:a, or (8) the sign of that byte, eight times
static inline u32 prmt(u32 a, u32 b, u32 how) {
  u64 bytes = (u64)b << 32 | a;
  u32 all = 0;
  for (int i = 0; i < 4; i++) {
    u32 choice = how >> 4 * i & 15;
    u32 byte = (u32)(bytes >> 8 * (choice & 7)) & 255;
    all |= (choice & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return all;
}
// bit i of `table` is the result where a, b and c have the bits of i
static inline u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 all = 0;
  for (int i = 0; i < 8; i++)
    if (table >> i & 1) all |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return all;
}

// `count` bits of a from bit `first` on; the sign is copied from the last of them, or from that of a beyond its end
static inline u64 field_u(u64 a, u32 first, u32 count) {
  u64 rest = first > 63 ? 0 : a >> first;
  return count > 63 ? rest : rest & (((u64)1 << count) - 1);
}
static inline s64 field_s(s64 a, u32 first, u32 count) {
  s64 rest = a >> (first > 63 ? 63 : first);
  return count == 0 ? 0 : count > 63 ? rest : (s64)((u64)rest << (64 - count)) >> (64 - count);
}
// b with `count` bits of a in it, from bit `first` on
static inline u64 insert(u64 a, u64 b, u32 first, u32 count) {
  u64 mask = first > 63 ? 0 : (count > 63 ? ~(u64)0 : ((u64)1 << count) - 1) << first;
  return (b & ~mask) | (first > 63 ? 0 : a << first & mask);
}
static inline u32 reversed32(u32 a) {
  a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
  a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
  a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(a);
}
static inline u64 reversed64(u64 a) { return (u64)reversed32((u32)a) << 32 | reversed32((u32)(a >> 32)); }
// the place of the highest bit that is set; -1 if there is none
static inline u32 highest(u64 a) { return a ? 63u - (u32)__builtin_clzll(a) : 0xffffffffu; }
#endif
