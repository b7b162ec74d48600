"""Functions that kernels call; their texts stand before the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable

HELPERS = {
    "_threefry": (
        "def _threefry(k, l, x, y):\n"
        "    m = k ^ l ^ 0x1BD11BDA\n"
        "    x, y = _four_rounds(x + k, y + l, 13, 15, 26, 6)\n"
        "    x, y = _four_rounds(x + l, y + m + 1, 17, 29, 16, 24)\n"
        "    x, y = _four_rounds(x + m, y + k + 2, 13, 15, 26, 6)\n"
        "    x, y = _four_rounds(x + k, y + l + 3, 17, 29, 16, 24)\n"
        "    x, y = _four_rounds(x + l, y + m + 4, 13, 15, 26, 6)\n"
        "    return x + m, y + k + 5\n"
    ),
    "_four_rounds": (
        "def _four_rounds(x, y, a: tl.constexpr, b: tl.constexpr, c: tl.constexpr, d: tl.constexpr):\n"
        "    x += y\n"
        "    y = x ^ (y << a | y >> (32 - a))\n"
        "    x += y\n"
        "    y = x ^ (y << b | y >> (32 - b))\n"
        "    x += y\n"
        "    y = x ^ (y << c | y >> (32 - c))\n"
        "    x += y\n"
        "    y = x ^ (y << d | y >> (32 - d))\n"
        "    return x, y\n"
    ),
    "_philox": (
        "def _philox(k, l, a, b, c, d):\n"
        "    for _ in tl.static_range(10):\n"
        "        x, y = tl.umulhi(a, 0xD2511F53), tl.umulhi(c, 0xCD9E8D57)\n"
        "        a, b, c, d = y ^ b ^ k, c * 0xCD9E8D57, x ^ d ^ l, a * 0xD2511F53\n"
        "        k, l = k + 0x9E3779B9, l + 0xBB67AE85\n"
        "    return a, b, c, d\n"
    ),
    # Copies of one sum have to be equal, whichever lane holds them: a loop may go on by it, or its result be stored by
    # all. As `a + b`, a product on one side is fused with the addition, which rounds once instead of twice; then lane 0
    # has fma(x0, y0, x1 * y1) and lane 1 has fma(x1, y1, x0 * y0). Nor does Triton make a dot of TF32 of this one.
    # Where a total is wanted in two layouts, Triton sums up twice, in two orders, unless it finds an addition or a
    # multiplication of its own among what is done: so there are two of them, which LLVM drops. The terms that a thread
    # has by itself are fused after all, by `launch/compile/join.py`.
    # Like all of libdevice in Triton it takes subnormal floats for zeros. ROCm's library has no such addition, and LLVM
    # makes a plain one of `fma(a, 1, b)`, which it then fuses after all: there it is an instruction, and what a thread
    # has by itself is not fused either.
    "_add": (
        "def _add(a, b):\n"
        "    # rounded by itself, so that copies are equal, and no TF32 dot; -1 twice: it is summed in one order only\n"
        "    a = a * -1.0 * -1.0\n"
        "    if hasattr(libdevice, 'add_rn'):\n"
        "        return libdevice.add_rn(a, b)\n"
        "    word: tl.constexpr = 'v_add_f32 $0, $1, $2' if a.dtype == tl.float32 else 'v_add_f64 $0, $1, $2'\n"
        "    return tl.inline_asm_elementwise(word, '=v,v,v', [a, b], a.dtype, True, 1)\n"
    ),
    # A product that is stored and goes on as well has to be the one that is stored: what reads it may look for what was
    # chosen of it here, and finds it nowhere if it was fused with an addition.
    "_product": (
        "def _product(a, b):\n"
        "    # rounded by itself: what goes on is what is stored\n"
        "    if hasattr(libdevice, 'mul_rn'):\n"
        "        return libdevice.mul_rn(a, b)\n"
        "    word: tl.constexpr = 'v_mul_f32 $0, $1, $2' if a.dtype == tl.float32 else 'v_mul_f64 $0, $1, $2'\n"
        "    return tl.inline_asm_elementwise(word, '=v,v,v', [a, b], a.dtype, True, 1)\n"
    ),
    # Triton combines what warps have in one of them, and tells the others: warps meet twice.
    "_in_each_warp": (
        "def _in_each_warp(x):\n"
        "    # all of it in the lanes of each warp, which combine it by themselves\n"
        "    return tl.gather(x, tl.arange(0, x.numel), axis=0)\n"
    ),
    # 8 instructions of a thread, where a quotient and the library's exponential are 19, as exact as those.
    "_sigmoid": (
        "def _sigmoid(x):\n"
        "    # 1 / (1 + exp(-x)), and exp(-x) as 2**-y (1 + rest): what rounding leaves out of y\n"
        "    y = x * 1.4426950408889634\n"
        "    rest = tl.clamp(tl.fma(y, 0.6931471805599453, -1.0 * x), -0.5, 0.5)\n"
        "    return libdevice.fast_dividef(1.0, tl.fma(tl.exp2(-1.0 * y), 1 + rest, 1.0))\n"
    ),
    "_sigmoid16": (
        "def _sigmoid16(x):\n"
        "    # for 16 bits: 2**-y has 18 of them where y is large\n"
        "    return 1 / (1 + tl.exp2(x * -1.4426950408889634))\n"
    ),
    # The library's has a branch for small numbers, which threads of a warp take one after the other: both sides are
    # short. The polynomial is off by a third of a unit in the last place.
    "_tanh": (
        "def _tanh(x):\n"
        "    size = tl.abs(x)\n"
        "    square = x * x\n"
        "    series = tl.fma(tl.fma(0.01643758, square, -0.05267181), square, 0.13320725)\n"
        "    small = tl.fma(tl.fma(series, square, -0.33332947) * square, size, size)\n"
        "    large = 1 - libdevice.fast_dividef(2.0, 1 + tl.exp2(size * 2.8853900817779268))\n"
        "    return libdevice.copysign(tl.where(size < 0.55, small, large), x)\n"
    ),
    "_tanh16": (
        "def _tanh16(x):\n"
        "    # to 19 bits: a sigmoid, whose difference from one half would lose those of small numbers\n"
        "    return tl.where(tl.abs(x) < 0.0625, x * (1 - x * x / 3), 2 * _sigmoid16(2 * x) - 1)\n"
    ),
    # Who comes adds one, and the first program what makes it 2**31 with all the others: so the sign changes when all
    # are here, and the count never runs over. Who waits acquires what the others have released, and the barriers hand
    # that to all threads. In a device where not all programs run at once they would wait for ever: hence the bound, of
    # some ten seconds, behind which the kernel ends in an error.
    "_all_meet": (
        "def _all_meet(met_ptr, programs: tl.constexpr):\n"
        "    # all programs come here before one goes on, and see what the others have stored\n"
        "    tl.debug_barrier()\n"
        "    first = tl.program_id(0) + tl.program_id(1) + tl.program_id(2) == 0\n"
        "    came = tl.atomic_add(met_ptr, tl.where(first, 2147483649 - programs, 1), sem='release')\n"
        "    rounds = 0\n"
        "    while ((came ^ tl.atomic_add(met_ptr, 0, sem='acquire')) >= 0) & (rounds < 16777216):\n"
        "        rounds += 1\n"
        "    tl.device_assert(rounds < 16777216, 'programs that meet have to run at once')\n"
        "    tl.debug_barrier()\n"
    ),
    "_maximum": "def _maximum(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)\n",
    "_minimum": "def _minimum(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)\n",
    # For running sums, of which every copy of an element is made in one order: it may well be fused with a product.
    "_plus": "def _plus(a, b):\n    return a + b\n",
    "_multiply": "def _multiply(a, b):\n    return a * b\n",
    "_both": "def _both(a, b):\n    return a & b\n",
    "_either": "def _either(a, b):\n    return a | b\n",
    "_differ": "def _differ(a, b):\n    return a ^ b\n",
    "_logaddexp": (
        "def _logaddexp(a, b):\n"
        "    apart = a - b  # NaN for infinities of one sign, whose sum is the same infinity\n"
        "    sum = tl.maximum(a, b) + libdevice.log1p(libdevice.exp(-tl.abs(apart)))\n"
        "    return tl.where(apart == apart, sum, a + b)\n"
    ),
    # The place in the low bits tells equal keys apart, and is what is left.
    "_places": (
        "def _places(key, lane):\n"
        "    # keys in the high bits, places in the low ones\n"
        "    return tl.sort((key.to(tl.int64) << 32) | lane).to(tl.int32)\n"
    ),
    "_places_of_short": (
        "def _places_of_short(key, lane):\n"
        "    # keys in the high bits, places in the low ones\n"
        "    return tl.sort((key.to(tl.int32) << 16) | lane) & 0xFFFF\n"
    ),
    # A lane that goes through its places in order keeps the first of equal numbers, and the first NaN.
    "_next_max": (
        "def _next_max(a, i, b, j):\n"
        "    better = ~(b <= a) & (a == a)\n"
        "    return tl.where(better, b, a), tl.where(better, j, i)\n"
    ),
    "_next_min": (
        "def _next_min(a, i, b, j):\n"
        "    better = ~(b >= a) & (a == a)\n"
        "    return tl.where(better, b, a), tl.where(better, j, i)\n"
    ),
    "_first_max": (
        "def _first_max(a, i, b, j):\n"
        "    later = (b > a) | ((b != b) & (a == a)) | (((a == b) | ((a != a) & (b != b))) & (j < i))\n"
        "    return tl.where(later, b, a), tl.where(later, j, i)\n"
    ),
    "_first_min": (
        "def _first_min(a, i, b, j):\n"
        "    later = (b < a) | ((b != b) & (a == a)) | (((a == b) | ((a != a) & (b != b))) & (j < i))\n"
        "    return tl.where(later, b, a), tl.where(later, j, i)\n"
    ),
}


def with_callees(name: str) -> tuple[str, ...]:
    """The function, after those that it calls."""
    called = [other for other in HELPERS if other != name and re.search(rf"\b{other}\(", HELPERS[name])]
    return (*(each for other in called for each in with_callees(other)), name)


def texts_of(names: Iterable[str]) -> str:
    """What stands before a kernel that calls these."""
    return "".join(f"@triton.jit\n{HELPERS[name]}\n\n" for name in names)
