"""Weights of +-1, and the law of their columns, which is all that the map knows of them."""
