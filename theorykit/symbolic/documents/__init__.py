"""Expressions as they are written: LaTeX, MathML, documents and pages, and tables of text that are kept."""
