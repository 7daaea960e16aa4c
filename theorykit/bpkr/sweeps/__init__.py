"""Saddle points as labelled datasets: of one solve, of a grid of widths and temperatures, of several data sets."""

from .datasets import best_temperatures, label_saddle, order_parameters_of
from .run import sweep, sweep_seeds

__all__ = ["best_temperatures", "label_saddle", "order_parameters_of", "sweep", "sweep_seeds"]
