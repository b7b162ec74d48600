"""What the program of a function is called."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from types import CodeType
from typing import Any


def program_name(function: Callable[..., Any]) -> str:
    """A name for the function's kernels: `layer_norm`, and `lambda_at_12` for a lambda, after its line."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    code = _lambda_code(function)
    if code is not None and name == code.co_name:
        return f"lambda_at_{code.co_firstlineno}"
    clean = re.sub(r"\W+", "_", name).strip("_") or "program"
    return f"f_{clean}" if clean[0].isdigit() else clean


def title_of(function: Callable[..., Any]) -> str:
    """Where a lambda is, as it has no name: `lambda at model.py:12`."""
    code = _lambda_code(function)
    return "" if code is None else f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _lambda_code(function: Callable[..., Any]) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) and code.co_name == "<lambda>" else None
