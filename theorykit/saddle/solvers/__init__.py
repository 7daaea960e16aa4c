"""Solvers that minimise an action or make it stationary: Newton's method, sweeps, and shared algebra."""
