"""Parts of `check_action`, which checks a user-defined action."""
