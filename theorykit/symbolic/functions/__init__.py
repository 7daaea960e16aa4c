"""Scalar functions beyond SymPy's: kept whole, smoothed by a normal variable, and given by users."""
