"""The action and predictions at given order parameters."""
