"""The operators, a file each, families in folders: what a user calls, how torch sees it, and torch's form that races."""
