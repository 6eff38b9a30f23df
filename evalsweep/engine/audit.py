"""What moves a score that should not: the same job run again, in other batches, in another order, in float32."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch

from evalsweep.config import JobConfig
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models import resident
from evalsweep.engine.models.backends import acting, kind_of
from evalsweep.engine.models.kept import Progress
from evalsweep.engine.tasks import harness
from evalsweep.errors import BadInput, first_line
from evalsweep.identity import config_hash
from evalsweep.record import Audit, Difference
from evalsweep.redact import redact_tree

DOCUMENTS = 8  # where task.limit does not say


def audit(job: JobConfig, name: str, progress: Progress) -> Audit:
    """Run a job on a few documents, then again under conditions that should not matter.

    Errors: BadInput as of `evaluate`.
    """
    if job.task.limit is None:
        job = replace(job, task=replace(job.task, limit=max(1, DOCUMENTS // len(harness.build(job).tasks))))
    itself = evaluate(job, _told(progress, "the run itself"))
    first = itself.samples[0]
    tokens, prompt = _as_it_arrives(job, itself)
    differences, skipped = [], {}
    for condition, repeat in _conditions(job, itself).items():
        try:
            again = repeat(_told(progress, condition))
            differences.append(_difference(condition, itself, again))
        except (BadInput, torch.OutOfMemoryError, _Skipped) as e:
            skipped[condition] = first_line(e)
    return Audit(
        name=name,
        config=redact_tree(asdict(job)),
        config_hash=config_hash(acting(job)),
        metric=itself.headline,
        score=_score(itself),
        documents=len(itself.samples),
        prompt=prompt,
        tokens=tokens,
        shots=first.shots,
        decoding=itself.decoding,
        provenance=redact_tree(itself.provenance),
        alarms=itself.alarms,
        differences=differences,
        skipped=skipped,
        noise_floor=max((abs(d.mean) for d in differences), default=0.0),
    )


class _Skipped(Exception):
    """A condition that does not apply; its text says why."""


def _conditions(job: JobConfig, itself: Evaluation) -> dict[str, Callable[[Progress], Evaluation]]:
    key = kind_of(job.model).can.together
    same = getattr(job.model, key)
    given: dict[str, Any] = {key: 1}
    alone, other = replace(job, model=replace(job.model, **given)), f"model.{key}={same}"
    one = "batch size 1" if key == "batch_size" else "one request at a time"

    def by_itself(progress: Progress) -> Evaluation:
        if same == 1:
            raise _Skipped(f"{other} is what runs already")
        return evaluate(alone, progress)

    return {
        "run again": lambda progress: evaluate(job, progress),
        one: by_itself,
        "documents reversed": lambda progress: evaluate(job, progress, backwards=True),
        "float32": lambda progress: _in_float32(job, itself, progress),
    }


def _in_float32(job: JobConfig, itself: Evaluation, progress: Progress) -> Evaluation:
    dtype = itself.provenance.get("dtype")
    if "dtype" not in kind_of(job.model).keys:
        raise _Skipped("the server decides")
    if dtype == "float32":
        raise _Skipped("it is what runs already")
    _check_room(itself)
    try:
        return evaluate(replace(job, model=replace(job.model, dtype="float32")), progress)
    finally:
        gc.collect()


def _check_room(itself: Evaluation) -> None:
    """Whether 4 bytes a parameter, and a fifth more to work with, fit on the GPU; the model there now makes room."""
    device = str(itself.provenance.get("device"))
    if not device.startswith("cuda"):
        return
    needed = 4.8 * float(itself.provenance["model_parameters"])
    total = torch.cuda.mem_get_info()[1]
    if needed > total:
        raise _Skipped(f"needs {needed / 2**30:.0f} GiB, and the GPU has {total / 2**30:.0f}")


def _as_it_arrives(job: JobConfig, itself: Evaluation) -> tuple[list[int], str]:
    """Ids and text that reach the model for the first document, after any cut; no ids where a server counts them."""
    sample = itself.samples[0]
    lm = resident.load(job).lm  # not kept: in float32 it needs the room
    if not lm.can.counts_tokens:
        return [], sample.prompt
    tokens = lm.encode(sample.prompt)[sample.lost.get("tokens", 0) :]
    return tokens, lm.decode(tokens)


def _difference(condition: str, itself: Evaluation, again: Evaluation) -> Difference:
    metric = itself.headline.partition("/")[2]
    pairs = list(zip(itself.samples, again.samples, strict=True))
    answers = [(a, b) for x, y in pairs for a, b in zip(x.responses, y.responses, strict=True)]
    generated = all(isinstance(a, str) for a, _ in answers)
    return Difference(
        condition=condition,
        answers=len(answers),
        texts=sum(a != b for a, b in answers) if generated else None,
        documents=len(pairs),
        scores=sum(x.scores[metric] != y.scores[metric] for x, y in pairs)
        if metric in itself.samples[0].scores
        else None,
        mean=_score(again) - _score(itself),
        largest=None if generated else max(abs(a - b) for a, b in answers),
    )


def _score(evaluation: Evaluation) -> float:
    return float(evaluation.metrics[evaluation.headline] or 0.0)


def _told(progress: Progress, condition: str) -> Progress:
    return lambda what, done, total: progress(f"{condition}: {what}", done, total)
