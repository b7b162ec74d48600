"""All kernels of a program as one importable Python module, with a header that says what it computes."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.report.explain import short_type, shown_types
from jaxpr2triton.report.leftovers import grouped
from jaxpr2triton.report.summary import Summary
from jaxpr2triton.report.table import shortened

LINE = 110  # columns, as in the kernels


def one_module(*parts: Summary) -> str:
    """The kernels of the parts, in the order in which they run: imports, then every function once.

    # softmax: (f32[8,300]) → (f32[8,300])
    #   in one kernel: softmax

    import triton
    ...
    """
    sources = [kernel.source.splitlines() for part in parts for kernel in _kernels(part)]
    imports = {line for lines in sources for line in lines if _is_import(line)}
    blocks = dict.fromkeys(block for lines in sources for block in _blocks(lines))
    top = "\n".join([*(line for part in parts for line in _header(part)), "", *_sorted(imports)])
    return "\n\n\n".join([top.strip(), *blocks]) + "\n"


def _kernels(part: Summary) -> Iterator[Kernel]:
    """Those of the program, and those in each step of the loops that XLA runs."""
    yield from part.kernels
    for left in part.leftovers:
        yield from left.step.kernels if left.step is not None else ()


def _is_import(line: str) -> bool:
    return line.startswith(("import ", "from "))


def _sorted(imports: Iterable[str]) -> list[str]:
    """Modules first, then what comes from modules."""
    return sorted(imports, key=lambda line: (line.startswith("from "), line))


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """The functions of a source, each with the comments above it; two blank lines lie between them."""
    text = "\n".join(line for line in lines if not _is_import(line))
    yield from (block.strip() for block in text.split("\n\n\n") if block.strip())


def _header(part: Summary) -> Iterator[str]:
    inputs, outputs = (shown_types(list(map(short_type, avals))) for avals in (part.in_avals, part.out_avals))
    yield from _comment("# ", f"{part.name}: ({inputs}) → ({outputs})")
    names = Counter(kernel.name for kernel in _kernels(part))
    if names:
        kinds = "one kernel" if len(names) == 1 else f"{len(names)} kernels"
        count = kinds if len(names) == names.total() else f"{names.total()} launches of {kinds}"
        listed = (name if times == 1 else f"{name} ({times} times)" for name, times in names.items())
        yield from _comment("#   ", f"in {count}: {', '.join(listed)}")
    for (primitive, *_), group in grouped(part.leftovers).items():
        first = group[0].equation if len(group) == 1 else f"{len(group)} x {primitive}, such as {group[0].equation}"
        yield "#   " + shortened(f"left to XLA: {first}", LINE - 4)


def _comment(start: str, text: str) -> list[str]:
    return textwrap.wrap(text, LINE, initial_indent=start, subsequent_indent="#       ", break_on_hyphens=False)
