"""What keeps the code readable: types that say something, functions of few decisions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.package_files import ROOT, Trees, assert_none, show

pytestmark = pytest.mark.files

TYPED = ("graph", "plan")  # rooms in which JAX's objects have the types of ir/jaxprs.py


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


def test_signatures_say_what_they_are_given(trees: Trees) -> None:
    assert_none(
        f"{show(path)}:{node.lineno} is `Any`"
        for path, tree in trees.items()
        if path.relative_to(ROOT).parts[0] in TYPED
        for annotation in annotations_in(tree)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and node.id == "Any"
    )


DECISIONS_AT_MOST = 20  # in one function


BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)


def decisions_in(function: ast.AST) -> int:
    """The ways through a function: one, and one more for each branch, loop, `and`, `or` and filter."""
    found = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
    return found


def test_functions_can_be_read(trees: Trees) -> None:
    assert_none(
        f"{show(path)}: {node.name} has {decisions} decisions"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (decisions := decisions_in(node)) > DECISIONS_AT_MOST
    )
