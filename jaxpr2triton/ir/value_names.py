"""What values in memory are called: alike in the kernel that writes them and in those that read them.

def loss(w, xs): ...             the argument itself is `w`, and its cotangent `d_w`
    h = jnp.tanh(x @ w)          what is computed here is `h`, what a loop carries as h too
    return h, h                  and what it puts out in each step `hs`
return {"loss": total / n}       under a key, `loss`
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

from jaxpr2triton._compat import is_differentiated, is_transposed, user_frames
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.operation_names import deed
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.ir.tracing import argument_names, is_differentiable, result_names
from jaxpr2triton.ir.user_names import user_names

JOINED_AT_MOST = 12  # letters of names that are put together to one
MOVES = frozenset({"broadcast_in_dim", "convert_element_type", "reshape", "rounded", "slice", "squeeze", "transpose"})


def memory_names(closed: Closed, values: Sequence[Var]) -> dict[Var, str]:
    """The names of a program's inputs and of these values; no two are alike."""
    jaxpr, makers = closed.jaxpr, makers_of(closed.jaxpr)
    found = dict(zip(jaxpr.invars, argument_names(closed)))
    known = value_names(jaxpr)
    wishes = known | _results(closed, known)
    wishes |= _parts(jaxpr, wishes)
    given, taken = frozenset(found.values()), set(found.values())
    for var in values:
        if var not in found:
            maker = jaxpr.eqns[makers[var]]
            if maker.primitive.name == "random_unwrap" and maker.invars[0] in found:
                found[var] = found[maker.invars[0]]  # the same memory, and no kernel reads keys as they are
                continue
            wish = wishes.get(var) or _deed(maker, var)
            found[var] = next(name for name in _copies(wish, given) if name not in taken)
            taken.add(found[var])
    return found


def distinct(wishes: Sequence[str]) -> list[str]:
    """`total`, `mean`, `total2`, …"""
    found: list[str] = []
    for wish in wishes:
        found.append(next(name for name in _copies(wish, ()) if name not in found))
    return found


def value_names(jaxpr: Jaxpr) -> dict[Var, str]:
    """The names that the user gives to values, also in the loops that make them."""
    known: dict[Var, str] = user_names(jaxpr)
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in LOOPS:
            scan, inside = scan_of(eqn), user_names(eqn.params["jaxpr"].jaxpr, eqn)
            composed = _composed(scan, inside)
            inside |= composed
            inside |= _moved(scan.body, inside)
            inside |= {var: f"prev_{inside[after]}" for _, var, after, _ in scan.carries if _is_in(after, inside)}
            known |= {result: inside[after] for _, _, after, result in scan.carries if _is_in(after, inside)}
            for atom, result in scan.ys:
                if _is_in(atom, inside):
                    known[result] = inside[atom] if _is_in(atom, composed) else _several(inside[atom])
    return known | _moved(jaxpr, known)


def _moved(jaxpr: Jaxpr, names: Mapping[Var, str]) -> dict[Var, str]:
    """What is only moved keeps its name."""
    found: dict[Var, str] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in MOVES and eqn.outvars[0] not in names:
            for source in variables(eqn.invars[:1]):
                name = names.get(source) or found.get(source)
                found |= {eqn.outvars[0]: name} if name else {}
    return found


def _composed(scan: Scan, names: Mapping[Var, str]) -> dict[Var, str]:
    """What a step puts together of values with names: `d_i_f` of d_i and d_f, and `h_sum` where h is added up."""
    found: dict[Var, str] = {}
    carried = {after: var for _, var, after, _ in scan.carries if isinstance(after, Var)}
    for eqn in scan.body.eqns:
        parts = [names.get(var, "") for var in variables(eqn.invars)]
        if eqn.primitive.name == "concatenate" and all(parts) and len(parts) == len(eqn.invars):
            of_cotangents = all(part.startswith("d_") for part in parts)
            stems = [part.removeprefix("d_") for part in parts] if of_cotangents else parts
            if sum(map(len, stems)) <= JOINED_AT_MOST:
                found[eqn.outvars[0]] = ("d_" if of_cotangents else "") + "_".join(stems)
        elif eqn.primitive.name in ("add", "add_any") and carried.get(eqn.outvars[0]) in eqn.invars:
            added = next((names[var] for var in variables(eqn.invars) if var in names), "")
            if added and eqn.outvars[0] not in names:
                found[eqn.outvars[0]] = f"{added}_sum"
    return found


def _is_in(atom: Atom, names: Mapping[Var, str]) -> bool:
    return not isinstance(atom, Literal) and atom in names


def _several(name: str) -> str:
    return name if name.endswith("s") else f"{name}s"


def _deed(eqn: Eqn, var: Var) -> str:
    """After what is done: by a loop, in the steps of which it is made."""
    if eqn.primitive.name not in LOOPS:
        return deed(eqn.primitive.name)
    body: Jaxpr = eqn.params["jaxpr"].jaxpr
    atom, makers = body.outvars[eqn.outvars.index(var)], makers_of(body)
    return "state" if isinstance(atom, Literal) or atom not in makers else _deed(body.eqns[makers[atom]], atom)


def _copies(wish: str, given: Container[str]) -> Iterator[str]:
    """`x`, `x2`, `x3`, …; `x_out`, `x_out2`, … of what is called like an argument."""
    stem = f"{wish}_out" if wish in given else wish
    yield stem
    yield from (f"{stem}{copy}" for copy in itertools.count(2))


def _results(closed: Closed, known: Mapping[Var, str]) -> dict[Var, str]:
    """The results that have names of their own; of all others `out`, or their place among the results."""
    outs, makers = closed.jaxpr.outvars, makers_of(closed.jaxpr)
    found: dict[Var, str] = {}
    gradients = _gradients(closed)
    for place, (atom, name) in enumerate(zip(outs, result_names(closed))):
        if not isinstance(atom, Literal) and atom not in found:
            said = name if name.startswith("d_") else gradients.get(atom) or name
            found[atom] = said or known.get(atom) or ("out" if len(outs) == 1 else f"out{place}")
    for var in list(found):
        while var in makers and closed.jaxpr.eqns[makers[var]].primitive.name == "reshape":  # the same memory
            (source,) = variables(closed.jaxpr.eqns[makers[var]].invars) or (var,)
            if source in found or source in known or source is var:
                break
            found[source] = found[var]
            var = source
    return found


def _parts(jaxpr: Jaxpr, names: Mapping[Var, str]) -> dict[Var, str]:
    """Partial results are called after what they are parts of: `d_bias_parts`."""
    found: dict[Var, str] = {}
    whole = dict(names)
    for eqn in reversed(jaxpr.eqns):
        if eqn.outvars and eqn.outvars[0] in whole:
            if eqn.primitive.name in MOVES and eqn.outvars[0].aval.size == eqn.invars[0].aval.size:
                whole |= {source: whole[eqn.outvars[0]] for source in variables(eqn.invars[:1]) if source not in names}
            elif eqn.primitive.name.startswith("reduce"):
                found |= {source: f"{whole[eqn.outvars[0]]}_parts" for source in variables(eqn.invars)}
    boundaries = [eqn for eqn in jaxpr.eqns if eqn.primitive is boundary_p and eqn.outvars[0] in found]
    return {source: found[eqn.outvars[0]] for eqn in boundaries for source in variables(eqn.invars)}


def _gradients(closed: Closed) -> dict[Var, str]:
    """Results of a derivative that is taken backwards, as the cotangents of the arguments: `d_w`.

    They have the types of the arguments, and their keys or their order. Nothing is said where that leaves a choice, nor
    of an argument that is not differentiated wherever it is read.
    """
    jaxpr, makers = closed.jaxpr, makers_of(closed.jaxpr)
    outs = [v for v in dict.fromkeys(variables(jaxpr.outvars)) if v in makers and is_transposed(jaxpr.eqns[makers[v]])]
    plain = _read_plainly(jaxpr) if outs else set()
    given = {
        var: name
        for var, name in zip(jaxpr.invars, argument_names(closed))
        if is_differentiable(var.aval) and var not in plain
    }
    first = _matched(outs, list(given))
    last = _matched(outs[::-1], list(given)[::-1])
    if first is None or last is None or first != last[::-1]:
        return {}
    return {out: f"d_{given[var]}" for out, var in zip(outs, first)}


def _read_plainly(jaxpr: Jaxpr) -> set[Var]:
    """What some equation reads that is no part of a derivative.

    What JAX has moved out of a loop does not say so: its lines begin with the body, as if nothing was around.
    """
    outermost = [_outermost(eqn) for eqn in jaxpr.eqns if eqn.primitive.name in LOOPS and is_differentiated(eqn)]
    inputs, found = set(jaxpr.invars), set[Var]()
    for eqn in jaxpr.eqns:
        read = inputs.intersection(variables(eqn.invars))
        if read and not is_transposed(eqn) and not is_differentiated(eqn):
            was_moved = outermost and _outermost(eqn) not in outermost
            found |= set() if was_moved else read
    return found


def _outermost(eqn: Eqn) -> tuple[str, str] | None:
    frames = user_frames(eqn)
    return (frames[0].file, frames[0].function) if frames else None


def _matched(outs: Sequence[Var], given: Sequence[Var]) -> list[Var] | None:
    """For each result the first input of its type behind that of the result before."""
    rest = iter(given)
    found = [next((var for var in rest if _type(var) == _type(out)), None) for out in outs]
    return [var for var in found if var is not None] if None not in found else None


def _type(var: Var) -> tuple[object, object]:
    return var.aval.shape, var.aval.dtype
