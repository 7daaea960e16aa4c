"""Labelled results: one solve, or a grid of widths, temperatures and seeds."""

from .datasets import best, label, order_parameters_of, sweep

__all__ = ["best", "label", "order_parameters_of", "sweep"]
