"""Write expressions as LaTeX and MathML, and results as Markdown, LaTeX, web pages and text."""
