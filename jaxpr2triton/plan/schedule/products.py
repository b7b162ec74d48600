"""Schedules of contractions: a block of rows and one of columns for each program, which walks along what is summed.

    y[m,n] = Σ_k x[m,k] w[k,n]         m: grid 4096 by 128 | k: loop 4096 by 64 | n: grid 4096 by 128   warps 8
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.chains import Chain, chain_of
from jaxpr2triton.graph.nodes import Choose, Compute, Load, Node, Product, Reduce
from jaxpr2triton.graph.sides import Axes, Sides, is_contraction, is_small, loads_of, sides_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.graph.streams import streams_of
from jaxpr2triton.graph.summed import Summed, summed_of
from jaxpr2triton.hardware import LINE
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.members import member_p
from jaxpr2triton.ir.plan import Form, power_of_two
from jaxpr2triton.policy import Policy
from jaxpr2triton.policy.machines import Block
from jaxpr2triton.rules.products import EXACT, LEAST, factor_dtype, has_units_for, input_precision
from jaxpr2triton.rules.reductions import TABLE

LANES = 32  # of the warps that tables count
WIDE = 64  # rows that units for matrices multiply at once
GROUP = 4  # warps that do so together


@dataclass(frozen=True)
class Change:
    """A smaller part of a block for each thread: what rows and columns are divided by."""

    rows: int = 1
    columns: int = 1

    def of(self, block: Block) -> Block:
        """A block that is no smaller than units for matrices like it."""

        def cut(size: int, by: int) -> int:
            return max(size // by, min(size, WIDE))

        return replace(block, rows=cut(block.rows, self.rows), columns=cut(block.columns, self.columns))


@dataclass(frozen=True)
class Contracting:
    """What the programs of a kernel contract, and how."""

    form: Form
    sides: Sides
    bytes: int  # of a factor
    exact: bool  # f32 products by the multiply-and-add unit
    sums: int = 1  # how many are accumulated at once
    whole: tuple[Axis, ...] = ()  # of a chain, what a program has all of, in the order of its tiles' dimensions
    held: Axes = frozenset()  # of one side, which a program has whole
    thin: Axes = frozenset()  # of the results, along which a program has variables
    loaded: tuple[Sequence[Load], Sequence[Load]] = ((), ())  # for each term of a row, and of a column; not of a chain
    variables: tuple[tuple[Axis, int], ...] = ()  # axes with so many loads along each
    makes: bool = False  # terms, and not only reads them
    along: bool = False  # what is summed lies next to each other in some of what is loaded
    in_step: bool = False  # a sum goes along with what it depends on, which is known in each step
    walked: Axes = frozenset()  # of what is whole: block by block
    of_a_row: int = 0  # numbers that a program has of each row all the time, where it walks
    of_pairs: int = 1  # products that make something of each row and what it walks along
    accumulated: int = 0  # numbers of each row that the others add up
    groups: int = 1  # of rows, each of which has terms of its own
    beside: bool = False  # what is accumulated it reads, or writes, more of the same size

    @property
    def of_one_program(self) -> Axes:
        return self.held.union(self.whole)


def contracting(space: Space, policy: Policy) -> Contracting | None:
    """How a kernel contracts; None where there are no two sides with blocks of their own."""
    unrolled = policy.axes.unrolled_sum
    if (chain := chain_of(space, unrolled)) is not None and chain.fits(policy):
        return _chained(chain, policy) if chain.rows else None
    summed = summed_of(space, unrolled)
    held: Axes = frozenset() if summed is None or summed.size > 2 * numbers.COMMON.side_of_a_matrix else summed.held
    thin = frozenset(axis for axis in space.inner - held - space.swept_axes if axis.size <= unrolled)
    if space.steps or not space.inner <= held | thin or _results(thin) > numbers.COMMON.one_by_one:
        return None
    reductions = _two_sided(space, summed if held else None, unrolled)
    found = _of_all(reductions, (frozenset(space.axes) | held) - thin, policy)
    if found is None or (thin and found.form is Form.DOT):
        return None
    return _read_and_made(replace(found, held=held, thin=thin), reductions, space, unrolled)


def _read_and_made(how: Contracting, reductions: Sequence[Reduce], space: Space, unrolled: int) -> Contracting:
    """With what is known about the terms of its sums."""
    loaded = _loaded(reductions, how.sides, unrolled)
    over = frozenset(axis for node in reductions for axis in node.over)
    lasts = [load.place[-1] for side in loaded for load in side if load.place]
    return replace(
        how,
        sums=_results(how.thin) * sum(map(_parts, reductions)),
        loaded=loaded,
        makes=any(map(_makes, reductions)),
        along=any(last.coefficient(axis) in (1, -1) for last in lasts for axis in over),
        in_step=bool(streams_of(space.graph, over)),
        groups=max((_groups(node, how.sides) for node in reductions), default=1),
        beside=_has_more(space, how.sides),
    )


def _has_more(space: Space, sides: Sides) -> bool:
    loads = [load for load in space.graph.of_kind(Load) if load.axes & sides.rows and load.axes & sides.columns]
    return bool(loads) or len(space.graph.stores) > 1


def _loaded(reductions: Sequence[Reduce], sides: Sides, unrolled: int) -> tuple[Sequence[Load], Sequence[Load]]:
    """What is loaded for each term of a row, and of a column."""
    loads = dict.fromkeys(load for node in reductions for load in loads_of(node.operands, unrolled))
    of_terms = [load for load in loads if any(load.axes.intersection(node.over) for node in reductions)]
    rows, columns = ([load for load in of_terms if load.axes & side] for side in (sides.rows, sides.columns))
    return rows, columns


def _of_all(reductions: Sequence[Reduce], roots: Axes, policy: Policy) -> Contracting | None:
    """How one kernel makes all of these; None if they differ in their sides, or in how they are accumulated."""
    found: Contracting | None = None
    for node in reductions:
        sides = sides_of(node, roots, policy.axes.unrolled_sum)
        if sides is None or not node.over or (found is not None and not sides.fits(found.sides)):
            return None
        form = _form(node, sides, policy)
        if form is None or (found is not None and form is not found.form):
            return None
        dtype = factor_dtype(node.eqn) if is_contraction(node) else None
        exact = dtype is not None and dtype.itemsize == 4 and input_precision(node.eqn, policy.target) == EXACT
        size = dtype.itemsize if dtype is not None else node.dtype.itemsize
        found = Contracting(form, sides, size, exact)
    return found


def _results(axes: Axes) -> int:
    return math.prod(axis.size for axis in axes)


def _chained(chain: Chain, policy: Policy) -> Contracting:
    whole = tuple(axis for axes in chain.whole for axis in axes)
    columns = frozenset(whole)
    size = max(dtype.itemsize for node in chain.products if (dtype := factor_dtype(node.eqn)) is not None)
    sides = Sides(chain.rows, columns, chain.sums)
    exact, count = chain.is_exact(policy.target), len(chain.products)
    of_a_row = sum(_read_of_a_row(node, chain.rows) for node in chain.products)
    sums = [node for node in chain.products if node.axes.isdisjoint(chain.walked)]
    added = sum(_lanes_of(node.axes & columns) for node in sums)
    found = Contracting(Form.DOT, sides, size, exact, count, whole, walked=chain.walked)
    return replace(found, of_a_row=of_a_row, of_pairs=count - len(sums), accumulated=added)


def _read_of_a_row(node: Reduce, rows: Axes) -> int:
    """The terms of a sum that are read of each row."""
    factors = (each for term in node.operands if isinstance(term, Product) for each in term.operands)
    read = [each for each in factors if rows <= each.axes and not _is_made(each) and not isinstance(each, Reduce)]
    return _lanes_of(node.over) if read else 0


def _lanes_of(axes: Iterable[Axis]) -> int:
    return math.prod(max(power_of_two(axis.size), LEAST) for axis in axes)


def _two_sided(space: Space, summed: Summed | None, unrolled: int) -> Sequence[Reduce]:
    """The reductions that make results, not those of results, nor those beside them."""
    if summed:
        return summed.made
    return [n for n in space.graph.of_kind(Reduce) if not is_small(n, unrolled) and n not in space.beside]


def _form(node: Reduce, sides: Sides, policy: Policy) -> Form | None:
    rows, columns, sums = (math.prod(axis.size for axis in axes) for axes in (sides.rows, sides.columns, sides.sums))
    most = policy.products
    if not sides.rows or (not sides.columns and _is_read_once(node, sides, policy.axes.unrolled_sum)):
        return None
    if not sides.columns:
        return Form.LANES if min(rows, sums) >= LINE else None
    is_product = is_contraction(node) and all(isinstance(operand, Product) for operand in node.operands)
    dtype = factor_dtype(node.eqn) if is_product else None
    if dtype is not None and has_units_for(dtype, policy.target):
        return Form.DOT if rows * columns >= LEAST**2 and sums >= numbers.COMMON.few else None
    if min(rows, columns) < LEAST:
        return None
    least, others = most.outer[-1], math.prod(axis.size for axis in node.axes) // (rows * columns)
    programs = -(-rows // least.rows) * -(-columns // least.columns) * others
    is_narrow = not policy.keeps_busy(max(rows, columns) * others)
    return Form.OUTER if is_narrow or policy.keeps_busy(numbers.COMMON.times * programs) else None


def _parts(node: Reduce) -> int:
    """How many numbers are accumulated for a result: the place beside the value, say."""
    row = TABLE.get(node.eqn.primitive.name)
    return max(2, len(node.eqn.invars)) if row is not None and row.several else 1


def _is_read_once(node: Reduce, sides: Sides, unrolled: int) -> bool:
    """Whether some operand has all axes of the rows and of the sum, as the matrix that a vector is multiplied by."""
    return any(load.axes >= sides.rows | sides.sums for load in loads_of(node.operands, unrolled))


def _makes(node: Reduce) -> bool:
    """Whether a factor is computed for each of its terms, in the type that it is computed in."""
    factors = [factor for term in node.operands if isinstance(term, Product) for factor in term.operands]
    return any(_is_made(factor) for factor in factors if factor.axes.issuperset(node.over))


def _groups(node: Reduce, sides: Sides) -> int:
    """In how many groups rows are, where each has its own terms."""
    factors = [factor for term in node.operands if isinstance(term, Product) for factor in term.operands]
    made = [each for each in factors if isinstance(each, Compute) and each.eqn.primitive is member_p]
    return max((int(each.eqn.params["of"]) for each in made if each.axes & sides.rows), default=1)


def _is_made(factor: Node) -> bool:
    while isinstance(factor, Compute) and factor.eqn.primitive.name == "convert_element_type":
        (factor,) = factor.operands
    return isinstance(factor, Compute | Choose)


def block_of(how: Contracting, rows: int, columns: int, sums: int, batch: int, shrink: int, policy: Policy) -> Block:
    """The largest block of which there are programs enough, else the smallest one."""
    whole = [b for b in _blocks(how, policy) if b.columns <= 2 * WIDE or _is_filled(b, columns, how, policy)]
    if how.form is Form.OUTER:
        whole = _sharing(whole, how, sums, policy)
    fitting = [_cut(block, -(-rows // how.groups), columns, sums) for block in whole]  # a larger one has terms of more
    held = how.sums * (policy.products.exactly if how.makes and how.exact else 1)  # factors are beside sums
    room = [b for b in fitting if _held(b, how) * held <= _of_a_thread(how, policy) * LANES * b.warps]
    fitting = (room or [min(fitting, key=lambda b: _held(b, how) // b.warps)])[shrink:] or fitting[-1:]
    enough = (b for b in fitting if policy.keeps_busy(_programs(b, rows, columns) * batch))
    found = next(enough, fitting[-1])
    made = found.rows * found.sums if how.makes else 0
    most = 2 * found.warps if made > policy.products.of_a_thread // 4 * LANES * found.warps else found.warps
    warps = max(1, most * LANES // policy.target.warp_size)
    return replace(found, warps=warps, stages=_stages(found, how, sums, policy))


def _sharing(blocks: Sequence[Block], how: Contracting, sums: int, policy: Policy) -> list[Block]:
    """Blocks whose threads share the terms where each has some of them, and room for what it accumulates.

    Large ones of these are for terms that lie next to each other: then a sector of memory is not read for one of them.
    """
    most = 1 if how.in_step else power_of_two(sums // numbers.COMMON.few + 1) // 2
    shares = {b: min(most, b.sums // power_of_two(how.sums)) for b in blocks if b.sums > 1}
    sharing = [replace(b, sums=share) for b, share in shares.items() if share > 1]
    if how.along and sharing:
        return sharing
    alone, least = [b for b in blocks if b.sums == 1], min((b.rows * b.columns for b in sharing), default=0)
    return [*alone, *(b for b in sharing if b.rows * b.columns == least)]


def _of_a_thread(how: Contracting, policy: Policy) -> int:
    """The numbers that a thread accumulates; of pairs, beside what it makes of each of them."""
    return policy.products.of_a_thread // (2 if how.form is Form.OUTER else 1)


def _held(block: Block, how: Contracting) -> int:
    """The results that a program accumulates, of all terms or of those that a thread adds."""
    return block.rows * block.columns * (block.sums if how.form is Form.OUTER else 1)


def _is_filled(block: Block, columns: int, how: Contracting, policy: Policy) -> bool:
    """Whether a wide block has all of its columns, room for its loads, and nothing else of its size."""
    loaded = (block.rows + block.columns) * block.sums * how.bytes * block.stages
    return columns % block.columns == 0 and not how.beside and loaded <= policy.target.shared_bytes


def with_whole_rows(block: Block, widths: Sequence[int], exact: bool, policy: Policy) -> Block:
    """As many rows as there is room for, with what is made of each of them.

    Where f32 is multiplied exactly threads hold the factors as well.
    """
    most = policy.products.of_a_thread // (policy.products.exactly if exact else 1)
    rows = most * policy.target.warp_size * block.warps // sum(widths)
    return replace(block, rows=max(min(block.rows, power_of_two(rows + 1) // 2), LEAST))


def walked_block(how: Contracting, rows: int, held: int, sums: int, batch: int, shrink: int, policy: Policy) -> Block:
    """The largest block of a chain that walks, of which there are programs enough, else the smallest that is as quick.

    What it reads for each column are all `sums` terms, and as much as is `held`. One of several products of pairs waits
    for each of them, so that several programs of few warps are better than one of many.
    """
    exactly = policy.products.exactly if how.exact else 1
    cut = [replace(each, rows=min(each.rows, max(power_of_two(rows), LEAST))) for each in policy.products.walked]
    cut = [each for each in cut if how.of_pairs == 1 or each.warps <= GROUP]
    most = policy.products.of_a_thread * LANES

    def made(block: Block) -> int:
        return block.rows * (how.accumulated + (2 * how.of_pairs - 1) * block.columns // 2) * exactly

    fitting = [each for each in cut if made(each) <= most * each.warps * 5 // 4]
    fitting = [each for each in fitting if _steps_at_once(each, how, sums + held, policy) > 1] or fitting
    fitting = (fitting or cut[-1:])[shrink:] or cut[-1:]
    enough = (each for each in fitting if policy.keeps_busy(-(-rows // each.rows) * batch))
    found = next(enough, next((each for each in reversed(fitting) if each.columns >= WIDE // 2), fitting[-1]))
    room = _steps_at_once(found, how, sums + held, policy)
    programs = policy.products.warps_at_once // found.warps if how.of_pairs > 1 else 1
    shared = _steps_at_once(found, how, sums + held, policy, programs)
    stages = max(1, min(found.stages, room, max(2, shared)))
    warps = max(1, found.warps * LANES // policy.target.warp_size)
    return replace(found, sums=sums, warps=warps, stages=stages)


def _steps_at_once(block: Block, how: Contracting, of_a_column: int, policy: Policy, programs: int = 1) -> int:
    """Of how many steps shared memory has room for what each of these programs reads, beside its rows."""
    room = policy.target.shared_bytes // programs - block.rows * how.of_a_row * how.bytes
    return room // (block.columns * of_a_column * how.bytes)


def beside_held(policy: Policy) -> tuple[int, int, int]:
    """The rows that a program makes at once where it has all of each, to reduce it: the first with programs enough."""
    most = numbers.COMMON.side_of_a_matrix
    return most, most // 2, most // 4


def with_whole(block: Block, held: int, others: int, programs: int, how: Contracting, policy: Policy) -> Block:
    """One side whole, in as many lanes as it takes, as columns; of the other one, as rows, what there is room for.

    `programs` are there for each block of those.
    """
    products = policy.products
    lanes, most = max(power_of_two(held), LEAST), max(each.warps for each in _blocks(how, policy))
    room = _of_a_thread(how, policy) * LANES * most // (lanes * how.sums)
    least = min(each.rows * each.columns for each in _blocks(how, policy)) // lanes
    fitting = [size for size in beside_held(policy) if size <= min(room, max(power_of_two(others), LEAST))]
    sizes = [size for size in fitting if size >= least] or fitting[:1] or [LEAST]
    rows = next((size for size in sizes if policy.keeps_busy(-(-others // size) * programs)), sizes[-1])
    if how.form is Form.OUTER and rows * block.sums > room:
        block = replace(block, sums=1)
    found = replace(block, rows=rows, columns=lanes)
    warps = min(most, max(4, _held(found, how) * how.sums // (products.of_a_thread * LANES // 2)))
    return replace(found, warps=max(1, warps * LANES // policy.target.warp_size))


def _stages(block: Block, how: Contracting, sums: int, policy: Policy) -> int:
    """As many blocks of what is loaded as fit into shared memory, whichever side the rows will be, and there are."""
    one, other = (max(how.bytes, sum(_bytes(load, how.variables) for load in loads)) for loads in how.loaded)
    terms = max(block.rows * one + block.columns * other, block.rows * other + block.columns * one)
    room = policy.target.shared_bytes // (terms * block.sums)
    return max(1, min(block.stages, room, -(-sums // block.sums)))


def _bytes(load: Load, variables: Sequence[tuple[Axis, int]]) -> int:
    return load.dtype.itemsize * math.prod(count for axis, count in variables if axis in load.axes)


def _blocks(how: Contracting, policy: Policy) -> Sequence[Block]:
    products = policy.products
    match how.form:
        case Form.OUTER:
            return products.outer
        case Form.LANES:
            return products.lanes
    if how.bytes <= 2:
        return products.plain if how.bytes == 2 and not how.makes else products.narrow
    return products.exact if how.exact or how.bytes > 4 else products.tf32


def _programs(block: Block, rows: int, columns: int) -> int:
    return -(-rows // block.rows) * -(-columns // block.columns)


def _cut(block: Block, rows: int, columns: int, sums: int) -> Block:
    """A block no larger than there are elements, but at least as large as Triton multiplies."""

    def cut(size: int, of: int) -> int:
        return min(size, max(power_of_two(of), LEAST if size > 1 else 1))

    small = Block(cut(block.rows, rows), cut(block.columns, columns), cut(block.sums, sums), block.warps, block.stages)
    fewer = small.rows * small.columns * block.warps // (block.rows * block.columns)
    return Block(small.rows, small.columns, small.sums, max(min(block.warps, fewer), min(block.warps, 4)), block.stages)


def names_of(batch: Sequence[Axis], rows: Sequence[Axis], columns: Sequence[Axis]) -> dict[str, list[Axis]]:
    """The axes on the grid, by the names of what they become."""
    groups = {"b": list(batch), "m": list(rows), "n": list(columns)}
    return {name: axes for name, axes in groups.items() if axes}
