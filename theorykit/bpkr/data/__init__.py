"""What is computed from data alone, and what of a user's data is admitted."""
