"""Functions found by FILE.py:FUNCTION; every complaint in full."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jaxpr2triton.cli.loading import load_function, load_module
from jaxpr2triton.errors import UserError

MODEL = """
import beside
class Net:
    @staticmethod
    def apply(x):
        return x + beside.ONE
    def method(self, x):
        return x + 2
    @property
    def failing(self):
        return 1 / 0
class Closed:
    def __init__(self):
        raise OSError("shut")
    def method(self, x):
        return x
def loss(x):
    return x
size = 3
net = Net()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("ONE = 1\n")
    return tmp_path


def test_a_function_is_found_with_the_modules_beside_it(folder: Path) -> None:
    assert load_function("model.py:loss")(5) == 5
    assert load_function(f"{folder}/model.py:Net.apply")(5) == 6
    assert load_function("model.py:Net.method")(5) == load_function("model.py:net.method")(5) == 7


def test_a_module_can_look_itself_up(folder: Path) -> None:
    (folder / "data.py").write_text("import dataclasses\n@dataclasses.dataclass\nclass D:\n    x: 'int'\n")
    assert load_function("data.py:D")(3).x == 3


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("model.py", "expected FILE.py:FUNCTION, found 'model.py'"),
        ("model.py:", "expected FILE.py:FUNCTION, found 'model.py:'"),
        (":loss", "expected FILE.py:FUNCTION, found ':loss'"),
        ("modle.py:loss", "no such file: modle.py"),
        (".:loss", "no such file: ."),
        ("model.txt:loss", "model.txt is not a Python file"),
        ("model.py:los", "there is no los in model.py; is it loss?"),
        ("model.py:gradient", "there is no gradient in model.py"),
        ("model.py:Net.aply", "there is no aply in Net in model.py; is it apply?"),
        ("model.py:net.", "expected a name after the last dot of net. in model.py"),
        (
            "model.py:net.failing",
            "cannot find net.failing in model.py: ZeroDivisionError: division by zero (model.py:11)",
        ),
        ("model.py:Closed.method", "cannot find Closed.method in model.py: OSError: shut (model.py:14)"),
        ("model.py:size", "size in model.py is not a function but of type int"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, reference: str, complaint: str) -> None:
    (folder / "model.txt").write_text("")
    with pytest.raises(UserError) as caught:
        load_function(reference)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import sys\nimport no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module' (bad.py:2)"),
        ("x = 1\n\ndef f(:\n", "SyntaxError: invalid syntax (bad.py:3)"),
        ("def f():\n    raise ValueError('two\\n lines')\nf()\n", "ValueError: two lines (bad.py:2)"),
        ("raise SystemExit(3)\n", "SystemExit: 3 (bad.py:1)"),
        ("assert False\n", "AssertionError (bad.py:1)"),
        ("import broken\n", "ZeroDivisionError: division by zero (bad.py:1)"),
    ],
)
def test_a_file_that_fails_says_where(folder: Path, text: str, complaint: str) -> None:
    (folder / "bad.py").write_text(text)
    (folder / "broken.py").write_text("\n\n1 / 0\n")
    with pytest.raises(UserError) as caught:
        load_module(Path("bad.py"))
    assert str(caught.value) == f"cannot load bad.py: {complaint}"
    assert "_file_bad" not in sys.modules
