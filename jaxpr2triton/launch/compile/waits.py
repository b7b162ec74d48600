"""Factors that products read from registers are not written again before they have been multiplied.

    $L1:                                                  $L1:
    …   a step makes its factors                          …
    wgmma.mma_async … {sums}, {%r1, %r2, …}, …            wgmma.mma_async … {sums}, {%r1, %r2, …}, …
    wgmma.commit_group.sync.aligned;                      wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 3;              →       wgmma.wait_group.sync.aligned 0;
    @%p1 bra $L1;                                         @%p1 bra $L1;

A product of an H100 goes on beside its program and reads its left factor when it comes to it. Triton lets as many of
them be under way as a step has, until the next step has begun its own: by then that step has written its factors into
the same registers. An H100 gave wrong numbers of two products that had four parts each. Where both factors are in
shared memory Triton waits for them by itself.
"""

from __future__ import annotations

import re

_FROM_REGISTERS = re.compile(r"\s*wgmma\.mma_async\S*\s+\{[^}]*\},\s*\{")
_WAIT = re.compile(r"(\s*wgmma\.wait_group\.sync\.aligned\s+)\d+(;.*)")
_LABEL = re.compile(r"\s*(\$\w+):")
_BRANCH = re.compile(r"\s*(?:@!?%\w+\s+)?bra(?:\.uni)?\s+(\$\w+);")


def products_awaited(ptx: str) -> str:
    """The same code, where each step of a loop with such products ends when they have."""
    lines = ptx.split("\n")
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif (branch := _BRANCH.match(line)) and branch[1] in labels:
            inside = range(labels[branch[1]], number)
            products = [place for place in inside if _FROM_REGISTERS.match(lines[place])]
            waits = [place for place in inside if _WAIT.match(lines[place])]
            if products and waits and waits[-1] > products[-1]:
                lines[waits[-1]] = _WAIT.sub(r"\g<1>0\2", lines[waits[-1]])
            elif products:
                lines[number] = f"\twgmma.wait_group.sync.aligned 0;\n{line}"
    return "\n".join(lines)
