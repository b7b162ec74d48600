"""What a kernel's source says, read with `ast`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jaxpr2triton.ir.kernel import Kernel


def function_of(kernel: Kernel) -> ast.FunctionDef:
    """The kernel itself, without its helpers."""
    (found,) = [n for n in ast.parse(kernel.source).body if isinstance(n, ast.FunctionDef) and n.name == kernel.name]
    return found


def parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


def assignments(function: ast.FunctionDef) -> Iterator[tuple[list[str], ast.expr]]:
    """The names that are assigned, and the value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            yield [name.id for name in names if isinstance(name, ast.Name)], node.value


def defined(function: ast.FunctionDef) -> set[str]:
    """Every name that the kernel gives a value."""
    loops = {n.target.id for n in ast.walk(function) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}
    return {name for names, _ in assignments(function) for name in names} | loops


def loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def copies(function: ast.FunctionDef) -> list[str]:
    """Statements such as `v5 = v4`."""
    return [f"{names[0]} = {value.id}" for names, value in assignments(function) if isinstance(value, ast.Name)]


def dead(function: ast.FunctionDef) -> set[str]:
    """Names that are assigned and that nobody reads (an accumulator that only feeds itself counts)."""
    used: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            own = {n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)}
            used |= loaded(node.value) - own
        elif isinstance(node, ast.Expr):
            used |= loaded(node.value)
        elif isinstance(node, ast.For):
            used |= loaded(node.iter)
    return defined(function) - used


def loaded_twice(function: ast.FunctionDef) -> list[str]:
    """Loads that are written twice in one block."""
    found = []
    for block in (node for node in ast.walk(function) if isinstance(node, ast.FunctionDef | ast.For)):
        values = [ast.unparse(node.value) for node in block.body if isinstance(node, ast.Assign)]
        loads = [value for value in values if value.startswith("tl.load(")]
        found += [load for number, load in enumerate(loads) if load in loads[:number]]
    return found


def calls(function: ast.AST, name: str) -> list[ast.Call]:
    """All calls of `tl.<name>`."""
    found = (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return [call for call in found if isinstance(call.func, ast.Attribute) and call.func.attr == name]
