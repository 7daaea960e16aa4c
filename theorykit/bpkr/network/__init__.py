"""The finite network itself: attention, paths, forward pass, and pruning of heads."""
