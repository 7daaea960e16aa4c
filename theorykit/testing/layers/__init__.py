"""What `check_layer` checks of a kind of layer, one module a question."""
