"""Nothing in a kernel is looked for in text: the emitter makes trees, and its passes read trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxpr2triton

ROOM = Path(jaxpr2triton.__file__).parent / "emit"
OF_SOURCE = {"parse", "unparse", "literal_eval"}  # of `ast`
OF_WORDS = {"startswith", "endswith", "isidentifier", "partition", "rpartition"}


def looked_for_in_text(text: str) -> Iterator[str]:
    """What a file calls that reads source, or looks for words."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names) if any(each.name in ("re", "tokenize") for each in names):
                yield ast.unparse(node)
            case ast.Attribute(value=ast.Name("ast"), attr=attr) if attr in OF_SOURCE:
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in OF_WORDS:
                yield ast.unparse(node)


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.name)
def test_no_file_reads_text(path: Path) -> None:
    assert [*looked_for_in_text(path.read_text())] == []


def test_what_reads_text_is_noticed() -> None:
    text = "import re\nast.parse(line)\nif name.endswith('_ptr') or line.startswith('x ='):\n    scope.find(node)"
    assert len([*looked_for_in_text(text)]) == 4
