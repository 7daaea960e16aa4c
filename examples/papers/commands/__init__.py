"""Commands that run a paper's experiment, print its table, draw its figures and save their numbers."""
