"""What a device prints when a kernel ends in an error says which kernel it is.

    .global .align 1 .b8 assertFunc_0[8] = {117, 110, …};    →    .global .align 1 .b8 assertFunc_0[6] = {115, 104, …};

    jaxpr2triton:0: shift: block: [3,0,0], thread: [0,0,0] Assertion `programs that meet have to run at once` failed.

Triton names the file and the function of the source: both are unknown where code says nothing of lines, and with lines
it is the helper that meets.
"""

from __future__ import annotations

import re

FILE = "jaxpr2triton"
_NAME = re.compile(r"(\.b8 assert(File|Func)_\d+)\[\d+\] = \{[^}]*\};")


def named_in_errors(ptx: str, kernel: str) -> str:
    """The same code; what it asserts is said to be asserted by this kernel."""
    words = {"File": _bytes(FILE), "Func": _bytes(kernel)}
    return _NAME.sub(lambda found: found[1] + words[found[2]], ptx)


def _bytes(word: str) -> str:
    """One more than are written: the rest is zero, as the end of a string has to be."""
    return f"[{len(word) + 1}] = {{{', '.join(map(str, word.encode()))}}};"
