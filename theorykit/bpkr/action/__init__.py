"""The action of the order parameters."""
