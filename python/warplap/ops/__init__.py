"""The operators, a file each: what a user calls, and how torch sees it."""
