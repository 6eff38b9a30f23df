"""The bundled questions of a first sweep: short arithmetic, and four choices of general knowledge."""

from __future__ import annotations

from evalsweep.engine.benchmarks.benchmark import Benchmark

BENCHMARKS = (Benchmark("sample", documents=60), Benchmark("sample_choice", documents=40))
