"""Benchmarks: what evalsweep knows of each beyond its definition for lm_eval, a file a benchmark."""
