"""Saddle points as labelled datasets: of one solve, of a grid of widths and temperatures, of several data sets.

Architecture, data -> solve at every point -> labelled datasets on disk -> one dataset over width and temperature
"""

from .datasets import (
    best_temperatures,
    label_infinite_width,
    label_prediction,
    label_saddle,
    order_parameters_of,
    predict_test_examples,
    prediction_errors,
)
from .run import sweep, sweep_seeds

__all__ = [
    "best_temperatures",
    "label_infinite_width",
    "label_prediction",
    "label_saddle",
    "order_parameters_of",
    "predict_test_examples",
    "prediction_errors",
    "sweep",
    "sweep_seeds",
]
