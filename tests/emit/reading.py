"""What a kernel's source says, read with `ast`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from jaxpr2triton.ir import tree
from jaxpr2triton.ir.kernel import Buffer, Kernel


def function_of(kernel: Kernel) -> ast.FunctionDef:
    """The kernel itself, without its helpers."""
    (found,) = [n for n in ast.parse(kernel.source).body if isinstance(n, ast.FunctionDef) and n.name == kernel.name]
    return found


def body_of(text: str) -> tree.Body:
    """The statements of a text as an emitter makes them: a string is a comment, and `x_ptr` points to a buffer.

    `wrong_ptr` points to a flag.
    """
    return [_AsEmitted().visit(statement) for statement in ast.parse(text).body]


class _AsEmitted(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        if not node.id.endswith("_ptr"):
            return node
        name = node.id.removesuffix("_ptr")
        return tree.Pointer(Buffer(name, (), np.dtype(np.float32), is_flag=name == "wrong"))

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        is_load = ast.unparse(node.func) == "tl.load"
        return tree.Load(node.func, node.args, node.keywords) if is_load else node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        match node.value:
            case ast.Constant(str(text)):
                return tree.Comment(text)
            case ast.Call(func=ast.Attribute(attr=function), args=arguments, keywords=words):
                access = tree.Access(node.value.func, arguments, words)
                return tree.Barrier(access) if function == "debug_barrier" else tree.Store(access)
        return node


def parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


def assignments(function: ast.FunctionDef) -> Iterator[tuple[list[str], ast.expr]]:
    """The names that are assigned, and the value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            yield [name.id for name in names if isinstance(name, ast.Name)], node.value


def counters(function: ast.FunctionDef) -> set[str]:
    """What loops count in."""
    return {n.target.id for n in ast.walk(function) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}


def defined(function: ast.FunctionDef) -> set[str]:
    """Every name that the kernel gives a value."""
    return {name for names, _ in assignments(function) for name in names} | counters(function)


def loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def copies(function: ast.FunctionDef) -> list[str]:
    """Statements such as `v5 = v4`, where one variable would do: never do both hold values that are still wanted."""
    moves = []
    for names, value in assignments(function):
        if isinstance(value, ast.Name):
            moves.append((names[0], value.id))
        if isinstance(value, ast.Tuple):
            moves += [(name, part.id) for name, part in zip(names, value.elts) if isinstance(part, ast.Name)]
    apart = clashes(function.body) if moves else set()
    return [f"{new} = {old}" for new, old in moves if frozenset({new, old}) not in apart]


def clashes(body: list[ast.stmt]) -> set[frozenset[str]]:
    """The pairs of variables of which one gets a value while another value, that of the other one, is still wanted."""
    found: set[frozenset[str]] = set()

    def after(block: list[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        for statement in reversed(block):
            live = before(statement, live)
        return live

    def before(statement: ast.stmt, live: frozenset[str]) -> frozenset[str]:
        """What is wanted before a statement, given what is wanted after it."""
        match statement:
            case ast.Assign(targets=[target], value=value):
                pairs = _pairs(target, value)
                for name, same in pairs:
                    found.update(frozenset({name, other}) for other in live - {name, same})
                return (live - {name for name, _ in pairs}) | loaded(value)
            case ast.If():
                return after(statement.body, live) | after(statement.orelse, live) | loaded(statement.test)
            case ast.For() | ast.While():
                head = loaded(statement.iter if isinstance(statement, ast.For) else statement.test)
                counted = frozenset({statement.target.id} if isinstance(statement, ast.For) else {})
                while True:
                    entered = live | head | (after(statement.body, live | head) - counted)
                    if entered == live:
                        return live
                    live = entered
            case _:
                return live | loaded(statement)

    after(body, frozenset())
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, str]]:
    """Each name that is assigned, and the name that it is a copy of, if any."""
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    values = value.elts if isinstance(value, ast.Tuple) else [value] * len(names)
    return [(n.id, v.id if isinstance(v, ast.Name) else "") for n, v in zip(names, values) if isinstance(n, ast.Name)]


def blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """The kernel's own block and those of its loops and branches."""
    for node in ast.walk(function):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def assigned_once(function: ast.FunctionDef) -> set[str]:
    """Names with one value for good in the block where they are known."""
    counts = Counter(name for names, _ in assignments(function) for name in names)
    return {name for name, count in counts.items() if count == 1}


def equal_lines(function: ast.FunctionDef) -> list[str]:
    """Values that are computed twice in one block, from the same operands; what a loop changes is no such value."""
    found = []
    for block in blocks(function):
        seen: dict[str, str] = {}
        changed = {name for node in block for name in _changed_inside(node)}
        for node in block:
            if not isinstance(node, ast.Assign):
                continue
            names = {name for name, _ in _pairs(node.targets[0], node.value)}
            text = ast.unparse(node.value)
            stays = not names & changed and not text.startswith(("tl.load(", "tl.arange("))
            if stays and text in seen:
                found.append(f"{seen[text]} and {', '.join(sorted(names))} = {text}")
            seen = {old: name for old, name in seen.items() if not names & _words(old)}
            if stays and not names & _words(text):
                seen[text] = ", ".join(sorted(names))
    return found


def lanes_twice(function: ast.FunctionDef) -> list[str]:
    """Axes whose lanes are made twice."""
    lanes = [ast.unparse(node) for node in function.body if isinstance(node, ast.Assign) and calls(node, "arange")]
    return [line for number, line in enumerate(lanes) if line in lanes[:number]]


def _changed_inside(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.For | ast.While | ast.If):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                yield from (name for name, _ in _pairs(inner.targets[0], inner.value))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def clamps_repeated(function: ast.FunctionDef) -> list[str]:
    """Texts such as `tl.minimum(tl.maximum(i, 0), 31)` that are written more than once in one block."""
    found = []
    for block in blocks(function):
        seen: Counter[str] = Counter()
        for node in block:
            if isinstance(node, ast.Assign | ast.Expr):
                inner = [call for call in calls(node, "minimum") if calls(call.args[0], "maximum")]
                seen.update({ast.unparse(call) for call in inner if _is_number(call.args[1])})
        found += [text for text, count in seen.items() if count > 1]
    return found


def _is_number(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def constants_computed(function: ast.FunctionDef) -> list[str]:
    """Operations on nothing but constants, and choices between `True` and `False`; not a start of its own."""
    known: set[str] = set()
    single = assigned_once(function)
    for names, value in assignments(function):
        if set(names) <= single and _is_constant(value, known):
            known |= set(names)
    found = []
    for node in ast.walk(function):
        match node:
            case ast.Compare(left=left, comparators=[right]) | ast.BinOp(left=left, right=right):
                if _is_constant(left, known) and _is_constant(right, known):
                    found.append(ast.unparse(node))
            case ast.Call(func=ast.Attribute(attr="where"), args=[test, then, other]):
                apart = ast.unparse(then) == ast.unparse(other)  # `emit/distinct.py`
                if (_is_constant(test, known) and not apart) or {_truth(then), _truth(other)} == {True, False}:
                    found.append(ast.unparse(node))
    return found


def _is_constant(node: ast.expr, known: set[str]) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in known
        case ast.UnaryOp(operand=inner):
            return _is_constant(inner, known)
        case ast.Compare(left=left, comparators=[right]) | ast.BinOp(left=left, right=right):
            return _is_constant(left, known) and _is_constant(right, known)
        case ast.Call(func=ast.Attribute(attr="full"), args=[ast.Tuple(elts=[]), inner, *_]):
            return _is_constant(inner, known)
    return False


def _truth(node: ast.expr) -> bool | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "full":
        node = node.args[1]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def tiles_copied_by_sums(function: ast.FunctionDef) -> list[str]:
    """Masked sums that only rename an axis: `tl.sum(tl.where(k[None, :] - k1[:, None] == 0, tile[None, :], 0), 1)`."""
    lanes = {n for names, value in assignments(function) if "tl.arange" in ast.unparse(value) for n in names}
    found = []
    for call in (*calls(function, "sum"), *calls(function, "reduce")):
        for where in calls(call.args[0], "where"):
            match where.args[0]:
                case ast.Compare(left=ast.BinOp() as left, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
                    words = loaded(left) - {"tl"}
                    if len(words) == 2 and words <= lanes and "*" not in ast.unparse(left):
                        found.append(ast.unparse(call))
    return found


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
        elif isinstance(node, ast.If | ast.While):
            used |= loaded(node.test)
    return defined(function) - counters(function) - used


def loaded_twice(function: ast.FunctionDef) -> list[str]:
    """Loads that are written twice in one block, but for those that a loop begins with (`emit/ahead.py`)."""
    found = []
    for block in blocks(function):
        read = [node for node in block if isinstance(node, ast.Assign) and "_next" not in ast.unparse(node.targets[0])]
        values = [ast.unparse(node.value) for node in read]
        loads = [value for value in values if value.startswith("tl.load(")]
        found += [load for number, load in enumerate(loads) if load in loads[:number]]
    return found


def calls(function: ast.AST, name: str) -> list[ast.Call]:
    """All calls of `tl.<name>`."""
    found = (n for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return [call for call in found if isinstance(call.func, ast.Attribute) and call.func.attr == name]
