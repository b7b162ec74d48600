"""README and docs: the examples run, the commands exist, the links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from jaxpr2triton.cli import main
from jaxpr2triton.cli.options import parse_options

CHECKOUT = Path(__file__).parents[1]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
# A block behind such a comment is what that command prints.
PRINTED = re.compile(r"<!-- \$ jaxpr2triton (?P<command>[^\n]+) -->\n```\w*\n(?P<text>.*?)```\n", re.DOTALL)
BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    found = BLOCK.finditer(page.read_text())
    return [
        block["text"] for block in found if block["language"] in languages and not block["before"].startswith("<!-- $")
    ]


def name(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", ["README.md", "docs/in-use.md"])
def test_the_examples_run(page: str) -> None:
    namespace: dict[str, Any] = {}
    examples = blocks(CHECKOUT / page, "python")
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    lines = [line for text in blocks(page, "sh") for line in text.splitlines() if line.strip()]
    for line in lines:
        first, *words = shlex.split(line, comments=True)
        if first == "jaxpr2triton":
            parse_options(words, "")
        elif "/" in first:
            assert (CHECKOUT / first).is_file(), line
        else:
            assert first in ("pip", "git", "python"), line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_shown_as_printed_is_printed(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setenv("COLUMNS", "100")
    for block in PRINTED.finditer(page.read_text()):
        assert main.main(shlex.split(block["command"])) == 0
        # JAX prints this parameter with more primitives in some versions than in others
        assert re.sub(r" ?out_sharding=None", "", capsys.readouterr().out) == block["text"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_modules_that_pages_name_exist() -> None:
    """Whether they are named from the checkout, from the package or from one of its folders."""
    files = "\n".join(f"/{path.relative_to(CHECKOUT)}" for path in CHECKOUT.rglob("*.py")) + "\n"
    for page in PAGES:
        for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()):
            assert f"/{path}\n" in files, f"{page.name} names {path}"


def test_files_that_pages_name_exist() -> None:
    for page in PAGES:
        for path in re.findall(r"`((?:jaxpr2triton|tests|docs|scripts|bench|examples)/[\w./-]*)`", page.read_text()):
            assert (CHECKOUT / path).exists(), f"{page.name} names {path}"
