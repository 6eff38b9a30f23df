"""Runs programs that a model wrote, away from everything else, and says which pass their tests."""
