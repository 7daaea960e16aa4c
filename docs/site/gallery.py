"""Write the examples as notebooks, and their index. MyST-NB runs the examples without kept results."""

import base64
import json
import re
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode, v4

import kept
from kept import EXAMPLES

# Sections of the gallery with their examples.
SECTIONS = {
    "Attention paths": ("derive_three_layers", "wide_limit", "hidden_markov_chains"),
    "Your own layers": ("new_layer_kinds", "find_my_mistake", "special_cases"),
    "Learn from data": ("lazy_to_rich", "choose_by_evidence", "recorded_attention"),
    "Your own actions": ("phase_diagrams", "ridge_replicas", "in_context_learning"),
    "Dynamics of self-attention": ("self_attention_bifurcations", "self_attention_fluctuations"),
}
_GRID = "::::{grid} 1 2 2 2\n:gutter: 3\n"
_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
_INTRODUCTION = """# Examples

Learn theorykit from complete scripts, shown with their output and figures. Download each as a script or a Jupyter
notebook.
"""


def write_gallery(target: Path) -> None:
    """Write notebooks of all examples and their index into `target`, which has their scripts, data and figures."""
    listed = [name for names in SECTIONS.values() for name in names]
    if set(listed) != {path.stem for path in EXAMPLES.glob("*.py")}:
        raise SystemExit("gallery.SECTIONS does not match the scripts in examples")
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
    """Embed the figures in the notebooks that `site` offers for download."""
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
    """Fill the cells of an example with its kept output."""
    if changed := kept.stale(example):
        raise SystemExit(
            f"The kept results of examples/{example.name} are stale. These files have changed: "
            f"{', '.join(changed)}.\nRenew them: make kept"
        )
    cells, found = _code(notebook), json.loads(kept.kept_file(example).read_text())
    for number, text in found["outputs"].items():
        cells[int(number)].outputs.append(v4.new_output("stream", text=text))


def _completed(notebook: NotebookNode, name: str) -> NotebookNode:
    """Add the figure, the downloads and a definition of `__file__` to the notebook of an example."""
    text = "".join(cell.source for cell in notebook.cells)
    notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.clear()
    # Notebooks do not define `__file__`, which examples use to find figures and data.
    if "__file__" in text:
        first = _code(notebook)[0]
        named = f'__file__ = "{name}.ipynb"  # the folder of figures and data'
        first.source = f"{named}\n\n{first.source}"
    for number, cell in reversed(list(enumerate(notebook.cells))):
        if "save(figure" in cell.source:
            notebook.cells.insert(number + 1, v4.new_markdown_cell(f"![Figure from the code above]({name}.png)"))
    beside = " Its data files are in the folder `examples` of the repository." * ("with_name(" in text)
    downloads = f"---\n\n{{download}}`Script <{name}.py>` · {{nb-download}}`Jupyter notebook <{name}.ipynb>`.{beside}"
    notebook.cells.append(v4.new_markdown_cell(downloads))
    return notebook


def _card(name: str, opening: str) -> str:
    title, _, text = opening.removeprefix("# ").partition("\n")
    sentence = re.match(r".*?[.:?](?=\s|$)", " ".join(text.split()))
    image = f":img-top: {name}.png\n" if (EXAMPLES / f"{name}.png").exists() else ""
    said = sentence[0].removesuffix(":") if sentence else ""
    return f":::{{grid-item-card}} {title}\n:link: {name}\n:link-type: doc\n{image}\n{said}\n:::\n"
