"""What a role means is said in one place: all others ask its properties."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import PlannedAxis
from tests.package_files import Trees, assert_none, show

WORDS = frozenset(role.value for role in Role)


@pytest.mark.parametrize("role", Role, ids=str)
def test_an_axis_is_walked_through_in_one_way(role: Role) -> None:
    ways = (role.is_parallel, role.is_sequential, role.is_vectorized, role.is_unrolled)
    assert sum(ways) == 1
    assert PlannedAxis(Axis("k", 8), role, 4).is_tile is not role.is_unrolled


def compared_in(tree: ast.AST) -> Iterator[str]:
    """`x is Role.GRID`, `x != Role.LANE`, `x.role.value == "grid"`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        for side in (node.left, *node.comparators):
            is_member = isinstance(side, ast.Attribute) and isinstance(side.value, ast.Name) and side.value.id == "Role"
            is_text = isinstance(side, ast.Constant) and side.value in WORDS and "role" in ast.unparse(node)
            if is_member or is_text:
                yield ast.unparse(node)


def test_nobody_compares_roles(trees: Trees) -> None:
    assert_none(f"{show(path)}: {text}" for path, tree in trees.items() for text in compared_in(tree))


def test_a_comparison_is_found() -> None:
    text = "a.role is Role.GRID or p.role.value == 'grid' or a.role.is_parallel or [a for a in b if a is not Role.LANE]"
    assert len(list(compared_in(ast.parse(text)))) == 3
