"""Device functions as ordinary Python functions: what the interpreter executes.

    @triton.jit                                  def double(x_ptr, out_ptr):
    def double(x_ptr, out_ptr):             →        i = j2t_tensor(tl.program_id(0))
        i = tl.program_id(0)                         ok = j2t_tensor(j2t_and(i > 0, lambda: i < 8))
        ok = i > 0 and i < 8

Assigned numbers become tensors, as they do when Triton compiles; `and`, `or` and `not` work on tiles; `range` is
looked up among the helpers and so counts in tensors.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


class _Rewriter(ast.NodeTransformer):
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


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def executed(
    source: str, filename: str, globals_: Mapping[str, Any], helpers: Mapping[str, Any], first_line: int = 1
) -> dict[str, Any]:
    """The namespace after running the module `source`, whose functions are rewritten; `globals_` stay untouched."""
    tree = ast.parse(source)
    body = [_Rewriter().visit(node) if isinstance(node, ast.FunctionDef) else node for node in tree.body]
    module = ast.fix_missing_locations(ast.Module(body, []))
    ast.increment_lineno(module, first_line - 1)
    namespace = {**globals_, **helpers}
    exec(compile(module, filename, "exec"), namespace)
    return namespace
