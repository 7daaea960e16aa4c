"""How an action is minimised, or made stationary: Newton's method, sweeps, and the algebra they share."""
