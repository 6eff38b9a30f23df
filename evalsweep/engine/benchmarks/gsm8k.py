"""GSM8K (Cobbe et al. 2021): grade-school mathematics, answered by a number. Data and prompts are lm_eval's."""

from __future__ import annotations

from evalsweep.engine.benchmarks.benchmark import Benchmark

BENCHMARKS = (Benchmark("gsm8k", documents=1319, scorer="numeric"),)
