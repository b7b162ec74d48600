"""Before and after each pass, as text: what the passes do, to be read; compared, and executed, by test_pairs.py.

    python -m tests.normalize.pairs          # writes the jaxprs of all pairs anew: read what has changed

A file of `pairs/` is named after a pass. Its blocks are a title, a function whose annotations are the arguments'
types, and what the function is before and after that pass.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.cli.specs import parse_spec, random_arguments
from jaxpr2triton.normalize import passes
from jaxpr2triton.trace import hoist
from tests.normalize.printed import printed

FOLDER = Path(__file__).parent / "pairs"
FILES = sorted(FOLDER.glob("*.txt"))


@dataclass(frozen=True)
class Pair:
    """One example of one pass."""

    name: str  # of the pass
    title: str
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.title}"

    def text(self) -> str:
        """The block as it stands in the file."""
        return f"## {self.title}\n\n{self.function}\n\n{self.before}\n→\n{self.after}\n"

    def program(self) -> tuple[Any, list[Any]]:
        """The function as a jaxpr, and arguments for it."""
        names: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "np": np}
        exec(self.function, names)
        function = names["f"]
        specs = [parse_spec(each.annotation.strip("'")) for each in inspect.signature(function).parameters.values()]
        closed, constants = hoist(jax.make_jaxpr(function)(*specs))
        return closed, [*constants, *random_arguments(specs, 0)]


def pass_named(name: str) -> passes.Pass:
    return next(each for each in (*passes.LOOPS, *passes.PASSES) if each.name == name)


def pairs_in(file: Path) -> Iterator[Pair]:
    for block in file.read_text(encoding="utf-8").split("## ")[1:]:
        title, _, rest = block.partition("\n")
        function, _, jaxprs = rest.strip().partition("\n\n")
        before, _, after = jaxprs.partition("\n→\n")
        yield Pair(file.stem, title.strip(), function.strip(), before.strip(), after.strip())


def written(pair: Pair) -> Pair:
    """The pair with the jaxprs that its function has now."""
    closed, _ = pair.program()
    return Pair(pair.name, pair.title, pair.function, printed(closed), printed(pass_named(pair.name).run(closed)))


def main() -> None:
    for file in FILES:
        preface = file.read_text(encoding="utf-8").partition("## ")[0]
        blocks = [written(pair).text() for pair in pairs_in(file)]
        file.write_text(textwrap.dedent(preface) + "\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
