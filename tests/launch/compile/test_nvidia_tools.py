"""What is said where Triton, or a tool that it brings along, is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from jaxpr2triton.errors import BackendError
from jaxpr2triton.launch.compile import nvidia_tools
from jaxpr2triton.launch.compile.triton_shim import triton_version


def complaint(call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(BackendError) as caught:
        call(*args)
    return str(caught.value)


def test_triton_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    whole = complaint(triton_version.__wrapped__)
    assert whole == "Triton is not installed\n  try  pip install triton, or backend='xla'"
    assert complaint(nvidia_tools._tool, "ptxas") == "Triton is not installed\n  try  pip install triton"


def test_a_tool_is_missing() -> None:
    path = Path(nvidia_tools._tool("ptxas")).with_name("nvflop")
    assert complaint(nvidia_tools._tool, "nvflop") == f"this build of Triton does not bring nvflop along ({path})"


def test_text_that_is_no_ptx() -> None:
    assert complaint(nvidia_tools.machine_code, "no PTX", 90) == "this PTX names no target"
