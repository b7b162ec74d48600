"""Short loops in bodies whose steps read and write at places that the count of steps says → those steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import postorder
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.scans import Scan, scan_of
from jaxpr2triton.normalize.numbers.folding import computed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, named, primitive_names, rewrite
from jaxpr2triton.rules.dims import is_elementwise

Numbers = dict[Var, np.ndarray]  # what the condition of a loop is computed from, before a step
PLACES = {  # which operands say where
    "dynamic_slice": slice(1, None),
    "dynamic_update_slice": slice(2, None),
    **dict.fromkeys(("gather", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"), slice(1, 2)),
}


def unroll_short(closed: Closed) -> Closed:
    """Write out the steps of a loop that are known to be few, where that tells at which places they read and write.

        _, i, x = repeat (λ _ i x. (i + 1 < 3, i + 1, x + a[i])) True 1 x    →    x = x + a[1];  x = x + a[2]

    How often a loop goes round may depend on one flag, by one step: then this flag chooses whether the first is done.

        i = select p 1 0;  _, i, x = repeat (λ _ i x. ...) True i x
            →    x = select p x (x + a[0]);  x = x + a[1];  x = x + a[2]

    Left alone: loops in which no place depends on the count, long ones, and those whose steps the device finds out.
    """
    if "repeat" not in primitive_names(closed):
        return closed

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if node.equation is None:
            return None
        counted = _counted(scan_of(node.equation), node, rewriter)
        return None if counted is None else _written_out(counted, node, rewriter)

    return rewrite(closed, rule, named({"repeat"}))


@dataclass(frozen=True)
class Counted:
    """A loop whose numbers are known before each step, with the flag being False and being True."""

    scan: Scan
    flag: Value | None
    steps: tuple[Sequence[Numbers], Sequence[Numbers]]  # the numbers after the last step, too

    @property
    def longer(self) -> bool:
        """The case in which there are more steps."""
        return len(self.steps[True]) > len(self.steps[False])


def _counted(scan: Scan, node: Node, rewriter: Rewriter) -> Counted | None:
    if scan.carries[0][1].aval.shape:
        return None
    eqns, control = _control(scan)
    if control is None or not _says_places(scan, control):
        return None
    args = dict(zip(scan.body.invars, node.args))
    flags = {id(flag): flag for before in control for flag in _flags(args[before], rewriter)}
    if len(flags) > 1:
        return None
    flag = next(iter(flags.values()), None)
    cases = [_steps(scan, eqns, control, args, {id(flag): case}, rewriter) for case in (False, True)]
    if cases[0] is None or cases[1] is None or abs(len(cases[0]) - len(cases[1])) > 1:
        return None
    return Counted(scan, flag, (cases[0], cases[1]))


def _control(scan: Scan) -> tuple[list[Eqn], list[Var] | None]:
    """The equations of the condition, and the numbers carried that it is computed from; None if those are not all."""
    afters = {before: after for _, before, after, _ in scan.carries}
    control: list[Var] = []
    more = [scan.carries[0][1]]
    eqns: list[Eqn] = []
    while more:
        control += more
        targets = [afters[before] for before in control]
        eqns = evaluate.needed(scan.body.eqns, targets, ())
        made = {var for eqn in eqns for var in eqn.outvars}
        read = evaluate.read_by(eqns, targets)
        more = [var for var in dict.fromkeys(read) if var not in made and var not in control]
        if any(var not in afters or var.aval.shape for var in more):
            return [], None
    return (eqns, control) if all(is_elementwise(eqn.primitive.name) for eqn in eqns) else ([], None)


def _says_places(scan: Scan, control: Sequence[Var]) -> bool:
    """Whether a step reads or writes where these numbers say."""
    below = set(control)
    for eqn in scan.body.eqns:
        if not below.isdisjoint(evaluate.variables(eqn.invars[PLACES.get(eqn.primitive.name, slice(0, 0))])):
            return True
        numbers = all(var.aval.size == 1 for var in eqn.outvars)
        if numbers and not below.isdisjoint(evaluate.variables(eqn.invars)):
            below.update(eqn.outvars)
    return False


def _made_of(value: Value, rewriter: Rewriter) -> tuple[Value, ...]:
    """The numbers that a number is computed from."""
    maker = rewriter.maker(value)
    if constant(value) is not None or maker is None or jnp.ndim(value) or not is_elementwise(maker.name):
        return ()
    return tuple(maker.args)


def _is_choice(value: Value, rewriter: Rewriter) -> bool:
    """Whether a number is chosen of known ones."""
    maker, parts = rewriter.maker(value), _made_of(value, rewriter)
    chosen = maker is not None and maker.name == "select_n" and bool(parts)
    return chosen and all(constant(each) is not None for each in parts[1:])


def _flags(value: Value, rewriter: Rewriter) -> Iterator[Value]:
    """The flags between whose numbers a number is chosen."""
    seen: dict[int, Value] = {}
    parts = partial(_made_of, rewriter=rewriter)
    for each in postorder([value], lambda each: () if _is_choice(each, rewriter) else parts(each), seen, key=id):
        seen[id(each)] = each
        if _is_choice(each, rewriter):
            yield parts(each)[0]


def _known(value: Value, flags: Mapping[int, bool], rewriter: Rewriter) -> np.ndarray | None:
    """The number, if the flag is known."""
    found: dict[int, np.ndarray | None] = {flag: np.asarray(known) for flag, known in flags.items()}
    for each in postorder([value], lambda each: _made_of(each, rewriter), found, key=id):
        parts = [found[id(part)] for part in _made_of(each, rewriter)]
        maker, operands = rewriter.maker(each), [part for part in parts if part is not None]
        if not parts or maker is None:
            found[id(each)] = constant(each)
        else:
            whole = len(operands) == len(parts)
            dtype = jax.typeof(each).dtype
            found[id(each)] = computed(maker.primitive, operands, maker.params, dtype) if whole else None
    return found[id(value)]


def _steps(
    scan: Scan,
    eqns: Sequence[Eqn],
    control: Sequence[Var],
    args: Mapping[Var, Value],
    flags: Mapping[int, bool],
    rewriter: Rewriter,
) -> list[Numbers] | None:
    """The numbers before each step, and after the last; None if they are not known, or too many."""
    most = policy.COMMON.few
    afters = {before: after for _, before, after, _ in scan.carries}
    start = {before: _known(args[before], flags, rewriter) for before in control}
    now: Numbers = {before: number for before, number in start.items() if number is not None}
    found = [now]
    while len(now) == len(control) and now[control[0]]:
        if len(found) > most or len(found) * len(scan.body.eqns) > policy.COMMON.equations_written_out:
            return None
        env: dict[Var, Any] = dict(now)
        for eqn in eqns:
            (result,) = eqn.outvars
            operands = [np.asarray(evaluate.read(env, atom), atom.aval.dtype) for atom in eqn.invars]
            env[result] = computed(eqn.primitive, operands, eqn.params, result.aval.dtype)
        now = {before: np.asarray(evaluate.read(env, afters[before]), before.aval.dtype) for before in control}
        found.append(now)
    return found if len(now) == len(control) else None


def _written_out(counted: Counted, node: Node, rewriter: Rewriter) -> list[Value]:
    """The steps one after the other; the first by choice, if there is one more in one of the two cases."""
    scan, closed = counted.scan, node.params["jaxpr"]
    befores = [before for _, before, _, _ in scan.carries]
    consts, state = list(node.args[: len(scan.consts)]), list(node.args[len(scan.consts) :])
    more, fewer = (counted.steps[case] for case in (counted.longer, not counted.longer))
    by_choice = len(more) - len(fewer)

    def chosen(new: Value, old: Value) -> Value:
        """The one where there are more steps, the other one where there are not."""
        assert counted.flag is not None
        return lax.select_n(counted.flag, *((old, new) if counted.longer else (new, old)))

    def known(before: Var, step: int, value: Value) -> Value:
        if before not in more[step]:
            return value
        ours, theirs = more[step][before], fewer[max(step - by_choice, 0)][before]
        same = step < by_choice or ours == theirs
        return ours[()] if same else chosen(ours[()], theirs[()])

    for step in range(len(more) - 1):
        now = [known(before, step, value) for before, value in zip(befores, state)]
        after = rewriter.evaluate(closed.jaxpr, closed.consts, [*consts, *now])
        state = [chosen(new, old) for new, old in zip(after, state)] if step < by_choice else after
    return [known(before, len(more) - 1, value) for before, value in zip(befores, state)]
