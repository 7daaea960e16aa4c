"""Train networks, including queries and keys, by gradient descent. Their heads give fixed attention for the theory."""

from .gradient_descent import Examples, TrainingSettings, initial_network, train
from .labelled import label_network, network_from

__all__ = ["Examples", "TrainingSettings", "initial_network", "label_network", "network_from", "train"]
