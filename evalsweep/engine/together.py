"""What the jobs of a sweep ask of one model, each request once and all in one pass."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalsweep.config import JobConfig, samples_at
from evalsweep.engine.models import backends, resident
from evalsweep.engine.models.kept import Kept, Progress
from evalsweep.engine.models.lm_eval_requests import request_of
from evalsweep.engine.models.requests import GENERATE, Request
from evalsweep.engine.tasks import harness
from evalsweep.engine.tasks.prompts import Prompts
from evalsweep.provenance import value_hash

_OF_THE_TASK = ("until", "max_gen_toks", "stop_in_fences")  # settings that a task itself asks for

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Beside:
    """The jobs of a sweep that share a model, by their names; `tell` gets a line for the person who waits."""

    jobs: Mapping[str, JobConfig]
    tell: Callable[[str], None] = log.info


def ask(lm: Kept, beside: Beside, progress: Progress) -> None:
    """Answer what jobs ask that share a model, which `lm` is.

    A job whose requests cannot be made, or a request that is refused, is not told here: that job meets the same error
    when its turn comes. One whose requests turn out to be others asks these then.
    """
    by_prompts: dict[str, dict[str, JobConfig]] = {}
    for name, job in beside.jobs.items():
        by_prompts.setdefault(_prompts_of(job), {})[name] = job
    requests: dict[str, Request] = {}  # equal ones of many jobs take no room
    asked: dict[str, list[str]] = {}  # the keys of each job
    for n, group in enumerate(by_prompts.values()):
        progress("reading what the jobs ask", n, len(by_prompts))
        try:
            for name, request in _requests(group):
                key = lm.key(request)
                requests.setdefault(key, request)
                asked.setdefault(name, []).append(key)
        except Exception:
            log.exception("what a job asks could not be read ahead")
    resident.load(lm.job)  # the others have begun meanwhile
    before = sum(key in lm.responses for key in requests)
    missing = [request for key, request in requests.items() if not lm.has(key)]
    for line in _told(asked, len(requests), len(missing), before):
        beside.tell(line)
    lm.whose = f" for {len(beside.jobs)} jobs"
    try:
        lm.ask(missing)
    except Exception:
        log.exception("not every request of the jobs could be answered ahead")
    finally:
        lm.whose = ""


def _told(asked: Mapping[str, Sequence[str]], distinct: int, missing: int, before: int) -> Iterator[str]:
    """Say how much is asked, and which jobs ask nothing of their own."""
    if not asked:
        return
    count = sum(map(len, asked.values()))
    there = f", {before} of them answered before" if before else ""
    taken = distinct - before - missing
    there += f", {taken} taken over" if taken else ""
    together = "; all are computed together" if missing else ""
    yield f"{len(asked)} jobs ask for {count} answers, {distinct} of them distinct{there}{together}"
    by_keys: dict[str, list[str]] = {}
    for name, keys in asked.items():
        by_keys.setdefault(value_hash(keys), []).append(name)
    for first, *others in by_keys.values():
        if others:
            shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            yield f"{shown}: the same answers as {first}, and no cost"


def _prompts_of(job: JobConfig) -> str:
    """Give what the prompts of a job depend on: jobs that share it ask the same, but for what is drawn."""
    acting = backends.acting(job)
    drawn = {"temperature", "decoding", "seed"}  # the seed that draws shots is another key
    task = {k: v for k, v in acting["task"].items() if k not in ("samples", "k")}
    return value_hash({**{k: v for k, v in acting.items() if k not in drawn}, "task": task})


def _requests(jobs: Mapping[str, JobConfig]) -> Iterator[tuple[str, Request]]:
    """Give the requests of jobs that share their prompts, which are made once, with the jobs' names."""
    first = next(iter(jobs.values()))
    built = harness.build(first)
    loaded = resident.load(first)
    harness.fix_seeds(first.seed)
    before = _global_state()
    for task in built.tasks.values():
        Prompts(task, loaded.lm, first.on_truncation, first.model.max_thinking_toks or 0)
        task.set_fewshot_seed(first.fewshot.seed)
        task.build_all_requests(
            limit=first.task.limit,
            system_instruction=first.prompt.system,
            apply_chat_template=first.model.apply_chat_template,
            fewshot_as_multiturn=first.model.apply_chat_template,
            chat_template=loaded.lm.apply_chat_template if first.model.apply_chat_template else None,
        )
    if _global_state() != before:  # the prompts are those of one seed: other jobs ask for themselves
        jobs = {name: job for name, job in jobs.items() if job.seed == first.seed}
    for task in built.tasks.values():
        for name, job in jobs.items():
            decoding, drawn = harness.decoding_sent(job), job.decoding.do_sample
            for instance in task.instances:
                request = request_of(instance)
                if request.kind != GENERATE:
                    yield name, request
                    continue
                settings = {k: v for k, v in request.settings.items() if k in _OF_THE_TASK} | decoding
                for sample in range(samples_at(job)):
                    yield name, replace(request, settings=settings, sample=sample, seed=job.seed if drawn else None)


def _global_state() -> int:
    """Give what changes as soon as somebody draws from the generators that lm_eval's tasks draw from."""
    return hash((random.getstate(), str(np.random.get_state())))  # noqa: NPY002  the generator that tasks draw from
