"""Writes docs/algorithms.md: python -m examples.algorithms > docs/algorithms.md"""

from __future__ import annotations

import importlib
from collections import Counter
from importlib.metadata import version
from typing import Any

import jax

from examples.algorithms.entry import Algorithm
from jaxpr2triton import Program, transpile
from jaxpr2triton.ir.dtypes import short_name
from jaxpr2triton.report.leftovers import grouped, grouped_obstacles

FILES = {  # each with its title
    "sorting": "Sorting and routing",
    "compensated": "Compensated arithmetic",
    "grids": "Grids",
    "graphs": "Graphs",
    "sequences": "Sequences",
    "sampling": "Sampling",
    "optimisation": "Optimisation",
}
LOOPS = ("scan", "while")
JAX = f"jax {version('jax')}"
HEAD = """\
# Algorithms

Three algorithms of each of seven sorts, as a user would write them: `examples/algorithms/` has them. What becomes of
each, and of its gradient in one program, at the sizes that are named, planned for an H100 with {jax}. Generated
by `python -m examples.algorithms > docs/algorithms.md`; a test compares, and checks the values at small sizes.

*Lines* are those of the code, with its helpers. *Launches* are those of our kernels; what is left to XLA comes
beside them, and below each table is why. *x 512* is a `vmap` of so many around it.
"""


def algorithms() -> dict[str, Algorithm]:
    """All of them, by their names."""
    return {each.name: each for file in FILES for each in _of_file(file)}


def page() -> str:
    """The text of docs/algorithms.md."""
    lines = [HEAD.format(jax=JAX)]
    for file, title in FILES.items():
        lines += [f"## {title}", "", "| algorithm | what it is | arguments | lines | launches | of its gradient |"]
        lines[-1] += " loops in kernels | left to XLA |"
        lines += ["| --- | --- | --- | ---: | ---: | ---: | --- | --- |"]
        found = [(each, planned(each)) for each in _of_file(file)]
        lines += [row(each, programs) for each, programs in found]
        lines += ["", *(f"- {reason}" for each, programs in found for reason in reasons(each, programs)), ""]
    return "\n".join(lines).rstrip() + "\n"


def planned(algorithm: Algorithm) -> dict[str, Program]:
    """What becomes of it at the realistic size, and of its gradient, if it has one."""
    function, args = algorithm.large()
    programs = {"value": transpile(function, *args)}
    if algorithm.by:
        programs["gradient"] = transpile(algorithm.gradient(function), *args)
    return programs


def row(algorithm: Algorithm, programs: dict[str, Program]) -> str:
    """Of the table."""
    left = [each for program in programs.values() for each in program.leftovers]
    loops = sum(each.primitive in LOOPS for each in left)
    names = Counter(each.primitive for each in left).most_common()
    launches = {what: str(_launches(program)) for what, program in programs.items()}
    lanes = f" x {algorithm.lanes:,}" if algorithm.lanes else ""
    cells = [
        algorithm.name,
        algorithm.says,
        ", ".join(map(_shown, jax.tree.leaves(algorithm.realistic))) + lanes,
        str(algorithm.lines),
        launches.get("value", ""),
        launches.get("gradient", algorithm.why_no_gradient),
        "all" if not loops else f"all but {loops}",
        ", ".join(f"`{name}`" + (f" x {many}" if many > 1 else "") for name, many in names),
    ]
    return f"| {' | '.join(cells)} |"


def reasons(algorithm: Algorithm, programs: dict[str, Program]) -> list[str]:
    """Why what is left to XLA is, each reason once."""
    found: dict[str, None] = {}
    for what, program in programs.items():
        of = algorithm.name if what == "value" else f"{algorithm.name}, gradient"
        for (primitive, why, *_), group in grouped(program.leftovers).items():
            kinds = list(grouped_obstacles(group[0].obstacles)) or [why]
            found[f"{of}: `{primitive}` at {group[0].where}: {'; '.join(kinds)}"] = None
    return list(found)


def _of_file(file: str) -> tuple[Algorithm, ...]:
    found: tuple[Algorithm, ...] = importlib.import_module(f"examples.algorithms.{file}").ALGORITHMS
    return found


def _launches(program: Program) -> int:
    return sum(kernel["launches"] for kernel in program.explain_json()["kernels"])


def _shown(shape: Any) -> str:
    if jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return "key"
    return f"{short_name(shape.dtype)}[{','.join(map(str, shape.shape))}]"


if __name__ == "__main__":
    print(page(), end="")
