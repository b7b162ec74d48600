"""Long functions of the device library → functions that are called, in kernels that hold many of them.

    @triton.jit(noinline=True)
    def _sin(x):
        return tl.sin(x)

    y = tl.sin(x)            →     y = tl.map_elementwise(_sin, x)

Triton writes such a function out wherever it stands, for each element that a thread holds; a sine, with the path for
large arguments, is 114 instructions. What LLVM and ptxas make of that takes time that grows with its square: 14 s for
200 sines, two minutes for 800. Functions that are not written out take numbers only, no tiles, hence the map. A call is
about as many instructions as what is to be saved around it, so kernels of ordinary size have none.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxpr2triton import policy as numbers
from jaxpr2triton.emit.text import Spelling
from jaxpr2triton.graph.covered import call_of
from jaxpr2triton.graph.nodes import Compute, Graph
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import call, expr, name
from jaxpr2triton.rules.helpers import with_callees
from jaxpr2triton.rules.literals import as_tensor
from jaxpr2triton.rules.rows import TABLE

PARAMETERS = "xy"

# PTX instructions of a function for one element in float32 and in float64, counted on sm_90.
LINES: dict[str, tuple[int, int]] = {
    "sin": (114, 70),
    "cos": (114, 70),
    "tan": (113, 95),
    "asin": (26, 100),
    "acos": (20, 121),
    "atan": (26, 55),
    "atan2": (23, 40),
    "sinh": (45, 92),
    "cosh": (19, 60),
    "tanh": (14, 88),
    "asinh": (70, 243),
    "acosh": (97, 235),
    "atanh": (63, 132),
    "exp": (3, 54),
    "expm1": (28, 67),
    "log": (35, 87),
    "log2": (35, 87),
    "log1p": (40, 120),
    "pow": (126, 89),
    "erf": (40, 61),
    "erfc": (56, 147),
    "erf_inv": (48, 203),
    "lgamma": (341, 164),
    "rem": (82, 92),
}


class Calls:
    """The functions that one kernel calls."""

    def __init__(self, graph: Graph, spell: Spelling, plan: Plan) -> None:
        self._spell, self._threads, self._policy = spell, plan.policy.target.warp_size * plan.num_warps, plan.policy
        self._functions: dict[tuple[str, int, int, tuple[str, ...]], str] = {}  # … its operands, elements, results
        self.helpers: dict[str, None] = {}  # what they call themselves
        self._called = set(LINES)
        lines: Counter[str] = Counter()
        for node in graph.of_kind(Compute):
            name = node.eqn.primitive.name
            if node in self:
                is_double = node.operands[0].dtype == np.float64
                lines[name] += LINES[name][is_double] * self._elements_of(node, self._threads)
        is_long = lines.total() > plan.policy.writing.written_out
        least = plan.policy.loops.instructions_in_a_row
        self._called = {name for name, count in lines.items() if is_long and count > least}

    def __contains__(self, node: Compute) -> bool:
        return node.eqn.primitive.name in self._called and is_float(node.operands[0].dtype)

    def write(self, node: Compute, values: Sequence[ast.expr]) -> ast.expr:
        """The value of a computation, by a call; a function of many elements has one result for each."""
        arguments = [as_tensor(value, operand.dtype) for value, operand in zip(values, node.operands)]
        if not self._spell.tile(_axes_of(node)):
            return call(self._function(node, 1), *arguments)
        # where a thread has the fewest elements, two have them as well: those of a call have to be in one thread
        packed = min(self._elements_of(node, 2 * self._threads), numbers.COMMON.few)
        function = self._function(node, packed)
        if packed == 1:
            return call("tl.map_elementwise", function, *arguments)
        return expr("{}[0]", call("tl.map_elementwise", function, *arguments, pack=packed))

    def texts(self) -> str:
        """What stands before the kernel."""
        found = ""
        for (_, operands, packed, results), function in self._functions.items():
            parameters = [_parameter(n, k, packed) for n in range(operands) for k in range(packed)]
            found += "@triton.jit(noinline=True)\n"
            found += f"def {function}({', '.join(parameters)}):\n    return {', '.join(results)}\n\n\n"
        return found

    def _function(self, node: Compute, packed: int) -> str:
        done = node.eqn.primitive.name
        operands = range(len(node.operands))
        row = TABLE[done]
        parameters = ([name(_parameter(n, k, packed)) for n in operands] for k in range(packed))
        results = [row.write(call_of(node.eqn), each) for each in parameters]
        key = done, len(operands), packed, tuple(map(printed, results))
        if key not in self._functions:
            copies = sum(other == done for other, *_ in self._functions)
            stem = f"_called_{done}" if f"_{done}" in row.helpers else f"_{done}"
            self._functions[key] = f"{stem}_{copies + 1}" if copies else stem
            self.helpers |= dict.fromkeys(each for callee in row.called(results[0]) for each in with_callees(callee))
        return self._functions[key]

    def _elements_of(self, node: Compute, threads: int) -> int:
        """How many elements of the operands' tile each of so many threads has at least."""
        blocks = [self._spell.planned[axis].block for axis in self._spell.tile(_axes_of(node))]
        return max(1, math.prod(blocks) // threads)


def _axes_of(node: Compute) -> frozenset[Axis]:
    return frozenset().union(*(operand.axes for operand in node.operands))


def _parameter(operand: int, element: int, packed: int) -> str:
    """x; or x0, x1, …"""
    return PARAMETERS[operand] if packed == 1 else f"{PARAMETERS[operand]}{element}"
