"""Norms: of rows, with what may stand in front of them, and written as 8-bit numbers."""
