"""MMLU (Hendrycks et al. 2021): four choices, 57 subjects, each a task of a group; a column names the subject."""

from __future__ import annotations

from evalsweep.engine.benchmarks.benchmark import Benchmark

BENCHMARKS = (Benchmark("mmlu", documents=14042, folder="mmlu/default", selected_by="subject", dataset="cais/mmlu"),)
