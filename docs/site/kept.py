"""Keep the results of long examples in examples/kept, with checksums of the files that produced them.

    python docs/site/kept.py            update stale results
    python docs/site/kept.py EXAMPLE    run this example, a name or a path, and keep its results

The stamp has a checksum of the example, of every module of the package that it imported and of every file that it read.
Comments, docstrings, the package's version and the text of an example do not count: they do not change the results.
"""

import ast
import contextlib
import hashlib
import io
import json
import os
import sys
import time
import tokenize
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jupytext

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
KEPT = EXAMPLES / "kept"
_OURS = ROOT / "theorykit", EXAMPLES / "papers"


def code_of(source: str) -> str:
    """Remove comments, docstrings, the package's version and empty lines from a program."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if _changes_nothing(node):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _changes_nothing(node: ast.AST) -> bool:
    """Whether a statement is only a text, such as a docstring, or sets the version."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["__version__"]
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def sum_of(path: Path) -> str:
    """Return the first digits of the SHA-256 of a file, or of the code of a Python file (`code_of`)."""
    content = code_of(path.read_text()).encode() if path.suffix == ".py" else path.read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def stale(example: Path) -> list[str]:
    """List the files, relative to the root, that changed since the results of an example were kept."""
    stamp = json.loads(kept_file(example).read_text())["stamp"]
    return [path for path, expected in stamp.items() if not (ROOT / path).exists() or sum_of(ROOT / path) != expected]


def kept_file(example: Path) -> Path:
    """Return the path for the kept results of an example."""
    return KEPT / f"{example.stem}.json"


def renew(example: Path) -> float:
    """Run an example in its folder, keep its results, and return its run time in seconds."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        found = process.submit(_run, example).result()
    figures = (name for names in found["figures"].values() for name in names)
    paths = [example, *found.pop("read"), *(EXAMPLES / name for name in figures)]
    found["stamp"] = {str(path.relative_to(ROOT)): sum_of(path) for path in paths}
    KEPT.mkdir(exist_ok=True)
    kept_file(example).write_text(json.dumps(found, indent=1) + "\n")
    return found["seconds"]


def _run(example: Path) -> dict:
    """Run an example in this process. Return output and figures by code cell, and the files that it used."""
    os.environ["MPLBACKEND"] = "Agg"
    # Python does the same when it runs a script.
    sys.path.insert(0, str(EXAMPLES))
    # Paths that this process opened, or gave to a finished file. Another example may run beside it.
    used: set[str] = set()
    place = {"open": 0, "os.rename": 1}
    sys.addaudithook(lambda event, about: used.add(str(about[place[event]])) if event in place else None)
    namespace = {"__name__": "__main__", "__file__": str(example)}
    cells = [cell for cell in jupytext.read(example, fmt="py:percent").cells if cell.cell_type == "code"]
    outputs, figures, start = {}, {}, time.perf_counter()
    for number, cell in enumerate(cells):
        before = _figures()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(cell.source, f"{example.name}, cell {number + 1}", "exec"), namespace)
        if said.getvalue():
            outputs[number] = said.getvalue()
        own = {Path(name).name for name in used}
        if drawn := sorted(name for name, written in _figures().items() if name in own and before.get(name) != written):
            figures[number] = drawn
    seconds = round(time.perf_counter() - start, 1)
    modules = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    ours = [path for path in map(Path, modules) if any(path.is_relative_to(each) for each in _OURS)]
    paths = {Path(name).resolve() for name in used if not name.isdigit()}
    data = [path for path in paths if path.is_relative_to(EXAMPLES) and path.suffix not in (".py", ".png", ".pyc")]
    read = [*sorted(data), *sorted(ours)]
    return {
        "seconds": seconds,
        "outputs": outputs,
        "figures": figures,
        "read": [path for path in read if path.is_file()],
    }


def _figures() -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in EXAMPLES.glob("*.png")}


def main(names: list[str]) -> None:
    """Renew the named examples, or all stale ones."""
    kept = [EXAMPLES / f"{path.stem}.py" for path in sorted(KEPT.glob("*.json"))]
    for example in [EXAMPLES / f"{Path(name).stem}.py" for name in names] or [each for each in kept if stale(each)]:
        print(f"{example.stem}: {renew(example):.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
