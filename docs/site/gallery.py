"""The examples as notebooks for MyST-NB, which runs those whose results are not kept, and their index."""

import base64
import json
import re
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode, v4

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
_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
_INTRODUCTION = """# Examples

Each is a script to read and run, shown with what it prints and draws. Every page has the script and a Jupyter notebook
to download.
"""


def write_gallery(target: Path) -> None:
    """Write a notebook of every example, and their index, into `target`, which has their scripts, data and figures."""
    listed = [name for names in SECTIONS.values() for name in names]
    if set(listed) != {path.stem for path in EXAMPLES.glob("*.py")}:
        raise SystemExit("gallery.SECTIONS does not list the examples that there are")
    cards = {}
    for name in listed:
        example = EXAMPLES / f"{name}.py"
        notebook = jupytext.read(example, fmt="py:percent")
        cards[name] = _card(name, notebook.cells[0].source)
        if kept.kept_file(example).exists():
            _fill(notebook, example)
        jupytext.write(_completed(notebook, name), target / f"{name}.ipynb")
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *listed, "```\n"])
    parts = [f"## {title}\n\n{_GRID}\n" + "\n".join(map(cards.get, names)) for title, names in SECTIONS.items()]
    (target / "index.md").write_text("\n".join([_INTRODUCTION, toctree, *(f"{part}\n::::\n" for part in parts)]))


def embed_figures(site: Path) -> None:
    """Put the figures of the notebooks that `site` offers into them, as a notebook that is downloaded stands alone."""
    for path in site.glob("_downloads/*/*.ipynb"):
        notebook, figure = nbformat.read(path, as_version=4), EXAMPLES / f"{path.stem}.png"
        for cell in notebook.cells:
            if cell.cell_type == "markdown" and f"]({figure.name})" in cell.source:
                cell.source = cell.source.replace(f"]({figure.name})", f"](attachment:{figure.name})")
                cell.attachments = {figure.name: {"image/png": base64.b64encode(figure.read_bytes()).decode()}}
        nbformat.write(notebook, path)


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _fill(notebook: NotebookNode, example: Path) -> None:
    """Give the cells of an example the output that is kept of them."""
    if changed := kept.stale(example):
        raise SystemExit(
            f"The kept results of examples/{example.name} were made by other code; these have changed: "
            f"{', '.join(changed)}.\nRenew them: make kept"
        )
    cells, found = _code(notebook), json.loads(kept.kept_file(example).read_text())
    for number, text in found["outputs"].items():
        cells[int(number)].outputs.append(v4.new_output("stream", text=text))


def _completed(notebook: NotebookNode, name: str) -> NotebookNode:
    """The notebook of an example with its figure, and with what it needs outside the repository."""
    text = "".join(cell.source for cell in notebook.cells)
    notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.clear()
    # a notebook has no file of its own to find its figures and data beside
    if "__file__" in text:
        first = _code(notebook)[0]
        named = f'__file__ = "{name}.ipynb"  # figures are written, and data are looked for, beside it'
        first.source = f"{named}\n\n{first.source}"
    for number, cell in reversed(list(enumerate(notebook.cells))):
        if "save(figure" in cell.source:
            notebook.cells.insert(number + 1, v4.new_markdown_cell(f"![What the code above draws]({name}.png)"))
    beside = " The files that it reads are in the folder `examples` of the repository." * ("with_name(" in text)
    downloads = f"---\n\n{{download}}`Script <{name}.py>` · {{nb-download}}`Jupyter notebook <{name}.ipynb>`.{beside}"
    notebook.cells.append(v4.new_markdown_cell(downloads))
    return notebook


def _card(name: str, opening: str) -> str:
    title, _, text = opening.removeprefix("# ").partition("\n")
    sentence = re.match(r".*?[.:?](?=\s|$)", " ".join(text.split()))
    image = f":img-top: {name}.png\n" if (EXAMPLES / f"{name}.png").exists() else ""
    said = sentence[0].removesuffix(":") if sentence else ""
    return f":::{{grid-item-card}} {title}\n:link: {name}\n:link-type: doc\n{image}\n{said}\n:::\n"
