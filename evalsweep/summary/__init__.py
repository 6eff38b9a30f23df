"""Records to a Summary: cells, comparisons, what failed and what is to be known; pure functions."""
