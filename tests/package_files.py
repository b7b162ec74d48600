"""The files of the package, as the tests of its layout read them: each rule is one test, and names all who break it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1] / "jaxpr2triton"
FILES = sorted(ROOT.rglob("*.py"))
Trees = dict[Path, ast.Module]


def show(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parse_files() -> Trees:
    return {path: ast.parse(path.read_text()) for path in FILES}


def assert_none(offenders: Iterable[str]) -> None:
    """Each offender is a line of the message."""
    found = list(offenders)
    assert not found, "\n".join(found)
