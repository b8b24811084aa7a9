"""What our operators cover in a traced graph, a file for each kind of template."""
