"""Writes single values: loads, computations, choices, reductions of a tile."""

from __future__ import annotations

import ast
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from jaxpr2triton._compat import innermost_frame
from jaxpr2triton.emit.axes import band_of
from jaxpr2triton.emit.calls import Calls
from jaxpr2triton.emit.dots import dots_of, in_blocks, read_for
from jaxpr2triton.emit.functions import PRODUCTS, Functions
from jaxpr2triton.emit.known import Buffers, ranks, stored, users
from jaxpr2triton.emit.limits import clamp, limits_of
from jaxpr2triton.emit.masks import Masks
from jaxpr2triton.emit.names import Names, comment, wishes
from jaxpr2triton.emit.precision16 import Narrow
from jaxpr2triton.emit.scope import Limits, Scope
from jaxpr2triton.emit.text import NOTHING, Spelling, Tile, Written, beside
from jaxpr2triton.emit.turns import gathered, in_places, is_held_in_copies, names_before, permuted, renames
from jaxpr2triton.emit.unaligned import matrices_of
from jaxpr2triton.emit.walks import names_in
from jaxpr2triton.emit.widths import WORD, numbers_of
from jaxpr2triton.emit.work import asked_of, footprint_of
from jaxpr2triton.emit.zeros import zeros_outside
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.covered import call_of
from jaxpr2triton.graph.nodes import (
    Choose,
    Compute,
    Element,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Node,
    Position,
    Product,
    Store,
    Take,
)
from jaxpr2triton.graph.order import Order
from jaxpr2triton.graph.simplify import is_truth
from jaxpr2triton.ir.dtypes import is_bool, is_float, triton_name, working_dtype
from jaxpr2triton.ir.index import (
    Axis,
    Condition,
    Dynamic,
    Index,
    add,
    flatten,
    of_axis,
    plain_axis,
    scale,
    within,
)
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.region import stored_by
from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.ir.tree import Comment, Part, Pointer, all_hold, assign, call, expr, is_atom, load, name, sum_of
from jaxpr2triton.rules.helpers import with_callees
from jaxpr2triton.rules.literals import as_tensor, constant, with_dtype
from jaxpr2triton.rules.pointwise.convert import held_as
from jaxpr2triton.rules.rows import TABLE

INLINE_AT_MOST = 42  # characters of an expression that is written inside another one
JOINED = frozenset({"add", "sub", "add_any"})  # with which compilers fuse products


class Statements:
    """A kernel's names and buffers, and how one value is written in a scope where its operands are known."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        self.plan, self.graph, self.buffers = plan, graph, buffers
        self.numbers = numbers_of(graph)
        self.spell = Spelling(plan, self._computed, self.numbers)
        self.scope_now = Scope(None, None)
        self.band = band_of(plan.axes, plan.policy.products.band) if plan.form is Form.DOT else 0
        self.looped = frozenset(p.axis for p in plan.axes if p.role.is_sequential)
        self.wish = wishes(plan.jaxpr.jaxpr)
        self.wish.of |= stored(graph, buffers, self.wish)
        self.axis_names = frozenset(p.axis.name + end for p in plan.axes for end in ("", "_ok", "_start", "_block"))
        self.names = Names([*self.axis_names, *(b.parameter for b in buffers.all)], ranks(self.wish.own, buffers))
        self.users = users(graph)
        self.stored = stored_by(plan.jaxpr.jaxpr)
        places = [within(store.place, self.stored[store.output].aval.shape) for store in graph.stores]
        self.masks = Masks(self.spell, self.names, Counter([*graph.conditions(), *itertools.chain(*places)]))
        self.order = Order(graph, self.looped)
        self.narrow = Narrow(graph)
        self.dots = dots_of(graph, plan, self.spell)
        self.as_read = read_for(self.spell, self.dots, self.users)
        self.zeros = zeros_outside(graph, frozenset(p.axis for p in plan.axes if p.is_tile and p.ragged))
        self.matrices = matrices_of(graph, self.order, self.spell, plan, buffers.inputs)
        self.spell.order = [*self.matrices.order]
        self.nearest: dict[Load | Store, Tile] = {}  # along which lanes are to lie, the last axis first
        self.helpers: dict[str, None] = {}
        self.functions = Functions()
        self.calls = Calls(graph, self.spell, plan)
        self.flops = 0
        self.bytes_read = 0
        self.bytes_asked = 0
        self._footprints: Counter[tuple[str, object]] = Counter()

    def _computed(self, number: Dynamic, tile: Tile) -> ast.expr:
        """A number that the kernel computes, inside an index."""
        node = self.graph.computed[number.key]
        if number.clamped:
            place = self._clamped(node, number.low, number.high)
            place = beside(place, self._get(node, self.scope_now).tile, tile)
        else:
            place = self._operand(node, self.scope_now, tile)
        return expr("{}.to({})", place, triton_name(number.signed)) if number.signed else place

    def _clamped(self, node: Node, low: int, high: int) -> ast.expr:
        """A computed number, brought into range; once, where the number itself is written."""
        for user in self.users[node]:
            written = self.scope_now.find(user) if limits_of(user) == (node, low, high) else None
            if written is not None and written.name:
                return written.value
        home = next(scope for scope in self.scope_now.chain() if node in scope.known)
        if (node, low, high) not in home.clamped:
            home.clamped[node, low, high] = place = self.names.new("place", home.depth)
            least, most = (getattr(np.iinfo(node.dtype), end) for end in ("min", "max"))  # no number of it is beyond
            home.write(place, clamp(home.known[node].value, max(low, int(least)), min(high, int(most))))
        return name(home.clamped[node, low, high])

    def _clamped_already(self, limits: Limits, scope: Scope) -> str | None:
        """The name of a number that was brought into that range for an index."""
        return next((each.clamped[limits] for each in scope.chain() if limits in each.clamped), None)

    # -- statements -------------------------------------------------------------------------------------------

    def _say(self, scope: Scope, line: ast.stmt, eqn: Any = None) -> None:
        text = comment(innermost_frame(eqn)) if eqn is not None else None
        if text is not None and text != scope.said:
            scope.lines.append(Comment(text))
            scope.said = text
        scope.lines.append(line)

    def _assign(self, node: Node, scope: Scope, value: ast.expr, wish: str, eqn: Any = None) -> None:
        scope.known[node] = Written(self._named(wish, value, scope, eqn), self.spell.tile(node.axes))

    def _named(self, wish: str, value: Part, scope: Scope, eqn: Any = None) -> ast.expr:
        """A new variable that has the value."""
        variable = self.names.new(wish, scope.depth)
        self._say(scope, assign(variable, value), eqn)
        return name(variable)

    def _get(self, node: Node, scope: Scope) -> Written:
        written = scope.find(node)
        if written is None:
            raise CompilerBug(f"a value of kernel {self.plan.name} is used before it is written")
        return written

    def _operand(self, node: Node, scope: Scope, tile: Tile) -> ast.expr:
        """A value inside an expression of that tile."""
        written = self._get(node, scope)
        return written.value if written.bare else beside(written.value, written.tile, tile)

    def _load(self, node: Load, scope: Scope) -> None:
        buffer = self.buffers.inputs[node.buffer]
        read = next((each.early[node] for each in scope.chain() if node in each.early), None)
        if read is None:
            self._read(node, buffer, scope)
        else:
            self._assign(node, scope, held_as(read, buffer.dtype), buffer.name)

    def _read_early(self, loads: Sequence[Load], body: Scope) -> None:
        self.scope_now = body
        for node in loads:
            self._read(node, self.buffers.inputs[node.buffer], body, early=True)

    def _kept(self, node: Kept, scope: Scope) -> None:
        self._read(node, self.buffers.kept[node.keep.slot], scope)

    def _is_read(self, node: Load | Kept, buffer: Buffer, offset: Index, scope: Scope) -> None:
        """What is read; neighbours, as the taps of a window are, come from a cache."""
        place, whole = (buffer.name, offset.terms), math.prod(buffer.shape)
        before = self._footprints[place]
        self._footprints[place] += footprint_of(node, buffer)
        self.bytes_read += (min(self._footprints[place], whole) - min(before, whole)) * buffer.dtype.itemsize
        self.bytes_asked += asked_of(node, self.plan.axes, scope.open_loops) * buffer.dtype.itemsize

    def _read(self, node: Load | Kept, buffer: Buffer, scope: Scope, early: bool = False) -> None:
        """A tile of a buffer. What is read `early` is cast where it is wanted, which is where threads exchange it."""
        stem = buffer.name.removeprefix("kept_")
        offset = flatten(node.place, buffer.shape)
        self._is_read(node, buffer, offset, scope)
        tile = self.spell.tile(node.axes)
        is_unaligned = node in self.matrices.unaligned or node in self.nearest
        address = self._address(buffer, offset, tile, is_unaligned)
        mask = self.masks.of(node.axes, node.guard, tile, scope)
        if mask is not None and tile and not self.spell.tile(self._spread_along(offset)):  # one address for many lanes
            address = self._for_all(address, tile)
        if node in self.matrices.rows:
            along = (self.spell.planned[axis].block if axis in self.matrices.rows[node] else 1 for axis in tile)
            address = expr("tl.max_contiguous({}, {})", address, tuple(along))
        address = self._beside(node, address, tile)
        value: ast.expr = load(address, mask, constant(0, buffer.dtype))
        if working_dtype(buffer.dtype) != buffer.dtype and node not in self.as_read:
            if early:
                scope.early[node] = self._named(f"{stem}_read", value, scope)
                return
            value = held_as(value, buffer.dtype)
        if not scope.open_loops and not isinstance(node, Kept):
            value = in_blocks(self.plan, self.spell, tile, working_dtype(buffer.dtype), value) or value
        self._assign(node, scope, value, stem)

    def _address(self, buffer: Buffer, offset: Index, tile: Tile, is_unaligned: bool = False) -> ast.expr:
        """A pointer to the elements of a buffer."""
        address: ast.expr = Pointer(buffer)
        if is_unaligned:
            address = expr("{} + {}", address, "unaligned")
        return sum_of(address, self.spell.index(offset, tile)) if offset.terms or offset.const else address

    def _for_all(self, address: ast.expr, tile: Tile) -> ast.expr:
        """One address for all lanes of a tile."""
        return expr("{} + tl.zeros({}, tl.int32)", address, self.spell.shape(tile))

    @property
    def is_unaligned(self) -> bool:
        """Whether anything is read or stored at an address that Triton knows nothing of."""
        return bool(self.matrices.unaligned or self.nearest)

    def _beside(self, node: Node | Store, address: ast.expr, tile: Tile) -> ast.expr:
        """An address of lanes that are to lie along the axis that is nearest in memory, and then the next one."""
        if node not in self.nearest:
            return address
        far = self.nearest[node]
        most = max(self.spell.planned[far[-1]].block, 1 << len(far))
        along = tuple(most if axis is far[-1] else 1 << far.index(axis) for axis in tile)
        return expr("tl.max_contiguous({}, {})", address, along)

    def _spread_along(self, index: Index) -> frozenset[Axis]:
        """The axes of an index as it is written: a computed number may be the same for all lanes."""
        found: set[Axis] = set()
        for atom, _ in index.terms:
            match atom:
                case Axis():
                    found.add(atom)
                case Dynamic():
                    found.update(self._get(self.graph.computed[atom.key], self.scope_now).tile)
                case _:
                    found |= self._spread_along(atom.of)
        return frozenset(found)

    def _position(self, node: Position, scope: Scope) -> None:
        if not node.index.terms:
            scope.known[node] = Written(constant(node.index.const, node.dtype), (), bare=True)
            return
        value = self.spell.index(node.index, self.spell.tile(node.axes))
        if node.dtype != np.int32 or self.spell.widths.sum(node.index) != WORD:
            value = expr("{}.to({})", value, triton_name(node.dtype))
        if working_dtype(node.dtype) != node.dtype:
            value = held_as(value, node.dtype)
        if is_atom(value) or self._inline(node, value):
            scope.known[node] = Written(value, self.spell.tile(node.axes))
        else:
            self._assign(node, scope, value, "position")

    def _compute(self, node: Compute, scope: Scope) -> None:
        tile = self.spell.tile(node.axes)
        values = self.narrow.operands(node, [self._operand(operand, scope, tile) for operand in node.operands])
        if all(self._get(operand, scope).bare for operand in node.operands):
            values[0] = as_tensor(values[0], node.operands[0].dtype)
        row = TABLE[node.eqn.primitive.name]
        value = self._value_of(node, values, scope)
        if node.eqn.primitive.name in PRODUCTS and self._is_by_itself(node):
            value = self._rounded(values[0], values[-1], node.dtype)
        self.helpers |= dict.fromkeys(each for helper in row.called(value) for each in with_callees(helper))
        if (limits := limits_of(node)) is not None and (known := self._clamped_already(limits, scope)) is not None:
            scope.known[node] = Written(name(known), tile)
        elif row.words > 1:
            self._call(node, scope, row.words, value)
        elif value in values and (is_atom(value) or node.eqn.primitive is not rounded_p):  # dtypes that are held alike
            same = self._get(node.operands[values.index(value)], scope)
            scope.known[node] = Written(value, tile, same.bare)
        elif self._inline(node, value):
            scope.known[node] = Written(value, tile)
        else:
            self._assign(node, scope, value, self.wish[node], node.eqn)

    def _value_of(self, node: Compute, values: Sequence[ast.expr], scope: Scope) -> ast.expr:
        if node in self.calls:
            return self.calls.write(node, values)
        value: ast.expr = TABLE[node.eqn.primitive.name].write(call_of(node.eqn), values)
        return value

    def _is_by_itself(self, node: Node) -> bool:
        """Whether a product of f32 or f64 is measured; or is stored, and added to something, which compilers fuse."""
        if not is_float(node.dtype) or working_dtype(node.dtype) != node.dtype:
            return False
        users = self.users[node]
        if any(isinstance(each, Compute) and each.eqn.primitive is rounded_p for each in users):
            return True
        is_joined = any(isinstance(each, Compute) and each.eqn.primitive.name in JOINED for each in users)
        return is_joined and any(isinstance(each, (Store, Keep)) for each in users)

    def _rounded(self, one: ast.expr, other: ast.expr, dtype: np.dtype) -> ast.expr:
        """A product by itself. Functions take numbers for floats of 32 bits."""
        self.helpers["_product"] = None
        return call("_product", as_tensor(one, dtype), as_tensor(other, dtype))

    def _call(self, node: Compute, scope: Scope, words: int, value: ast.expr) -> None:
        """One of the words that a function gives; whoever wants another one gets it at the same time."""
        users = [user for user in self.users[node.operands[0]] if isinstance(user, Compute)]
        twins = [user for user in users if user.operands == node.operands and user.eqn.primitive is node.eqn.primitive]
        wishes = {twin.eqn.params["word"]: self.wish[twin] for twin in twins}
        names = {word: self.names.new(wishes[word], scope.depth) for word in sorted(wishes)}
        wanted = list(names.values())
        if len(wanted) > 1:  # all that it gives has a name
            wanted = [names.get(word) or self.names.new("spare", scope.depth) for word in range(words)]
        else:
            value = expr("{}[{}]", value, node.eqn.params["word"])
        self._say(scope, assign(wanted, value), node.eqn)
        for twin in twins:  # equations in different loops may ask for the same word
            scope.known[twin] = Written(name(names[twin.eqn.params["word"]]), self.spell.tile(node.axes))

    def _inline(self, node: Node, value: ast.expr) -> bool:
        """Whether an expression is short, and used once, by a computation of the same shape in the same loop."""
        users = self.users[node]
        if len(users) != 1 or not isinstance(users[0], Compute) or len(printed(value)) > INLINE_AT_MOST:
            return False
        if isinstance(node, Compute) and self.wish.is_own(node):
            return False
        user = users[0]
        if self.order.loops(user) != self.order.loops(node) or self.spell.tile(user.axes) != self.spell.tile(node.axes):
            return False
        probes = [name("probe") for _ in user.operands]
        written = TABLE[user.eqn.primitive.name].write(call_of(user.eqn), probes)
        probe = probes[user.operands.index(node)]
        return sum(each is probe for each in names_in(written)) == 1

    def _choose(self, node: Choose, scope: Scope) -> None:
        tile = self.spell.tile(node.axes)
        sides = [side for c in node.conditions for side in self.masks.condition(c, tile, scope)]
        if is_truth(node.then, True) and is_truth(node.other, False):
            self._assign(node, scope, all_hold(sides), "inside")
            return
        then, other = (self._operand(n, scope, tile) for n in (node.then, node.other))
        made = [self._get(each, scope) for each in (node.then, node.other, *node.needs)]
        along = {axis for written in made for axis in written.tile}.union(*(c.index.own_axes for c in node.conditions))
        if not along.issuperset(tile):  # numbers in the conditions might have varied along the others
            then = self._whole(node.then, scope, tile, node.dtype)
        elif made[0].bare and made[1].bare:
            then = with_dtype(then, node.dtype)
        self._assign(node, scope, expr("tl.where({}, {}, {})", all_hold(sides), then, other), "joined")

    def _term(self, node: Product | Element, scope: Scope) -> None:
        if isinstance(node, Product):
            self._product(node, scope)
        else:
            scope.known[node] = NOTHING  # its parts are there

    def _product(self, node: Product, scope: Scope) -> None:
        tile = self.spell.tile(node.axes)
        kind = triton_name(working_dtype(node.dtype))
        factors = []
        for operand in node.operands:
            value, same = self._operand(operand, scope, tile), working_dtype(operand.dtype) == working_dtype(node.dtype)
            if not same or all(self._get(each, scope).bare for each in node.operands):
                value = as_tensor(value, operand.dtype)
            factors.append(value if same else expr("{}.to({})", value, kind))
        value = reduce(partial(expr, "{} * {}"), factors)
        if len(factors) == 2 and self._is_by_itself(node):
            value = self._rounded(factors[0], factors[1], node.dtype)
        if len(self.users[node]) == 1 and len(printed(value)) <= INLINE_AT_MOST:
            scope.known[node] = Written(value, tile)
        else:
            self._assign(node, scope, value, "term")

    def _take(self, node: Take, scope: Scope) -> None:
        """A tile along another axis is the same tile; one element of it is a sum with all others masked, of bits."""
        source = self._get(node.source, scope)
        tile = self.spell.tile(node.axes)
        if node.axis not in source.tile:
            scope.known[node] = source
            return
        if node.axis in node.index.axes:
            self._gather(node, scope)
            return
        if renames(self.spell, node):
            self._named_otherwise(node, scope)
            return
        target = plain_axis(node.index)
        renamed = tuple(target if axis is node.axis and target is not None else axis for axis in source.tile)
        if target is not None and target not in source.tile and renamed == tile:
            self._gather(node, scope, source.value)
            return
        self._masked(node, scope)

    def _masked(self, node: Take | Lookup, scope: Scope) -> None:
        """The elements at some places, each the sum of all along those axes where the others are masked."""
        whole = self.spell.tile(node.source.axes.union(*(index.axes for _, index in node.at)))
        conditions = [Condition(minus(of_axis(axis), index), 0, 1) for axis, index in node.at]
        here = all_hold([side for each in conditions for side in self.spell.condition(each, whole)])
        value = self._operand(node.source, scope, whole)
        held = working_dtype(node.dtype)
        if is_float(held):  # no number is computed, so that -0.0 and NaN stay what they are
            value = expr("{}.to({}, bitcast=True)", value, f"tl.int{8 * held.itemsize}")
        value = expr("{}.to(tl.int32)", value) if is_bool(node.dtype) else value
        value = expr("tl.where({}, {}, 0)", here, value)
        for place in sorted((whole.index(axis) for axis, _ in node.at), reverse=True):
            value = expr("tl.sum({}, axis={})", value, place)
        if is_float(held):
            value = expr("{}.to({}, bitcast=True)", value, triton_name(held))
        elif is_bool(node.dtype):
            value = expr("{} != 0", value)
        elif np.dtype(node.dtype).itemsize < 4:
            value = held_as(value, held)
        self._assign(node, scope, value, "element")

    def _named_otherwise(self, node: Take | Lookup, scope: Scope) -> None:
        """A tile whose axes have other names, and perhaps another order thereby; turned back, it is what it was."""
        tile, ((before, names), *others) = self.spell.tile(node.axes), names_before(self.spell, node)
        source = self._get(before, scope)
        places = in_places(source.tile, names)
        for other, named in others:
            found = scope.find(other)
            if found is not None and found.name and in_places(found.tile, named) == tile:
                source, places = found, tile
        varies = tuple(axis for axis in tile if axis in places)  # what is the same along others is written without them
        if places == varies:
            scope.known[node] = Written(source.value, varies)
        elif varies == tile:
            self._assign(node, scope, self._turned(node, source, places, scope), "turned")
        else:
            scope.known[node] = Written(permuted(source.value, places, varies), varies)

    def _turned(self, node: Node, source: Written, places: Tile, scope: Scope) -> ast.expr:
        tile, threads = self.spell.tile(node.axes), self.plan.policy.target.warp_size * self.plan.num_warps
        if scope.open_loops and is_held_in_copies(self.spell, tile, threads):
            return gathered(self.spell, source.value, places, tile, is_bool(node.dtype))
        return permuted(source.value, places, tile)

    def _gather(self, node: Take, scope: Scope, source: ast.expr | None = None) -> None:
        """Elements of a tile in another order along one of its axes: shifted, turned round, looked up.

        Or along an axis of another size, which stands in the place of that one: `source` is then the tile.
        """
        tile = self.spell.tile(node.axes)
        shape, last = self.spell.shape(tile), self.spell.planned[node.axis].block - 1
        value = source or self._operand(node.source, scope, tile)
        value = expr("{}.to(tl.int32)", value) if is_bool(node.dtype) else value
        index = self._lanes(node.index, last, tile, scope)
        if source is None and self._get(node.source, scope).tile != tile:
            value = expr("tl.broadcast_to({}, {})", value, shape)
        if len(tile) > 1 or not self.spell.tile(self._spread_along(node.index)):  # one place for all lanes, say
            index = expr("tl.broadcast_to({}, {})", index, shape)
        along = node.axis if source is None else plain_axis(node.index)
        assert along is not None  # what stands in its place
        self._assign_moved(node, scope, expr("tl.gather({}, {}, axis={})", value, index, tile.index(along)), "moved")

    def _assign_moved(self, node: Node, scope: Scope, value: ast.expr, wish: str) -> None:
        """What was moved; truth values are so as integers."""
        self._assign(node, scope, expr("{} != 0", value) if is_bool(node.dtype) else value, wish)

    def _lanes(self, index: Index, last: int, tile: Tile, scope: Scope) -> ast.expr:
        """The lanes that are read, written once; those beyond the axis read anything."""
        lanes, (low, high) = self.spell.index(index, tile), self.spell.reach(index)
        lanes = expr("tl.maximum({}, 0)", lanes) if low < 0 else lanes
        lanes = expr("tl.minimum({}, {})", lanes, last) if high > last else lanes
        if isinstance(lanes, ast.Name):
            return lanes
        key = index, last, tile
        known = next((each.lanes[key] for each in scope.chain() if key in each.lanes), None)
        if known is None:
            known = scope.lanes[key] = self._named("lanes", lanes, scope)
        return known

    def _whole(self, node: Node, scope: Scope, tile: Tile, dtype: np.dtype) -> ast.expr:
        """A value as a tile of exactly that shape."""
        written = self._get(node, scope)
        if written.bare:
            return self._full(written.value, tile, dtype)
        value = self._operand(node, scope, tile)
        return value if written.tile == tile else expr("tl.broadcast_to({}, {})", value, self.spell.shape(tile))

    def _full(self, value: Part, tile: Tile, dtype: np.dtype) -> ast.expr:
        """A tile of one number."""
        return expr("tl.full({}, {}, {})", self.spell.shape(tile), value, triton_name(working_dtype(dtype)))


def minus(one: Index, other: Index) -> Index:
    return add(one, scale(other, -1))
