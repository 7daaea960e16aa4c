"""The saddle point for given data, and fluctuations about it."""
