"""`theorykit derive`: the action of an architecture, as text."""

from pathlib import Path
from typing import Literal

from .. import bpkr, store

Format = Literal["latex", "markdown", "python"]


def derive(heads: tuple[int, ...], format: Format = "markdown", output: Path | None = None, overwrite: bool = False):
    """Derive the action of a deep attention network and print it.

    Args:
        heads: Attention heads of each layer, from the input side, such as 2 2.
        format: LaTeX or Markdown of the action, its saddle-point equations and its predictor; or the Python source of
            the generated function, as it runs.
        output: File to write; by default, standard output.
        overwrite: Replace the output file if it exists.
    """
    architecture = bpkr.Architecture(heads=heads, widths=1, temperature=1.0)
    action = bpkr.derive(architecture)
    text = {"latex": action.latex, "markdown": action.markdown, "python": action.python}[format]()
    if output is None:
        print(text, end="")
    else:
        store.write_text(text, output, overwrite=overwrite)
        print(f"wrote {output}")
