"""Public functions are called with few arguments; what belongs together is one object."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "theorykit"
# nine in `bpkr.attention`, where heads come as five arrays
MOST_PARAMETERS = 9
# all settings of an estimator of scikit-learn are parameters of its constructor
ESTIMATORS = {"theorykit.bpkr.model.Model.__init__"}


def public_functions(body: list[ast.stmt], place: str) -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Functions of a module and methods of its classes, written constructors too, and whether each is a method."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for name, function, _ in public_functions(node.body, f"{place}.{node.name}"):
                yield name, function, True
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            yield f"{place}.{node.name}", node, False


def parameter_count(function: ast.FunctionDef, is_method: bool) -> int:
    """Parameters by name, as linters count them: without self, and without those passed on to another function."""
    arguments = function.args
    bound = is_method and not any(
        isinstance(at, ast.Name) and at.id == "staticmethod" for at in function.decorator_list
    )
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - bound


def test_a_public_function_has_few_parameters():
    counts = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for name, function, is_method in public_functions(ast.parse(path.read_text()).body, module):
            counts[name] = parameter_count(function, is_method)
    assert len(counts) > 500 and set(counts) >= ESTIMATORS
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {
        name: counts[name] for name in ESTIMATORS
    }
