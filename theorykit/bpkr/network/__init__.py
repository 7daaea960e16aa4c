"""The finite network itself: attention, paths, forward pass, pruned heads."""
