"""The checks of `check_action`: an action of the user's own, by its parts."""
