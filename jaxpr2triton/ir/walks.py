"""Walks through what values are made of, for programs of any length: no function calls itself along them.

    d = f(b, c);  b = g(a);  c = h(a)      in_order([d], operands, done)   →   a, b, c, d
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from typing import Any, TypeVar

Value = TypeVar("Value")


def _itself(value: object) -> Hashable:
    return value


def in_order(
    asked: Iterable[Value],
    parts: Callable[[Value], Iterable[Value]],
    done: Container[Any],
    key: Callable[[Value], Hashable] = _itself,
) -> Iterator[Value]:
    """Each value that is not done, once, after all its parts; whoever asks says so in `done` before the next one.

    Values are known by their `key`. (Elsewhere: a depth-first walk in postorder.)
    """
    stack = [*asked][::-1]
    opened: set[Hashable] = set()
    while stack:
        value = stack[-1]
        known = key(value)
        if known in done:
            stack.pop()
        elif known in opened:
            stack.pop()
            yield value
        else:
            opened.add(known)
            stack.extend([part for part in parts(value) if key(part) not in done][::-1])


def reached(
    asked: Iterable[Value],
    parts: Callable[[Value], Iterable[Value]],
    key: Callable[[Value], Hashable] = _itself,
) -> Iterator[Value]:
    """Each value once, before its parts, in the order in which they stand."""
    stack = [*asked][::-1]
    seen: set[Hashable] = set()
    while stack:
        value = stack.pop()
        if key(value) not in seen:
            seen.add(key(value))
            yield value
            stack.extend([*parts(value)][::-1])
