"""What a reader of a run's score must know: each alarm is counted, one line, and names the worst documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evalsweep.config import JobConfig, samples_at
from evalsweep.engine.models import backends
from evalsweep.engine.models.contract import Backend, Loaded
from evalsweep.engine.models.requests import Answer
from evalsweep.engine.tasks.harness import Built
from evalsweep.record import Alarm, Sample

WORST = 5  # documents that an alarm names

# Flags of samples, in the order of their alarms: what the documents that carry one are told to be.
_FLAGS = {
    "truncated": "prompts of {task} were cut from the left to fit the model: up to {tokens} tokens and {shots} shots",
    "dropped_shots": "prompts of {task} were given fewer shots to fit the model: up to {shots} fewer",
    "fewer_shots": "documents of {task} got fewer shots: they are in the pool themselves, which then is too small",
    "leaked": "documents of {task} were shown themselves, answer and all, among their shots",
    "near_copy": "documents of {task} were shown a near copy of themselves among their shots",
    "double_bos": "prompts of {task} begin with two begin tokens (BOS)",
    "missing_bos": "prompts of {task} lack the begin token (BOS) that the tokenizer puts before a text",
    "few_answers": "documents of {task} have fewer answers than task.samples={samples}",
    "empty": "documents of {task} have an empty answer",
    "capped": "documents of {task} have an answer that was cut at the token limit",
    "unfinished_thinking": "documents of {task} have an answer whose thinking never ended: it counts as no answer",
    "unparsable": "documents of {task} have a program that does not parse",
    "doubtful": "documents of {task} have an answer whose number a person could read in another way",
    "unparsed": "documents of {task} have an answer in which the score finds nothing to read",
    "tied": "documents of {task} have a tied vote, which counts as the chance that a fair draw would decide it right",
    "ended": "documents of {task} have code that ran out of its time or wrote too much",
}
_ALWAYS = ("truncated", "leaked", "near_copy")
_GENERATED = ("empty", "capped", "unparsed")


def of_samples(job: JobConfig, samples: list[Sample]) -> list[Alarm]:
    """One alarm for each flag that any sample carries."""
    found = []
    for flag, words in _FLAGS.items():
        flagged = [s for s in samples if flag in s.flags]
        if not flagged:
            continue
        worst = sorted(flagged, key=lambda s: -s.lost.get("tokens", 0) - s.lost.get("shots", 0))
        # a prompt that was cut after all its shots were dropped lost these to the dropping
        cut = [s for s in flagged if not (flag == "truncated" and "dropped_shots" in s.flags)]
        lost = {
            "tokens": max(s.lost.get("tokens", 0) for s in flagged),
            "shots": max((s.lost.get("shots", 0) for s in cut), default=0),
        }
        text = words.format(task=job.task.name, samples=job.task.samples, **lost)
        found.append(
            Alarm(
                flag,
                f"{len(flagged)} of {len(samples)} {text}",
                len(flagged),
                len(samples),
                [f"{s.task}/{s.doc_id}" for s in worst[:WORST]],
            )
        )
    return found


def counts(alarms: Iterable[Alarm], generates: bool, lm: Backend) -> dict[str, float | None]:
    """`alarms/kind` to the number of documents; the usual kinds are there with 0 too, or None where nobody counts."""
    usual: dict[str, int | None] = dict.fromkeys([*_ALWAYS, *(_GENERATED if generates else ())], 0)
    if not _checks_length(lm):
        usual["truncated"] = None
    if generates and not lm.can.reports_endings:
        usual["capped"] = None
    found = usual | {alarm.kind: alarm.count for alarm in alarms if alarm.total}
    return {f"alarms/{kind}": None if count is None else float(count) for kind, count in found.items()}


def _checks_length(lm: Backend) -> bool:
    return lm.can.counts_tokens and lm.can.knows_length


def of_run(
    job: JobConfig, built: Built, samples: list[Sample], loaded: Loaded, answers: Sequence[Answer]
) -> list[Alarm]:
    """Alarms of the run as a whole: dead axes, shots that are not pinned, templates, what the backend reports."""
    lm = loaded.lm
    found = [*_dead(job, built), *_shots(job, built), *_templates(job, loaded.identity), *lm.alarms(job, answers)]
    if not _checks_length(lm):
        line = f"prompt length unknown, not checked: prompts of {job.task.name} may have been cut"
        found.append(Alarm("length_unknown", line))
    if lm.can.seeds is not True and samples_at(job) > 1 and len(samples) > 1:
        texts = [s.responses for s in samples]
        if built.generates and all(len(set(map(str, answers))) == 1 for answers in texts):
            found.append(
                Alarm(
                    "same_answers",
                    f"the model gave the same text for all {job.task.samples} samples of every document of "
                    f"{job.task.name}, at temperature {job.temperature:g}: it may ignore the seed",
                )
            )
    return found


def of_code(how: dict[str, Any]) -> list[Alarm]:
    """Where code ran without a sandbox, any score of it can be forged."""
    if how.get("code_isolation") != "none":
        return []
    return [
        Alarm("no_sandbox", "code that the model wrote ran without a sandbox: it can read, write and forge its score")
    ]


def _dead(job: JobConfig, built: Built) -> list[Alarm]:
    found = [Alarm("idle_setting", line) for line in backends.idle(job)]
    if built.generates:
        if samples_at(job) < job.task.samples:
            line = (
                f"at temperature 0 a document of {job.task.name} has one answer: greedy answers are all the same, and "
                f"task.samples={job.task.samples} is for other temperatures"
            )
            found.append(Alarm("greedy_sample", line))
        return found
    if job.temperature > 0:
        line = f"temperature does not affect {job.task.name}: it compares log-likelihoods, nothing is sampled"
        found.append(Alarm("dead_temperature", line))
    if job.task.samples > 1:
        line = f"task.samples={job.task.samples} has no effect on {job.task.name}: it compares log-likelihoods"
        found.append(Alarm("dead_samples", line))
    return found


def _shots(job: JobConfig, built: Built) -> list[Alarm]:
    if not any(t.config.num_fewshot for t in built.tasks.values()):
        return []
    small = [n for n, t in built.tasks.items() if (k := t.config.num_fewshot or 0) and len(t.sampler.df) <= k]
    if job.fewshot.name == "resampled" and small:
        line = f"the few-shot pool of {small[0]} holds no more than its shots: seeds differ in their order alone"
        return [Alarm("small_pool", line)]
    if job.fewshot.name == "harness":
        line = (
            f"fewshot=harness: the shots of {job.task.name} are lm_eval's own draw, which depends on the order of the "
            "documents, task.limit and the number of processes"
        )
        return [Alarm("harness_shots", line)]
    return []


def _templates(job: JobConfig, identity: dict[str, Any]) -> list[Alarm]:
    model = job.model.pretrained or job.model.name
    if identity.get("chat_template_hash") and not job.model.apply_chat_template:
        line = f"{model} has a chat template and runs without it; model.apply_chat_template=true applies it"
        return [Alarm("no_template", line)]
    if not job.model.apply_chat_template:
        return []
    found = []
    own, always = identity.get("template_system_prompt"), identity.get("template_system_text")
    if own and not job.prompt.system:
        line = f"the chat template of {model} inserts a system prompt of its own: '{own}'"
        found.append(Alarm("template_prompt", line))
    if always and not (own and not job.prompt.system):
        line = f"the chat template of {model} adds a text of its own to every system prompt: '{always}'"
        found.append(Alarm("template_text", line))
    if identity.get("template_generation_prompt") is False:
        line = f"the chat template of {model} does not open the assistant's turn: its answers may begin with anything"
        found.append(Alarm("template_no_prompt", line))
    if identity.get("template_has_date"):
        line = f"the chat template of {model} can write today's date: its prompts may differ from day to day"
        found.append(Alarm("template_date", line))
    return found
