"""Figures and tables from labelled results. Nothing is computed here but means over seeds and standard errors."""
