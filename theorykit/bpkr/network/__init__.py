"""The finite network: attention, paths, forward pass, and pruning of heads."""
