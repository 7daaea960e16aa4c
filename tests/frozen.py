"""Adapter of the frozen numbers: from instances as plain data to results as plain data, through theorykit.

`tests/data/frozen` holds instances and the results that theorykit gave for them before it was rebuilt. Only this file
may be edited when names or signatures of the package change. Instances, results and tolerances may not.

Each kind is a function of an instance, `spec` (JSON: numbers, texts, lists) and `arrays` (NumPy, by name), that returns
arrays, numbers and texts by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Results = Mapping[str, Any]
KINDS: dict[str, Callable[[dict, dict[str, np.ndarray]], Results]] = {}


def kind(function: Callable) -> Callable:
    """Register a function under its name."""
    KINDS[function.__name__] = function
    return function


# ---- Theory 1 ----


# ---- Own actions and theories ----


# ---- Dynamics ----
