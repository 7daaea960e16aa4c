"""Expressions evaluated exactly: at random points of a prime field, with bounds of their degrees.

Knows no theory, and nothing of rules. Two rational functions that agree at one such point agree everywhere, but for a
chance of their degree over the prime.
"""
