"""Minima of an action over its order parameters; knows no theory."""
