"""Write the page "What results look like": run docs/site/objects.py and take a picture of each cell's value.

    python docs/site/screens.py

Chromium takes the pictures in the colours of light and dark notebooks; the environment variable CHROMIUM may name it.
Cells that fail are listed at the end.
"""

import ast
import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGE, PICTURES = ROOT / "docs" / "results-shown.md", ROOT / "docs" / "results-shown"
# Colours of text and background in Jupyter.
_THEMES = {"light": ("#000000", "#ffffff"), "dark": ("#e0e0e0", "#111111")}
# Size in pixels; longer pictures are cut off.
_WIDTH, _HEIGHT = 820, 900


def main() -> int:
    """Write the page and its pictures. Return 1 if a cell fails, else 0."""
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.png"):
        old.unlink()
    namespace, parts, failed = {"__name__": "__main__"}, [], []
    for number, cell in enumerate(jupytext.read(Path(__file__).with_name("objects.py"), fmt="py:percent").cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        try:
            value = _run(cell.source, namespace)
            name = f"{number:02d}-{type(value).__name__}"
            parts += [_picture(value, name, theme) for theme in _THEMES]
        except Exception as error:
            failed.append(f"cell {number + 1}: {type(error).__name__}: {error}")
    PAGE.write_text("\n\n".join(parts) + "\n")
    print("\n".join(failed) or f"{PAGE.relative_to(ROOT)} is written")
    return bool(failed)


def _run(source: str, namespace: dict) -> object:
    """Run a cell and return the value of its last line."""
    *lines, last = ast.parse(source).body
    exec(compile(ast.Module(lines, []), "cell", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def _picture(value: object, name: str, theme: str) -> str:
    """Take a picture of a value as a notebook shows it, and return the Markdown that includes it."""
    shown = value._repr_html_() if hasattr(value, "_repr_html_") else None
    shown = shown or f"<pre>{html.escape(repr(value))}</pre>"
    ink, paper = _THEMES[theme]
    style = f"color:{ink};background:{paper};font:14px sans-serif;margin:12px;color-scheme:{theme}"
    path = PICTURES / f"{name}-{theme}.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">{shown}</body>')
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={path}"]
        browser = os.environ.get("CHROMIUM", "chromium")
        command = [browser, *options, f"--window-size={_WIDTH},{_HEIGHT}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    image = Image.open(path).convert("RGB")
    rows = np.flatnonzero((np.asarray(image) != np.asarray(image)[-1, 0]).any(axis=(1, 2)))
    image.crop((0, 0, _WIDTH, min(rows.max(initial=0) + 12, _HEIGHT))).quantize(64).save(path, optimize=True)
    return f"```{{image}} results-shown/{path.name}\n:alt: {type(value).__name__}\n:class: only-{theme}\n```"


if __name__ == "__main__":
    sys.exit(main())
