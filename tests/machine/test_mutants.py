"""The tests of operations notice small mistakes in them: nearly all of hundreds, and of the others it is said why."""

from __future__ import annotations

import re
from pathlib import Path

from jaxpr2triton.launch.machine.operations import usual_operations
from tests.machine.mutants import unnoticed
from tests.machine.spellings import RARE

EQUIVALENT = {  # what is shown of a mutant: why it is no mistake
    r"odd_of(64|128): .*(rest|sum) >\[→=\] 0": "neither is zero where this is asked",
    r"odd_of(64|128): .*\[1→2\]": "a bit or two beyond the end of the result, it does not matter which",
    r"odd64: .*\[1→2\]": "a bit or two beyond the end of the result, it does not matter which",
    r"quotient_odd64: .*\[/→\*\] b\)": "only the sign counts",
    r"r[zp](32|64): .*[<>]\[→=\] 0": "the sign of zero is not asked for",
    r"b?f16_code: .*magnitude <\[→=\] INFINITY": "infinity is the largest in both ways",
    r"b?f16_rz: .*\[1→2\]": "true is true",
    r"(min|max)_nan32: .*a \[\+→-\] b": "NaN in both ways",
    r"div_approx32: .*b <\[→=\] 0|div_approx32: .*b < \[0→1\]": "b is large",
    r"div_approx32: .*size <\[→=\] INFINITY": "a / infinity is a · 0",
    r"ftz_bf16: .*\[800→\]": "powers of two are not negative",
    r"s(32|64)_of: .*x <\[=→\] -0x1p": "the least integer is converted to itself",
    r"u(32|64)_of: .*x >\[→=\] 0 ": "zero is converted to itself",
    r"([su]64|s32)_of: .*\[(→&& 0 |=→)\]": "x86 says the same of what is too large",
    r"cvt\.\w+\.s(64|8)\.f64: .*x != x \[→&& 0 \]": "x86 says the same of NaN",
    r"(field_[us]|insert): .*count >\[→=\] 63|field_s: .*count > 6\[3→4\]": "63 bits by one rule or the other",
    r"insert: .*first >? ?(63 |> 6)?\[(→&& 0 |3→4)\].*mask\)": "the mask is zero there",
    r"cvt\.\w+\.[su]\d+\.f(32|16): .*\(\(f\[64→32\]\)a\)": "f32 is rounded to a whole number as f64 is",
    r"(lg2|rsqrt|rcp)\.approx.*\[ftz(32|64)→\]": "the result is never that small",
    r"(min|max|cvt|fma).*ftz.*\[(ftz32|one_nan32)→\]\((max|min|ftz32\(max|sat32)": "it was done to the operands",
    r"cvt.*ftz\.sat.*\[ftz32→\]\(a\)": "it is done to the result",
    r"(min|max).*f32x2: .*\[one_nan32→\]": "NaN of an operand",
    r"cvt\.(rn|rpi|rmi|rni|rzi).*f16_r\[n→z\]": "the value is a half already",
    r"(min|max).*b?f16_r\[n→z\]": "the value is a half already",
    r"abs\..*(<\[→=\] 0|a < \[0→1\])": "zero is its own negative, and one of b is no number",
    r"cvt\.sat\.[us]8\.[us]8|cvt\.sat\.s32\.u64: .*31": "never below, never above",
    r"cvt\.sat\..*x (> .*- \[1→2\]|>\[→=\]|< \[0→1\])": "the same where both are",
    r"(szext|bmsk)\.clamp.*\[2→3\]|bmsk.*a > 32 \[": "nothing is left beyond 32",
    r"cvt\.sat\.u8\.s16: .*1 (<< \[8→9\]|\[<<→>>\] 8)\) - 1 : x": "its last byte is the same",
    r"subc?\.cc.*w >> (6\[4→5|3\[2→3)": "all higher bits are the borrow",
    r"cvt\.rn\.ftz\.f16\.f32: ": "denormals of f32 are zeros of f16",
    r"bfind\.shiftamt.*at > (3|6)\[": "there is no such place",
    r"cvt\.[su]16\.u64: .*\[s→u\]|dp2a.*>> 0|dp2a.*<<\] 0": "the same bits",
}


def test_mistakes_are_noticed(tmp_path: Path) -> None:
    left, count = unnoticed(tmp_path, (*usual_operations(), *RARE))
    unexplained = [str(each) for each in left if not any(re.match(pattern, str(each)) for pattern in EQUIVALENT)]
    assert count > 500
    assert not unexplained, f"{len(left)} of {count} unnoticed:\n" + "\n".join(unexplained)
