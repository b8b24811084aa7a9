"""Calls with their gradients, raced as whole steps."""
