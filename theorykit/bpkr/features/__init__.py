"""What attention paths read of an example: features, or, of nonlinear embeddings, the kernels between them."""
