"""Loops that are spread, by their bodies, and the loops that they come from: what XLA would run in their place."""

from __future__ import annotations

import weakref

from jaxpr2triton.ir.jaxprs import Closed, Eqn
from jaxpr2triton.ir.scans import LOOPS

_SOURCES: weakref.WeakKeyDictionary[Closed, Eqn] = weakref.WeakKeyDictionary()


def note_source(loop: Eqn, source: Eqn) -> None:
    """The loop comes from another one."""
    _SOURCES[loop.params["jaxpr"]] = source


def inherit_source(body: Closed, before: Closed) -> None:
    """The body is another form of one whose loop comes from another one, perhaps."""
    if before in _SOURCES:
        _SOURCES[body] = _SOURCES[before]


def source_of(loop: Eqn) -> Eqn:
    """The loop as it was before it was spread; the same, if it is not."""
    return _SOURCES.get(loop.params["jaxpr"], loop) if loop.primitive.name in LOOPS else loop


def is_spread(eqn: Eqn) -> bool:
    return source_of(eqn) is not eqn
