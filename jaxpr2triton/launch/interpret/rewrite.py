"""Device functions as ordinary Python functions: what the interpreter executes.

    @triton.jit                                  def double(x_ptr, out_ptr):
    def double(x_ptr, out_ptr):             →        i = j2t_tensor(tl.program_id(0))
        i = tl.program_id(0)                         ok = j2t_tensor(j2t_and(i > 0, lambda: i < 8))
        ok = i > 0 and i < 8

Assigned numbers become tensors, as they do when Triton compiles; `and`, `or` and `not` work on tiles; `range` is
looked up among the helpers and so counts in tensors. A function in which programs meet becomes a generator, which stops
at each meeting, and its callers in the module likewise: `_all_meet(met_ptr, 8)` → `yield from _all_meet(met_ptr, 8)`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

MEETING = "_all_meet"  # the function at which all programs meet


class _Rewriter(ast.NodeTransformer):
    def __init__(self, meeting: frozenset[str]) -> None:
        self.meeting = meeting

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.YieldFrom(node) if _callee(node) in self.meeting else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = _call("j2t_tensor", node.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "j2t_and" if isinstance(node.op, ast.And) else "j2t_or"
        *before, result = node.values
        for value in reversed(before):
            later = ast.Lambda(ast.arguments([], [], None, [], [], None, []), result)
            result = _call(name, value, later)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("j2t_not", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        self.generic_visit(node)
        return node


def _callee(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _those_that_meet(functions: Sequence[ast.FunctionDef]) -> frozenset[str]:
    """The names of functions in which programs meet, by themselves or in what they call."""
    callees = {function.name: {_callee(node) for node in ast.walk(function)} for function in functions}
    meeting, before = {MEETING}, 0
    while len(meeting) > before:
        before = len(meeting)
        meeting |= {name for name, called in callees.items() if called & meeting}
    return frozenset(meeting)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def executed(
    source: str, filename: str, globals_: Mapping[str, Any], helpers: Mapping[str, Any], first_line: int = 1
) -> dict[str, Any]:
    """The namespace after running the module `source`, whose functions are rewritten; `globals_` stay untouched.

    Where `source` has a function with the name of a helper, the helper is it.
    """
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    rewriter = _Rewriter(_those_that_meet(functions) if MEETING in source else frozenset())
    kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in helpers)]
    body = [rewriter.visit(node) if isinstance(node, ast.FunctionDef) else node for node in kept]
    module = ast.fix_missing_locations(ast.Module(body, []))
    ast.increment_lineno(module, first_line - 1)
    namespace = {**globals_, **helpers}
    exec(compile(module, filename, "exec"), namespace)
    return namespace
