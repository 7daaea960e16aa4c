"""What attention paths read from an example: feature vectors, or kernels if the embedding is nonlinear."""
