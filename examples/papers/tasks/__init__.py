"""Tasks that provide data for the theory."""
