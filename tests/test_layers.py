"""What the layout promises: imports point down, no stage knows another, one door to `jax._src`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "jaxpr2triton"
FILES = sorted(ROOT.rglob("*.py"))
LEVELS = {
    0: ("errors", "knobs", "hardware", "policy", "progress", "watching", "collector", "version", "_compat"),
    1: ("ir", "mistakes"),
    2: ("rules",),
    3: ("graph",),
    4: ("trace", "autodiff", "normalize", "plan", "emit", "launch", "report", "shards"),
    5: ("xla_time", "inside", "quickest"),
    6: ("beside_xla",),
    7: ("pipeline",),
    8: ("front",),
    9: ("api",),
    10: ("cli",),
    11: ("__init__", "__main__"),
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


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
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


def show(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=show)
def test_every_file_has_a_level(path: Path) -> None:
    assert part_of(module_of(path)) in LEVEL_OF


@pytest.mark.parametrize("path", FILES, ids=show)
def test_imports_point_down(path: Path) -> None:
    here = part_of(module_of(path))
    for module in imported(path):
        assert module != "a relative import"
        if module.split(".")[0] != ROOT.name:
            continue
        there = part_of(module)
        is_near = there == here or (LEVEL_OF[there] == LEVEL_OF[here] <= 1)
        assert is_near or LEVEL_OF[there] < LEVEL_OF[here], f"{show(path)} imports {module}"


def wing_of(module: str) -> str:
    """jaxpr2triton.plan.schedule.cost → plan.schedule; nothing if it is in no wing."""
    wing = ".".join(module.split(".")[1:3])
    return wing if wing in FLOOR_OF else ""


@pytest.mark.parametrize("path", FILES, ids=show)
def test_wings_point_down(path: Path) -> None:
    here = wing_of(module_of(path))
    wings = {wing_of(module) for module in imported(path)} - {here, ""}
    near = {wing for wing in wings if here and part_of(f".{wing}") == part_of(f".{here}")}
    assert all(FLOOR_OF[wing] < FLOOR_OF[here] for wing in near), f"{show(path)} imports {near}"


@pytest.mark.parametrize("path", FILES, ids=show)
def test_no_imports_inside_functions(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef):
            inner = [node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)]
            assert not inner, f"{show(path)}:{inner[0].lineno}"


@pytest.mark.parametrize("path", FILES, ids=show)
def test_jax_src_has_one_door(path: Path) -> None:
    private = [module for module in imported(path) if module.startswith(("jax._src", "jaxlib._src"))]
    attributes = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if _is_jax_src(node)]
    assert path.name == "_compat.py" or not (private or attributes)


@pytest.mark.parametrize("path", FILES, ids=show)
def test_jaxprs_are_put_together_in_one_place(path: Path) -> None:
    """`ir/build.py` calls the constructors, with what `_compat.py` knows of the versions; all others use it."""
    constructors = {"Jaxpr", "ClosedJaxpr", "JaxprEqn", "Var", "new_jaxpr_eqn", "jaxpr_as_fun"}
    found = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if _calls(node, constructors)]
    assert show(path) in ("ir/build.py", "_compat.py") or not found, f"{show(path)}:{found[0]}"


@pytest.mark.parametrize("path", FILES, ids=show)
def test_scans_are_written_again_in_one_place(path: Path) -> None:
    """`scanned` of `ir/scans.py` knows what a scan keeps when its step is another one."""
    found = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if _calls(node, {"scan"})]
    assert show(path) == "ir/scans.py" or not found, f"{show(path)}:{found[0]}"


@pytest.mark.parametrize("path", [path for path in FILES if show(path).startswith("rules")], ids=show)
def test_rules_are_tables(path: Path) -> None:
    """They see one equation at a time: no graph, and of jaxprs only the function of a scatter."""
    walked = [node.lineno for node in ast.walk(ast.parse(path.read_text())) if _reads(node, {"eqns", "jaxpr"})]
    assert show(path) == "rules/writes.py" or not walked, f"{show(path)}:{walked[0]}"
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & {"Graph", "Walk"}


def _reads(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in names


def _calls(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def _is_jax_src(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "_src"


@pytest.mark.parametrize("path", FILES, ids=show)
def test_files_explain_themselves(path: Path) -> None:
    """A docstring on the first line, and annotations that are not evaluated."""
    tree = ast.parse(path.read_text())
    if tree.body:
        assert ast.get_docstring(tree), f"{show(path)} says not what it is for"
        later = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        assert later or not tree.body[1:] or path.name == "__init__.py", f"{show(path)} lacks `annotations`"


@pytest.mark.parametrize("path", FILES, ids=show)
def test_files_have_names_of_their_own(path: Path) -> None:
    standard = {"inspect", "random", "types", "ast", "token", "tokenize", "typing", "copy", "queue", "select", "dis"}
    assert path.stem not in standard
