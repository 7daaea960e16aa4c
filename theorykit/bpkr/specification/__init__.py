"""What a network is: kinds of layers as forward maps with a prior, and the architecture that they make."""
