"""The functions by which kernels combine elements: their texts stand before the kernel."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from jaxpr2triton.graph.covered import call_of
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.jaxprs import Atom, Literal, Var
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.ir.scanned import Combination
from jaxpr2triton.ir.tree import call, name
from jaxpr2triton.rules.literals import as_tensor, constant
from jaxpr2triton.rules.pointwise.convert import convert
from jaxpr2triton.rules.rows import TABLE

PRODUCTS = frozenset({"mul", "square"})


@dataclass
class Functions:
    """What is written so far: of each program its name, its text, and the helpers that it calls."""

    written: dict[Combination, tuple[str, str, tuple[str, ...]]] = field(default_factory=dict)

    def of(self, combine: Combination) -> tuple[str, tuple[str, ...]]:
        """The name of the function, and the helpers that it calls.

        { lambda ; a b c d. let e = mul a c;  f = mul c b;  g = add f d in (e, g) }
            →
        def _combine(l0, l1, r0, r1):
            t0 = l0 * r0
            t1 = r0 * l1
            t2 = t1 + r1
            return t0, t2
        """
        if combine not in self.written:
            own = f"_combine_{len(self.written) + 1}" if self.written else "_combine"
            self.written[combine] = (own, *_text(own, combine))
        own, _, callees = self.written[combine]
        return own, callees

    def texts(self) -> str:
        return "".join(f"@triton.jit\n{text}\n\n" for _, text, _ in self.written.values())


def _text(of: str, combine: Combination) -> tuple[str, tuple[str, ...]]:
    inner, parts = combine.closed.jaxpr, combine.parts
    arguments = [*(f"l{n}" for n in range(parts)), *(f"r{n}" for n in range(parts))]
    known: dict[Var, ast.expr] = dict(zip(inner.invars, map(name, arguments)))
    measured = {eqn.invars[0] for eqn in inner.eqns if eqn.primitive is rounded_p}
    lines, callees = [f"def {of}({', '.join(arguments)}):"], []

    def read(atom: Atom) -> ast.expr:
        return constant(atom.val, atom.aval.dtype) if isinstance(atom, Literal) else known[atom]

    for number, eqn in enumerate(inner.eqns):
        row, dtype = TABLE[eqn.primitive.name], eqn.outvars[0].aval.dtype
        operands = [read(atom) for atom in eqn.invars]
        value = row.write(call_of(eqn), operands)
        if eqn.primitive is rounded_p:
            value = convert(value, working_dtype(dtype), dtype)
        if eqn.primitive.name in PRODUCTS and eqn.outvars[0] in measured and working_dtype(dtype) == dtype:
            value = call("_product", as_tensor(operands[0], dtype), as_tensor(operands[-1], dtype))
            callees.append("_product")
        callees += row.called(value)
        known[eqn.outvars[0]] = name(f"t{number}")
        lines.append(f"    t{number} = {printed(value)}")
    lines.append(f"    return {', '.join(printed(read(atom)) for atom in inner.outvars)}\n")
    return "\n".join(lines), tuple(callees)
