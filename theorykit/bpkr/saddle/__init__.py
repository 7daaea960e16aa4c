"""The saddle point of given data: found, certified, differentiated, and what fluctuates about it."""
