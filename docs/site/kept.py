"""Results of the examples that run long, kept in examples/kept with a stamp of all that they were made of.

    python docs/site/kept.py            renews those that are stale
    python docs/site/kept.py EXAMPLE    runs this one, a name or a path, and keeps what came of it

The stamp is a sum for the example, for every module of the package that it imported and for every file that it read.
Comments, docstrings, the package's version and the text of an example do not count: they change nothing that is
computed.
"""

import ast
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
KEPT = EXAMPLES / "kept"


def code_of(source: str) -> str:
    """A program without comments, docstrings, the package's version, and empty lines."""
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
    """Whether it is a statement of text alone, as docstrings are, or the version."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["__version__"]
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def sum_of(path: Path) -> str:
    """The beginning of the SHA-256 sum of a file, of a program's without what changes nothing."""
    content = code_of(path.read_text()).encode() if path.suffix == ".py" else path.read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def stale(example: Path) -> list[str]:
    """What has changed since the kept results of an example were made: paths from the repository's root."""
    stamp = json.loads(kept_file(example).read_text())["stamp"]
    return [path for path, expected in stamp.items() if not (ROOT / path).exists() or sum_of(ROOT / path) != expected]


def kept_file(example: Path) -> Path:
    """Where the results of an example are, if they are kept."""
    return KEPT / f"{example.stem}.json"


def renew(example: Path) -> float:
    """Run an example where it is, keep what came of it, and return how many seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run(
            [sys.executable, "-W", "ignore", Path(__file__).with_name("run_example.py"), example, result], check=True
        )
        found = json.loads(result.read_text())
    beside = [*found.pop("data"), *(name for names in found["figures"].values() for name in names)]
    paths = [example, *(ROOT / name for name in found.pop("modules")), *(EXAMPLES / name for name in beside)]
    found["stamp"] = {str(path.relative_to(ROOT)): sum_of(path) for path in paths}
    KEPT.mkdir(exist_ok=True)
    kept_file(example).write_text(json.dumps(found, indent=1) + "\n")
    return found["seconds"]


def main(names: list[str]) -> None:
    """Renew the examples named, or those that are stale."""
    kept = [EXAMPLES / f"{path.stem}.py" for path in sorted(KEPT.glob("*.json"))]
    for example in [EXAMPLES / f"{Path(name).stem}.py" for name in names] or [each for each in kept if stale(each)]:
        print(f"{example.stem}: {renew(example):.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
