"""Products: matrices, layers, and both with what is fused to them."""
