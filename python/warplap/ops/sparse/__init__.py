"""Products and layers of block-sparse matrices."""
