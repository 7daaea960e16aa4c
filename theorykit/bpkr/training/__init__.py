"""Networks trained by gradient descent, queries and keys too: a source of the theory's fixed attention.

Examples of a task -> train -> trained network -> its heads define the theory's attention, its weights are compared
"""

from .examples import Examples
from .gradient_descent import Stream, Trained, initial_network, train
from .labelled import label_network, network_from
from .settings import TrainingSettings

__all__ = [
    "Examples",
    "Stream",
    "Trained",
    "TrainingSettings",
    "initial_network",
    "label_network",
    "network_from",
    "train",
]
