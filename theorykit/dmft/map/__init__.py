"""The map as it runs: starts, trajectories, exponents."""
