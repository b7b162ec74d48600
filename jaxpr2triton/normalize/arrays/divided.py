"""Exponentials that are divided by their sums, wherever they are wanted → divided once, or sums of them are.

    p = e / l                                               r = 1 / l;  p = e * r
    p = exp(s - m) / l                                      p = exp(s - (m + log l)), as a factor of 16 bits
    s = (d / l - b) * e                                     u = d - b * l
    y = dot_general p.T g;  z = dot_general s.T q    →      y = dot_general p.T g;  z = dot_general (u * p).T q
    x = dot_general s k                                     x = dot_general (u * e) k * r

The gradient of a softmax is that, with a quotient for `b`. What it takes for each pair of numbers is then a product and
a difference, and what it takes for each row are numbers that an earlier kernel has made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton._compat import bind_with, source_of
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import is_zero, maker_of, readers_of
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.arrays.factors import places_of
from jaxpr2triton.normalize.arrays.magnitudes import has_16_bits, is_moderate
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.policy import COMMON

HELD = ("exp", "mul", "div", "sub", "neg")  # that kernels do not round the results of
DIFFERENCES = ("sub", "add", "add_any")
ALONG = (*DIFFERENCES, "mul", "div", "neg", "convert_element_type", "transpose", "select_n")  # with quotients in them
VIEWS = ("reshape", "squeeze", "broadcast_in_dim")
CASTS = ("convert_element_type", "rounded")


@dataclass(frozen=True)
class Rows:
    """A number for each row of an array: which one, and the dimensions of the array that it varies along, in order."""

    base: Var
    dims: tuple[int, ...]

    def within(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Its shape beside an array of this one."""
        return tuple(size if d in self.dims else 1 for d, size in enumerate(shape))


@dataclass(frozen=True)
class Divided:
    """By what a value is divided; whether something is subtracted from that, and whether all of it may be hidden."""

    rows: Rows | None = None
    differs: bool = False
    hides: bool = False


@dataclass(frozen=True, eq=False)
class Made:
    """A value that is written anew: what a function makes of others, in the dtype that kernels hold it in."""

    function: Callable[..., Any]
    parts: tuple[Made | Atom, ...]

    def of(self, env: dict[Var, Any], found: dict[Made, Any]) -> Any:
        for each in postorder([self], lambda made: [part for part in made.parts if isinstance(part, Made)], found):
            parts = (found[part] if isinstance(part, Made) else read(env, part) for part in each.parts)
            found[each] = each.function(*parts)
        return found[self]


State = tuple[Atom, Rows]  # a value, and what divides it


@dataclass(frozen=True)
class Side:
    """What a contraction multiplies instead, and what the sums are multiplied with: a number for each row."""

    number: int
    made: Made
    later: tuple[Made, tuple[int, ...]] | None = None


def divide_once(closed: Closed) -> Closed:
    """Let what contractions multiply be divided once; see above."""
    quotients = _Quotients(closed.jaxpr)
    found = dict(quotients.found())
    if not found:
        return closed
    jaxpr = closed.jaxpr

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        made: dict[Made, Any] = {}
        env = dict(zip(jaxpr.invars, args)) | dict(zip(jaxpr.constvars, closed.consts))

        def anew(eqn: Eqn, _: object) -> list[Any] | None:
            if eqn in quotients.products:
                quotients.products[eqn].of(env, made)
            return [_contracted(eqn, found[eqn], env, made)] if eqn in found else None

        run(jaxpr.eqns, env, anew)
        return [read(env, atom) for atom in jaxpr.outvars]

    return remove_dead(again(closed, rewritten))


@dataclass(frozen=True)
class _Factor:
    """A factor of a contraction that is divided by a number of each row, alike for all that is summed, or not."""

    number: int
    atom: Atom
    rows: Rows
    alike: bool
    hides: bool


@dataclass(frozen=True, eq=False)
class _Shares:
    """Exponentials that are divided, and what is made of them."""

    quotients: dict[State, Made] = field(default_factory=dict)
    part: dict[State, Made | None] = field(default_factory=dict)  # values in which nothing else is divided


class _Quotients:
    """What a program divides by numbers of which each row has one, exponentials among it."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr, self.eqns, self._maker = jaxpr, jaxpr.eqns, partial(maker_of, jaxpr)
        self.readers = readers_of(jaxpr)
        self.exact, self.rough = _Shares(), _Shares()  # for factors of more bits than 16, and of 16
        self.reciprocals: dict[Var, Made] = {}  # of what divides, without dimensions of one element
        self.whole: dict[State, Made | None] = {}  # values times what divides them
        self.wide: dict[Atom, Made] = {}  # values of 16 bits as kernels hold them
        self.products: dict[Eqn, Made] = {}  # … of these what contractions make
        self.divided: dict[Atom, Divided] = {}
        exponentials = [eqn for eqn in self.eqns if eqn.primitive.name == "exp"]
        self.compared = frozenset(reachable(exponentials, lambda eqn: filter(None, map(self._maker, eqn.invars))))
        for eqn in self.eqns:
            rows = self._divisor(eqn)
            if rows is not None and self._subtracted(eqn.invars[0]) is not None:
                state = eqn.invars[0], rows
                if rows.base not in self.reciprocals:
                    self.reciprocals[rows.base] = Made(partial(_of_rows, 0, _sizes(rows.base)), (rows.base,))
                beside = partial(lax.reshape, new_sizes=rows.within(eqn.outvars[0].aval.shape))
                reciprocal = Made(beside, (self.reciprocals[rows.base],))
                self.exact.quotients[state] = Made(lax.mul, (self._held(eqn.invars[0]), reciprocal))
                if (made := self._less_log(*state)) is not None:
                    self.rough.quotients[state] = made

    def found(self) -> Iterator[tuple[Eqn, Side]]:
        """What contractions multiply instead; other shares of some rows where all that multiply them have 16 bits."""
        products = [eqn for eqn in self.eqns if eqn.primitive.name == "dot_general"] if self.reciprocals else []
        divided = {eqn: list(self._factors(eqn)) for eqn in products}
        exact = {rows.base for _, rows in self.exact.quotients.keys() - self.rough.quotients.keys()}
        logs = self.reciprocals.keys() - exact
        logs -= {each.rows.base for eqn in products for each in divided[eqn] if not has_16_bits(eqn)}
        for eqn in products:
            sides = (self._side(each, each.rows.base in logs) for each in divided[eqn])
            side = next((each for each in sides if each is not None), None)
            if side is not None:
                yield eqn, side

    def _factors(self, eqn: Eqn) -> Iterator[_Factor]:
        """The factors of a contraction that are divided, if it matters where."""
        for number, (atom, over) in enumerate(zip(eqn.invars, eqn.params["dimension_numbers"][0])):
            seen = self._divided_by(atom)
            if seen.rows is not None and seen.rows.base in self.reciprocals and is_float(atom.aval.dtype):
                alike = set(seen.rows.dims).isdisjoint(over)
                if not alike or seen.differs:
                    yield _Factor(number, atom, seen.rows, alike, seen.hides)

    def _side(self, each: _Factor, is_rough: bool) -> Side | None:
        atom, by = each.atom, each.rows
        has_no_room = atom.aval.dtype == np.float16  # for a sum that is divided later
        if is_rough or not each.alike or has_no_room:
            made = self._with_share(atom, by, self.rough if is_rough else self.exact)
            return None if made is None else Side(each.number, made)
        made, later = self._times(atom, by), self.reciprocals[by.base]
        later = Made(_or_zero, (later,)) if each.hides else later
        return None if made is None else Side(each.number, made, (later, by.dims))

    def _divided_by(self, top: Atom) -> Divided:
        """What divides a value, or what it is made of."""
        for each in postorder([top], self._parts, self.divided):
            eqn, parts = self._maker(each), [self.divided[part] for part in self._parts(each)]
            divided = [part for part in parts if part.rows is not None]
            name, rows = "" if eqn is None else eqn.primitive.name, divided[0].rows if divided else None
            if eqn is not None and not parts:
                rows = self._divisor(eqn)
            elif eqn is not None and name == "transpose" and rows is not None:
                rows = replace(rows, dims=tuple(eqn.params["permutation"].index(d) for d in rows.dims))
            differs = name in DIFFERENCES or any(part.differs for part in divided)
            hides = name == "select_n" or (bool(divided) and all(part.hides for part in divided))
            self.divided[each] = Divided(rows, differs, hides)
        return self.divided[top]

    def _parts(self, atom: Atom) -> Sequence[Var]:
        """What a value is made of, where that may be a quotient."""
        eqn = self._maker(atom)
        if eqn is None or eqn.primitive.name not in ALONG or self._divisor(eqn) is not None:
            return ()
        operands = eqn.invars[:1] if eqn.primitive.name == "div" else eqn.invars
        same = [each for each in operands if each.aval.size == atom.aval.size and _is_held_as(each, atom)]
        return [each for each in same if isinstance(each, Var)]

    def _states(self, state: State) -> list[State]:
        atom, by = state
        below = self._before(atom, by)
        return [(each, below) for each in self._parts(atom)]

    def _before(self, atom: Atom, by: Rows) -> Rows:
        """The same rows of what a value is made of."""
        eqn = self._maker(atom)
        if eqn is None or eqn.primitive.name != "transpose":
            return by
        return replace(by, dims=tuple(int(eqn.params["permutation"][d]) for d in by.dims))

    def _known(self, found: Mapping[State, Made | None], eqn: Eqn, by: Rows) -> list[Made | None]:
        """What operands were made of."""
        below = self._before(eqn.outvars[0], by)
        return [found.get((atom, below)) if isinstance(atom, Var) else None for atom in eqn.invars]

    def _times(self, top: Atom, by: Rows) -> Made | None:
        """A value times what divides it; None where that does not divide all of it."""
        for atom, rows in postorder([(top, by)], self._states, self.whole):
            eqn = self._maker(atom)
            made = None if eqn is None else self._product(eqn, rows, self._known(self.whole, eqn, rows))
            self.whole[atom, rows] = made
        return self.whole[top, by]

    def _product(self, eqn: Eqn, by: Rows, known: Sequence[Made | None]) -> Made | None:
        rows = self._divisor(eqn)
        if rows is not None:
            return Made(_same, (self._held(eqn.invars[0]),)) if rows == by else None
        match eqn.primitive.name, known:
            case "convert_element_type", [one]:
                return one
            case (("neg" | "transpose"), [Made() as one]):
                return Made(partial(_bound, eqn), (one,))
            case (("mul" | "div"), [Made() as one, _]):
                return Made(partial(_bound, eqn), (one, self._held(eqn.invars[1])))
            case "mul", [None, Made() as other]:
                return Made(partial(_bound, eqn), (self._held(eqn.invars[0]), other))
            case name, _ if name in DIFFERENCES:
                parts = [each or self._rows_times(atom, by, eqn) for each, atom in zip(known, eqn.invars)]
                combined = lax.sub if name == "sub" else lax.add
                made = tuple(each for each in parts if each is not None)
                return Made(partial(_along, combined), made) if len(made) == 2 else None
            case "select_n", [_, *cases]:
                return self._choice(eqn, by, cases)
        return None

    def _choice(self, eqn: Eqn, by: Rows, cases: Sequence[Made | None]) -> Made | None:
        """A choice between values times what divides them, or between one and nothing."""
        mask, *atoms = eqn.invars
        chosen = [one or self._zero(atom) for one, atom in zip(cases, atoms)]
        if any(map(self._zero, atoms)):
            chosen = [each or self._rows_times(atom, by, eqn) for each, atom in zip(chosen, atoms)]
        made = [_whole(each, eqn) for each in chosen if each is not None]
        return Made(partial(_bound, eqn), (mask, *made)) if len(made) == len(chosen) else None

    def _with_share(self, top: Atom, by: Rows, among: _Shares) -> Made | None:
        """The same value, in which nothing but exponentials is divided."""
        part = among.part
        for atom, rows in postorder([(top, by)], self._states, part):
            eqn = self._maker(atom)
            made = None if eqn is None else self._shared(eqn, rows, among.quotients)
            part[atom, rows] = made if made or eqn is None else self._again(eqn, self._known(part, eqn, rows))
        return part[top, by]

    def _again(self, eqn: Eqn, known: Sequence[Made | None]) -> Made | None:
        """What an equation makes of values that were made anew, if it reads any, and all that are divided were."""
        divided = [each for each in self._parts(eqn.outvars[0]) if self._divided_by(each).rows is not None]
        made = [one if atom in divided else None for one, atom in zip(known, eqn.invars)]
        if not divided or any(one is None for one, atom in zip(made, eqn.invars) if atom in divided):
            return None
        if eqn.primitive.name == "convert_element_type":
            return made[0]
        parts = tuple(one or self._held(atom) for one, atom in zip(made, eqn.invars))
        return Made(lax.add if eqn.primitive.name == "add_any" else partial(_bound, eqn), parts)

    def _shared(self, eqn: Eqn, by: Rows, quotients: Mapping[State, Made]) -> Made | None:
        """The quotient of an exponential, or its product with another one of the same divisor."""
        if (rows := self._divisor(eqn)) is not None:
            return quotients.get((eqn.invars[0], by)) if rows == by else None
        if eqn.primitive.name != "mul":
            return None
        for one, other in (eqn.invars, eqn.invars[::-1]):
            share = quotients.get((one, by)) if isinstance(one, Var) else None
            rest = self._times(other, by) if share is not None else None
            if share is not None and rest is not None:
                return Made(lax.mul, (rest, share))
        return None

    def _held(self, top: Atom) -> Made | Atom:
        """A value of 16 bits as kernels hold it, which is not rounded between one operation and the next.

        But for products that others than these are made of: maxima, say, which are of rounded ones. A value that is
        wider because it is to be multiplied with such ones was not rounded either, if it is a product.
        """

        def parts(atom: Atom) -> Sequence[Var]:
            eqn = self._maker(atom) if atom.aval.dtype.itemsize == 2 else None
            operands = eqn.invars if eqn is not None and eqn.primitive.name in HELD else ()
            return [each for each in operands if isinstance(each, Var)]

        if not is_float(top.aval.dtype) or top.aval.dtype.itemsize != 2:
            return self._with_all_digits(top) or top
        if (zero := self._zero(top)) is not None or isinstance(top, Literal):
            return zero or Made(_wide, (top,))
        for each in postorder([top], parts, self.wide):
            eqn, below = self._maker(each), parts(each)
            if eqn is not None and eqn.primitive.name == "dot_general" and each is top:
                self.wide[each] = self._product_held(eqn)
            elif eqn is not None and below:
                held = (self.wide[atom] if isinstance(atom, Var) else Made(_wide, (atom,)) for atom in eqn.invars)
                self.wide[each] = Made(partial(_bound, eqn), tuple(held))
            else:
                self.wide[each] = Made(_wide, (each,))
        return self.wide[top]

    def _with_all_digits(self, top: Atom) -> Made | None:
        """Of a product that is rounded to 16 bits and cast to more, and of no use else: what it was before.

        A sum of the same product, which a softmax's gradient subtracts from it, would be another use.
        """
        atom, views = top, list[Eqn]()
        while True:
            eqn = self._maker(atom)
            if not isinstance(atom, Var) or eqn is None or len(self.readers[atom]) != 1:
                return None
            if eqn.primitive.name not in ("transpose", "reshape", "convert_element_type"):
                break
            views.append(eqn)
            (atom,) = eqn.invars
        casts = [each for each in views if each.primitive.name == "convert_element_type"]
        if eqn.primitive.name != "dot_general" or eqn in self.compared or not casts:
            return None
        if working_dtype(atom.aval.dtype) != top.aval.dtype:
            return None
        made = self._product_held(eqn)
        for each in reversed(views):
            made = made if each in casts else Made(partial(_bound, each), (made,))
        return made

    def _product_held(self, eqn: Eqn) -> Made:
        """A product as kernels hold it."""
        if eqn not in self.products:
            dtype = working_dtype(eqn.outvars[0].aval.dtype)
            self.products[eqn] = Made(partial(_bound, eqn, preferred_element_type=dtype), tuple(eqn.invars))
        return self.products[eqn]

    def _rows_times(self, atom: Atom, by: Rows, eqn: Eqn) -> Made | None:
        """A number for each row times what others are divided by; what is left of it, if it is such a quotient."""
        shape = eqn.outvars[0].aval.shape
        rows = self._rows(atom, shape)
        if rows is None or rows.dims != by.dims or not _is_held_as(by.base, eqn.outvars[0]):
            return None
        above, below, negative = self._terms(rows.base)
        if by.base in below:
            below.remove(by.base)
        else:
            above.append(by.base)
        made = Made(partial(_of_rows, len(above), rows.within(shape)), (*above, *below))
        return Made(lax.neg, (made,)) if negative else made

    def _terms(self, top: Var) -> tuple[list[Atom], list[Atom], bool]:
        """What a number for each row is a product of, what it is divided by, and whether it is the negative of that."""
        above, below, negative = list[Atom](), list[Atom](), False
        pending: list[tuple[Atom, bool]] = [(top, True)]
        while pending:
            atom, is_above = pending.pop()
            atom = self._base(atom)
            eqn = self._maker(atom)
            operands = [] if eqn is None else [(each, n) for n, each in enumerate(eqn.invars) if not _is_one(each)]
            is_product = eqn is not None and eqn.primitive.name in ("mul", "div", "neg") and is_float(atom.aval.dtype)
            if eqn is not None and is_product and all(each.aval.size == atom.aval.size for each, _ in operands):
                divides = eqn.primitive.name == "div"
                negative ^= (eqn.primitive.name == "neg") ^ any(_is_one(each, -1) for each in eqn.invars)
                pending += [(each, is_above != (divides and n == 1)) for each, n in operands]
                continue
            mine, others = (above, below) if is_above else (below, above)
            if atom in others:
                others.remove(atom)
            else:
                mine.append(atom)
        return above, below, negative

    def _divisor(self, eqn: Eqn) -> Rows | None:
        """What a division of long rows has for each of them; short ones a program has whole, and their exponentials."""
        if eqn.primitive.name != "div":
            return None
        whole = eqn.outvars[0].aval
        if eqn.invars[0].aval.shape != whole.shape or not is_float(whole.dtype):
            return None
        rows = self._rows(eqn.invars[1], whole.shape)
        return rows if rows is not None and COMMON.side_of_a_matrix * rows.base.aval.size < whole.size else None

    def _rows(self, atom: Atom, shape: Sequence[int]) -> Rows | None:
        """The numbers that stand for whole rows of an array of that shape, if they do."""
        eqn, dims = self._maker(atom), list(range(len(shape)))
        if eqn is not None and eqn.primitive.name == "broadcast_in_dim" and len(eqn.invars) == 1:
            atom, dims = eqn.invars[0], [*map(int, eqn.params["broadcast_dimensions"])]
        base = self._base(atom)
        varying = tuple(d for d, size in zip(dims, atom.aval.shape) if size > 1)
        if len(dims) != len(atom.aval.shape) or not varying or not isinstance(base, Var):
            return None
        return Rows(base, varying) if base.aval.size < math.prod(shape) else None

    def _base(self, atom: Atom) -> Atom:
        """What an array is but for dimensions of one element, and for a cast that loses nothing."""
        while (eqn := self._maker(atom)) is not None and len(eqn.invars) == 1:
            (below,) = eqn.invars
            is_view = eqn.primitive.name in VIEWS and _sizes(below) == _sizes(atom)
            if not is_view and not (eqn.primitive.name == "convert_element_type" and _widens(below, atom)):
                break
            atom = below
        return atom

    def _subtracted(self, atom: Atom) -> tuple[Atom, Rows] | None:
        """Of what an exponential is, if each row has something subtracted: that, and what."""
        eqn = self._maker(atom)
        apart = self._maker(eqn.invars[0]) if eqn is not None and eqn.primitive.name == "exp" else None
        rows = None if apart is None or apart.primitive.name != "sub" else self._rows(apart.invars[1], atom.aval.shape)
        return None if apart is None or rows is None else (apart.invars[0], rows)

    def _less_log(self, atom: Atom, by: Rows) -> Made | None:
        """exp(x - m) / l as exp(x - (m + log l)), if l sums up these exponentials: one number for each row.

        It is as exact as 16 bits are, if m is not so large that the logarithm is lost beside it.
        """
        found = self._subtracted(atom)
        if found is None or found[1].dims != by.dims or not _is_held_as(found[1].base, by.base):
            return None
        if not self._sums_up(by.base, atom) or not is_moderate(self.jaxpr, found[0]):
            return None
        value, rows = found
        less = Made(partial(_log_sum, rows.within(atom.aval.shape)), (rows.base, by.base))
        return Made(lax.exp, (Made(partial(_along, lax.sub), (self._held(value), less)),))

    def _sums_up(self, total: Var, atom: Atom) -> bool:
        """Whether a number for each row is the sum of these, in whatever dtype."""
        eqn = self._maker(total)
        while eqn is not None and eqn.primitive.name in (*VIEWS, *CASTS):
            eqn = self._maker(eqn.invars[0])
        if eqn is None or eqn.primitive.name != "reduce_sum":
            return False
        return self._base(eqn.invars[0]) is self._base(atom)

    def _zero(self, atom: Atom) -> Made | None:
        zeros = Made(partial(lax.full, atom.aval.shape, 0, working_dtype(atom.aval.dtype)), ())
        return zeros if is_zero(self.jaxpr, atom) else None


def _sizes(atom: Atom) -> list[int]:
    return [size for size in atom.aval.shape if size > 1]


def _is_one(atom: Atom, one: int | None = None) -> bool:
    """Of one sign, or of any."""
    return isinstance(atom, Literal) and (bool(atom.val == one) if one else bool(abs(atom.val) == 1))


def _whole(made: Made, eqn: Eqn) -> Made:
    """With all elements of what an equation makes, where it had one for each row."""
    shape = eqn.outvars[0].aval.shape
    return Made(partial(lax.broadcast_in_dim, shape=shape, broadcast_dimensions=range(len(shape))), (made,))


def _is_held_as(one: Atom, other: Atom) -> bool:
    """Whether these are floats that kernels compute with alike."""
    dtypes = one.aval.dtype, other.aval.dtype
    return all(map(is_float, dtypes)) and working_dtype(dtypes[0]) == working_dtype(dtypes[1])


def _widens(below: Atom, atom: Atom) -> bool:
    """Whether a cast of floats loses nothing."""
    is_wider = np.promote_types(below.aval.dtype, atom.aval.dtype) == atom.aval.dtype
    return is_wider and _is_held_as(below, atom)


def _along(combined: Callable[..., Any], *values: Any) -> Any:
    """With numbers for whole rows spread, where there are elements beside them."""
    shape = np.broadcast_shapes(*(value.shape for value in values))
    return combined(*(lax.broadcast_in_dim(value, shape, range(value.ndim)) for value in values))


def _wide(value: Any) -> Any:
    dtype = np.dtype(value.dtype)
    return lax.convert_element_type(value, working_dtype(dtype)) if is_float(dtype) else value


def _same(value: Any) -> Any:
    return value


def _bound(eqn: Eqn, *values: Any, **params: Any) -> Any:
    with source_of(eqn):
        return bind_with(eqn, {**eqn.params, **params}, values)[0]


def _of_rows(above: int, shape: Sequence[int], *values: Any) -> Any:
    """The product of the first ones, divided by that of the others, beside an array of which they are rows."""
    values = tuple(lax.reshape(_wide(value), shape) for value in values)
    top, bottom = values[:above], values[above:]
    whole = reduce(lax.mul, top) if top else lax.full_like(values[0], 1)
    whole = lax.div(whole, reduce(lax.mul, bottom)) if bottom else whole
    return whole


def _log_sum(shape: Sequence[int], extreme: Any, total: Any) -> Any:
    """The logarithm of a sum of exponentials, of which each row has subtracted the extreme."""
    extreme, total = (lax.reshape(_wide(value), shape) for value in (extreme, total))
    return lax.add(extreme, lax.log(total))


def _or_zero(value: Any) -> Any:
    """A reciprocal for sums whose terms may all be hidden: nothing is nothing, whatever it is divided by."""
    return lax.select(lax.lt(lax.abs(value), lax.full_like(value, np.inf)), value, lax.full_like(value, 0))


def _contracted(eqn: Eqn, side: Side, env: dict[Var, Any], found: dict[Made, Any]) -> Any:
    """The contraction of what is made anew on one side, divided when it is summed."""
    out, dtype = eqn.outvars[0].aval, working_dtype(eqn.outvars[0].aval.dtype)
    operands = [read(env, atom) for atom in eqn.invars]
    operands[side.number] = lax.convert_element_type(side.made.of(env, found), operands[side.number].dtype)
    with source_of(eqn):
        if side.later is None:
            return bind_with(eqn, eqn.params, operands)[0]
        (total,) = bind_with(eqn, {**eqn.params, "preferred_element_type": dtype}, operands)
        reciprocal, dims = side.later
        places = places_of(eqn, side.number)
        order = sorted(range(len(dims)), key=lambda n: places[dims[n]])
        rows = lax.convert_element_type(lax.transpose(reciprocal.of(env, found), order), dtype)
        shape = [size if d in {places[each] for each in dims} else 1 for d, size in enumerate(out.shape)]
        return lax.convert_element_type(lax.mul(total, lax.reshape(rows, shape)), out.dtype)
