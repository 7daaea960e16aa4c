"""Symbols only: the action, derived by two routes, and what follows from it."""
