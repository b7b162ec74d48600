"""What a device prints when a kernel ends in an error says which kernel it is.

    .global .align 1 .b8 assertFunc_0[8] = {117, 110, …};   →   .global .align 1 .b8 assertFunc_0[13] = {107, 101, …};

    kernel shift:0: kernel shift: block: [3,0,0], thread: [0,0,0] Assertion `programs that meet …` failed.

Triton names the file and the function of the source. Both are unknown where code says nothing of lines, and may be one
text then; with lines the function is the helper that meets.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(\.b8 assert(?:File|Func)_\d+)\[\d+\] = \{[^}]*\};")


def named_in_errors(ptx: str, kernel: str) -> str:
    """The same code; what it asserts is said to be asserted by this kernel."""
    text = f"kernel {kernel}".encode()
    zero_ended = f"[{len(text) + 1}] = {{{', '.join(map(str, text))}}};"  # what is not given is zero
    return _NAME.sub(lambda found: found[1] + zero_ended, ptx)
