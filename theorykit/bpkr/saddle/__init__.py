"""Find, certify and differentiate the saddle point for given data, and compute fluctuations about it."""
