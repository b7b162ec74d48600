"""What `transpile` gives: programs to look at, to run, and to differentiate with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from jaxpr2triton._compat import user_frame
from jaxpr2triton.autodiff import split
from jaxpr2triton.errors import UserError
from jaxpr2triton.front.arguments import Signature, fits
from jaxpr2triton.front.derived_programs import pointing_at_loops, split_program, transposed_program
from jaxpr2triton.front.fused import bind
from jaxpr2triton.front.modules import one_module
from jaxpr2triton.front.options import Settings
from jaxpr2triton.front.planning import compiled_program
from jaxpr2triton.front.rules import not_split
from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.ir.kernel import Kernel, Leftover, Residual
from jaxpr2triton.ir.roles import Roles
from jaxpr2triton.ir.tracing import argument_names, is_differentiable
from jaxpr2triton.launch.call.raised import called
from jaxpr2triton.launch.cycles.model import cycles_of_all
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.plan.schedule.role_requests import finds, unknown
from jaxpr2triton.report import explain as report
from jaxpr2triton.report.summary import Summary


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """Kernels, and what is left to XLA. Calling it runs them: on a GPU as Triton, elsewhere in Triton's interpreter.

    It can be pickled. What comes back can be looked at in every way, with its stages as text, but not be called.
    """

    name: str
    summary: Summary
    _run: Callable[..., Any]
    _title: str = ""  # for a name that says little: `lambda at model.py:12`

    def __repr__(self) -> str:
        return f"Program(name={self.name!r}, kernels={len(self.kernels)}, leftovers={len(self.leftovers)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Program, (self.name, self.summary, functools.partial(unpickled, self.name), self._title)

    def __deepcopy__(self, memo: Any = None) -> Program:
        return self  # nothing can change it

    __copy__ = __deepcopy__

    @property
    def compiled(self) -> Compiled:
        """Not of a program that was pickled."""
        return self.summary.compiled

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, in the order in which they run; one that runs several times is in it as often."""
        return self.summary.kernels

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        """The equations that stay with XLA, each with the reason."""
        return self.summary.leftovers

    @property
    def stages(self) -> Mapping[str, Any]:
        """The program after each stage; printable."""
        return self.summary.stages

    @property
    def source(self) -> str:
        """One importable Python module with every kernel."""
        return one_module(self.summary)

    def explain(self, *, why: bool = False, cycles: bool = False) -> str:
        """What the kernels move and compute, why they are several, and what is left to XLA, why.

        With `why` also how they were planned, with `cycles` what they and the steps of their loops take: a model that
        reads the machine code for a CUDA device, and needs none. Lines have 100 columns, or what COLUMNS says.
        """
        return report.explain(self.summary, self.name, self._title, why, self._modelled() if cycles else None)

    def explain_json(self, *, cycles: bool = False) -> dict[str, Any]:
        """The facts behind `explain`: of lists, dicts, words and numbers."""
        return report.explain_json(self.summary, self.name, self._modelled() if cycles else None)

    def _modelled(self) -> dict[Kernel, Cycles]:
        return cycles_of_all(self.kernels, self.summary.policy.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return called(self._run, args, kwargs)


@dataclass(frozen=True, eq=False, repr=False)
class GradProgram:
    """A program and its gradient.

    `forward(*args)` gives the result and the residuals, `backward(residuals, cotangents)` gives the gradients; the
    cotangents have the form of the result. If the result is one floating-point number, calling it gives
    `(value, gradients)`, as `jax.value_and_grad` does. It can be pickled, to be looked at, as a `Program` can.
    """

    name: str
    forward: Program
    backward: Program
    residuals: tuple[Residual, ...]
    _signature: Signature | None  # None once it was pickled
    _argnums: int | tuple[int, ...]
    _title: str = ""

    def __repr__(self) -> str:
        halves = f"forward={self.forward!r}, backward={self.backward!r}"
        return f"GradProgram(name={self.name!r}, {halves}, residuals={len(self.residuals)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return GradProgram, (
            self.name, self.forward, self.backward, self.residuals, None, self._argnums, self._title,
        )  # fmt: skip

    def __deepcopy__(self, memo: Any = None) -> GradProgram:
        return self  # nothing can change it

    __copy__ = __deepcopy__

    @property
    def source(self) -> str:
        """One importable Python module with the kernels of both programs."""
        return one_module(self.forward.summary, self.backward.summary)

    def explain(self, *, why: bool = False, cycles: bool = False) -> str:
        """Both programs, and what the first saves for the second; `why` and `cycles` are as for a `Program`."""
        found = self._modelled() if cycles else None
        halves = self.forward.summary, self.backward.summary
        return report.explain_grad(*halves, self.residuals, self.name, self._title, why, found)

    def explain_json(self, *, cycles: bool = False) -> dict[str, Any]:
        """The facts behind `explain`: of lists, dicts, words and numbers."""
        found = self._modelled() if cycles else None
        halves = self.forward.summary, self.backward.summary
        return report.explain_grad_json(*halves, self.residuals, self.name, found)

    def _modelled(self) -> dict[Kernel, Cycles]:
        kernels = (*self.forward.kernels, *self.backward.kernels)
        return cycles_of_all(kernels, self.forward.summary.policy.target)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, residuals = self.forward(*args, **kwargs)
        leaves = jax.tree.leaves(value)
        if len(leaves) != 1 or leaves[0].shape or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
            raise UserError(
                f"{self.name} does not return one floating-point number, so it has no gradient by itself",
                hint="`result, residuals = program.forward(...)` and `program.backward(residuals, cotangents)`",
            )
        return value, self.backward(residuals, jax.tree.map(jnp.ones_like, value))

    def as_custom_vjp(self) -> Any:
        """A `jax.custom_vjp` function made of the two programs, called like the user's function."""
        signature = self._signature
        if signature is None:
            unpickled(self.name)
        wanted = set(self._argnums if isinstance(self._argnums, tuple) else (self._argnums,))
        count = len(signature.names)

        def function(*args: Any, **kwargs: Any) -> Any:
            return self.forward(*args, **kwargs)[0]

        def forward(*args: Any) -> tuple[Any, Any]:
            for position, arg in enumerate(args):
                if position not in wanted and any(leaf.perturbed for leaf in jax.tree.leaves(arg)):
                    raise UserError(
                        f"{self.name} was transpiled without the gradient for `{signature.names[position]}`",
                        hint="name the argument in `grad`, or wrap it in jax.lax.stop_gradient",
                    )
            return self.forward(*jax.tree.map(lambda leaf: leaf.value, args))

        def backward(residuals: Any, cotangents: Any) -> tuple[Any, ...]:
            gradients = self.backward(residuals, jax.tree.map(_instantiated, cotangents))
            if not isinstance(self._argnums, tuple):
                return tuple(gradients if position in wanted else None for position in range(count))
            by_position = dict(zip(self._argnums, gradients))
            return tuple(by_position.get(position) for position in range(count))

        function.__name__ = self.name
        setattr(function, "__signature__", signature.parameters)  # noqa: B010  # no such field for type checkers
        result = jax.custom_vjp(function)
        result.defvjp(forward, backward, symbolic_zeros=True)
        return result


def unpickled(name: str, /, *args: Any, **kwargs: Any) -> NoReturn:
    """What a program from another process runs."""
    hint = "transpile the function again in this process"
    raise UserError(f"{name} was unpickled: it can be looked at, but not called", hint=hint)


def _instantiated(cotangent: Any) -> Any:
    if isinstance(cotangent, jax.custom_derivatives.SymbolicZero):
        return jnp.zeros(cotangent.shape, cotangent.dtype)
    return cotangent


def plain_program(
    jaxpr: Any, captured: Sequence[Any], signature: Signature, out_tree: Any, settings: Settings
) -> Program:
    """The program of a function; its jaxpr takes first what the function captured."""
    name, running = signature.function, replace(settings, strict=False)

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = signature.leaves(signature.bind(args, kwargs))
        return jax.tree.unflatten(out_tree, bind(jaxpr, [*captured, *leaves], name, running))

    return Program(name, Summary(compiled_program(jaxpr, name, settings)), call, signature.title)


def grad_program(
    jaxpr: Any,
    captured: Sequence[Any],
    signature: Signature,
    out_tree: Any,
    argnums: int | tuple[int, ...],
    settings: Settings,
) -> GradProgram:
    """The two programs of a gradient along the arguments `argnums`, counted without the static ones."""
    name, numbers = signature.function, argnums if isinstance(argnums, tuple) else (argnums,)
    trees = signature.tree.children()
    leaves = [position for position, tree in enumerate(trees) for _ in range(tree.num_leaves)]
    nonzero = (*[False] * len(captured), *(position in numbers for position in leaves))
    for label, aval, moves in zip(argument_names(jaxpr), jaxpr.in_avals, nonzero):
        if moves and not is_differentiable(aval):
            raise UserError(f"`{label}` is {report.short_type(aval)}: only floating-point arguments have gradients")
    halves, running = _split(jaxpr, nonzero, name, settings), replace(settings, strict=False)
    back = _transposed(halves, name, settings)

    def run_forward(*args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        inputs = [*captured, *signature.leaves(signature.bind(args, kwargs))]
        results = bind(halves.forward, [*halves.captured, *inputs], f"{name}_fwd", running)
        outputs, new = results[: out_tree.num_leaves], results[out_tree.num_leaves :]
        return jax.tree.unflatten(out_tree, outputs), tuple(halves.residuals(inputs, outputs, new))

    moving = [aval for aval, moves in zip(jaxpr.in_avals, nonzero) if moves]
    groups = {position: trees[position] for position in sorted(set(numbers))}

    def run_backward(residuals: Sequence[Any], cotangents: Any) -> Any:
        flat = _cotangent_leaves(name, out_tree, halves, jaxpr.out_avals, cotangents)
        operands = [*back.captured, *residuals, *flat]
        results = iter(bind(back.program, operands, f"{name}_bwd", running) if any(back.reaching) else ())
        gradients = iter(
            [next(results) if reaches else jnp.zeros(a.shape, a.dtype) for reaches, a in zip(back.reaching, moving)]
        )
        by_position = {
            position: jax.tree.unflatten(tree, [next(gradients) for _ in range(tree.num_leaves)])
            for position, tree in groups.items()
        }
        return tuple(map(by_position.get, argnums)) if isinstance(argnums, tuple) else by_position[argnums]

    forward = compiled_program(halves.forward, f"{name}_fwd", settings)
    backward = compiled_program(back.program, f"{name}_bwd", settings)
    _refuse_unknown(settings.roles, forward, backward)
    return GradProgram(
        name,
        Program(f"{name}_fwd", Summary(forward), run_forward),
        Program(f"{name}_bwd", Summary(backward), run_backward),
        _residuals(halves),
        signature,
        argnums,
        signature.title,
    )


def _split(jaxpr: Any, nonzero: tuple[bool, ...], name: str, settings: Settings) -> split.Split:
    try:
        return split_program(jaxpr, nonzero, settings.roles.checkpoint)
    except split.NotSplit as refusal:
        raise refusal.__cause__ or not_split(name) from None
    except Exception as problem:
        with settings.instead_of(problem, name, "the forward program saves all that JAX would save"):
            return split.plain_split(jaxpr, nonzero)


def _transposed(halves: split.Split, name: str, settings: Settings) -> split.Transposed:
    num_residuals = len(halves.sources)
    linear = tuple(k >= num_residuals for k in range(len(halves.linear.in_avals)))
    nonzero = (True,) * sum(halves.nonzero_outputs)
    try:
        return transposed_program(halves.linear, linear, nonzero)
    except Exception as problem:
        instead = "the backward program makes all gradients, zeros included"
        with settings.instead_of(problem, name, instead), pointing_at_loops(halves.linear):
            return split.transpose_to(halves.linear, linear, nonzero, [True] * sum(linear))


def _refuse_unknown(roles: Roles, *halves: Compiled) -> None:
    """A role for an axis that no kernel has is the user's mistake, if there is none of ours."""
    if any(half.mistakes for half in halves):
        return
    axes = {kernel.name: [axis.name for axis in kernel.axes] for half in halves for kernel in half.kernels}
    for asked in roles.asked:
        if not finds(asked, axes):
            raise unknown(asked, axes)


def _cotangent_leaves(
    name: str, out_tree: Any, halves: split.Split, out_avals: Sequence[Any], cotangents: Any
) -> list[Any]:
    leaves, tree = jax.tree.flatten(cotangents)
    if tree != out_tree:
        raise UserError(f"the cotangents have the form {tree}, but {name} returns {out_tree}")
    result = []
    for leaf, aval, moves in zip(leaves, out_avals, halves.nonzero_outputs):
        if moves:
            given = jax.typeof(leaf)
            if not fits(leaf, given, aval):
                raise UserError(
                    f"a cotangent is {report.short_type(given)}, but {name} returns {report.short_type(aval)}"
                )
            result.append(jnp.asarray(leaf, aval.dtype))
    return result


def _residuals(halves: split.Split) -> tuple[Residual, ...]:
    kinds = {"in": "input", "out": "output", "new": "new"}
    found = []
    for label, aval, source in zip(argument_names(halves.linear), halves.linear.in_avals, halves.sources):
        frame = user_frame(source.eqn) if source.eqn is not None else None
        where = str(frame) if frame else ""
        found.append(Residual(label, kinds[source.kind], aval.shape, aval.dtype, where))
    return tuple(found)
