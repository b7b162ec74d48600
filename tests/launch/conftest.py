"""Fixtures for the cache of compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxpr2triton.launch import cache, compile


def forget() -> None:
    """As in a fresh process: nothing in memory, nothing warned about."""
    compile._binaries.clear()
    compile._stages.cache_clear()
    cache._warned.clear()


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of its own, not made yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("J2T_CACHE_DIR", str(folder))
    forget()
    yield folder
    forget()


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("J2T_CACHE", "0")
    forget()
    yield
    forget()
