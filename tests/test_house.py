"""What keeps the code readable: types that say something."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import FILES, ROOT, show

TYPED = ("graph", "plan")  # rooms in which JAX's objects have the types of ir/jaxprs.py
NOT_YET = {f"plan/partition/{name}.py" for name in ("cut", "cuts", "keeping", "partition")}


def annotations_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Of what functions are given and give back, and of the fields of classes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                given += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
                yield from (each for each in (*(arg.annotation for arg in given), node.returns) if each is not None)
            case ast.ClassDef():
                yield from (field.annotation for field in node.body if isinstance(field, ast.AnnAssign))


TYPED_FILES = [path for path in FILES if path.relative_to(ROOT).parts[0] in TYPED and show(path) not in NOT_YET]


@pytest.mark.parametrize("path", TYPED_FILES, ids=show)
def test_signatures_say_what_they_are_given(path: Path) -> None:
    unsaid = [
        node.lineno
        for annotation in annotations_in(ast.parse(path.read_text()))
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert not unsaid, f"{show(path)}:{unsaid[0]} is `Any`"
