"""The code of a kernel whose programs meet: what is exchanged is stored before the meeting, and loaded behind it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.launch.machine_meeting import Meeting, multiplied, shifted

STORE, LOAD = r"st\.global(\.v\d)?\.b32", r"ld\.global(\.v\d)?\.b32"
BARRIER, ADD, LOOK = r"bar\.sync", r"atom\.global\.gpu\.release\.add\.u32", r"ld\.global\.gpu\.acquire\.b32"
KNOWN = {"store": STORE, "load": LOAD, "barrier": BARRIER, "add": ADD, "look": LOOK, "back": r"bra\b", "to": r"\$L__BB"}


def events(ptx: str) -> str:
    """What its lines do to global memory and to other threads, in the order of the text: store barrier add …"""
    found = []
    for line in ptx.partition(".reqntid")[2].split("\n"):
        word = re.sub(r"^@!?%\w+\s+", "", line.partition("//")[0].strip())
        found += [name for name, pattern in KNOWN.items() if re.match(pattern, word)]
    return " ".join(found)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("made", [shifted, multiplied])
def test_a_step(made: Callable[..., Meeting], target: str, warps: int) -> None:
    """Every one of them, where the loop was unrolled."""
    ptx = str(compile_kernel(made(8, 9, warps).kernel, target_named(target)).code)
    said = events(ptx)
    step = r"(store )+(barrier )+add (barrier )*to (barrier )*look (barrier )*back (back )*(to )?(barrier )+(load )+"
    meetings = len(re.findall(r"\badd\b", said))
    assert meetings > 0
    assert len(re.findall(step, said)) == meetings, said
    assert said.count("look") == meetings


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("made", [shifted, multiplied])
def test_nothing_goes_through_the_cache_of_constants(made: Callable[..., Meeting], target: str) -> None:
    ptx = str(compile_kernel(made(8, 9).kernel, target_named(target)).code)
    assert ".nc" not in ptx
    assert set(re.findall(r"(?:ld|st|atom|red)\.global[\w.]*", ptx)) <= {
        *("ld.global.b32", "ld.global.v2.b32", "ld.global.v4.b32", "st.global.b32", "st.global.v2.b32"),
        *("ld.global.gpu.acquire.b32", "atom.global.gpu.release.add.u32"),
    }
