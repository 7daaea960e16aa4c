"""Every public name says what it is, and every example in a docstring is run."""

import ast
import doctest
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from .marks import slow

ROOT = Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "theorykit").rglob("*.py*") if path.suffix in (".py", ".pyi"))
TEXTS = {path.relative_to(ROOT): path.read_text() for path in FILES}
# methods that Optimistix asks its solvers for, and says what they do
OF_LIBRARIES = {"init", "step", "terminate", "postprocess"}
Defined = ast.ClassDef | ast.FunctionDef


@cache
def trees() -> Mapping[Path, ast.Module]:
    """The package, by file; parsed where it is wanted, for every process of a test run imports this module."""
    return {path: ast.parse(text) for path, text in TEXTS.items()}


@cache
def classes() -> Mapping[str, list[ast.ClassDef]]:
    """All classes by name, which several may have."""
    found: dict[str, list[ast.ClassDef]] = {}
    for node in (node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        found.setdefault(node.name, []).append(node)
    return found


def definitions(body: list[ast.stmt], place: str) -> Iterator[tuple[str, Defined]]:
    """Public classes and functions of a module, and public methods of its classes, by their full names."""
    for node in body:
        if isinstance(node, Defined) and not node.name.startswith("_"):
            yield f"{place}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node.body, f"{place}.{node.name}")


def is_inherited(method: str, cls: str) -> bool:
    """Whether a class of the package that `cls` derives from says what its `method` does."""
    names = (ast.unparse(base) for each in classes().get(cls, ()) for base in each.bases)
    for base in (name.partition("[")[0].rpartition(".")[2] for name in names):
        methods = (
            node
            for each in classes().get(base, ())
            for name, node in definitions(each.body, "")
            if name == f".{method}"
        )
        if any(map(ast.get_docstring, methods)) or is_inherited(method, base):
            return True
    return False


def test_every_public_module_class_function_and_method_has_a_docstring():
    sources = {path: tree for path, tree in trees().items() if path.suffix == ".py"}
    silent = [str(path) for path, tree in sources.items() if not ast.get_docstring(tree)]
    found = [each for path, tree in sources.items() for each in definitions(tree.body, str(path))]
    for name, node in found:
        *_, owner, own = name.split(".")
        if not (ast.get_docstring(node) or own in OF_LIBRARIES or is_inherited(own, owner)):
            silent.append(name)
    assert len(found) > 1000
    assert silent == []


# reStructuredText takes a word that ends with an underscore for a reference, unless it is quoted
QUOTED_OR_MATHS = re.compile(r"`[^`]*`|\$[^$]*\$|^ *>>>.*$|^ *\.\.\. .*$", re.MULTILINE)
REFERENCE = re.compile(r"(?<![\w`])[a-zA-Z]\w*_(?=[\s,.;:)]|$)")


def references(text: str) -> list[str]:
    return REFERENCE.findall(QUOTED_OR_MATHS.sub("", text))


def test_no_word_of_a_docstring_is_a_reference_to_nothing():
    assert references("alpha, lambda_ (the ridge)") == ["lambda_"]
    assert not references("the ridge, `lambda_`\n    >>> lambda_\n    theorykit.symbolic, h_ab, _private")
    for path, tree in trees().items():
        for place, node in [("", tree), *definitions(tree.body, "")]:
            assert not references(ast.get_docstring(node) or ""), f"{path}{place}"


def assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring, or what stands as one below a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_every_public_constant_has_a_docstring_below_it():
    statements = [node for tree in trees().values() for node in tree.body if "__all__" in assigned(node)]
    public = {name for node in statements if isinstance(node.value, ast.List) for name in ast.literal_eval(node.value)}
    # a name that a face lists, wherever something is called so
    found, silent = set(), []
    for path, tree in trees().items():
        for node, below in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
            constants = assigned(node) & public
            found |= constants
            silent += [] if is_text(below) else [f"{path}: {name}" for name in constants]
    assert {"BATCH", "Readout"} <= found
    assert silent == []


def examples(path: Path, tree: ast.Module) -> Iterator[doctest.DocTest]:
    """The session in each docstring of a file; of functions too that decorators hide from `doctest`."""
    for node in ast.walk(tree):
        if is_text(node) and ">>>" in node.value.value:
            yield doctest.DocTestParser().get_doctest(node.value.value, {}, path.stem, str(path), node.lineno - 1)


WITH_EXAMPLES = [path for path, text in TEXTS.items() if ">>>" in text]
EXAMPLES = [example for path in WITH_EXAMPLES for example in examples(path, ast.parse(TEXTS[path]))]
# modules whose examples compile what takes seconds
LONG = ("attention_heads", "derivation", "order_parameters", "run", "saddle", "map")
SHORT = [example for example in EXAMPLES if example.name not in LONG]
LONGER = [example for example in EXAMPLES if example.name in LONG]


@pytest.mark.quick(20)
@pytest.mark.parametrize("example", [*SHORT, *slow(LONGER)], ids=lambda example: f"{example.name}-{example.lineno + 1}")
def test_the_example_in_a_docstring_holds(example):
    assert doctest.DocTestRunner().run(example).failed == 0


def test_examples_are_seen_and_run():
    text = '"""One.\n\n>>> 1\n1\n"""\n\n@hidden\ndef f():\n    """Two.\n\n    >>> 1 + 1\n    3\n    """\n'
    said: list[str] = []
    failed = [
        doctest.DocTestRunner().run(each, out=said.append).failed for each in examples(Path("m.py"), ast.parse(text))
    ]
    assert failed == [0, 1] and 'File "m.py", line 11' in said[0]
