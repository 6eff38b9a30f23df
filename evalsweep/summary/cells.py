"""One cell: runs that differ only in their seed, with every number that a report gives of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evalsweep.identity import describe, without_seed
from evalsweep.record import FINISHED, Record, Scores
from evalsweep.stats.components import components
from evalsweep.stats.estimate import NEW_QUESTIONS, Estimate
from evalsweep.stats.questions import CLOSE, SHARES, new_questions
from evalsweep.stats.runs import median_interval, run_interval, spread
from evalsweep.summary.documents import Scored, Table, macro_weights, table
from evalsweep.summary.types import Cell, Group, Metric, Run, Variance

MOST_GROUPS = 100  # groups that have a score of their own; passages are more, and a few questions each
Member = tuple[str, Record]  # directory name and record


def has_score(record: Record) -> bool:
    return record.status == FINISHED and is_number(record.metrics.get(str(record.headline)))


def is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)  # JSON's null stands for what was not finite


def cell(
    members: Sequence[Member], keys: Sequence[str], scores: Mapping[str, Scores]
) -> tuple[Cell, Table | None, list[str]]:
    """The cell of some runs, the table of its headline, and a line for whatever is missing.

    Args:
        keys: the dotted keys in which the sweep's cells differ.
        scores: those of the runs' documents, by directory; a run that is not in it has none.
    """
    first = members[0][1]
    headline = str(first.headline)
    hashes = {r.responses_hash for _, r in members}
    identical = len(members) > 1 and len(hashes) == 1 and None not in hashes
    resampled = is_resampled(members)
    per_metric: dict[str, Metric] = {}
    tables: dict[str, Table | None] = {}
    lines: list[str] = []
    for name in first.metrics:
        values = [v for _, r in members if (v := r.metrics.get(name)) is not None and math.isfinite(v)]
        if len(values) < len(members):
            continue
        share = first.info(name).is_share
        low, high = _bounds(first, name, values)
        made, complaints = _table(members, scores, name)
        tables[name] = made
        lines += complaints if name == headline else []
        per_metric[name] = Metric(
            spread(values),
            run_interval(values, identical=identical, bounds=(low, high)),
            None if made is None or made.reason else _questions(made, share, identical, resampled),
        )
    lines += _cut(members, scores)
    main, seen = per_metric[headline], tables[headline]
    interval = main.interval
    if identical and interval.reason:
        same_shots = len({r.provenance.get("shots_hash") for _, r in members}) == 1
        what = "changed neither shots nor samples" if same_shots else "changed the shots, but no answer"
        interval = replace(interval, reason=f"the seed {what}: {interval.reason}")
    made_of = Cell(
        task=str(first.config["task"]["name"]),
        metric=headline.partition("/")[2],
        differs=describe(first.config, keys),
        runs=tuple(
            Run(
                r.seeds["generation"],
                _value(r, headline),
                d,
                r.seconds,
                r.metrics.get("generation/tokens"),
                r.provenance.get("shots_hash"),
            )
            for d, r in members
        ),
        identical=identical,
        documents=len(seen.documents) if seen else first.documents,
        spread=main.spread,
        interval=interval,
        questions=main.questions or _no_questions(main.spread.mean, seen, members, scores),
        median=_median([_value(r, headline) for _, r in members], identical),
        macro=_macro(seen, first.info(headline).is_share, identical, resampled),
        groups=_groups(seen, first.info(headline).is_share, identical),
        variance=_variance(seen, identical),
        per_metric=per_metric,
        resampled=resampled,
        config=without_seed(first.config),
        decoding=first.decoding,
        provenance=first.provenance,
    )
    return made_of, seen, lines


def _bounds(record: Record, name: str, values: Sequence[float]) -> tuple[float, float]:
    """Give the bounds of a run's score: its metric's, unless a score lies outside of them."""
    low, high = (
        limit if limit is not None else other for limit, other in zip(record.info(name).bounds, _OPEN, strict=True)
    )
    return (low, high) if low <= min(values) and max(values) <= high else _OPEN


_OPEN = (-math.inf, math.inf)


def _value(record: Record, name: str) -> float:
    """Give a score that is known to be a number."""
    value = record.metrics[name]
    assert value is not None
    return value


def _cut(members: Sequence[Member], scores: Mapping[str, Scores]) -> list[str]:
    """A line for each run that left fewer documents than its score was made of."""
    return [
        f"{found.source}: {len(found.documents)} of the {record.documents} documents that the score was made of"
        for directory, record in members
        if (found := scores.get(directory)) is not None and len(found.documents) < record.documents
    ]


def is_resampled(members: Sequence[Member]) -> bool:
    """Whether each run was meant to have shots of its own, and they are not known to have been the same."""
    shots = {r.provenance.get("shots_hash") for _, r in members}
    meant = members[0][1].config["fewshot"]["name"] == "resampled"
    return meant and (len(members) == 1 or len(shots) > 1 or None in shots)


def _table(members: Sequence[Member], scores: Mapping[str, Scores], name: str) -> tuple[Table | None, list[str]]:
    task, _, metric = name.partition("/")
    runs = [
        Scored(scores[d], _value(r, name), r.documents)
        for d, r in members
        if d in scores and metric in scores[d].values
    ]
    whole = task == str(members[0][1].headline).partition("/")[0]  # not one of its parts
    if len(runs) < len(members) or not whole:
        return None, []
    return table(runs, metric)


def _questions(made: Table, share: bool, identical: bool, resampled: bool) -> Estimate:
    return new_questions(
        made.scores_DR[:, :1] if identical else made.scores_DR,
        groups_D=np.array(made.groups) if made.grouped else None,
        weights_D=made.weights_D,
        resampled=resampled and not identical,
        shares=_are_shares(made, share),
    )


def _no_questions(mean: float, seen: Table | None, members: Sequence[Member], scores: Mapping[str, Scores]) -> Estimate:
    metric = str(members[0][1].headline).partition("/")[2]
    if seen and seen.reason:
        reason = seen.reason
    elif any(d not in scores for d, _ in members):
        reason = "the documents of a run are not known"
    elif not all(metric in scores[d].values for d, _ in members):
        reason = (
            f"no document has a score of {metric} by itself: only another run of the same questions has an interval"
        )
    else:
        reason = "the runs have no document in common"
    return Estimate(mean, None, None, 0.95, SHARES, NEW_QUESTIONS, 0, reason)


def _median(values: Sequence[float], identical: bool) -> Estimate:
    found = median_interval(values)
    if identical:
        reason = f"{len(values)} identical runs count as one"
        return replace(found, low=None, high=None, n=1, reason=reason)
    return found


def _macro(seen: Table | None, share: bool, identical: bool, resampled: bool) -> Estimate | None:
    if seen is None or seen.reason or not seen.grouped:
        return None
    return _questions(replace(seen, weights_D=macro_weights(seen.groups)), share, identical, resampled)


def _groups(seen: Table | None, share: bool, identical: bool) -> tuple[Group, ...]:
    """Each group by itself, on new questions of the same group."""
    if seen is None or not seen.grouped or len(set(seen.groups)) > MOST_GROUPS:
        return ()
    groups = np.array(seen.groups)
    scores = seen.scores_DR[:, :1] if identical else seen.scores_DR
    shares = _are_shares(seen, share)
    return tuple(
        Group(group, new_questions(scores[groups == group], shares=shares)) for group in dict.fromkeys(seen.groups)
    )


def _variance(seen: Table | None, identical: bool) -> Variance | None:
    if seen is None or len(seen.documents) < 2:
        return None
    found = components(seen.scores_DR[:, :1] if identical else seen.scores_DR, weights_D=seen.weights_D)
    return Variance(float(found.documents), float(found.runs), float(found.rest), found.shares())


def _are_shares(made: Table, share: bool) -> bool:
    """Whether scores are shares of a document: their metric's bounds say so, and none lies outside of them."""
    return share and float(made.scores_DR.min()) >= -CLOSE and float(made.scores_DR.max()) <= 1 + CLOSE
