"""Write expressions as LaTeX, and results as Markdown, LaTeX and text."""
