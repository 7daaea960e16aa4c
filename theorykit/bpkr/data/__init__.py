"""Training and test data."""
