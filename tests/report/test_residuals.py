"""What a program keeps for its gradient, as a table that fits a page."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import jaxpr2triton as j2t
from jaxpr2triton.report.residuals import ROWS_SHOWN, shown_residuals


def fact(name: str, kind: str = "f32[8]", size: int = 32, where: str = "model.py:3 (f)", source: str = "new") -> Any:
    return {"name": name, "source": source, "type": kind, "bytes": size, "where": where}


def test_values_that_are_alike_are_one_row() -> None:
    facts = [fact("x", source="input", where=""), *(fact(f"scan{n}") for n in range(3)), fact("a", "f32[4]", 16)]
    facts += [fact("b", "f32[4]", 16), fact("scan3", where="model.py:4 (f)")]
    assert shown_residuals("f", facts, 100).splitlines() == [
        "f keeps 7 values for its gradient: 160 bytes written for it alone, 32 bytes of inputs and outputs",
        "  value             is     type    bytes  at",
        "  x                 input  f32[8]     32",
        "  scan0 and 2 more  new    f32[8]     96  model.py:3 (f)",
        "  a                 new    f32[4]     16  model.py:3 (f)",
        "  b                 new    f32[4]     16  model.py:3 (f)",
        "  scan3             new    f32[8]     32  model.py:4 (f)",
    ]


def test_of_very_many_kinds_the_largest_are_shown() -> None:
    facts = [fact(f"v{n}", f"f32[{n}]", 4 * n) for n in range(1, 101)]
    lines = shown_residuals("f", facts, 120).splitlines()
    assert len(lines) == ROWS_SHOWN + 3
    assert lines[2].split()[:4] == ["v69", "new", "f32[69]", "276"] and lines[-2].split()[0] == "v100"
    assert lines[-1].split() == ["68", "more", f"{4 * sum(range(1, 69)):,}"]


def test_no_line_is_longer_than_asked_for() -> None:
    facts = [fact(f"a_long_name_of_a_value{n}", where=f"{'long' * 12}.py:{n} (f)") for n in range(9)]
    assert max(map(len, shown_residuals("a_function", facts, 60).splitlines())) <= 60


def test_a_chain_of_layers() -> None:
    def chain(x: Any) -> Any:
        for _ in range(40):
            x = jnp.sin(x) @ x
        return x.sum()

    pair = j2t.transpile(chain, jax.ShapeDtypeStruct((160, 160), jnp.float32), grad=0)
    table = pair.explain().split("\n\n")
    kept = next(part for part in table if part.startswith("chain keeps"))
    assert len(pair.residuals) == 40 and len(kept.splitlines()) < 10 and " more " in kept
