"""Engines that are written in Python: see ``warplap fleet tune --engine ray``."""
