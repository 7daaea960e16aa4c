"""Path features and kernels."""
