"""All kernels of a program as one importable Python module, with a header that says what it computes."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.pipeline import Compiled
from jaxpr2triton.report.explain import short_type


def one_module(name: str, *parts: Compiled) -> str:
    """The kernels of the parts, in the order in which they run.

    imports of every kernel, once, and then each kernel's functions under a header
    """
    kernels = [kernel for part in parts for kernel in part.kernels]
    imports: list[str] = []
    bodies = []
    for kernel in kernels:
        lines = kernel.source.splitlines()
        imports += [line for line in lines if _is_import(line) and line not in imports]
        body = "\n".join(line for line in lines if not _is_import(line)).strip()
        if body not in bodies:
            bodies.append(body)
    header = "\n".join(_header(name, parts, kernels))
    top = "\n".join([header, "", *sorted(imports)]).strip()
    return "\n\n\n".join([top, *bodies]) + "\n"


def _is_import(line: str) -> bool:
    return line.startswith(("import ", "from "))


def _header(name: str, parts: Sequence[Compiled], kernels: Sequence[Kernel]) -> list[str]:
    inputs, outputs = parts[0].in_avals, parts[-1].out_avals
    lines = [f"# {name}: ({', '.join(map(short_type, inputs))}) → ({', '.join(map(short_type, outputs))})", "#"]
    for kernel in kernels:
        grid = "×".join(str(size) for size in kernel.grid if size > 1) or "1"
        lines += [
            f"# {kernel.name}: {', '.join(map(_buffer, kernel.inputs)) or 'nothing'}"
            f" → {', '.join(map(_buffer, kernel.outputs))}",
            f"#   {' | '.join(map(str, kernel.axes)) or 'no axes'}; {grid} programs of {kernel.num_warps} warps",
        ]
    left = [f"#   {leftover.equation}" for part in parts for leftover in part.leftovers]
    if left:
        lines += ["#", "# Left to XLA, between the kernels:", *left]
    return lines


def _buffer(buffer: Buffer) -> str:
    return f"{buffer.name}: {short_type(buffer)}"
