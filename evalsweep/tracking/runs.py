"""Mirrors sweeps and records to MLflow; whatever is sent can be sent again from the run directory."""

from __future__ import annotations

import math
import string
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalsweep import store
from evalsweep.config import TrackingConfig
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash
from evalsweep.record import Record
from evalsweep.redact import redact
from evalsweep.summary.types import Summary
from evalsweep.tracking import connection, view

KIND = "evalsweep.kind"  # sweep | job
NOTE = "mlflow.note.content"
SOURCE = "mlflow.source.name"
TABLE = "samples.json"
# MLflow cuts longer ones with only a warning
MAX_PARAM, MAX_TAG, MAX_METRIC = 6000, 8000, 250
_ALLOWED = frozenset(string.ascii_letters + string.digits + "-_. :/")
_NAMED = {",": "/", "@": "_at_"}


def open_sweep(tracking: TrackingConfig, uid: str, name: str, command: str, single: bool) -> str | None:
    """Make sure that database and experiment exist before any job starts, and open the sweep's parent run.

    Returns the parent's id; None where tracking is off, or for a single run, which needs no parent.

    Errors: BadInput where the server or database cannot be reached.
    """
    if tracking.name == "off":
        return None
    uri = connection.tracking_uri(tracking)
    connection.check_reachable(uri)
    for pause in (2, 5, None):
        try:
            with connection.reaching(uri):
                client = connection.client(tracking)
                experiment = connection.experiment_id(client, tracking)
                tags = {KIND: "sweep", SOURCE: command}
                return None if single else connection.find_or_create(client, experiment, uid, name, tags, None)
        except BadInput as e:
            # two processes that make one new database get in each other's way; the other will be done in a moment
            if pause is None or not any(sign in str(e) for sign in ("duplicate column", "already exists")):
                raise
            time.sleep(pause)
    raise AssertionError("the last round returns or raises")


def push_record(
    tracking: TrackingConfig, record: Record, run_dir: Path, name: str, parent: str | None, note: str
) -> str | None:
    """Mirror one run: params, versions, metrics, prompts and samples; gives MLflow's run id.

    Errors: BadInput where MLflow cannot be reached; the run directory is then still whole.
    """
    if tracking.name == "off":
        return None
    from mlflow.entities import Metric, Param, RunTag

    with connection.reaching(connection.tracking_uri(tracking)):
        client = connection.client(tracking)
        experiment = connection.experiment_id(client, tracking)
        started = int(record.started * 1000)
        ended = started + int(record.seconds * 1000)
        tags = {KIND: "job"} | ({"mlflow.parentRunId": parent} if parent else {})
        run_id = connection.find_or_create(client, experiment, record.run_id, name, tags, started)
        metrics = _sendable(record.metrics | {"time/total_s": record.seconds})
        client.log_batch(
            run_id,
            metrics=[Metric(k, v, ended, 0) for k, v in metrics.items()],
            params=[Param(k, v[:MAX_PARAM]) for k, v in _params(record).items()],
            tags=[RunTag(k, v[:MAX_TAG]) for k, v in {**_tags(record), NOTE: _with_note(tracking, note)}.items()],
        )
        _log_dataset(client, run_id, record)
        for file in (store.RECORD, store.SAMPLES, store.LOG):
            if (run_dir / file).exists():
                client.log_artifact(run_id, str(run_dir / file))
        if (run_dir / store.SAMPLES).exists():
            # not log_table, which appends: a run that is sent twice would have every sample twice
            client.log_dict(run_id, _sample_table(run_dir), TABLE)
            client.set_tag(run_id, "mlflow.loggedArtifacts", f'[{{"path": "{TABLE}", "type": "table"}}]')
            client.log_text(run_id, _first_prompt(run_dir), "prompt.txt")
        client.set_terminated(run_id, status=record.status, end_time=ended)
        return run_id


def push_summary(
    tracking: TrackingConfig, run_id: str, summary: Summary, sweep_dir: Path, note: str, ended: bool
) -> str:
    """Put a sweep's numbers, note and report on its parent run, and end it (as killed, where it was `ended` early).

    Returns where in MLflow's pages the sweep's jobs are shown with their scores.

    Errors: BadInput where MLflow cannot be reached.
    """
    from mlflow.entities import Metric, RunTag

    with connection.reaching(connection.tracking_uri(tracking)):
        client = connection.client(tracking)
        metrics = [Metric(k, v, 0, 0) for k, v in _sendable(_summary_metrics(summary)).items()]
        tags = {NOTE: _with_note(tracking, note)[:MAX_TAG], "evalsweep.failed_jobs": str(len(summary.failed))}
        client.log_batch(run_id, metrics=metrics, tags=[RunTag(k, v) for k, v in tags.items()])
        for file in (store.PAGE, store.MARKDOWN, store.RESULTS, store.SUMMARY, *store.PICTURES, store.SWEEP):
            if (sweep_dir / file).exists():
                client.log_artifact(run_id, str(sweep_dir / file))
        if (sweep_dir / store.TEXTS).exists():
            client.log_artifacts(run_id, str(sweep_dir / store.TEXTS), store.TEXTS)
        status = "KILLED" if ended else "FAILED" if summary.failed else "FINISHED"
        client.set_terminated(run_id, status=status)
        headlines = metric_names(dict.fromkeys(f"{cell.task}/{cell.metric}" for cell in summary.cells))
        differs = dict.fromkeys(key for cell in summary.cells for key in cell.differs)
        columns = [f"metrics.`{name}`" for name in headlines.values()] + [f"params.`{key}`" for key in differs]
        experiment = connection.experiment_id(client, tracking)
        view.save(client, experiment, run_id, [*columns, "params.`seed`"])
        return view.path(experiment)


def metric_names(names: Iterable[str]) -> dict[str, str]:
    """Metrics in the letters that MLflow allows: `sample/exact_match,number` is `sample/exact_match/number`.

    `,` becomes `/`, `@` becomes `_at_`, and any other letter that MLflow refuses its code. Different names stay
    different: where two would become one, or a name is too long, a hash is added.
    """
    found: dict[str, str] = {}
    for name in names:
        safe = "".join(_NAMED.get(c, c if c in _ALLOWED else f"_{ord(c):x}_") for c in name)
        if len(safe) > MAX_METRIC or safe in found.values():
            safe = f"{safe[: MAX_METRIC - 9]}_{text_hash(name)[:8]}"
        found[name] = safe
    return found


def _params(record: Record) -> dict[str, str]:
    """The configuration, flat and without secrets; empty settings are left out."""
    flat: dict[str, str] = {}

    def walk(value: Any, key: str) -> None:
        if isinstance(value, Mapping):
            for k, v in value.items():
                walk(v, f"{key}.{k}" if key else str(k))
        elif value not in (None, [], ""):
            # the option names of groups are what people compare: `model`, `task`, `prompt`
            flat[key.removesuffix(".name")] = str(value)

    walk({k: v for k, v in record.config.items() if k != "tracking"}, "")
    return flat


def _tags(record: Record) -> dict[str, str]:
    provenance = dict(record.provenance)
    versions = {f"version.{k}": str(v) for k, v in provenance.pop("versions", {}).items()}
    others = {f"provenance.{k}": str(v) for k, v in provenance.items() if v not in (None, [], "")}
    return {
        **versions,
        **others,
        SOURCE: str(provenance.get("command")),
        "mlflow.source.type": "LOCAL",
        **({"mlflow.source.git.commit": commit} if (commit := provenance.get("git_commit")) else {}),
        "config_hash": record.config_hash,
        "responses_hash": str(record.responses_hash),
        "decoding": str(record.decoding),
        **({"error": record.error} if record.error else {}),
        **({"alarms": "; ".join(alarm.message for alarm in record.alarms)} if record.alarms else {}),
    }


def _summary_metrics(summary: Summary) -> dict[str, float]:
    """`task/[cell/]statistic` to number, for each cell of the sweep."""
    found: dict[str, float] = {}
    for task, cells in summary.by_task().items():
        for cell in cells:
            label = " ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in cell.differs.items())
            prefix = f"{task}/{label}/" if len(cells) > 1 else f"{task}/"
            numbers = {
                "mean": cell.spread.mean,
                "sd": cell.spread.sd,
                "median": cell.spread.median,
                "min": cell.spread.min,
                "max": cell.spread.max,
                "n": float(cell.spread.n),
                "ci_low": cell.interval.low,
                "ci_high": cell.interval.high,
                "new_questions_low": cell.questions.low,
                "new_questions_high": cell.questions.high,
            }
            found |= {prefix + k: v for k, v in numbers.items() if v is not None}
    return found


def _sendable(metrics: Mapping[str, float | None]) -> dict[str, float]:
    names = metric_names(metrics)
    return {names[k]: v for k, v in metrics.items() if v is not None and math.isfinite(v)}


def _log_dataset(client: Any, run_id: str, record: Record) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    digest = record.provenance.get("dataset_fingerprint")
    if not digest:
        return  # the job failed before it read its data
    dataset = Dataset(
        name=str(record.config["task"]["name"]),
        digest=str(digest)[:36],
        source_type="evalsweep",
        source=str(record.provenance.get("dataset_source")),
        profile=f'{{"documents": {record.documents}}}',
    )
    client.log_inputs(run_id, [DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "evaluation")])])


def _sample_table(run_dir: Path) -> dict[str, list[Any]]:
    """MLflow's own format of a table, which its pages compare over runs by document."""
    rows = [
        {
            "document": f"{s.task}/{s.doc_id}",
            "prompt": s.prompt,
            "target": s.target,
            "responses": " | ".join(map(str, s.responses)),
            **s.scores,
        }
        for s in store.read_samples(run_dir)
    ]
    columns = list(dict.fromkeys(k for row in rows for k in row))
    return {"columns": columns, "data": [[row.get(c) for c in columns] for row in rows]}


def _first_prompt(run_dir: Path) -> str:
    return next((s.prompt for s in store.read_samples(run_dir)), "")


def _with_note(tracking: TrackingConfig, note: str) -> str:
    return redact(f"{tracking.note}\n\n{note}" if tracking.note else note)
