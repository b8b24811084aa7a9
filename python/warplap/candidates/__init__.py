"""torch's own implementations as candidates of a race."""
