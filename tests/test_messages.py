"""Every sentence that this package may print is in a test, word for word.

The syntax tree finds the sentences, of at least three words, and the tests' own texts are searched for them. What is
computed, an f-string's fields or the `%s` of a line for the log, may be anything. A sentence that no test has is to be
had by a program (`tests/test_reasons.py` has a table of such), or is dead.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxpr2triton"
# What these are given is for whoever mends this compiler: it can never happen, or is turned into something else.
INTERNAL = frozenset({"CompilerBug", "NotUnderstood", "NotImplementedError"})
TABLES = frozenset(  # of words and of C, which other tests run
    {
        "cli/coverage.py",  # docs/coverage.md, which a test compares
        "graph/compared.py",  # all of it ends in a `CompilerBug`
        "graph/sound.py",
        "launch/interpret/libdevice.py",
        "launch/interpret/memory.py",
        "launch/machine/library.py",
        *(f"launch/machine/families/{each}.py" for each in ("bits", "choices", "conversions", "floats", "integers")),
        "launch/machine/families/pairs.py",
    }
)
# Which no small program is known to get. What gets one into a test takes it out of here; nothing is to be added.
UNTOLD = frozenset(
    {
        "a flag is set by all programs first",
        "a loop in its body reads what another one there has made, step by step",
        "the few programs of a loop would reduce much that is not part of its steps",
        "a step compares copies of a value that it makes at several places",
        "an earlier kernel has made from much what this one reads",
        "kernels before and after what stays with XLA would each make it from much",
        "the loop of one is over before that of the other one begins",
        "what its steps want at too many places cannot be kept",
        "what one of them makes has too many consumers in the other to be recomputed there",
    }
)
GAP = "\0"  # what is computed
WORD = re.compile(r"(?<![\w.\\])[A-Za-z]{2,}(?![\w.(=])")
PRINTED = re.compile(r"<!-- \$ jaxpr2triton [^\n]+ -->\n```\w*\n(.*?)```", re.DOTALL)  # tests/test_docs.py prints it


def texts(node: ast.AST, skipped: frozenset[str] = frozenset()) -> Iterator[tuple[int, str]]:
    """The strings in code, with a gap for each thing computed; no docstrings, and nothing that `skipped` are given."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in skipped:
            return
        case ast.Expr(value=ast.Constant()) | ast.Assert() if skipped or isinstance(node, ast.Expr):
            return
        case ast.JoinedStr(values=values):
            parts = (str(each.value) if isinstance(each, ast.Constant) else GAP for each in values)
            yield node.lineno, "".join(parts)
            for each in values:
                yield from texts(each, skipped) if isinstance(each, ast.FormattedValue) else ()
        case ast.Constant(value=str(text)):
            yield node.lineno, text
        case ast.List(elts=elements) if not skipped:  # lines that a test compares together
            each = [list(texts(element)) for element in elements]
            yield node.lineno, " ".join(found[0][1] for found in each if found)
            for found in each:
                yield from found
        case _:
            for child in ast.iter_child_nodes(node):
                yield from texts(child, skipped)


def plain(text: str) -> str:
    """In one line, whatever the width it was folded for."""
    return " ".join(re.sub(r"%(s|d|\.\df)", GAP, text).split())


def is_sentence(text: str) -> bool:
    """Neither code nor a pattern."""
    is_code = "tl." in text or re.search(r"\\[dsSwW]", text)
    return len(WORD.findall(text)) >= 3 and " " in text.strip() and not is_code


def texts_of_tests() -> list[str]:
    found = [path.read_text() for path in (ROOT / "tests").rglob("*.txt")]
    for path in {*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}:
        found += [text for _, text in texts(ast.parse(path.read_text()))]
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        found += PRINTED.findall(page.read_text())
    told = [text for text in map(plain, found) if " " in text]
    return list(dict.fromkeys([*told, *(text.replace("\\", "") for text in told if "\\" in text)]))


def is_told(sentence: str, told: list[str], all_told: str) -> bool:
    parts = [part.strip() for part in sentence.split(GAP)]
    longest = max(parts, key=len)
    return longest in all_told and any(_has(text, parts) for text in told if longest in text)


def _has(text: str, parts: list[str]) -> bool:
    at = 0
    for part in parts:
        if (at := text.find(part, at)) < 0:
            return False
        at += len(part)
    return True


@functools.cache
def sentences() -> tuple[tuple[str, str], ...]:
    """Each with its place."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if (name := str(path.relative_to(PACKAGE))) not in TABLES:
            for line, text in texts(ast.parse(path.read_text()), INTERNAL):
                if is_sentence(text):
                    found.append((f"{name}:{line}", plain(text)))
    return tuple(found)


def test_every_sentence_is_in_a_test() -> None:
    told = texts_of_tests()
    all_told = "\n".join(told)
    untold = {text: place for place, text in sentences() if not is_told(text, told, all_told)}
    new = [f"{place}: {text.replace(GAP, '…')}" for text, place in untold.items() if text not in UNTOLD]
    assert not new, "\n".join(["no test has", *new])
    assert not UNTOLD - untold.keys(), "these are in a test, or are gone"


def test_what_is_exempt_is_there() -> None:
    assert all((PACKAGE / each).is_file() for each in TABLES)
