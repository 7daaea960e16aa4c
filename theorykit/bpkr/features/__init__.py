"""Features that attention paths read from examples, or their kernels."""
