"""A sweep's records to its Summary: cells, comparisons, failures, alarms, axes that did nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evalsweep.identity import flat, identity, varying, without_seed
from evalsweep.record import Alarm, Record, Scores
from evalsweep.summary.cells import cell, has_score
from evalsweep.summary.compare import comparisons, versions
from evalsweep.summary.types import Cell, Failure, Job, Summary


def summarise(
    records: Sequence[tuple[str, Record]],
    asked: Sequence[Job] = (),
    broken: Mapping[str, str] | None = None,
    scores: Mapping[str, Scores] | None = None,
    problems: Sequence[str] = (),
) -> Summary:
    """Summarise the records of one sweep.

    Args:
        records: directory name and record of each run that left one.
        asked: the jobs of the grid; those without a record are reported as missing. Empty where it is not known.
        broken: directory name to one line of why its record cannot be read.
        scores: directory name to the scores of its documents, for what is told of new questions.
        problems: what else is known to be missing, a line each.
    """
    names = {job.config_hash: job.name for job in asked}
    rank = {job.config_hash: i for i, job in enumerate(asked)}
    ordered = sorted(records, key=lambda pair: rank.get(pair[1].config_hash, len(rank)))
    finished = [(d, r) for d, r in ordered if has_score(r)]
    failed = [
        Failure(names.get(r.config_hash, d), r.status, r.error or f"{d}: its score is not a finite number", d)
        for d, r in ordered
        if not has_score(r)
    ]
    broken = broken or {}
    failed += [Failure(d, "UNREADABLE", line, d) for d, line in broken.items()]
    left = {r.config_hash for _, r in ordered}
    failed += [
        Failure(job.name, "MISSING", "the job left no record: it never started, or was killed", job.directory)
        for job in asked
        if job.config_hash not in left and job.directory not in broken
    ]
    keys = [k for k in varying([without_seed(r.config) for _, r in finished]) if k != "task.name"] if finished else []
    groups: dict[tuple[str, ...], list[tuple[str, Record]]] = {}
    for directory, record in finished:
        groups.setdefault((record.cell_hash, *_samplers(record)), []).append((directory, record))
    repeats = _repeats(groups)
    made = [cell(members, keys, scores or {}) for members in groups.values()]
    cells = tuple(one for one, _, _ in made)
    told = [line for _, _, lines in made for line in lines]
    return Summary(
        cells=cells,
        comparisons=comparisons(cells, [table for _, table, _ in made]),
        failed=tuple(failed),
        problems=(*problems, *dict.fromkeys(told)),
        warnings=(
            *_alarms([r for _, r in finished]),
            *_dead_axes([r for _, r in finished], keys),
            *_unlike(list(groups.values())),
            *_two_runs(cells),
            *_two_samplers(list(groups.values())),
            *repeats,
        ),
        jobs=len(asked) or len(records) + len(broken),
    )


def _samplers(record: Record) -> list[str]:
    """Give what drew the tokens: runs of two samplers are not one cell, since equal seeds are other noise in each."""
    return sorted({str(sent["sampler"]) for sent in record.decoding.get("sent", []) if "sampler" in sent})


def _two_samplers(cells: Sequence[Sequence[tuple[str, Record]]]) -> list[str]:
    by_hash: dict[str, list[str]] = {}
    for members in cells:
        record = members[0][1]
        by_hash.setdefault(record.cell_hash, []).append(", ".join(_samplers(record)) or "not recorded")
    return [
        f"runs that differ only in what drew their tokens are {len(names)} cells: {' | '.join(names)}"
        for names in by_hash.values()
        if len(names) > 1
    ]


def _repeats(cells: Mapping[tuple[str, ...], list[tuple[str, Record]]]) -> list[str]:
    """Take out runs that were found twice, as copies are: the same seeds and the same answers."""
    lines = []
    for members in cells.values():
        seen: dict[Any, str] = {}
        for directory, record in list(members):
            key = (record.responses_hash, *sorted(record.seeds.items()))
            if record.responses_hash is None or seen.setdefault(key, directory) == directory:
                continue
            members.remove((directory, record))
            lines.append(f"{directory} repeats {seen[key]}, seeds and answers: the two count as one run")
    return lines


def _two_runs(cells: Sequence[Cell]) -> list[str]:
    names = [one.name for one in cells if one.resampled and len(one.runs) == 2 and not one.identical]
    if not names:
        return []
    return [
        f"two runs tell next to nothing of what other shots would do ({names[0]}): the interval is long; run 5 seeds"
    ]


def _unlike(cells: Sequence[Sequence[tuple[str, Record]]]) -> list[str]:
    """Runs of one cell that are not of like with like: libraries of other versions, another device."""
    lines = []
    for members in cells:
        about = [
            {**{f"version of {k}": v for k, v in versions(r.provenance).items()}, "device": r.provenance.get("device")}
            for _, r in members
        ]
        for key in dict.fromkeys(key for one in about for key in one):
            values = {str(one.get(key)) for one in about}
            if len(values) > 1:
                task = members[0][1].config["task"]["name"]
                lines.append(f"runs of {task} that count as alike differ in {key}: {', '.join(sorted(values))}")
    return list(dict.fromkeys(lines))


def _alarms(records: Sequence[Record]) -> list[str]:
    """One line for each kind of alarm of a task: the worst of its runs, and how many have it where not all do."""
    runs = Counter(str(r.config["task"]["name"]) for r in records)
    found: dict[tuple[str, str, str], list[Alarm]] = {}
    for record in records:
        for alarm in record.alarms:
            what = "" if alarm.total else alarm.message  # where nothing is counted, another model has another line
            found.setdefault((str(record.config["task"]["name"]), alarm.kind, what), []).append(alarm)
    lines = []
    for (task, *_), alarms in found.items():
        worst = max(alarms, key=lambda alarm: alarm.count)
        partly = worst.total and len(alarms) < runs[task]
        some = f" (at worst; in {len(alarms)} of {runs[task]} runs)" if partly else ""
        lines.append(worst.message + some)
    return list(dict.fromkeys(lines))


def _dead_axes(records: Sequence[Record], keys: Sequence[str]) -> list[str]:
    """The axes of the sweep, other than the seed, that changed not one answer of a task."""
    lines = []
    for key in keys:
        option = key.removesuffix(".name")
        for task in dict.fromkeys(str(r.config["task"]["name"]) for r in records):
            own = [r for r in records if r.config["task"]["name"] == task]
            if option == "temperature" and "dead_temperature" in {a.kind for r in own for a in r.alarms}:
                continue  # said already
            alike: dict[str, list[Record]] = {}
            for record in own:
                alike.setdefault(json.dumps(_without(record.config, option), sort_keys=True), []).append(record)
            groups = [group for group in alike.values() if len({_at(r.config, option) for r in group}) > 1]
            if groups and all(len({r.responses_hash or r.run_id for r in group}) == 1 for group in groups):
                lines.append(f"{option} changed no answer of {task}")
    return lines


def _without(config: Mapping[str, Any], option: str) -> dict[str, Any]:
    """The identity of a run without an option (`temperature`, `prompt`, `task.samples`) and what belongs to it."""
    group, _, key = option.partition(".")
    kept = {k: v for k, v in identity(config).items() if k != (None if key else group)}
    if key:
        kept[group] = {k: v for k, v in flat(kept[group]).items() if k != key}
    if option == "temperature":
        kept.pop("decoding")
    return kept


def _at(config: Mapping[str, Any], option: str) -> str:
    group, _, key = option.partition(".")
    return json.dumps(flat(config[group]).get(key) if key else config[group], sort_keys=True)
