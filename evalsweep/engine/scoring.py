"""lm_eval's results as metrics and samples: every answer counts, every document once."""

from __future__ import annotations

import math
from typing import Any

from lm_eval.models.huggingface import HFLM

from evalsweep.engine.numeric import FLEXIBLE, NUMERIC, is_numeric, number_of
from evalsweep.engine.shots import PinnedSampler
from evalsweep.engine.tasks import Built
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash
from evalsweep.record import Sample


def metrics(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """`task/metric` to its mean over the rounds; lm_eval's `,none` is dropped, `,strict-match` and the like stay.

    A metric that is not finite is left out: it is no score.
    """
    found: dict[str, list[float]] = {}
    for results in rounds:
        for task, values in {**results["results"], **results.get("groups", {})}.items():
            for name, value in values.items():
                metric = name.removesuffix(",none")
                if "," in name and "_stderr" not in name and isinstance(value, int | float):
                    found.setdefault(f"{task}/{metric}", []).append(float(value))
    means = {name: sum(values) / len(values) for name, values in found.items()}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


def numeric_metrics(samples: list[Sample]) -> dict[str, float]:
    """evalsweep's own score of GSM8K, by task.

    Three shares: of answers whose number is right, of answers that give none, and of documents on which the score and
    lm_eval's flexible pattern disagree.
    """
    found: dict[str, list[float]] = {}
    for sample in samples:
        if NUMERIC not in sample.scores:
            continue
        silent = sum(number_of(text) is None for text in sample.responses) / len(sample.responses)
        differs = sample.scores[NUMERIC] != sample.scores.get(FLEXIBLE, sample.scores[NUMERIC])
        for name, value in ((NUMERIC, sample.scores[NUMERIC]), ("no_number", silent), ("disagrees", float(differs))):
            found.setdefault(f"{sample.task}/{NUMERIC if name == NUMERIC else f'{NUMERIC}_{name}'}", []).append(value)
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


def samples(built: Built, results: dict[str, Any], rounds: list[dict[str, Any]], lm: Any) -> list[Sample]:
    """One sample a document, in order.

    Args:
        built: the tasks that were run.
        results: lm_eval's results, with prompts and all answers of each document.
        rounds: lm_eval's results for the first answers, the second answers, and so on; scores are means over them.
        lm: the model, which knows how long its prompts may be.
    """
    made = []
    for name, task in built.tasks.items():
        scores: dict[int, dict[str, list[float]]] = {}
        for round_ in rounds:
            for row in round_["samples"][name]:
                for metric, value in _scores_of(row).items():
                    scores.setdefault(row["doc_id"], {}).setdefault(metric, []).append(value)
        seen = set()
        for row in results["samples"][name]:
            if row["doc_id"] in seen:
                continue  # lm_eval repeats the row for each filter
            seen.add(row["doc_id"])
            made.append(
                Sample(
                    task=name,
                    doc_id=row["doc_id"],
                    doc_hash=row["doc_hash"][:16],
                    prompt=str(row["arguments"][0][0]),
                    prompt_hash=text_hash(str(row["arguments"][0][0])),
                    shots=_shots_of(task, row["doc"]),
                    target=_target(task, row),
                    responses=_responses(task, row),
                    scores={m: sum(v) / len(v) for m, v in scores.get(row["doc_id"], {}).items()} | _numeric(name, row),
                    flags=["truncated"] if _truncated(task, row, lm) else [],
                )
            )
    return made


def _numeric(task: str, row: dict[str, Any]) -> dict[str, float]:
    if not is_numeric(task):
        return {}
    target = number_of(str(row["target"]))
    answers = [number_of(str(text)) for text in row["resps"][0]]
    return {NUMERIC: sum(answer is not None and answer == target for answer in answers) / len(answers)}


def _truncated(task: Any, row: dict[str, Any], lm: Any) -> bool:
    """Whether the prompt was too long for the model, so that lm_eval cut it from the left; unknown for servers."""
    if not isinstance(lm, HFLM):
        return False
    if task.OUTPUT_TYPE == "generate_until":
        prompt, settings = row["arguments"][0]
        return bool(len(lm.tok_encode(prompt)) > lm.max_length - settings["max_gen_toks"])
    longest = max(("".join(map(str, arguments)) for arguments in row["arguments"]), key=len)
    return bool(len(lm.tok_encode(longest)) > lm.max_length + 1)


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


def _shots_of(task: Any, doc: dict[str, Any]) -> list[int]:
    n = task.config.num_fewshot or 0
    if n == 0 or not isinstance(task.sampler, PinnedSampler):
        return []
    return task.sampler.positions(n, doc)


def _target(task: Any, row: dict[str, Any]) -> str:
    target = row["target"]
    if task.OUTPUT_TYPE == "multiple_choice" and isinstance(target, int) and task.config.doc_to_choice is not None:
        return str(task.doc_to_choice(row["doc"])[target])
    return str(target)
