"""attention: the plain call, what torch's own has not, sequences of unequal lengths, pages, training."""
