"""Fixtures for the cache of compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.handmade import forget


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
