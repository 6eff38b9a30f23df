"""lm_eval's results as metrics and samples: every answer counts, every document once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.registry import AGGREGATION_REGISTRY

from evalsweep.config import JobConfig, samples_at
from evalsweep.engine.answers.reading import READERS, scores_of
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.models.requests import CAPPED, Answer
from evalsweep.engine.tasks.harness import Built
from evalsweep.engine.tasks.prompts import Prompts
from evalsweep.errors import BadInput
from evalsweep.metrics import Metric, of_lm_eval
from evalsweep.provenance import text_hash
from evalsweep.record import Sample, group_of

Given = Mapping[tuple[str, int, int], Answer]  # by task, document and number of the answer

FLEXIBLE = "exact_match,flexible-extract"  # lm_eval's own score of numbers, which reads the last one


def metrics(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """`task/metric` to its mean over the rounds; lm_eval's `,none` is dropped, `,strict-match` and the like stay.

    A metric that is not finite is left out: it is no score.
    """
    found: dict[str, list[float]] = {}
    for results in rounds:
        for task, values in {**results["results"], **results.get("groups", {})}.items():
            for name, value in values.items():
                metric = name.removesuffix(",none")
                # bypass stands for no metric: evalsweep scores the task itself
                if "," in name and "_stderr" not in name and metric != "bypass" and isinstance(value, int | float):
                    found.setdefault(f"{task}/{metric}", []).append(float(value))
    means = {name: sum(values) / len(values) for name, values in found.items()}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


def read_metrics(samples: list[Sample], scorer: str) -> dict[str, float]:
    """Give the metrics of answers that were read, by task: means over documents.

    They are the shares of answers that are right, that give nothing to read, that are doubtful, of documents on which
    the score of numbers and lm_eval's flexible pattern disagree, and of documents whose majority is right (`maj@n`).
    """
    found: dict[str, list[float]] = {}
    for sample in samples:
        if scorer not in READERS or scorer not in sample.scores:
            continue
        n = len(sample.readings)
        silent = sum(reading is None for reading in sample.readings) / n
        values = {scorer: sample.scores[scorer]}
        if scorer == scorers.NUMERIC:
            doubtful = sum(bool(reading and reading["doubt"]) for reading in sample.readings) / n
            differs = sample.scores[scorer] != sample.scores.get(FLEXIBLE, sample.scores[scorer])
            values |= {"numeric_no_number": silent, "numeric_doubtful": doubtful, "numeric_disagrees": float(differs)}
        else:
            values[f"{scorer}_unread"] = silent
        values |= {k: v for k, v in sample.scores.items() if k.startswith("maj@")}
        for name, value in values.items():
            found.setdefault(f"{sample.task}/{name}", []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def metric_info(built: Built, job: JobConfig, found: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Give bounds, aggregation and direction of each metric, from the scorer, the task and lm_eval's registry."""
    own = {metric.name: metric for metric in scorers.metrics(job)}
    info = {}
    for key in found:
        task, _, name = key.partition("/")
        metric = own.get(name) or _of_task(built, task, name)
        info[key] = {k: v for k, v in asdict(metric).items() if k != "name"}
    return info


def _of_task(built: Built, task: str, name: str) -> Metric:
    bare = name.partition(",")[0]
    if task not in built.tasks and isinstance(built.root, Group):
        parts = [_of_task(built, leaf, name) for leaf in built.tasks]
        # a group's score is the mean of its tasks' scores: of the same bounds and direction, where all agree on them
        return parts[0] if all(part == parts[0] for part in parts) else Metric(name, (None, None), None, None)
    leaf = built.tasks.get(task)
    aggregation = getattr(leaf, "_aggregation_list", {}).get(bare)
    named = next((n for n, f in AGGREGATION_REGISTRY.items() if f is aggregation), None) if aggregation else None
    better = getattr(leaf, "_higher_is_better", {}).get(bare)
    return of_lm_eval(name, named or getattr(aggregation, "__name__", None), better)


def headline(built: Built, found: dict[str, float], metric: str | None) -> str:
    """The key of the score that tables show.

    Errors: BadInput where the task did not yield it.
    """
    own = [name for name in found if name.startswith(f"{built.name}/")]
    if metric is not None and f"{built.name}/{metric}" in own:
        return f"{built.name}/{metric}"
    if metric is not None or not own:
        raise BadInput(f"task.metric={metric}", f"the task yielded {', '.join(own) or 'no number'}")
    return own[0]


def samples(
    built: Built,
    results: dict[str, Any],
    rounds: list[dict[str, Any]],
    made: dict[str, Prompts],
    given: Given,
    job: JobConfig,
) -> list[Sample]:
    """Give one sample a document, in order.

    Args:
        built: the tasks that were run.
        results: lm_eval's results, with prompts and all answers of each document.
        rounds: lm_eval's results for the first answers, the second answers, and so on; scores are means over them.
        made: how the prompts of each task came about.
        given: what is known of each answer beside its text.
        job: how many answers to a document were asked for, and how they are scored.
    """
    found = []
    reader = READERS.get(scorers.scorer_of(job))
    for name, task in built.tasks.items():
        scores: dict[int, dict[str, list[float]]] = {}
        unparsed: set[int] = set()
        for round_ in rounds:
            for row in round_["samples"][name]:
                for metric, value in _scores_of(row).items():
                    scores.setdefault(row["doc_id"], {}).setdefault(metric, []).append(value)
                if row["filter"] == task._filters[-1].name and "[invalid]" in map(str, _flat(row["filtered_resps"])):
                    unparsed.add(row["doc_id"])
        seen = set()
        for row in results["samples"][name]:
            if row["doc_id"] in seen:
                continue  # lm_eval repeats the row for each filter
            seen.add(row["doc_id"])
            prompt = made[name].made[row["doc_id"]]
            own: dict[str, float] = {}
            flags: list[str] = []
            readings: list[Any] = []
            if reader is not None and task.OUTPUT_TYPE == "generate_until":
                read = reader(str(row["target"]), list(map(str, row["resps"][0])))
                own, flags = scores_of(scorers.scorer_of(job), read, scorers.sizes(job))
                readings = read.readings
            elif row["doc_id"] in unparsed:
                flags.append("unparsed")
            found.append(
                Sample(
                    task=name,
                    doc_id=row["doc_id"],
                    doc_hash=row["doc_hash"][:16],
                    prompt=str(row["arguments"][0][0]),
                    prompt_hash=text_hash(str(row["arguments"][0][0])),
                    shots=prompt.shots,
                    target=_target(task, row),
                    responses=_responses(task, row),
                    scores={m: sum(v) / len(v) for m, v in scores.get(row["doc_id"], {}).items()} | own,
                    flags=[*prompt.flags, *flags, *_answer_flags(task, row, given, samples_at(job))],
                    lost=prompt.lost,
                    group=group_of(row["doc"], job.task.group_by),
                    thinking=_thinking(task, row, given),
                    readings=readings,
                )
            )
    return found


def _thinking(task: Any, row: dict[str, Any], given: Given) -> list[str]:
    """Give the thinking part of each answer; an empty list where no answer has one."""
    found = [answer.thinking for answer in _answers(task, row, given)]
    return found if any(found) else []


def _answers(task: Any, row: dict[str, Any], given: Given) -> list[Answer]:
    """Give the texts that were written for a document, with all that is known of them."""
    if task.OUTPUT_TYPE != "generate_until":
        return []
    return [given[str(task.task_name), row["doc_id"], n] for n in range(len(row["resps"][0]))]


def _answer_flags(task: Any, row: dict[str, Any], given: Given, asked: int) -> list[str]:
    answers = _answers(task, row, given)
    if not answers:
        return []
    flags = ["few_answers"] if len(answers) < asked else []
    flags += ["empty"] if any(not str(answer.value).strip() for answer in answers) else []
    flags += ["unfinished_thinking"] if not all(answer.finished for answer in answers) else []
    return flags + (["capped"] if any(answer.ended == CAPPED for answer in answers) else [])


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list | tuple) else [value]


def _scores_of(row: dict[str, Any]) -> dict[str, float]:
    found = {}
    for metric in row["metrics"]:
        value = row[metric]
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if isinstance(value, bool | int | float):
            found[f"{metric},{row['filter']}".removesuffix(",none")] = float(value)
    return found


def _responses(task: Any, row: dict[str, Any]) -> list[Any]:
    if task.OUTPUT_TYPE == "generate_until":
        return [str(text) for text in row["resps"][0]]
    # (log-likelihood, is it the greedy continuation) for each choice
    return [float(r[0][0] if isinstance(r[0], tuple | list) else r[0]) for r in row["resps"]]


def _target(task: Any, row: dict[str, Any]) -> str:
    target = row["target"]
    if task.OUTPUT_TYPE == "multiple_choice" and isinstance(target, int) and task.config.doc_to_choice is not None:
        return str(task.doc_to_choice(row["doc"])[target])
    return str(target)
