"""The symbolic stage: derive the action from the forward maps by two routes, and expressions that follow from it."""
