"""Which line a report names: the user's own one first, then that of the library which it runs."""

from __future__ import annotations

import importlib.util
import re
import types
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxpr2triton as j2t

X = jnp.ones((8, 16))
LIBRARY = """\
from jax import lax

def neighbours(x):
    return _summed(x)

def _summed(x):
    return lax.reduce_window(x * 2, 0.0, lax.add, (1, 4097), (1, 1), "SAME")
"""


def module_at(path: Path, source: str) -> types.ModuleType:
    path.parent.mkdir(parents=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "folder, place",
    [
        ("site-packages", r"test_places\.py:\d+ \(.*<lambda>\) via library\.py:7"),
        ("dist-packages", r"test_places\.py:\d+ \(.*<lambda>\) via library\.py:7"),
        ("my-packages", r"library\.py:7 \(_summed\)"),
    ],
)
def test_the_users_line_comes_before_the_librarys(tmp_path: Path, folder: str, place: str) -> None:
    library = module_at(tmp_path / folder / "library.py", LIBRARY)
    (leftover,) = j2t.transpile(lambda x: library.neighbours(x), X).leftovers
    assert re.fullmatch(place, leftover.where), leftover.where
    with pytest.raises(j2t.NotFusible) as caught:
        j2t.transpile(lambda x: library.neighbours(x), X, strict=True)
    assert caught.value.where is not None and re.fullmatch(place, caught.value.where), caught.value.where


def test_comments_in_kernels_are_lines_of_the_library(tmp_path: Path) -> None:
    """They say what is computed there; the user's line may run a whole network."""
    library = module_at(tmp_path / "site-packages" / "library.py", re.sub(r"lax\.reduce.*", "x * 2", LIBRARY))
    assert "# library.py:7: return x * 2" in j2t.transpile(lambda x: library.neighbours(x), X).source


def test_where_all_lines_are_of_libraries_the_innermost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = module_at(tmp_path / "site-packages" / "library.py", LIBRARY)
    function: Callable[..., object] = library.neighbours
    monkeypatch.setattr("jaxpr2triton._compat._is_installed", lambda file: True)
    (leftover,) = j2t.transpile(function, jax.ShapeDtypeStruct((4, 4), jnp.float32)).leftovers
    assert leftover.where == "library.py:7 (_summed)"
