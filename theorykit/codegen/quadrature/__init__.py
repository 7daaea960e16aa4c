"""Averages over a standard normal number: the rules of generated code, their stated errors, and an oracle."""
