"""What is done to a drawn function: (wrap, f, program) → a function of flat arguments, and those arguments.

`wrap` is `fuse` or `jax.jit`; with `program.outside` it wraps the transformed function, else the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.drawn.program import DTYPES, Program, fill

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]
BATCH = 3


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.floating))


def transformed(program: Program, wrap: Wrap) -> Function:
    """The function to be compared: flat arguments, a tuple of arrays."""
    transform = TRANSFORMS[program.transform]
    if program.outside:
        return wrap(transform(program, program.function))
    return transform(program, wrap(program.function))


def arguments(program: Program, seed: int) -> list[np.ndarray]:
    """Fresh arguments for `transformed(program, ...)`."""
    rng = np.random.default_rng([program.seed, seed])
    uses_vmap, sizes = "vmap" in program.transform, []
    args = []
    for each, axis in zip(program.inputs, program.batched or (None,) * len(program.inputs)):
        shape = list(each.shape)
        if uses_vmap and axis is not None:
            shape.insert(axis, BATCH)
        sizes.append(tuple(shape))
        args.append(fill(rng, tuple(shape), DTYPES[each.dtype], each.values))
    if "jvp" in program.transform:
        args += [fill(rng, s, a.dtype, "normal") for s, a in zip(sizes, list(args)) if a.dtype.kind not in "iub"]
    if "grad" in program.transform:
        plain = [jax.ShapeDtypeStruct(each.shape, DTYPES[each.dtype]) for each in program.inputs]
        outputs = [o for o in jax.eval_shape(program.function, *plain) if is_float(o)]
        batch = (BATCH,) if uses_vmap else ()
        args += [fill(rng, (*batch, *o.shape), np.dtype(o.dtype), "normal") for o in outputs]
    return args


def _plain(program: Program, f: Function) -> Function:
    return f


def _vmap(program: Program, f: Function) -> Function:
    return jax.vmap(f, in_axes=program.batched)


def _differentiated(program: Program) -> tuple[int, ...]:
    return tuple(n for n, each in enumerate(program.inputs) if "float" in each.dtype)


def _grad(program: Program, f: Function) -> Function:
    """(inputs, cotangents) → outputs and gradients."""
    wanted, count = _differentiated(program), len(program.inputs)

    def pulled(*args: Any) -> Any:
        inputs, cotangents = list(args[:count]), args[count:]

        def of_floats(*values: Any) -> Any:
            for n, value in zip(wanted, values):
                inputs[n] = value
            outputs = f(*inputs)
            return tuple(o for o in outputs if is_float(o)), tuple(o for o in outputs if not is_float(o))

        outputs, pull, others = jax.vjp(of_floats, *(inputs[n] for n in wanted), has_aux=True)
        return (*outputs, *others, *pull(tuple(cotangents)))

    return pulled


def _jvp(program: Program, f: Function) -> Function:
    """(inputs, tangents) → outputs and directions."""
    wanted, count = _differentiated(program), len(program.inputs)

    def pushed(*args: Any) -> Any:
        inputs, tangents = list(args[:count]), args[count:]

        def of_floats(*values: Any) -> Any:
            for n, value in zip(wanted, values):
                inputs[n] = value
            return tuple(o for o in f(*inputs) if is_float(o))

        outputs, directions = jax.jvp(of_floats, tuple(inputs[n] for n in wanted), tuple(tangents))
        return (*outputs, *directions)

    return pushed


def _vmap_grad(program: Program, f: Function) -> Function:
    """Gradients of each member of a batch."""
    floats = len([o for o in jax.eval_shape(program.function, *_structs(program)) if is_float(o)])
    return jax.vmap(_grad(program, f), in_axes=(*program.batched, *(0,) * floats))


def _structs(program: Program) -> list[Any]:
    return [jax.ShapeDtypeStruct(each.shape, DTYPES[each.dtype]) for each in program.inputs]


TRANSFORMS: dict[str, Callable[[Program, Function], Function]] = {
    "plain": _plain,
    "vmap": _vmap,
    "grad": _grad,
    "jvp": _jvp,
    "vmap_grad": _vmap_grad,
}
