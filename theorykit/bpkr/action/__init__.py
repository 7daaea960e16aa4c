"""The symbolic stage: from forward maps to the action, its derivation by two routes, and what follows from it."""
