"""Finds the function that the command line names as FILE.py:FUNCTION."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxpr2triton.errors import UserError


def load_function(reference: str) -> Callable[..., Any]:
    """'model.py:Net.apply' → the attribute `Net.apply` of the module in model.py."""
    file, colon, name = reference.rpartition(":")
    if not (colon and file and name):
        raise UserError(f"expected FILE.py:FUNCTION, found {reference!r}")
    value: Any = load_module(Path(file))
    found: list[str] = []
    try:
        for part in name.split("."):
            if not part or not hasattr(value, part):
                raise UserError(_missing(file, found, part, value))
            value = _attribute(value, part, file, found)
            found.append(part)
    except UserError:
        raise
    except (Exception, SystemExit) as problem:  # a property or a constructor of the user's
        raise UserError(f"cannot find {name} in {file}: {describe(problem, Path(file))}") from problem
    if not callable(value):
        raise UserError(f"{name} in {file} is not a function but of type {type(value).__name__}")
    return value


def _attribute(holder: Any, part: str, file: str, found: list[str]) -> Any:
    """`holder.part`; a method that is asked of a class is that of an instance, which is made without arguments."""
    if not inspect.isclass(holder) or not inspect.isfunction(inspect.getattr_static(holder, part)):
        return getattr(holder, part)
    try:
        inspect.signature(holder).bind()
    except TypeError as problem:
        name = ".".join(found)
        raise UserError(
            f"{name}.{part} in {file} is a method, and {name}() is no instance: {problem}",
            hint=f"give an instance a name in {file}, as in `net = {name}(...)`, and take net.{part}",
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return getattr(holder(), part)


def load_module(path: Path) -> ModuleType:
    """Runs a file as a module, with its folder first on sys.path, as `python FILE.py` would have it."""
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    name = f"_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise UserError(f"cannot load {path}: {describe(problem, path)}") from problem
    return module


def describe(problem: BaseException, path: Path) -> str:
    """'ValueError: what it says (model.py:12)': the last line of that file that the exception passed through."""
    text = summary(problem)
    if isinstance(problem, SyntaxError) and problem.filename == str(path.resolve()):
        return f"{text} ({path.name}:{problem.lineno})"
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == str(path.resolve())]
    return f"{text} ({path.name}:{frames[-1].lineno})" if frames else text


def summary(problem: BaseException) -> str:
    """'ValueError: what it says', in one line; of what arrives as the text of a whole traceback, the end."""
    says = str(getattr(problem, "msg", None) or problem)
    text = f"{type(problem).__name__}: {says}" if says else type(problem).__name__
    inner = [match.start() for match in re.finditer(r"^\w+(Error|Bug|Refused): ", text, re.MULTILINE)]
    return " ".join(text[inner[-1] if inner else 0 :].split())


def _missing(file: str, found: list[str], part: str, value: Any) -> str:
    holder = f"{'.'.join(found)} in {file}" if found else file
    if not part:
        return f"expected a name after the last dot of {'.'.join(found)}. in {file}"
    names = [name for name in dir(value) if not name.startswith("_") and callable(getattr(value, name, None))]
    close = difflib.get_close_matches(part, names, 1)
    return f"there is no {part} in {holder}" + (f"; is it {close[0]}?" if close else "")
