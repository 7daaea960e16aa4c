"""Training and test data: their forms and checks."""
