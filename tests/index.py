"""An index of the tests, one line a file: `python -m tests.index > docs/tests.md`; a test compares."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
HEAD = """\
# What is tested where

Generated from the first line of each file by `python -m tests.index > docs/tests.md`; a test compares.
"""


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def folders() -> Iterator[tuple[str, list[Path]]]:
    """Each with its files; those of `tests` itself come first."""
    for folder in (TESTS, *sorted(path for path in TESTS.rglob("*") if path.is_dir() and path.name != "__pycache__")):
        files = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("__")]
        if files:
            yield str(folder.relative_to(TESTS.parent)), files


def page() -> str:
    parts = [HEAD]
    for name, files in folders():
        rows = [f"| `{path.name}` | {first_line(path)} |" for path in files if path.name.startswith("test_")]
        if rows:
            parts.append("\n".join([f"## {name}", "", "| file | what it asks |", "| --- | --- |", *rows]) + "\n")
        if others := [path for path in files if not path.name.startswith("test_")]:
            lines = [f"- `{path.name}`: {first_line(path)}" for path in others]
            title = [] if rows else [f"## {name}", ""]
            parts.append("\n".join([*title, "Programs:" if rows else "Programs, no tests:", "", *lines]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
