"""MBPP (Austin et al. 2021): short programs described in a sentence, tested by assertions. Prompts are lm_eval's."""

from __future__ import annotations

from evalsweep.engine.benchmarks.benchmark import Benchmark

BENCHMARKS = (Benchmark("mbpp", documents=500, scorer="code"),)
