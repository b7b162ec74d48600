"""Shapes and dtypes written as text, and random arrays for them.

    f32[128,64]    bf16[8]    i32[]    key[]
    {w: f32[3,4], b: f32[4]}    (f32[2], f32[3])    [i8[1], bool[1]]

The long names of dtypes, float32[128,64], are understood too.
One SPEC stands for one argument: an array, or a dict, tuple or list of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.dtypes import NAMES, short_name

_LONG_NAMES = {np.dtype(dtype).name: dtype for dtype in NAMES.values()}  # float32, as JAX says it too
_KNOWN = ", ".join([*NAMES, "key"])
_TOKEN = re.compile(r"\s*(?:(?P<word>\w+)|(?P<mark>[^\s\w]))")
_NESTS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class _Token:
    text: str  # empty at the end
    column: int  # from 1

    def __str__(self) -> str:
        return repr(self.text) if self.text else "the end"


@dataclass
class _Reader:
    """The tokens of one SPEC, read from left to right."""

    spec: str
    tokens: list[_Token]
    position: int = 0

    def peek(self) -> _Token:
        return self.tokens[self.position]

    def take(self) -> _Token:
        token = self.tokens[self.position]
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def expect(self, *texts: str) -> _Token:
        token = self.take()
        if token.text not in texts:
            raise self.wrong(" or ".join(f"'{text}'" for text in texts), token)
        return token

    def wrong(self, expected: str, found: _Token) -> UserError:
        return UserError(f"bad SPEC {self.spec!r}: expected {expected}, found {found} at column {found.column}")


def _reader(spec: str) -> _Reader:
    tokens = [
        _Token(match.group(match.lastgroup or 0), match.start(match.lastgroup or 0) + 1)
        for match in _TOKEN.finditer(spec)
    ]
    return _Reader(spec, [*tokens, _Token("", len(spec) + 1)])


def parse_spec(spec: str) -> Any:
    """'(f32[2], {n: i32[]})' → (ShapeDtypeStruct((2,), float32), {'n': ShapeDtypeStruct((), int32)})."""
    reader = _reader(spec)
    tree = _read_tree(reader)
    if reader.peek().text:
        raise reader.wrong("the end", reader.peek())
    return tree


def _read_tree(reader: _Reader) -> Any:
    token = reader.take()
    match token.text:
        case "(":
            return tuple(_read_items(reader, ")"))
        case "[":
            return _read_items(reader, "]")
        case "{":
            return _read_dict(reader)
        case "None":
            return None
        case "key":
            # The dtype of a key depends on jax_default_prng_impl.
            return jax.ShapeDtypeStruct(_read_shape(reader), jax.eval_shape(lambda: jax.random.key(0)).dtype)
        case name if name in NAMES or name in _LONG_NAMES:
            return jax.ShapeDtypeStruct(_read_shape(reader), np.dtype(NAMES.get(name) or _LONG_NAMES[name]))
        case name if name.isidentifier():
            raise reader.wrong(f"a dtype ({_KNOWN})", token)
        case _:
            raise reader.wrong("an array such as f32[8,4], or one of ( [ {", token)


def _read_items(reader: _Reader, closing: str) -> list[Any]:
    items: list[Any] = []
    while reader.peek().text != closing:
        items.append(_read_tree(reader))
        if reader.peek().text == closing:
            break
        reader.expect(",", closing)
    reader.take()
    return items


def _read_dict(reader: _Reader) -> dict[str, Any]:
    items: dict[str, Any] = {}
    while reader.peek().text != "}":
        key = reader.take()
        if not re.fullmatch(r"\w+", key.text) or key.text in items:
            raise reader.wrong("a new key" if key.text in items else "a key", key)
        reader.expect(":")
        items[key.text] = _read_tree(reader)
        if reader.peek().text == "}":
            break
        reader.expect(",", "}")
    reader.take()
    return items


def _read_shape(reader: _Reader) -> tuple[int, ...]:
    reader.expect("[")
    shape: list[int] = []
    while reader.peek().text != "]":
        size = reader.take()
        if not re.fullmatch(r"[0-9]{1,18}", size.text):
            raise reader.wrong("a size", size)
        shape.append(int(size.text))
        if reader.expect(",", "]").text == "]":
            return tuple(shape)
    reader.take()
    return tuple(shape)


def show_spec(tree: Any) -> str:
    """The SPEC of a tree of arrays or ShapeDtypeStructs: the inverse of `parse_spec`."""
    match tree:
        case None:
            return "None"
        case dict():
            return "{" + ", ".join(f"{key}: {show_spec(tree[key])}" for key in sorted(tree)) + "}"
        case list():
            return "[" + ", ".join(map(show_spec, tree)) + "]"
        case tuple():
            return "(" + ", ".join(map(show_spec, tree)) + ("," if len(tree) == 1 else "") + ")"
        case _:
            dtype = tree.dtype if hasattr(tree, "dtype") else jnp.result_type(tree)
            return f"{short_name(dtype)}[{','.join(map(str, np.shape(tree)))}]"


def needs_x64(tree: Any) -> bool:
    """Does any leaf have a 64-bit dtype that JAX would silently narrow?"""
    return any(short_name(leaf.dtype) in ("f64", "i64", "u64", "c128") for leaf in jax.tree.leaves(tree))


def random_arguments(specs: Any, seed: int) -> Any:
    """Random arrays for a tree of ShapeDtypeStructs: normals, small integers, fair coins, keys; never zeros only."""
    leaves, treedef = jax.tree.flatten(specs)
    generator = np.random.default_rng(seed)
    return jax.tree.unflatten(treedef, [_random_array(leaf, generator) for leaf in leaves])


def _random_array(leaf: Any, generator: np.random.Generator) -> jax.Array:
    shape, dtype = leaf.shape, leaf.dtype
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        words = generator.integers(0, 2**32, (*shape, *_key_words(dtype)), dtype=np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words))
    match np.dtype(dtype).kind:
        case "b":
            values = generator.integers(0, 2, shape)
        case "i":
            values = generator.integers(-4, 8, shape)
        case "u":
            values = generator.integers(0, 8, shape)
        case "c":
            values = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
        case _:
            values = generator.standard_normal(shape)
    values = np.asarray(values)
    if values.size and not values.any():
        values.flat[0] = 1
    return jnp.asarray(values.astype(dtype))


def _key_words(dtype: Any) -> tuple[int, ...]:
    """The shape of one key's data."""
    return jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype)).shape
