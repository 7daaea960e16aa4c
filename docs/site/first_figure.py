"""Draw docs/model.png, the figure of the home page: run the session of docs/quickstart.md and save its plot.

python docs/site/first_figure.py
"""

import doctest
from pathlib import Path

from theorykit import plots
from theorykit.plots.style import save, use_style

DOCS = Path(__file__).parents[1]


def main() -> None:
    """Run the session without comparing what it prints; the tests compare it."""
    session: dict = {}
    for example in doctest.DocTestParser().get_examples((DOCS / "quickstart.md").read_text()):
        exec(compile(example.source, "quickstart.md", "single"), session)
        if "found" in session:
            with use_style():
                figure = plots.draw_scores_over_width(session["found"]).get_figure()
                figure.set_size_inches(6, 3.5)
                save(figure, DOCS / "model.png")
            return
    raise ValueError("the quickstart has no sweep")


if __name__ == "__main__":
    main()
