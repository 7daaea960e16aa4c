"""Training and test data: their forms, checks and statistics."""
