"""Which nodes of a traced graph one launch may compute together."""
