"""The symbolic stage: the action from the forward maps, derived by two routes, and expressions that follow from it."""
