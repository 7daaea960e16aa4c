"""Checks of a kind of layer for `check_layer`, one module per question."""
