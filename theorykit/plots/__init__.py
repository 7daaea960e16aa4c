"""Figures from labelled results. Nothing is computed here beyond means over seeds and their standard errors."""
