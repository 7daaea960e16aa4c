"""Scalar functions of generated code: the table of what is covered, and their text."""
