"""The documents of a run of lm_eval, a sample each, with its scores by all filters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalsweep.errors import first_line
from evalsweep.harness_logs.files import PREFERRED, named, parts_of, read, samples_file
from evalsweep.provenance import text_hash, value_hash
from evalsweep.record import Sample, Scores, group_of


def read_scores(file: Path, task: str, group_by: str | None = None) -> Scores:
    """The scores of the documents of a task or group.

    Errors: ValueError with the path for a file that is broken; OSError, FileNotFoundError where there is none.
    """
    with named(file):
        parts = parts_of(read(file), task)
    return Scores.of(str(samples_file(file, parts[0]) if len(parts) == 1 else file), read_samples(file, task, group_by))


def read_samples(file: Path, task: str, group_by: str | None = None) -> Iterator[Sample]:
    """The documents of a task or group, each with its scores by all filters.

    Args:
        group_by: the field of the dataset's documents that names their group.

    Errors: as for `read_scores`; ValueError too where a document lacks the field.
    """
    with named(file):
        parts = parts_of(read(file), task)
    for part in parts:
        samples = samples_file(file, part)
        with named(samples):
            yield from _merged(samples, part, group_by)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as f:
        for number, line in enumerate(f, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise ValueError(f"{path}: line {number}: {first_line(e)}") from e
            if not isinstance(row, dict) or not isinstance(row.get("doc_id"), int):
                raise ValueError(f"{path}: line {number}: no sample of lm_eval, which has a doc_id")
            yield row


def _merged(path: Path, task: str, group_by: str | None) -> Iterator[Sample]:
    """One sample a document: lm_eval writes a line for each filter, not always side by side.

    A document that is there again is given again: whoever counts them tells it.
    """
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    times: dict[tuple[int, Any], int] = {}
    for row in _lines(path):
        number, flavour = row["doc_id"], str(row.get("filter"))
        again = times[number, flavour] = times.get((number, flavour), -1) + 1
        rows.setdefault((again, number), []).append(row)
    for _, same in sorted(rows.items(), key=lambda item: item[0][0]):
        yield _sample(task, same, group_by)


def _sample(task: str, rows: list[dict[str, Any]], group_by: str | None) -> Sample:
    first = rows[0]
    scores: dict[str, float] = {}
    for row in rows:
        suffix = "" if row.get("filter") in (None, "none") else f",{row['filter']}"
        names = row.get("metrics") or [k for k, v in row.items() if k in PREFERRED and isinstance(v, int | float)]
        for metric in names:
            value = row.get(metric)
            if isinstance(value, int | float):
                scores[f"{metric}{suffix}"] = float(value)
    doc_id = int(first["doc_id"])
    prompt = _prompt(first.get("arguments"))
    digest = first.get("doc_hash") or hashlib.sha256(json.dumps(first.get("doc"), sort_keys=True).encode()).hexdigest()
    return Sample(
        task=task,
        doc_id=doc_id,
        doc_hash=str(digest)[:16],
        prompt=prompt,
        prompt_hash=text_hash(prompt),
        shots=[],
        target=str(first.get("target")),
        responses=_responses(first.get("resps")),
        scores=scores,
        group=group_of(first.get("doc") or {}, group_by),
    )


def _prompt(arguments: Any) -> str:
    """The first argument of the first request, in either of the forms that lm_eval has written."""
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    first = arguments[0] if isinstance(arguments, list) and arguments else arguments
    if isinstance(first, Mapping):
        first = first.get("arg_0")
    elif isinstance(first, list):
        first = first[0] if first else ""
    return str(first)


def _responses(resps: Any) -> list[Any]:
    """One string an answer; for multiple choice, where a request is a choice, its log-likelihood."""
    if not isinstance(resps, list):
        return [str(resps)]
    if len(resps) == 1 and isinstance(resps[0], list) and all(isinstance(r, str) for r in resps[0]):
        return list(resps[0])
    firsts = [r[0] if isinstance(r, list) and r else r for r in resps]
    return [float(r[0]) if isinstance(r, list) and r else str(r) for r in firsts]


def hashes(file: Path, parts: list[str]) -> tuple[str | None, str | None]:
    """Of all answers and of all prompts, equal for runs in which these are; None where the samples cannot be read."""
    try:
        rows = [(part, row) for part in parts for row in _lines(samples_file(file, part))]
    except (OSError, ValueError):
        return None, None  # told where the scores are read
    answers = [[part, row["doc_id"], row.get("resps")] for part, row in rows]
    prompts = [[part, row["doc_id"], _prompt(row.get("arguments"))] for part, row in rows]
    return value_hash(answers), value_hash(prompts)
