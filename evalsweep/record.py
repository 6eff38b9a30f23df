"""The types on disk: a sample is one document with its answers, a record is one finished run."""

from __future__ import annotations

import functools
import hashlib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from evalsweep.errors import BadInput, did_you_mean
from evalsweep.metrics import UNBOUNDED, UNIT, Metric, of_lm_eval

SCHEMA = 3
OLDER = 2  # without metric_info, thinking and readings: read all the same
FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"


@dataclass(frozen=True)
class Shot:
    """A few-shot example: its position in the pool, and its text as it stands in a prompt."""

    id: int
    text: str


@dataclass(frozen=True)
class Sample:
    """One document of one run: a line of samples.jsonl.gz.

    `responses` holds one string an answer; for multiple choice the log-likelihood of each choice. `scores` maps a
    metric, as lm_eval names it, to the mean over the answers. `outcomes` holds one line an answer that was run as code:
    how that went. `flags` names what a reader of the score must know;
    `lost` counts the tokens and whole shots of the prompt that did not reach the model. `group` is what the document
    belongs to within its task, such as a passage; empty where it stands alone. `thinking` holds the thinking part of
    each answer, which is not in `responses` and not scored; `readings` what was read from each: value, the words, where
    they stand in the answer (-1: not known), and why that may be doubted; None where nothing was read. Both are empty
    where they do not apply.
    """

    task: str
    doc_id: int
    doc_hash: str
    prompt: str
    prompt_hash: str
    shots: list[Shot]
    target: str
    responses: list[Any]
    scores: dict[str, float]
    outcomes: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    group: str = ""
    thinking: list[str] = field(default_factory=list)
    readings: list[Any] = field(default_factory=list)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sample:
        """Errors: ValueError for a missing or an unknown field, or one of another type."""
        if isinstance(data, dict):
            for name, empty in (("group", ""), ("thinking", []), ("readings", [])):
                data.setdefault(name, empty)  # samples of earlier versions
        _check(Sample, data)
        _check_items(data, _ITEMS)
        shots = [Shot(shot["id"], shot["text"]) for shot in data["shots"] if _check(Shot, shot)]
        return Sample(**{**data, "shots": shots})


def group_of(document: Mapping[str, Any], field_name: str | None) -> str:
    """The group of a document of a dataset, by the field that names it; a hash where that is long, as a passage is.

    Errors: BadInput where the document lacks the field.
    """
    if field_name is None:
        return ""
    if field_name not in document:
        near = did_you_mean(field_name, map(str, document))
        problem = f"is no field of every document{near}; one has {', '.join(map(str, document)) or 'none'}"
        raise BadInput(f"group by {field_name}", problem)
    name = str(document[field_name])
    return name if len(name) <= 60 else hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Scores:
    """What a summary needs of a run's samples: an entry a document, in their order.

    `source` is where they were read, `documents` are named task/doc_id, `hashes` are those of the questions, `groups`
    the tasks that they belong to, or task/group; `values` maps a metric to a score a document, None where it has none.
    """

    source: str
    documents: list[str]
    hashes: list[str]
    groups: list[str]
    values: dict[str, list[float | None]]

    @staticmethod
    def of(source: str, samples: Iterable[Sample]) -> Scores:
        """Errors: ValueError for a score that is no number."""
        found = Scores(source, [], [], [], {})
        for sample in samples:
            name = f"{sample.task}/{sample.doc_id}"
            for metric, score in sample.scores.items():
                if score is not None and not isinstance(score, int | float):
                    raise ValueError(f"{name}: {metric} is {score!r}, which is no number")
                column = found.values.setdefault(metric, [])
                column += [None] * (len(found.documents) - len(column))
                column.append(score)
            found.documents.append(name)
            found.hashes.append(sample.doc_hash)
            found.groups.append(f"{sample.task}/{sample.group}" if sample.group else sample.task)
        for column in found.values.values():
            column += [None] * (len(found.documents) - len(column))
        return found


@dataclass(frozen=True)
class Alarm:
    """What a reader of a run's score must know: `message` is one line.

    `kind` names it (`capped`, `truncated`, ...); `count` of `total` are concerned (0 of 0: the run as a whole), the
    worst of which are `documents`, as task/doc_id.
    """

    kind: str
    message: str
    count: int = 0
    total: int = 0
    documents: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Record:
    """One run: record.json, whose presence says that the run is over.

    `metrics` maps `task/metric` to a number, or to None where nobody can count it; `headline` is the key of the one
    that tables show; `metric_info` holds bounds, aggregation and direction of scores by the same keys. `decoding` is
    what was sent to the engine. Runs with one `cell_hash` differ only in their seed; it is made before secrets are
    taken out of `config`. `responses_hash` is equal for two runs only where every answer is. `started` is in seconds
    since the epoch, `error` one line.
    """

    run_id: str
    config_hash: str
    cell_hash: str
    status: str
    config: dict[str, Any]
    decoding: dict[str, Any]
    seeds: dict[str, int]
    provenance: dict[str, Any]
    metrics: dict[str, float | None]
    headline: str | None
    responses_hash: str | None
    documents: int
    alarms: list[Alarm]
    error: str | None
    started: float
    seconds: float
    metric_info: dict[str, dict[str, Any]] = field(default_factory=dict)
    schema: int = SCHEMA

    def info(self, metric: str) -> Metric:
        """Give what is known of the metric of this key."""
        name = metric.partition("/")[2]
        found = self.metric_info.get(metric)
        if found is None:
            return Metric(name, UNBOUNDED, None, None)
        low, high = found["bounds"]
        return Metric(name, (low, high), found["aggregation"], found["higher_is_better"])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        """Errors: ValueError for another schema, a missing or an unknown field."""
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema == OLDER:
            named = data.get("metrics")
            info = {
                name: {k: v for k, v in asdict(known_before(name)).items() if k != "name"}
                for name in (named if isinstance(named, Mapping) else ())
            }
            data = {**data, "metric_info": info, "schema": SCHEMA}
        elif schema != SCHEMA:
            raise ValueError(f"schema {schema!r} is not {SCHEMA}, the one this version reads")
        _check(Record, data)
        _check_items(data, {"metrics": (int, float, type(None)), "seeds": (int,)})
        for group in ("model", "task", "fewshot"):
            if not isinstance(data["config"].get(group), Mapping) or "name" not in data["config"][group]:
                raise ValueError(f"config.{group}.name is missing")
        if "generation" not in data["seeds"]:
            raise ValueError("seeds.generation is missing")
        alarms = [Alarm(**alarm) for alarm in data["alarms"] if _check(Alarm, alarm)]
        return Record(**{**data, "alarms": alarms})


def known_before(key: str) -> Metric:
    """Give what earlier versions knew of a metric by its name, for records that do not say."""
    name = key.partition("/")[2]
    if name.startswith(("pass@", "maj@", "numeric")):
        return Metric(name, UNIT, "mean", True)
    return of_lm_eval(name)


def _check(kind: type, data: Any) -> bool:
    """Errors: ValueError where `data` has not the fields of the dataclass `kind`, or one of another type."""
    if type(data) is not dict:
        raise ValueError(f"{kind.__name__.lower()}: {type(data).__name__} is no mapping")
    allowed = _types(kind)
    if data.keys() != allowed.keys():
        raise ValueError(f"fields differ from schema {SCHEMA}: {', '.join(sorted(set(data) ^ set(allowed)))}")
    for name, of in allowed.items():
        if of and type(data[name]) not in of:
            raise ValueError(f"{name} is {type(data[name]).__name__}, not {' or '.join(t.__name__ for t in of)}")
    return True


_ITEMS = {
    "responses": (str, int, float, type(None)),
    "flags": (str,),
    "outcomes": (str,),
    "thinking": (str,),
    "readings": (dict, type(None)),
}


@functools.cache
def _types(kind: type) -> dict[str, tuple[type, ...]]:
    """The types that each field of a dataclass may have in JSON; none where any will do."""
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = tuple(typing.get_origin(part) or part for part in parts)
        found[name] = () if Any in plain else (*plain, int) if float in plain else plain
    return found


def _check_items(data: Mapping[str, Any], allowed: Mapping[str, tuple[type, ...]]) -> None:
    for name, of in allowed.items():
        for item in data[name].values() if type(data[name]) is dict else data[name]:
            if type(item) not in of:
                raise ValueError(f"{name} holds {type(item).__name__}, not {' or '.join(t.__name__ for t in of)}")


@dataclass(frozen=True)
class Difference:
    """A run repeated under another `condition`, against the run itself, document by document.

    `texts` of `answers` differ (None where nothing is generated), `scores` of `documents` differ (None where the task
    scores them together alone), and the mean score moves by `mean`; `largest` is the most by which a log-likelihood
    moved (None where texts are generated).
    """

    condition: str
    answers: int
    texts: int | None
    documents: int
    scores: int | None
    mean: float
    largest: float | None


@dataclass(frozen=True)
class Audit:
    """What a look at one job on a few documents found.

    `tokens` are the ids of the prompt of the first document as the model gets it, `prompt` is its text; both are whole,
    and `tokens` is empty for a server. `noise_floor` is the most by which anything but the model, the seed and the
    settings moved a score: the largest `mean` of the differences, as a number without a sign.
    """

    name: str
    config: dict[str, Any]
    config_hash: str
    metric: str
    score: float
    documents: int
    prompt: str
    tokens: list[int]
    shots: list[Shot]
    decoding: dict[str, Any]
    provenance: dict[str, Any]
    alarms: list[Alarm]
    differences: list[Difference]
    skipped: dict[str, str]
    noise_floor: float
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
