"""lm_eval's results as metrics and samples: every answer counts, every document once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from evalsweep.config import NUMERIC, TaskConfig, is_numeric
from evalsweep.engine.answers.numeric import number_of, vote
from evalsweep.engine.models.requests import CAPPED
from evalsweep.engine.tasks.harness import Built
from evalsweep.engine.tasks.prompts import Prompts
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash
from evalsweep.record import Sample, group_of
from evalsweep.stats.majk import maj_at_k

FLEXIBLE = "exact_match,flexible-extract"  # lm_eval's own score of GSM8K that reads the last number


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


def numeric_metrics(samples: list[Sample]) -> dict[str, float]:
    """evalsweep's own scores of GSM8K, by task.

    Shares: of answers whose number is right, of answers that give none, of documents on which the score and lm_eval's
    flexible pattern disagree, and, of several answers, of documents whose majority is right (`maj@n`).
    """
    found: dict[str, list[float]] = {}
    for sample in samples:
        if NUMERIC not in sample.scores:
            continue
        silent = sum(number_of(text) is None for text in sample.responses) / len(sample.responses)
        differs = sample.scores[NUMERIC] != sample.scores.get(FLEXIBLE, sample.scores[NUMERIC])
        votes = {k: v for k, v in sample.scores.items() if k.startswith("maj@")}
        values = {NUMERIC: sample.scores[NUMERIC], "numeric_no_number": silent, "numeric_disagrees": float(differs)}
        for name, value in (values | votes).items():
            found.setdefault(f"{sample.task}/{name}", []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


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
    lm: Any,
    wanted: TaskConfig,
) -> list[Sample]:
    """One sample a document, in order.

    Args:
        built: the tasks that were run.
        results: lm_eval's results, with prompts and all answers of each document.
        rounds: lm_eval's results for the first answers, the second answers, and so on; scores are means over them.
        made: how the prompts of each task came about.
        lm: the model, which knows how its answers came to their end.
        wanted: how many answers to a document were asked for, and the sizes of votes.
    """
    found = []
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
            numeric, flags = _numeric(name, row, wanted.k)
            if row["doc_id"] in unparsed and not is_numeric(name):
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
                    scores={m: sum(v) / len(v) for m, v in scores.get(row["doc_id"], {}).items()} | numeric,
                    flags=[*prompt.flags, *flags, *_answer_flags(task, row, lm, wanted.samples)],
                    lost=prompt.lost,
                    group=group_of(row["doc"], wanted.group_by),
                )
            )
    return found


def _numeric(task: str, row: dict[str, Any], sizes: Sequence[int]) -> tuple[dict[str, float], list[str]]:
    """The scores of written numbers, and the flags that go with them."""
    if not is_numeric(task):
        return {}, []
    target = number_of(str(row["target"]))
    answers = [number_of(str(text)) for text in row["resps"][0]]
    scores = {NUMERIC: sum(answer is not None and answer == target for answer in answers) / len(answers)}
    flags = ["unparsed"] if None in answers else []
    if len(answers) > 1:
        scores[f"maj@{len(answers)}"], tied = vote(answers, target)
        flags += ["tied"] if tied else []
        others = Counter(answer for answer in answers if answer not in (None, target))
        right, silent = answers.count(target) if target is not None else 0, answers.count(None)
        for k in sizes:
            if k < len(answers):
                scores[f"maj@{k}"] = maj_at_k(right, list(others.values()), k, silent)
    return scores, flags


def _answer_flags(task: Any, row: dict[str, Any], lm: Any, asked: int) -> list[str]:
    if task.OUTPUT_TYPE != "generate_until":
        return []
    texts = list(map(str, row["resps"][0]))
    name = str(task.task_name)
    flags = ["few_answers"] if len(texts) < asked else []
    flags += ["empty"] if any(not text.strip() for text in texts) else []
    ends = [lm.ended.get((name, row["doc_id"], n)) for n in range(len(texts))]
    return flags + (["capped"] if CAPPED in ends else [])


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
