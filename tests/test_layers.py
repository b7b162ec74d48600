"""What the layout promises: imports point down, no stage knows another, one door to `jax._src`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator
from pathlib import Path

import pytest

from tests.package_files import FILES, ROOT, Trees, assert_none, show

pytestmark = pytest.mark.files

LEVELS = {
    0: ("errors", "knobs", "hardware", "policy", "progress", "watching", "collector", "version", "_compat"),
    1: ("ir", "mistakes"),
    2: ("rules",),
    3: ("graph",),
    4: ("trace", "autodiff", "normalize", "plan", "emit", "launch", "shards"),
    5: ("pipeline",),
    6: ("report",),
    7: ("front",),
    8: ("api",),
    9: ("cli",),
    10: ("__init__", "__main__"),
}
LEVEL_OF = {name: level for level, names in LEVELS.items() for name in names}
# Rooms within a room, the lowest first; those beside each other do not know each other.
WINGS = {
    "rules": (("pointwise", "written"),),
    "normalize": (("calls",), ("numbers", "random"), ("arrays",), ("loops",)),
    "plan": (("partition", "schedule"),),
    "launch": (("compile",), ("cycles", "interpret", "machine"), ("call",)),
}
FLOOR_OF = {f"{room}.{wing}": n for room, floors in WINGS.items() for n, wings in enumerate(floors) for wing in wings}


def part_of(module: str) -> str:
    """jaxpr2triton.graph.walk → graph; jaxpr2triton → __init__."""
    return (module.split(".") + ["__init__"])[1]


def module_of(path: Path) -> str:
    return ".".join([ROOT.name, *path.relative_to(ROOT).with_suffix("").parts])


def imported(tree: ast.Module) -> Iterator[str]:
    """Every module that a file imports from."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                for alias in node.names:
                    is_module = (ROOT.parent / Path(*module.split(".")) / f"{alias.name}.py").exists()
                    is_folder = (ROOT.parent / Path(*module.split(".")) / alias.name).is_dir()
                    yield f"{module}.{alias.name}" if is_module or is_folder else module
            case ast.ImportFrom():
                yield "a relative import"


def test_every_file_has_a_level() -> None:
    assert_none(show(path) for path in FILES if part_of(module_of(path)) not in LEVEL_OF)


def points_down(here: str, module: str) -> bool:
    if module.split(".")[0] != ROOT.name:
        return module != "a relative import"
    there = part_of(module)
    is_near = there == here or (LEVEL_OF[there] == LEVEL_OF[here] <= 1)
    return is_near or LEVEL_OF[there] < LEVEL_OF[here]


def test_imports_point_down(trees: Trees) -> None:
    assert_none(
        f"{show(path)} imports {module}"
        for path, tree in trees.items()
        for module in imported(tree)
        if not points_down(part_of(module_of(path)), module)
    )


def wing_of(module: str) -> str:
    """jaxpr2triton.plan.schedule.cost → plan.schedule; nothing if it is in no wing."""
    wing = ".".join(module.split(".")[1:3])
    return wing if wing in FLOOR_OF else ""


def is_wing_below(wing: str, here: str) -> bool:
    """Wings of other rooms are of no concern."""
    return part_of(f".{wing}") != part_of(f".{here}") or FLOOR_OF[wing] < FLOOR_OF[here]


def test_wings_point_down(trees: Trees) -> None:
    for path, tree in trees.items():
        if here := wing_of(module_of(path)):
            wings = {wing_of(module) for module in imported(tree)} - {here, ""}
            assert_none(f"{show(path)} imports {wing}" for wing in sorted(wings) if not is_wing_below(wing, here))


def functions_of(tree: ast.AST) -> Iterator[ast.AST]:
    kinds = ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def test_no_imports_inside_functions(trees: Trees) -> None:
    assert_none(
        f"{show(path)}:{node.lineno}"
        for path, tree in trees.items()
        for function in functions_of(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def lines(trees: Trees, is_found: Callable[[ast.AST], bool], allowed: Container[str]) -> Iterator[str]:
    """Where files but for those allowed have such a node."""
    for path, tree in trees.items():
        if show(path) not in allowed:
            nodes = (node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr))
            yield from (f"{show(path)}:{node.lineno}" for node in nodes if is_found(node))


def test_jax_src_has_one_door(trees: Trees) -> None:
    assert_none(
        f"{show(path)} imports {module}"
        for path, tree in trees.items()
        for module in imported(tree)
        if module.startswith(("jax._src", "jaxlib._src")) and show(path) != "_compat.py"
    )
    assert_none(lines(trees, _is_jax_src, ["_compat.py"]))


def test_jaxprs_are_put_together_in_one_place(trees: Trees) -> None:
    """`ir/build.py` calls the constructors, with what `_compat.py` knows of the versions; all others use it."""
    constructors = {"Jaxpr", "ClosedJaxpr", "JaxprEqn", "Var", "new_jaxpr_eqn", "jaxpr_as_fun"}
    assert_none(lines(trees, lambda node: _calls(node, constructors), ["ir/build.py", "_compat.py"]))


def test_scans_are_written_again_in_one_place(trees: Trees) -> None:
    """`scanned` of `ir/scans.py` knows what a scan keeps when its step is another one."""
    assert_none(lines(trees, lambda node: _calls(node, {"scan"}), ["ir/scans.py"]))


def test_rules_are_tables(trees: Trees) -> None:
    """They see one equation at a time: no graph, and of jaxprs only the function of a scatter."""
    rules = {path: tree for path, tree in trees.items() if show(path).startswith("rules")}
    assert_none(lines(rules, lambda node: _reads(node, {"eqns", "jaxpr"}), ["rules/writes.py"]))
    assert_none(lines(rules, lambda node: isinstance(node, ast.Name) and node.id in ("Graph", "Walk"), []))


def _reads(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in names


def _calls(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def _is_jax_src(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "_src"


def has_annotations(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)


def test_files_explain_themselves(trees: Trees) -> None:
    """A docstring on the first line, and annotations that are not evaluated."""
    filled = {path: tree for path, tree in trees.items() if tree.body}
    assert_none(f"{show(path)} says not what it is for" for path, tree in filled.items() if not ast.get_docstring(tree))
    code = {path: tree for path, tree in filled.items() if tree.body[1:] and path.name != "__init__.py"}
    assert_none(f"{show(path)} lacks `annotations`" for path, tree in code.items() if not has_annotations(tree))


def test_files_have_names_of_their_own() -> None:
    standard = {"inspect", "random", "types", "ast", "token", "tokenize", "typing", "copy", "queue", "select", "dis"}
    assert_none(show(path) for path in FILES if path.stem in standard)
