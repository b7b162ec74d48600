"""What the forward program saves for the backward one: a minimum cut between bytes and work.

The forward program is a graph from its inputs to the values that the linear program asks for. Cutting it somewhere
means: what lies on the cut is kept in memory, what lies behind it is computed again. A value costs the bytes that it
moves: an input or an output of the program is there anyway and has only to be read again, anything else is written and
read. Elementwise and index work is free to do again, and a product with a small matrix takes the time of its terms;
results of anything else can only be kept. Too large to be kept, whatever that takes, are the products of a last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from jaxpr2triton import policy
from jaxpr2triton.graph.compared import met
from jaxpr2triton.ir.cheapest import cheapest, price, price_of_products
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.evaluate import needed as live_for
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import nbytes
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import TABLE as REDUCTIONS
from jaxpr2triton.rules.rows import TABLE


def choose(
    forward: Any, num_outputs: int, needed: Sequence[Any], recomputable: Callable[[Any], bool]
) -> tuple[Any, ...]:
    """The variables of the flat program `forward` to keep, so that all of `needed` can be computed from them.

    Its first `num_outputs` outputs are the outputs of the user's program.
    """
    inner = forward.jaxpr
    there_anyway = {*inner.invars, *variables(inner.outvars[:num_outputs])}
    producer = {var: eqn for eqn in inner.eqns for var in eqn.outvars}
    live = live_for(inner.eqns, [*inner.outvars[:num_outputs], *needed], ())
    # what is compared with its own maximum is one number in both programs
    compared = met(live)
    outputs = variables(inner.outvars[:num_outputs])
    too_large = {eqn for eqn in live if _is_too_large(eqn) and not _is_read_whole(eqn, live, outputs)} - compared
    products = {eqn for eqn in live if _is_by_a_small_matrix(eqn) or _is_large_of_little(eqn)} - compared | too_large

    def operands(var: Any) -> Sequence[Any] | None:
        eqn = producer.get(var)  # none of an input
        return eqn.invars if eqn is not None and (recomputable(eqn) or eqn in products) else None

    def cost(var: Any) -> int:
        return price(var.aval, var in there_anyway) + _is_placed(producer.get(var))

    def work(var: Any) -> int:
        return price_of_products(producer[var]) if producer[var] in products - too_large else 0

    order = [*inner.invars, *producer]
    return cheapest(variables(needed), order, cost, operands, work)


def _is_by_a_small_matrix(eqn: Any) -> bool:
    """Whether it multiplies by a matrix of which a kernel has room for all: what that makes need not be written."""
    if eqn.primitive.name != "dot_general":
        return False
    terms = terms_of(eqn)
    matrix = min(atom.aval.size for atom in eqn.invars)
    return max(terms, matrix // max(terms, 1)) <= policy.COMMON.side_of_a_matrix


def _is_large_of_little(eqn: Any) -> bool:
    """Whether it multiplies short rows of little to much, as all pairs of queries and keys: kernels walk along that."""
    if eqn.primitive.name != "dot_general" or terms_of(eqn) > 2 * policy.COMMON.side_of_a_matrix:
        return False
    read: int = sum(atom.aval.size for atom in eqn.invars)
    made: int = eqn.outvars[0].aval.size
    return made >= policy.COMMON.few // 2 * read


def _is_too_large(eqn: Any) -> bool:
    """Whether rows of what a product makes go in chunks, which is for nothing if all of it is kept.

    So it is for products of many rows and many more columns than terms: then the sums of chunks are smaller.
    """
    if eqn.primitive.name != "dot_general" or nbytes(*eqn.outvars) <= policy.COMMON.stored_between:
        return False
    terms, bytes_of_one = terms_of(eqn), eqn.outvars[0].aval.dtype.itemsize
    fewer, more = sorted(atom.aval.size // terms for atom in eqn.invars)
    return more >= policy.COMMON.few * terms and fewer * bytes_of_one >= policy.COMMON.few * terms


def _is_read_whole(eqn: Any, live: Sequence[Any], outputs: Collection[Any]) -> bool:
    """Whether the program puts out what is made of it, or multiplies it: of a hidden layer, and not of a last one."""
    large = set(eqn.outvars)
    for reader in live:
        if not large.isdisjoint(variables(reader.invars)):
            if reader.primitive.name == "dot_general":
                return True
            large.update(reader.outvars if reader.primitive.name not in REDUCTIONS else ())
    return not large.isdisjoint(outputs)


def _is_placed(eqn: Any) -> bool:
    """Whether an equation only puts together what it reads, so that of equal costs that is rather to be kept."""
    if eqn is None or eqn.primitive.name == "select_n":
        return eqn is not None
    sizes = {atom.aval.size for atom in (*eqn.invars, *eqn.outvars)}
    return len(sizes) > 1 and isinstance(TABLE.get(eqn.primitive.name), Indexing)
