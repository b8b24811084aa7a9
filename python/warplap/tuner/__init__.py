"""Problems, modes, tuning ahead, tables and explanations."""
