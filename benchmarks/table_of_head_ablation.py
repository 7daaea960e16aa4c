"""Write the table that compares head rankings with measured drops in accuracy, from results of head_ablation.py."""

import kept_results
import numpy as np

HEAD = (
    "ranking by",
    "rank correlation, layer 1",
    "layer 2",
    "accuracy lost without the last head (points), layer 1",
    "layer 2",
)
NAMES = ("published score", "lost log evidence", "lost expected accuracy", "magnitude")


def table() -> str:
    """Return rank correlations with the measured drops, and the drop without the head that is ranked last."""
    encoders = kept_results.read("head_ablation")["encoders"]
    drops = 100 * np.array([each["drop of accuracy"] for each in encoders])
    rows = []
    for name in NAMES:
        correlations = [each["correlations"][name] for each in encoders]
        last = np.argmin([each[name] for each in encoders], axis=2)
        removed = np.take_along_axis(drops, last[..., None], axis=2)[..., 0]
        rows.append((name, *_means(correlations), *_means(removed)))
    rows.append(("none (random head)", "0", "0", *_means(drops.mean(axis=2))))
    return kept_results.markdown(HEAD, rows)


def _means(by_encoder) -> list[str]:
    """Return the mean over encoders with its standard error, for each layer."""
    means, errors = np.mean(by_encoder, axis=0), np.std(by_encoder, axis=0, ddof=1) / np.sqrt(len(by_encoder))
    return [f"{mean:.2f} ± {error:.2f}" for mean, error in zip(means, errors, strict=True)]
