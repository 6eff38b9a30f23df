"""One evaluation through lm_eval: seeds fixed, decoding stated, every answer kept and scored."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from evalsweep.config import JobConfig, samples_at
from evalsweep.engine import alarms, together
from evalsweep.engine.answers import code, scoring
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.models import resident
from evalsweep.engine.models.contract import Backend
from evalsweep.engine.models.kept import Kept, Progress
from evalsweep.engine.tasks import harness
from evalsweep.engine.tasks.prompts import Prompts
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash, value_hash
from evalsweep.record import Alarm, Sample
from evalsweep.responses import Earlier, Responses


@dataclass(frozen=True)
class Evaluation:
    """What a job found: samples in the order of the documents, `task/metric` to number, and what was really used.

    A metric is None where the backend cannot count it. `metric_info` holds bounds, aggregation and direction of the
    scores by `task/metric`.
    """

    samples: list[Sample]
    metrics: dict[str, float | None]
    headline: str
    decoding: dict[str, Any]
    provenance: dict[str, Any]
    responses_hash: str
    alarms: list[Alarm]
    metric_info: dict[str, dict[str, Any]]


def evaluate(
    job: JobConfig,
    progress: Progress,
    backwards: bool = False,
    responses: Responses | None = None,
    earlier: Earlier | None = None,
    beside: together.Beside | None = None,
) -> Evaluation:
    """Evaluate one point of the grid.

    Args:
        job: what is asked.
        progress: told as answers arrive.
        backwards: asks the last document first, which should change nothing.
        responses: where answers are kept as they arrive; what is there already is not asked for again.
        earlier: an earlier sweep, from which answers to equal requests are taken over.
        beside: the jobs whose requests are answered in the same pass, this one among them: they share its model.

    Errors: BadInput for what the user can mend; whatever lm_eval raises besides.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if job.task.unsafe_code == "allow":
        os.environ["HF_ALLOW_CODE_EVAL"] = (
            "1"  # the same consent, asked for again by the scorers of lm_eval's own tasks
        )
    system = job.prompt.system
    progress("reading the task", 0, 1)
    built = harness.build(job)
    progress("loading the model", 0, 1)
    loaded = resident.load(job)
    backend, samples_asked = loaded.lm, samples_at(job)
    thinking_toks = job.model.max_thinking_toks or 0
    _check_lengths(built, backend, thinking_toks)
    _check_loglikelihoods(built, backend)
    made = {name: Prompts(task, backend, job.on_truncation, thinking_toks) for name, task in built.tasks.items()}
    lm = Kept(loaded, job, Responses() if responses is None else responses, progress, earlier, backwards)
    if beside is not None and len(beside.jobs) > 1 and job.engine.share:
        together.ask(lm, beside, progress)
    results = _run(lm, built, job, system)
    rounds = [results]
    if samples_asked > 1 and built.generates and scorers.scorer_of(job) != scorers.CODE:
        for prompts in made.values():
            prompts.keep()
        rounds = _score_each_answer(built, job, system)
    samples = scoring.samples(built, results, rounds, made, lm.given, job)
    samples, of_code, code_run = code.score(job, built, samples, progress)
    metrics = scoring.metrics(rounds) | scoring.read_metrics(samples, scorers.scorer_of(job)) | of_code
    alarmed = [
        *alarms.of_code(code_run),
        *alarms.of_run(job, built, samples, loaded, lm.answers),
        *alarms.of_samples(job, samples),
    ]
    return Evaluation(
        samples=samples,
        metrics=metrics
        | ({f"generation/{k}": v for k, v in backend.numbers(lm.answers).items()} if built.generates else {})
        | alarms.counts(alarmed, built.generates, backend),
        headline=scoring.headline(built, metrics, job.task.metric),
        decoding={
            "greedy": not job.decoding.do_sample,
            "sent": lm.sent,
            **(backend.details(lm.answers) if built.generates else {}),
            "note": None if built.generates else "log-likelihoods of given choices: no token is generated",
        },
        provenance={
            **loaded.identity,
            **built.provenance,
            "prompt_hash": text_hash(system) if system else None,
            "shots_hash": _shots_hash(samples),
            **({"rows": backend.rows} if backend.rows else {}),
            **({"taken_over": _taken_over(lm)} if job.engine.reuse else {}),
            **code_run,
        },
        responses_hash=value_hash([[s.task, s.doc_id, s.responses] for s in samples]),
        alarms=alarmed,
        metric_info=scoring.metric_info(built, job, metrics),
    )


def _shots_hash(samples: list[Sample]) -> str | None:
    shots = [[s.task, s.doc_id, [shot.text for shot in s.shots]] for s in samples if s.shots]
    return value_hash(shots) if shots else None


def _taken_over(lm: Kept) -> list[dict[str, Any]]:
    """Say which answers come from an earlier sweep: how many, and of which documents, task by task."""
    by_sweep: dict[str, dict[str, list[int]]] = {}
    for (task, doc_id, _), sweep in lm.origins.items():
        by_sweep.setdefault(sweep, {}).setdefault(task, []).append(doc_id)
    return [
        {
            "sweep": sweep,
            "answers": sum(map(len, tasks.values())),
            "of": len(lm.given),
            "documents": {task: _ranges(ids) for task, ids in tasks.items()},
        }
        for sweep, tasks in by_sweep.items()
    ]


def _ranges(numbers: Iterable[int]) -> str:
    """Give whole numbers as text: 0-15, 20."""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _run(lm: LM, built: harness.Built, job: JobConfig, system: str | None) -> dict[str, Any]:
    # Not simple_evaluate: it sets the same seeds, but also asks the hub and git about each run, in vain when offline.
    harness.fix_seeds(job.seed)
    for task in built.tasks.values():
        task.set_fewshot_seed(job.fewshot.seed)
    results = lm_eval.evaluate(
        lm=lm,
        task_dict=TaskManager(include_defaults=False).load([built.root]),
        limit=job.task.limit,
        bootstrap_iters=0,
        log_samples=True,
        system_instruction=system,
        apply_chat_template=job.model.apply_chat_template,
        fewshot_as_multiturn=job.model.apply_chat_template,
        confirm_run_unsafe_code=job.task.unsafe_code == "allow",
    )
    assert results is not None  # only processes other than the first get none, and jobs run in one
    return dict(results)


class _Replay(LM):
    """Answers from what was answered before: lm_eval scores the n-th answer of each document with all its own code."""

    def __init__(self, answers: dict[tuple[Any, ...], Any]) -> None:
        super().__init__()
        self.answers = answers

    def _replay(self, requests: list[Instance], **_: Any) -> list[Any]:
        return [self.answers[_key(r)] for r in requests]

    generate_until = loglikelihood = loglikelihood_rolling = _replay


def _key(request: Instance) -> tuple[Any, ...]:
    return request.task_name, request.doc_id, request.idx


def _score_each_answer(built: harness.Built, job: JobConfig, system: str | None) -> list[dict[str, Any]]:
    """Results for the first answers, the second answers, and so on: lm_eval itself would score the first alone."""
    answers = {_key(r): list(r.resps) for task in built.tasks.values() for r in task.instances}
    for task in built.tasks.values():
        task.set_config("repeats", 1)
    # the prompts were answered already, so their template is of no account here
    job = replace(job, model=replace(job.model, apply_chat_template=False))
    return [
        _run(_Replay({k: v[n] if len(v) > 1 else v[0] for k, v in answers.items()}), built, job, system)
        for n in range(samples_at(job))
    ]


def _check_lengths(built: harness.Built, lm: Backend, thinking_toks: int) -> None:
    if lm.max_length is None:
        return
    for name, task in built.tasks.items():
        length = (task.config.generation_kwargs or {}).get("max_gen_toks", 0) + thinking_toks
        if task.OUTPUT_TYPE == "generate_until" and length >= lm.max_length:
            given = f" and model.max_thinking_toks={thinking_toks}" if thinking_toks else ""
            raise BadInput(
                f"task.max_gen_toks={length - thinking_toks}{given} for {name}",
                f"must be below the model's length of {lm.max_length} tokens, which holds the prompt too",
                f"task.max_gen_toks={max(1, lm.max_length // 4)}",
            )


def _check_loglikelihoods(built: harness.Built, lm: Backend) -> None:
    """Refuse tasks that compare log-likelihoods where the backend gives none. Errors: BadInput."""
    if lm.can.loglikelihoods:
        return
    for name, task in built.tasks.items():
        if task.OUTPUT_TYPE != "generate_until":
            raise BadInput(
                f"task={name}",
                f"compares log-likelihoods, which this model does not give: {lm.can.missing['loglikelihoods']}",
                "task=sample",
            )
