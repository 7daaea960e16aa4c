"""A page for every example: its text, code, what it printed and drew, and the same to download."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jupytext

import kept
from kept import EXAMPLES

# sections of the gallery, and their examples
SECTIONS = {
    "First looks": ("hidden_markov_chains", "derive_three_layers", "self_attention_dynamics"),
    "What the theory says": (
        "wide_limit",
        "narrow_limit",
        "where_the_theory_holds",
        "choose_by_evidence",
        "learn_attention_by_evidence",
    ),
    "Images and trained transformers": ("one_shot_images", "pretrained_layer", "recorded_attention"),
    "Actions of your own": ("hopfield_retrieval", "ridge_replicas"),
    "Special cases": (
        "deep_linear_networks",
        "gated_networks",
        "graph_convolutions",
        "linear_convolutions",
        "local_kernels",
    ),
    "Beyond what is there": (
        "new_layer_kinds",
        "find_my_mistake",
        "self_attention_bifurcations",
        "self_attention_fluctuations",
    ),
}
_GRID = "::::{grid} 1 2 2 2\n:gutter: 3\n"


@dataclass(frozen=True)
class Run:
    """What came of an example: of its cells of code, by number, what they printed and the figures that they drew."""

    outputs: dict[str, str]
    figures: dict[str, list[Path]]
    seconds: float
    is_kept: bool


def results(example: Path, folder: Path) -> Run:
    """What is kept of an example, or what a run of it here has, with its figures in `folder`."""
    if kept.kept_file(example).exists():
        if changed := kept.stale(example):
            raise SystemExit(
                f"The kept results of examples/{example.name} were made by other code; these have changed: "
                f"{', '.join(changed)}.\nRenew them: make kept"
            )
        return _run(json.loads(kept.kept_file(example).read_text()), EXAMPLES, True)
    copy = folder / example.stem
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("*.png", "kept", "__pycache__"))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "result.json"
        runner = Path(__file__).with_name("run_example.py")
        subprocess.run([sys.executable, "-W", "ignore", runner, copy / example.name, path], check=True)
        return _run(json.loads(path.read_text()), copy, False)


def _run(found: dict, folder: Path, is_kept: bool) -> Run:
    figures = {number: [folder / name for name in names] for number, names in found["figures"].items()}
    return Run(found["outputs"], figures, found["seconds"], is_kept)


def write_gallery(target: Path, rewritten: Callable[[str, Path], str], folder: Path) -> None:
    """Write the pages of all examples, and their index, into `target`; figures of those run here go to `folder`.

    `rewritten` makes links of the repository those of the site, of a text of the page given.
    """
    target.mkdir(parents=True)
    listed = {name for names in SECTIONS.values() for name in names}
    examples = {path.stem: path for path in sorted(EXAMPLES.glob("*.py"))}
    if listed != set(examples):
        raise SystemExit(f"examples that are not in gallery.SECTIONS, or are no more: {listed ^ set(examples)}")
    cards = {}
    for name, example in examples.items():
        run = results(example, folder)
        cards[name] = _write_page(example, run, target, rewritten)
    pages = [f"## {title}\n\n{_GRID}\n" + "\n".join(cards[each] for each in names) for title, names in SECTIONS.items()]
    toctree = "\n".join(name for names in SECTIONS.values() for name in names)
    introduction = (
        "# Examples\n\nEach is a script to read and run, shown with what it prints and draws. Every page has the "
        "script and a Jupyter notebook to download.\n"
    )
    contents = f"```{{toctree}}\n:hidden:\n\n{toctree}\n```\n"
    (target / "index.md").write_text("\n".join([introduction, contents, *(f"{page}\n::::\n" for page in pages)]))


def _write_page(example: Path, run: Run, target: Path, rewritten: Callable[[str, Path], str]) -> str:
    """Write the page of an example and what can be downloaded of it; its card for the index."""
    notebook = jupytext.read(example, fmt="py:percent")
    parts, number, figure = [], 0, None
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(rewritten(cell.source, example))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if said := run.outputs.get(str(number)):
            parts.append(_output(said))
        for path in run.figures.get(str(number), ()):
            figure = shutil.copy(path, target / path.name).name
            parts.append(f"![What the code above draws]({figure})")
        number += 1
    shutil.copy(example, target)
    for cell in notebook.cells:
        cell.metadata.clear()
    # a notebook has no file of its own to find its figures and data beside
    if any("__file__" in cell.source for cell in notebook.cells):
        named = f'__file__ = "{example.stem}.ipynb"  # figures are written, and data are looked for, beside it'
        first = next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
        notebook.cells[first].source = f"{named}\n\n{notebook.cells[first].source}"
    jupytext.write(notebook, target / f"{example.stem}.ipynb")
    parts.append(_downloads(example, run))
    (target / f"{example.stem}.md").write_text("\n\n".join(parts) + "\n")
    return _card(example.stem, parts[0], figure)


def _output(said: str) -> str:
    """What a cell printed; LaTeX as the formulas that it makes, too."""
    drawn = f"\n$${said.strip()}$$\n" if said.startswith(r"\begin{align*}") else ""
    return f":::{{div}} output\n```text\n{said.rstrip()}\n```\n{drawn}:::"


def _downloads(example: Path, run: Run) -> str:
    when = "when its code was last changed" if run.is_kept else "when this page was built"
    data = "vit_digits" in example.read_text() or ".nc" in example.read_text()
    beside = " The files that it reads are beside it in the repository, in the folder `examples`." if data else ""
    return (
        f"---\n\n[Script]({example.name}) · [Jupyter notebook]({example.stem}.ipynb)\n\nIt ran for {run.seconds:.0f} "
        f"seconds {when}, compiling included.{beside}"
    )


def _card(name: str, opening: str, figure: str | None) -> str:
    title, _, text = opening.removeprefix("# ").partition("\n")
    sentence = re.match(r".*?[.:?](?=\s|$)", " ".join(text.split()))
    image = f":img-top: {figure}\n" if figure else ""
    said = sentence[0].removesuffix(":") if sentence else ""
    return f":::{{grid-item-card}} {title}\n:link: {name}\n:link-type: doc\n{image}\n{said}\n:::\n"
