"""Sweep a `Model` over widths, temperatures, and draws of random heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr

from ...checks import checked_arguments
from ...summaries import OF_EXAMPLES, best_place, summary
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block
from ..data.data import Data
from .run import sweep, sweep_seeds

# "evidence" is another name of "log_evidence".
Score = Literal["log_evidence", "evidence", "test_accuracy", "test_error", "test_log_loss", "test_r_squared"]


@dataclass(frozen=True, eq=False, repr=False)
class Runs(DisplayMixin):
    """The result of `bpkr.Model.sweep`.

    - `dataset`: the result of `sweeps.sweep_seeds`, or of `sweeps.sweep` if the heads were given. If seeds share test
      examples, the dataset also has `test_accuracy_error_of_test_examples` and `test_error_error_of_test_examples`
      (width, temperature): standard errors of the mean over seeds due to the choice of test examples.
    """

    dataset: xr.Dataset

    def _view(self) -> Iterable[Block]:
        return summary(self.dataset).blocks

    def plot(self, score: str | None = None, axes: Any = None) -> Any:
        """Draw a score against width, or against the richness if it is an axis, with error bars. Return the axes.

        Args:
            score: a score of `best`, "action", or "log_evidence_per_width". The default is the first test score, or
                "log_evidence" without test data.
            axes: Matplotlib axes in which to draw. The default is new axes.
        """
        from ...plots.style import use_style
        from ...plots.sweep import draw_over_richness, draw_scores_over_width

        with use_style():
            draw = draw_over_richness if "richness" in self.dataset.dims else draw_scores_over_width
            return draw(self.dataset, axes, score=_name(score))

    @checked_arguments
    def best(self, score: Score = "log_evidence") -> dict[str, Any]:
        """Return the widths, temperature and richness with the best mean score over seeds, for `Model.set_params`.

        The richness is included if it is an axis of the sweep. For losses and errors, the best score is the lowest.
        """
        name = _name(score)
        if name == "log_evidence" and name not in self.dataset:
            raise ValueError(
                "at infinite width with a richness, the evidence per width always decreases with the richness and "
                "increases with the temperature, so it does not choose them; choose by a test score"
            )
        if name not in self.dataset:
            raise ValueError(f"score={score!r} is not in the sweep; give test=(inputs, labels) to Model.sweep")
        place = best_place(self.dataset, name)
        width = place.pop("width")
        found = [float(each) for each in (width.split("-") if isinstance(width, str) else [width])]
        widths = [int(each) if each.is_integer() else each for each in found]
        return {"widths": tuple(widths) if isinstance(width, str) else widths[0], **place}


def _name(score: str | None) -> str | None:
    return "log_evidence" if score == "evidence" else score


def run_model(prepare: Callable[..., Any], seeds: Sequence[int] | None, **options: Any) -> Runs:
    """Sweep the architecture and data from `prepare(seed=...)` for all `seeds`, or once if `seeds` is None."""
    architecture, data, _ = prepare(seed=None if seeds is None else seeds[0])
    if seeds is None:
        return Runs(sweep(architecture, data, **options))
    found = sweep_seeds(architecture, partial(_data_of_seed, prepare), seeds, **options)
    if "test_label" not in found or "mean" not in found:
        return Runs(found)
    # All seeds have the same test examples, which add to the standard errors of means over seeds.
    mean, label = found["mean"], found["test_label"]
    is_one = "output" not in mean.dims
    losses = (mean - label) ** 2
    of_examples = {"test_error": losses if is_one else losses.mean("output")}
    if "test_accuracy" in found:
        hits = np.sign(mean) == label if is_one else mean.fillna(0).argmax("output") == label.argmax("output")
        of_examples["test_accuracy"] = hits.where(of_examples["test_error"].notnull())
    scale = mean.sizes["test_example"] ** -0.5
    spreads = {name: values.mean("seed").std("test_example") for name, values in of_examples.items()}
    return Runs(found.assign({f"{name}{OF_EXAMPLES}": scale * spread for name, spread in spreads.items()}))


def _data_of_seed(prepare: Callable[..., Any], seed: int) -> Data:
    return prepare(seed=seed)[1]
