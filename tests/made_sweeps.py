"""Sweeps on disk that no model was needed for: real records and samples with scores of one's choice."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import job_of
from test_store import RECORD

from evalsweep import store
from evalsweep.identity import config_hash, without_seed
from evalsweep.provenance import text_hash, value_hash
from evalsweep.record import Record, Sample

METRIC = "exact_match,number"
DOCUMENT = Sample("sample", 0, "0", "", "", [], "", [], {})


@functools.cache
def _config(overrides: tuple[str, ...]) -> dict[str, Any]:
    return asdict(job_of(*overrides))


def question(number: int, score: float | None) -> Sample:
    """Document `number` of the task `sample`, with its score."""
    prompt = f"Question: What is {number} + {number}?\nAnswer:"
    answer = f" {2 * number if score else 7 * number + 1}"
    return replace(
        DOCUMENT,
        doc_id=number,
        doc_hash=text_hash(prompt),
        prompt=prompt,
        prompt_hash=text_hash(prompt),
        target=str(2 * number),
        responses=[answer],
        scores={} if score is None else {METRIC: score},
    )


def make_run(
    sweep: Path,
    scores: Sequence[float | None],
    *overrides: str,
    sample: Callable[[int, float | None], Sample] = question,
    **changes: Any,
) -> Path:
    """Write a finished run with these scores below `sweep`; gives its folder."""
    config = copy.deepcopy(_config(overrides))
    samples = [sample(i, score) for i, score in enumerate(scores)]
    known = [score for score in scores if score is not None]
    task = config["task"]["name"]
    record = Record(
        **{
            **{name: getattr(RECORD, name) for name in RECORD.__dataclass_fields__},
            "config": config,
            "config_hash": config_hash(config),
            "cell_hash": value_hash(without_seed(config)),
            "seeds": {"generation": config["seed"]},
            "metrics": {f"{task}/{METRIC}": sum(known) / len(known) if known else 0.0},
            "metric_info": {
                f"{task}/{METRIC}": {"bounds": [0.0, 1.0], "aggregation": "mean", "higher_is_better": True}
            },
            "headline": f"{task}/{METRIC}",
            "responses_hash": value_hash([s.responses for s in samples]),
            "documents": len(samples),
            **changes,
        }
    )
    folder = sweep / ("_".join(overrides) or "run")
    store.write_samples(folder, samples)
    store.write_record(folder, record)
    return folder


def rewrite(folder: Path, change: Callable[[list[Sample]], list[Sample]]) -> None:
    """Change the samples of a run, and nothing else."""
    store.write_samples(folder, change(list(store.read_samples(folder))))


RIGHT_AND_WRONG = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]


@pytest.fixture
def sweep(tmp_path):
    """Two temperatures, two seeds, ten documents."""
    folder = tmp_path / "sweep"
    for t in (0, 0.5):
        for seed in (0, 1):
            scores = [0.0 if t and i == seed else s for i, s in enumerate(RIGHT_AND_WRONG)]
            make_run(folder, scores, f"seed={seed}", f"temperature={t}")
    return folder


class Said:
    """What was said; spaces and line ends are of no account, as the terminal's width makes them."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __contains__(self, part: str) -> bool:
        return "".join(part.split()) in "".join(self.text.split())

    def __repr__(self) -> str:
        return self.text


def told(capsys) -> Said:
    found = capsys.readouterr()
    return Said(found.out + found.err)
