"""The table of documents behind a report: scores of every run side by side, and the long texts in parts.

The table itself stands in the page; prompts and answers are loaded part by part, from the page where they are few, from
files beside it where they are many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from evalsweep.record import Sample
from evalsweep.summary.types import Cell, Summary

SNIPPETS = 6_000_000  # characters of questions and answers that the page itself may hold, to be searched
LONGEST = 240  # characters of one snippet
PART = 400_000  # characters of text in a part
INLINE = 3_000_000  # characters of text up to which no files are made
FOLDER = "report_texts"


@dataclass(frozen=True)
class Documents:
    """`tables` for the page, one a task; `parts` of texts, file name to script; none where `inline` has them all."""

    tables: list[dict[str, Any]]
    inline: list[str]
    parts: dict[str, str]


class _Parts:
    """Collects texts; a document is found again by its part and its place in it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.open: list[str] = []
        self.size = 0

    def add(self, text: Any) -> tuple[int, int]:
        line = script_json(text)
        if self.open and self.size + len(line) > PART:
            self.close()
        self.open.append(line)
        self.size += len(line)
        return len(self.done), len(self.open) - 1

    def close(self) -> None:
        if self.open:
            self.done.append("[" + ",\n".join(self.open) + "]")
        self.open, self.size = [], 0


def documents(summary: Summary, samples: Callable[[str], Iterator[Sample]]) -> Documents:
    """Read the samples of every run once, side by side.

    Args:
        samples: those of a run by its directory; what cannot be read (OSError, ValueError, EOFError) is left out, as
        the
            summary says already.
    """
    parts = _Parts()
    rows = sum(max(cell.documents for cell in cells) for cells in summary.by_task().values())
    length = min(LONGEST, SNIPPETS // max(1, 3 * rows))  # of the question, the target and the answers of a row
    tables = [_table(task, cells, summary, samples, parts, length) for task, cells in summary.by_task().items()]
    parts.close()
    if sum(map(len, parts.done)) <= INLINE:
        return Documents(tables, parts.done, {})
    return Documents(tables, [], {f"{i}.js": f"evalsweepTexts({i}, {part});\n" for i, part in enumerate(parts.done)})


def script_json(value: Any) -> str:
    """JSON that is safe within a script: no letter of it can end the script or a line."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(
    task: str,
    cells: list[Cell],
    summary: Summary,
    samples: Callable[[str], Iterator[Sample]],
    parts: _Parts,
    length: int,
) -> dict[str, Any]:
    columns = [(cell, run.directory) for cell in cells for run in cell.runs]
    table: dict[str, Any] = {
        "task": task,
        "metric": cells[0].metric,
        "length": length,
        "cells": [
            {
                "name": ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in cell.differs.items())
                or cell.task,
                "runs": [{"seed": run.seed} for run in cell.runs],
            }
            for cell in cells
        ],
        "rows": [],
    }
    for document, row in _side_by_side([_readable(samples, directory) for _, directory in columns]):
        known = [sample for sample in row if sample is not None]
        part, place = parts.add(_texts(row))
        table["rows"].append(
            [
                document,
                _question(known[0], length),
                _clip(known[0].target, length),
                [
                    None if s is None else _number(s.scores.get(cell.metric))
                    for s, (cell, _) in zip(row, columns, strict=True)
                ],
                _clip(" ".join(dict.fromkeys(_short(s) for s in known)), length),
                sorted({flag for s in known for flag in s.flags}),
                part,
                place,
            ]
        )
    return table


def _side_by_side(runs: list[Iterator[Sample]]) -> Iterator[tuple[str, list[Sample | None]]]:
    """Each document with its sample of every run, in the order of the first run that has it.

    Runs in the same order are read in step: no more than one sample of each is held.
    """
    waiting: list[dict[str, Sample]] = [{} for _ in runs]
    told: set[str] = set()
    for lead, run in enumerate(runs):
        for sample in _chain(waiting[lead], run):
            document = _name(sample)
            if document in told:
                continue
            told.add(document)
            row: list[Sample | None] = [None] * len(runs)
            row[lead] = sample
            for other in range(lead + 1, len(runs)):
                row[other] = _next(document, runs[other], waiting[other], told)
            yield document, row


def _chain(held: dict[str, Sample], rest: Iterator[Sample]) -> Iterator[Sample]:
    yield from list(held.values())
    yield from rest


def _next(document: str, run: Iterator[Sample], held: dict[str, Sample], told: set[str]) -> Sample | None:
    if document in held:
        return held.pop(document)
    for sample in run:
        name = _name(sample)
        if name == document:
            return sample
        if name not in told:
            held.setdefault(name, sample)
    return None


def _readable(samples: Callable[[str], Iterator[Sample]], directory: str) -> Iterator[Sample]:
    try:
        yield from samples(directory)
    except (OSError, ValueError, EOFError, TypeError, KeyError):
        return  # the summary has a line on it


def _name(sample: Sample) -> str:
    return f"{sample.task}/{sample.doc_id}"


def _texts(row: list[Sample | None]) -> dict[str, Any]:
    """Prompts with the runs that had them, and every answer by run."""
    prompts: dict[str, list[int]] = {}
    for i, sample in enumerate(row):
        if sample is not None:
            prompts.setdefault(_conversation(sample.prompt), []).append(i)
    return {
        "prompts": list(prompts.items()),
        "target": next(s.target for s in row if s is not None),
        "answers": [None if s is None else [a if isinstance(a, str) else _number(a) for a in s.responses] for s in row],
        "outcomes": [None if s is None else s.outcomes for s in row],
        "flags": [None if s is None else s.flags for s in row],
        "thinking": [None if s is None else s.thinking for s in row],
        "readings": [None if s is None else [_reading(r) for r in s.readings] for s in row],
    }


def _reading(reading: dict[str, Any] | None) -> list[Any] | None:
    """Give what was read from an answer: the value, where it stands in the text (from, to), and the doubt."""
    if reading is None:
        return None
    return [reading.get("value"), reading.get("start", -1), reading.get("end", -1), reading.get("doubt")]


def _question(sample: Sample, length: int) -> str:
    """What the prompt asks after its last shot, on one line: the beginning and the end where it is long.

    Where a template has put marks within the shots, only the end of the prompt is sure to be the question.
    """
    last = sample.shots[-1].text if sample.shots else ""
    prompt = _conversation(sample.prompt)
    at = prompt.rfind(last) if last else -1
    if at >= 0:
        rest = prompt[at + len(last) :]
    elif last:
        first, final = last.strip().partition("\n")[0], last.split()[-1]  # the shot's question, the end of its answer
        rest = prompt.rpartition(first)[2]
        return _clip(rest.partition(final)[2] or rest, length, of_end=1.0)
    else:
        rest = prompt.rpartition("\n\n")[2]
    return _clip(rest.strip() or prompt, length, of_end=0.5)


def _conversation(prompt: str) -> str:
    """Give a prompt as it is read: messages, which a chat endpoint gets as JSON, with a line for each role."""
    if not prompt.startswith('[{"role"'):
        return prompt
    try:
        return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in json.loads(prompt))
    except (ValueError, TypeError, KeyError):
        return prompt


def _short(sample: Sample) -> str:
    return " ".join(a if isinstance(a, str) else f"{a:.4g}" for a in sample.responses if a is not None)


def _clip(text: str, length: int, of_end: float = 0.0) -> str:
    """A text on one line, cut to a length of which its end gets a share."""
    text = " ".join(text.split())
    if len(text) <= length or length < 3:
        return text[:length]
    end = int((length - 1) * of_end)
    return f"{text[: length - 1 - end]}…{text[len(text) - end :]}"


def _number(value: Any) -> float | None:
    """A number as short as it may be; null for what JSON cannot hold."""
    if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(float(value), 6)
