"""Compares a compiled function with the original on random inputs: values and gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.ir.dtypes import short_name
from jaxpr2triton.report.table import count, table

_GOOD = "all agree"

# The largest |difference| allowed, as a part of the largest |value|, by the coarsest dtype that takes part.
_ALLOWED = {"f64": 1e-9, "f32": 5e-5, "f16": 1e-2, "bf16": 6e-2, "c64": 5e-5, "c128": 1e-9}


@dataclass(frozen=True)
class Comparison:
    """One array, over all seeds: the largest error, and the seed that had it."""

    what: str
    type: str
    error: float
    allowed: float
    seed: int

    @property
    def part(self) -> str:
        return "gradients" if self.what.startswith("gradient of ") else "values"

    @property
    def agrees(self) -> bool:
        return self.error <= self.allowed


def compare(
    ours: Callable[..., Any],
    reference: Callable[..., Any],
    draws: Sequence[tuple[int, tuple[Any, ...]]],
    names: Sequence[str],
) -> tuple[Comparison, ...]:
    """Every output of the two functions, called by `names`, on every draw (seed, arguments): the worst draw of each."""
    worst: dict[str, Comparison] = {}
    for seed, args in draws:
        expected, found = jax.tree.leaves(reference(*args)), jax.tree.leaves(ours(*args))
        coarsest = [*jax.tree.leaves(args), *expected]
        for name, want, have in zip(names, expected, found, strict=True):
            result = _compare_arrays(name, jnp.asarray(have), jnp.asarray(want), _allowed(want, coarsest), seed)
            if name not in worst or not result.error <= worst[name].error:
                worst[name] = result
    return tuple(worst.values())


def output_names(outputs: Any) -> list[str]:
    """'value' for a single array; 'value.loss', 'value.0' for a tree."""
    flat = jax.tree_util.tree_flatten_with_path(outputs)[0]
    return [".".join(["value", *map(_plain, path)]) for path, _ in flat]


def vjp_function(function: Callable[..., Any], argnums: Sequence[int]) -> Callable[..., Any]:
    """(args, cotangents) → gradients with respect to the inexact leaves of the arguments at `argnums`."""

    def gradients(args: tuple[Any, ...], cotangents: Any) -> tuple[Any, ...]:
        leaves, treedef = jax.tree.flatten(args)
        wanted = _differentiable(args, argnums)

        def of_wanted(*values: Any) -> list[Any]:
            full = list(leaves)
            for position, value in zip(wanted, values, strict=True):
                full[position] = value
            return [out for out in jax.tree.leaves(function(*jax.tree.unflatten(treedef, full))) if _is_inexact(out)]

        _, pullback = jax.vjp(of_wanted, *(leaves[position] for position in wanted))
        return tuple(pullback(cotangents))

    return gradients


def gradient_names(args: tuple[Any, ...], parameters: Sequence[str], argnums: Sequence[int]) -> list[str]:
    """'gradient of x', 'gradient of params.w' for what `vjp_function` returns."""
    flat = jax.tree_util.tree_flatten_with_path(args)[0]
    names = []
    for position in _differentiable(args, argnums):
        first, *rest = flat[position][0]
        names.append(".".join([parameters[first.idx], *(_plain(key) for key in rest)]))
    return [f"gradient of {name}" for name in names]


def inexact_outputs(outputs: Any) -> list[Any]:
    """The outputs that have cotangents."""
    return [out for out in jax.tree.leaves(outputs) if _is_inexact(out)]


@dataclass(frozen=True)
class Checked:
    """What the comparisons stand for: the kernels that ran, and the equations of the programs that they are part of."""

    kernels: int
    inside: int  # equations
    outside: int
    left_to_xla: tuple[str, ...] = ()  # primitives

    def __str__(self) -> str:
        every = self.inside + self.outside
        share = f", with {self.inside} of {count(every, 'equation')} ({100 * self.inside // every}%)" if every else ""
        ran = f"{count(self.kernels, 'kernel')} ran{share}" if self.kernels else "no kernel ran"
        names = Counter(self.left_to_xla)
        listed = ", ".join(f"{name} ({many})" if many > 1 else name for name, many in names.most_common())
        return f"{ran}; left to XLA: {listed}" if names else ran


def show_check(
    title: str, comparisons: Sequence[Comparison], parts: Mapping[str, Checked], more: str = "", found: str = ""
) -> str:
    """A table, what it stands for, and a verdict on the last line; `more` before it, and `found` besides."""
    width = max(map(len, parts))
    ran = [f"{name:{width}}  {part}" for name, part in parts.items() if any(each.part == name for each in comparisons)]
    verdict = _verdict(comparisons, parts)
    if found:
        verdict = f"{verdict}, {found}" if verdict != _GOOD else found
    lines = [title, *([_table(comparisons)] if comparisons else []), *ran, *([more] if more else []), verdict]
    return "\n".join(lines)


def why_nothing(comparisons: Sequence[Comparison], values: Checked) -> str:
    """Why a comparison says nothing about kernels; empty if it does."""
    if not comparisons:
        return "there are no results"
    return "" if values.kernels else "XLA was compared with itself"


def _verdict(comparisons: Sequence[Comparison], parts: Mapping[str, Checked]) -> str:
    wrong = sum(not each.agrees for each in comparisons)
    if wrong:
        return f"MISMATCH in {wrong} of {count(len(comparisons), 'array')}"
    nothing = why_nothing(comparisons, parts["values"])
    return f"NOTHING CHECKED: {nothing}" if nothing else _GOOD


def _table(comparisons: Sequence[Comparison]) -> str:
    rows = [
        [each.what, each.type, f"{each.error:.1e}", f"{each.allowed:.1e}", each.seed, "ok" if each.agrees else "WRONG"]
        for each in comparisons
    ]
    return table(["array", "type", "error", "allowed", "worst seed", ""], rows)


def _compare_arrays(name: str, have: Any, want: Any, allowed: float, seed: int) -> Comparison:
    type_name = f"{short_name(want.dtype)}[{','.join(map(str, np.shape(want)))}]"
    if np.shape(have) != np.shape(want) or have.dtype != want.dtype:
        return Comparison(name, type_name, float("inf"), allowed, seed)
    return Comparison(name, type_name, _difference(have, want), allowed, seed)


def _difference(have: Any, want: Any) -> float:
    """The largest difference, as a part of the largest value; inf where NaN and inf are not in the same places."""
    a, b = _as_numpy(have), _as_numpy(want)
    differ = ~((a == b) | ((a != a) & (b != b)))
    if not differ.any():
        return 0.0
    precise = np.complex128 if np.iscomplexobj(b) else np.float64
    ours, theirs = a[differ].astype(precise), b[differ].astype(precise)
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    everything = b.astype(precise)
    scale = np.abs(everything[np.isfinite(everything)]).max()
    return float(np.abs(ours - theirs).max() / max(scale, np.finfo(np.float32).tiny))


def _as_numpy(array: Any) -> np.ndarray:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array)


def _allowed(array: Any, everything: Sequence[Any]) -> float:
    if not _is_inexact(array):
        return 0.0
    return max(_ALLOWED.get(short_name(leaf.dtype), 0.0) for leaf in (array, *map(jnp.asarray, everything)))


def _plain(key: Any) -> str:
    return jax.tree_util.keystr((key,), simple=True)


def _differentiable(args: tuple[Any, ...], argnums: Sequence[int]) -> list[int]:
    """Positions, among all leaves of the arguments, of the inexact leaves of the arguments at `argnums`."""
    flat = jax.tree_util.tree_flatten_with_path(args)[0]
    return [place for place, (path, leaf) in enumerate(flat) if path[0].idx in argnums and _is_inexact(leaf)]


def _is_inexact(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))
