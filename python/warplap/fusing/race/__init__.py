"""Which of these choices is the fastest: the whole graph is raced, in every form it may run in."""
