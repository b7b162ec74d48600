"""What XLA launches outside of loops, about; loops, and what all of it takes, are counted by `pipeline/xla_time.py`.

XLA fuses elementwise work and moves, but a product, a sum or a sort is a launch of its own. What is around them is
counted by what has to be in memory: results, and what a product or a sort reads. Those of one shape that can be made at
one time are one launch, so are sums along the same dimensions, and what is made of nothing but the result of a sum is
part of its launch.

    def f(x, w):                             reduce_max, reduce_sum and dot_general are launched, and before them and
        return softmax(sin(x)) @ w    →      after them what dot_general reads is: about 4
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.extend.core as jex

from jaxpr2triton._compat import called_jaxpr, operands_of_call
from jaxpr2triton.ir.jaxprs import calls_python

APART = (
    "accumulate", "arg", "cholesky", "conv_general_dilated", "cum", "custom_call", "dot_general", "eig", "fft",
    "householder_product", "lu", "qr", "reduce", "scatter", "sort", "svd", "top_k", "triangular_solve",
)  # fmt: skip
SUMS = ("argmax", "argmin", "reduce_")  # what they read is made in the same launch
FREE = ("reshape", "squeeze", "expand_dims", "random_wrap", "random_unwrap", "stop_gradient", "copy_p")  # same memory


LOOPS = ("scan", "repeat", "while", "chunks")


def is_loop(eqn: Any) -> bool:
    return eqn.primitive.name in LOOPS


def trip_count(loop: Any) -> int | None:
    """None where the device finds out."""
    return loop.params["length"] if loop.primitive.name in ("scan", "chunks") else None


def launches_outside_loops(closed: Any) -> int:
    """Of a whole program, as it was traced; of the cases of a choice the fewest."""
    count = _Count()
    results = count.through(closed.jaxpr, [_GIVEN] * len(closed.jaxpr.invars))
    count.bring_into_memory(closed.jaxpr.outvars, results)
    return count.apart + len(count.sums) + len(count.fused)


@dataclass(frozen=True)
class _Value:
    level: int  # launches before it, one after the other
    fusible: bool  # into what reads it; else it is in memory
    after: Any = None  # the launch of sums that it is a part of


_GIVEN = _Value(0, False)


@dataclass
class _Count:
    """What has been found to be launched."""

    apart: int = 0
    sums: set[Any] = field(default_factory=set)  # launches of sums and the like: level, shape and dimensions
    fused: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)  # launches of what is fused: level and shape

    def through(self, jaxpr: Any, args: Sequence[_Value]) -> list[_Value]:
        """The values of the results."""
        env = dict(zip(jaxpr.invars, args))
        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self._results(eqn, _values(env, eqn.invars))))
        return _values(env, jaxpr.outvars)

    def _results(self, eqn: Any, values: Sequence[_Value]) -> Sequence[_Value]:
        name, level = eqn.primitive.name, max((value.level for value in values), default=0)
        if (call := called_jaxpr(name, eqn.params)) is not None:
            inner, _ = call
            return self.through(inner, operands_of_call(name, eqn.params, values))
        if is_loop(eqn):
            pass  # brings what it reads into memory, as all that is not fused
        elif name == "cond":
            self.apart += 1 + min(_apart(branch.jaxpr) for branch in eqn.params["branches"])
        elif name.startswith(SUMS) and "axes" in eqn.params:
            after = (level, eqn.invars[0].aval.shape, eqn.params["axes"])
            self.sums.add(after)
            return [_Value(level + 1, False, after)] * len(eqn.outvars)
        elif name.startswith(APART) and name != "reduce_precision":
            self.apart += 1
        elif not (eqn.effects or calls_python(eqn)):  # Python is called, and nothing is launched
            fusible = name not in FREE or any(value.fusible for value in values)
            return [_Value(level, fusible, _after(eqn, values))] * len(eqn.outvars)
        self.bring_into_memory(eqn.invars, values)
        return [_Value(level + 1, False)] * len(eqn.outvars)

    def bring_into_memory(self, atoms: Sequence[Any], values: Sequence[_Value]) -> None:
        for atom, value in zip(atoms, values):
            if value.fusible and value.after is None:
                self.fused.add((value.level, tuple(getattr(atom.aval, "shape", ()))))


def _after(eqn: Any, values: Sequence[_Value]) -> Any:
    """The launch of sums whose results alone are read here, one for each element."""
    made = eqn.outvars[0].aval
    sizes = [math.prod(getattr(atom.aval, "shape", ())) for atom in eqn.invars]
    launches = {value.after for value, size in zip(values, sizes) if size > 1 or value.after is not None}
    one = len(launches) == 1 and max(sizes) == math.prod(getattr(made, "shape", ()))
    return launches.pop() if one else None


def _values(env: Mapping[Any, _Value], atoms: Sequence[Any]) -> list[_Value]:
    """Those of constants, which are in memory, included."""
    return [_GIVEN if isinstance(atom, jex.Literal) else env.get(atom, _GIVEN) for atom in atoms]


def _apart(jaxpr: Any) -> int:
    """Launches of which each needs its own, but for those of loops."""
    count = 0
    for eqn in jaxpr.eqns:
        if is_loop(eqn):
            continue
        if eqn.primitive.name == "cond":
            count += min(_apart(branch.jaxpr) for branch in eqn.params["branches"])
        elif eqn.primitive.name.startswith(APART) and eqn.primitive.name != "reduce_precision":
            count += 1
        else:
            count += sum(_apart(body) for body in jex.jaxprs_in_params(eqn.params))
    return count
