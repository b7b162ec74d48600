"""Whether no offset of a finished kernel, nor anything it is made of, leaves the bits in which it is computed.

    row = tl.program_id(0)                                     # 0 … 2199999, of 32 bits
    tl.load(t_ptr + row * 1000 + col)                          # row * 1000 is too large for them: no kernel
    tl.load(t_ptr + tl.cast(row, tl.int64) * 1000 + col)       # it fits

The text is what is looked at, after all that has been made of it, and not what it was written from. Each variable has
an interval and a width; those of which nothing is known but that they may be read at are `Numbers`. A device would read
at a wrong address without a word, so a kernel that does so is a mistake of ours and is not made.
(Elsewhere: abstract interpretation over intervals.)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from jaxpr2triton.emit.intervals import LEFT, UNKNOWN, Interval, Reader, Unknown, Value, hull
from jaxpr2triton.emit.walks import function_of, names_in, nodes_of
from jaxpr2triton.emit.widths import WORD, Numbers, fits
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import Access, Body, Load, Pointer, Store, buffer_of, mask_of

POINTERS = {"max_contiguous", "multiple_of"}


def check_offsets(body: Body, grid: Sequence[int], numbers: Numbers, places: Set[str]) -> None:
    """Raise CompilerBug where an offset, or a comparison of places in a mask, may leave its bits.

    `places` are the variables of axes; where flags are set, users compare numbers.
    """
    _Checking(grid, numbers, places).block(body)


@dataclass
class _Checking:
    grid: Sequence[int]
    numbers: Numbers
    places: Set[str]
    known: dict[str, Value] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)  # variables that compare what left its bits, and its text

    # -- statements -------------------------------------------------------------------------------------------

    def block(self, body: Body) -> None:
        for statement in body:
            match statement:
                case ast.For(target=ast.Name(id=name), iter=steps, body=inner):
                    self._loop(inner, {name: self._steps(steps)})
                case ast.While(test=test, body=inner):
                    self._accesses(test)
                    self._loop(inner, {})
                case ast.If(test=test, body=inner, orelse=other):
                    self._accesses(test)
                    before = dict(self.known)
                    self.block(inner)
                    then, self.known = self.known, before
                    self.block(other)
                    self.known = {name: hull(then[name], self.known[name]) for name in then.keys() & self.known.keys()}
                case ast.Assign(targets=[target], value=value):
                    self._accesses(value)
                    self._assign(target, value)
                case ast.AugAssign(target=target):
                    self._accesses(statement)
                    self.known |= {name.id: UNKNOWN for name in names_in(target)}
                case _:
                    self._accesses(statement)

    def _loop(self, body: Body, counted: Mapping[str, Value]) -> None:
        """What a step hands on to the next one may be anything."""
        before = self.known
        stored = {name.id for name in names_in(*body) if isinstance(name.ctx, ast.Store)}
        self.known = before | dict.fromkeys(stored & before.keys(), UNKNOWN) | dict(counted)
        self.block(body)
        self.known = {name: hull(before.get(name, value), value) for name, value in self.known.items()}

    def _steps(self, steps: ast.expr) -> Value:
        ends = [self._value(each) for each in steps.args] if isinstance(steps, ast.Call) else []
        match ends:
            case [Interval(high=stop)]:
                low = 0.0
            case [Interval(low=low), Interval(high=stop), *_]:
                pass
            case _:
                return UNKNOWN
        bits = 0 if isinstance(steps, ast.Call) and function_of(steps) == "static_range" else 64
        return Interval(low, max(low, stop - 1), min(bits, WORD if fits(low, stop, WORD) else 64))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        found = self._value(value)
        if isinstance(target, ast.Name):
            self.known[target.id] = found
            self.wrong.pop(target.id, None)
            if (text := self._wrong_in(value)) is not None:
                self.wrong[target.id] = text
        elif isinstance(target, ast.Tuple):
            parts = found if isinstance(found, tuple) else (UNKNOWN,) * len(target.elts)
            self.known |= {name.id: part for name, part in zip(target.elts, parts) if isinstance(name, ast.Name)}

    def _value(self, node: ast.expr) -> Value:
        """Of what need not be an offset: users may let their numbers wrap around."""
        return Reader(self.known, self.grid, self.numbers.bits, lambda _: LEFT, lambda _, found: found).value(node)

    # -- what is read and written -----------------------------------------------------------------------------

    def _accesses(self, statement: ast.AST) -> None:
        accesses: list[Access] = [*nodes_of(Load, statement)]
        if isinstance(statement, Store):
            accesses.append(statement.value)
        for access in accesses:
            self._address(access.args[0])
            mask = None if buffer_of(access).is_flag else mask_of(access)
            if mask is not None and (wrong := self._wrong_in(mask)) is not None:
                raise CompilerBug(f"a mask compares {wrong}, which leaves its bits:\n{printed(access)}")

    def _address(self, address: ast.expr) -> None:
        """A pointer, to which offsets are added that are right."""
        match address:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                self._offset(right, address)
                self._address(left)
            case ast.Call(args=[first, *_]) if function_of(address) in POINTERS:
                self._address(first)
            case Pointer():
                pass
            case _:
                raise CompilerBug(f"no address: {printed(address)}")

    def _offset(self, offset: ast.expr, address: ast.expr) -> None:
        def refused(part: ast.expr) -> Value:
            raise CompilerBug(f"{printed(part)} leaves its bits:\n{printed(address)}")

        def computed(part: ast.expr, found: Unknown) -> Value:
            if self.numbers.low > self.numbers.high or (isinstance(part, ast.Name) and part.id in self.places):
                raise CompilerBug(f"{printed(part)} may be any number:\n{printed(address)}")
            return Interval(self.numbers.low, self.numbers.high, self.numbers.bits)

        found = Reader(self.known, self.grid, self.numbers.bits, refused, computed).value(offset)
        if isinstance(found, Interval) and not found.bits and not fits(found.low, found.high, WORD):
            refused(offset)  # it has no sign

    def _wrong_in(self, mask: ast.expr) -> str | None:
        """The first side of a comparison of places that leaves its bits."""
        match mask:
            case ast.Name(id=name):
                return self.wrong.get(name)
            case ast.Subscript(value=value):
                return self._wrong_in(value)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                return self._wrong_in(left) or self._wrong_in(right)
            case ast.Compare(left=left, comparators=[right]):
                sides = [side for side in (left, right) if {name.id for name in names_in(side)} <= self.places | {"tl"}]
                return next((printed(side) for side in sides if self._value(side) == LEFT), None)
        return None
