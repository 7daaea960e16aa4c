"""Train networks, including queries and keys, by gradient descent; their heads give the theory's fixed attention."""

from .gradient_descent import Examples, TrainingSettings, initial_network, train
from .labelled import label_network, network_from

__all__ = ["Examples", "TrainingSettings", "initial_network", "label_network", "network_from", "train"]
