"""Data flows one way: a room imports rooms below it, no modules import each other in a circle, folders stay small."""

import ast
import builtins
import dis
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import CodeType

import pytest

import theorykit

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "theorykit"
MOST_FILES = 14

# rooms of the house, from the ground up; "" is what stands beside the rooms, the package's own face included
HOUSE = (
    ("extras", "memory", "precision", "settings"),
    ("checks", "progress", "threads"),
    ("atomic_files", "sharding"),
    ("cache",),
    ("compilation",),
    ("",),
    ("workers",),
    ("symbolic",),
    ("codegen", "store", "summaries"),
    ("derivation", "dynamics"),
    ("saddle",),
    ("bpkr", "dmft", "theories"),
    ("plots", "checkpoints"),
    ("testing",),
    ("cli",),
    ("__main__",),
)
# methods that import what stands above their class when they are called: figures are an extra, and a sweep of a model
# rests on the whole theory
UPWARD = {"plot", "plot_landscape", "sweep"}
# rooms of each theory; what stands above its face is run with it
BPKR = (
    ("specification",),
    ("features",),
    ("data", "action"),
    ("order_parameters",),
    ("network", "evaluation"),
    ("matrix_free",),
    ("saddle",),
    ("model",),
    ("",),
    ("sweeps", "training", "nonlinear"),
    ("sampling",),
)
DMFT = (("derivation",), ("weights",), ("map",), ("lyapunov", "network"), ("",), ("diagrams",))
PLANS = {"theorykit": HOUSE, "theorykit.bpkr": BPKR, "theorykit.dmft": DMFT}
# of one floor, yet they know nothing of each other
APART = {frozenset({"theorykit.bpkr", "theorykit.dmft"})}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES: Mapping[str, Path] = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def nodes_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module but those in a method that may import upward, such as `Model.plot`, which draws."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        is_upward = isinstance(tree, ast.ClassDef) and isinstance(node, ast.FunctionDef) and node.name in UPWARD
        yield from () if is_upward else nodes_at_import(node)


def imported(name: str) -> Iterator[str]:
    """Modules of the package that the module imports anywhere in it, for annotations too.

    Methods that draw import what draws when they are called, from above.
    """
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    # what a package loads when it is asked for is listed in its stub; the face of all is loaded before any room
    stubs = [path.with_suffix(".pyi")] if name != "theorykit" else []
    texts = [each.read_text() for each in (path, *stubs) if each.exists()]
    for node in (node for text in texts for node in nodes_at_import(ast.parse(text))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            stem = ".".join([*above, *([node.module] if node.module else [])])
            inner = [f"{stem}.{alias.name}" for alias in node.names]
            found = [module if module in MODULES else stem for module in inner]
        else:
            continue
        yield from (module for module in found if module in MODULES and module != name)


def room(plan: str, module: str) -> str:
    """The room of a plan that a module stands in; "" for the face of the whole."""
    return module.removeprefix(plan).removeprefix(".").partition(".")[0]


@pytest.mark.parametrize("plan", PLANS)
def test_every_room_has_a_floor(plan):
    rooms = {room(plan, module) for module in MODULES if f"{module}.".startswith(f"{plan}.")}
    assert rooms == {name for floor in PLANS[plan] for name in floor}


@pytest.mark.parametrize("plan", PLANS)
def test_a_room_imports_only_rooms_below_it(plan):
    floors = {name: number for number, floor in enumerate(PLANS[plan]) for name in floor}
    inside = [module for module in MODULES if f"{module}.".startswith(f"{plan}.")]
    for module in inside:
        here = room(plan, module)
        for other in set(imported(module)) & set(inside):
            there = room(plan, other)
            assert there == here or floors[there] < floors[here], f"{module} imports {other}"


def test_the_theories_know_nothing_of_each_other():
    for module in MODULES:
        for other in imported(module):
            ends = {".".join(name.split(".")[:2]) for name in (module, other)}
            assert frozenset(ends) not in APART, f"{module} imports {other}"


def test_no_modules_import_each_other_in_a_circle():
    left = {module: set(imported(module)) for module in MODULES}
    while ready := [module for module, needs in left.items() if not needs & set(left)]:
        for module in ready:
            del left[module]
    assert not left, {module: sorted(needs & set(left)) for module, needs in left.items()}


def test_a_folder_has_few_modules():
    folders = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py")
    assert {folder: count for folder, count in folders.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("name", [name for name, path in MODULES.items() if path.name == "__init__.py"])
def test_nothing_that_a_package_exports_has_the_name_of_a_module_in_it(name):
    package = import_module(name)
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    public = set(getattr(package, "__all__", ()))
    packages = {module for module in modules & public if type(getattr(package, module)) is type(theorykit)}
    assert modules & public <= packages


def missing_names(module: Mapping[str, object], code: CodeType) -> Iterator[str]:
    """Names that functions read from their module, which does not have them: a call would raise `NameError`."""
    for inner in (each for each in code.co_consts if isinstance(each, CodeType)):
        for instruction in dis.get_instructions(inner):
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval not in {*module, *vars(builtins)}:
                yield f"{inner.co_name}: {instruction.argval}"
        yield from missing_names(module, inner)


@pytest.mark.parametrize("name", sorted({*MODULES} - {"theorykit.__main__"}))
def test_functions_read_names_that_their_module_has(name):
    code = compile(MODULES[name].read_text(), name, "exec")
    assert not list(missing_names(vars(import_module(name)), code))


def test_a_missing_name_is_seen():
    code = compile("def outer():\n    return lambda: counted(len(known))", "planted", "exec")
    assert list(missing_names({"known": ()}, code)) == ["<lambda>: counted"]


def test_imports_are_seen():
    assert "theorykit.bpkr" in set(imported("theorykit.cli.commands"))
    assert "theorykit.codegen" in set(imported("theorykit.bpkr.evaluation.bound_action"))
