"""Features that attention paths read from examples, or their kernels if the embedding is nonlinear."""
