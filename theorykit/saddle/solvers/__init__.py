"""Solvers that minimise an action or make it stationary by Newton's method."""
