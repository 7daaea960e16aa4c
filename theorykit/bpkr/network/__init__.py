"""The finite network: attention, paths, forward pass, and removal of heads."""
