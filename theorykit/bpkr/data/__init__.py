"""Training and test data: their forms, their checks, and quantities computed from data alone."""
