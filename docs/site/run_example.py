"""Run an example cell by cell, and write down what each prints and draws, and what code and files it read.

    python run_example.py EXAMPLE.py RESULT.json

Figures are written where the example writes them: beside it.
"""

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path

import jupytext

os.environ["MPLBACKEND"] = "Agg"


def run(script: Path) -> dict:
    """What became of every cell of code, by its number as text, and the paths of what was read."""
    opened: set[str] = set()
    sys.addaudithook(lambda event, about: opened.add(str(about[0])) if event == "open" else None)
    namespace = {"__name__": "__main__", "__file__": str(script)}
    # as Python has it that runs the script
    sys.path.insert(0, str(script.parent))
    cells = [cell for cell in jupytext.read(script, fmt="py:percent").cells if cell.cell_type == "code"]
    outputs, figures, start = {}, {}, time.perf_counter()
    for number, cell in enumerate(cells):
        before = _figures(script.parent)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(cell.source, f"{script.name}, cell {number + 1}", "exec"), namespace)
        if said.getvalue():
            outputs[str(number)] = said.getvalue()
        drawn = {path for path, written in _figures(script.parent).items() if before.get(path) != written}
        if drawn:
            figures[str(number)] = sorted(path.name for path in drawn)
    seconds = round(time.perf_counter() - start, 1)
    return {
        "seconds": seconds,
        "outputs": outputs,
        "figures": figures,
        "modules": _modules(),
        "data": _data(script.parent, opened),
    }


def _figures(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.png")}


def _modules() -> list[str]:
    """The modules of the package and of the papers that were imported, as paths from the repository's root on."""
    import theorykit

    root = Path(theorykit.__file__).parent.parent
    files = [Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    ours = root / "theorykit", root / "examples" / "papers"
    return sorted(str(file.relative_to(root)) for file in files if any(file.is_relative_to(each) for each in ours))


def _data(folder: Path, opened: set[str]) -> list[str]:
    """The files beside the example that it read, not those that it drew."""
    paths = {Path(name).resolve() for name in opened if not name.isdigit()}
    found = {path for path in paths if path.is_relative_to(folder) and path.suffix not in (".py", ".png", ".pyc")}
    return sorted(str(path.relative_to(folder)) for path in found if path.is_file())


if __name__ == "__main__":
    _script, _result = map(Path, sys.argv[1:])
    _result.write_text(json.dumps(run(_script.resolve()), indent=1) + "\n")
