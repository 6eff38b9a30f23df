"""Arrays in, frozen estimates out; numpy and scipy only."""
