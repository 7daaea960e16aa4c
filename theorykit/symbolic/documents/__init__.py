"""Write expressions as LaTeX, MathML, documents and pages, and as text tables for storage."""
