"""How an operator is called: what is kept of a call, the way past the dispatcher, and torch's own in place of ours."""
