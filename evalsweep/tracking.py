"""Mirrors sweeps and records to MLflow; whatever is sent can be sent again from the run directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from evalsweep import store
from evalsweep.config import TrackingConfig
from evalsweep.errors import BadInput, first_line
from evalsweep.record import Record
from evalsweep.redact import redact
from evalsweep.summary import Summary, cells_by_task

UID = "evalsweep.uid"  # finds a run again, so that sending twice makes one run
KIND = "evalsweep.kind"  # sweep | job
NOTE = "mlflow.note.content"
# MLflow cuts longer ones with only a warning
MAX_PARAM, MAX_TAG = 6000, 8000

# The default of 7 retries with doubling pauses would hold a finished job for minutes when a server is gone.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")


def open_sweep(tracking: TrackingConfig, uid: str, name: str, single: bool) -> str | None:
    """Make sure that database and experiment exist before any job starts, and open the sweep's parent run.

    Returns the parent's id; None where tracking is off, or for a single run, which needs no parent.

    Errors: BadInput where the server or database cannot be reached.
    """
    if tracking.name == "off":
        return None
    uri = tracking_uri(tracking)
    _check_reachable(uri)
    with _reaching(uri):
        client = _client(tracking)
        experiment = _experiment(client, tracking)
        if single:
            return None
        return _find_or_create(client, experiment, uid, name, {KIND: "sweep"}, None)


def push_record(
    tracking: TrackingConfig, record: Record, run_dir: Path, name: str, parent: str | None, note: str
) -> str | None:
    """Mirror one run: params, versions, metrics, prompts and samples; gives MLflow's run id.

    Errors: BadInput where MLflow cannot be reached; the run directory is then still whole.
    """
    if tracking.name == "off":
        return None
    from mlflow.entities import Metric, Param, RunTag

    with _reaching(tracking_uri(tracking)):
        client = _client(tracking)
        experiment = _experiment(client, tracking)
        started = int(record.started * 1000)
        ended = started + int(record.seconds * 1000)
        tags = {KIND: "job"} | ({"mlflow.parentRunId": parent} if parent else {})
        run_id = _find_or_create(client, experiment, record.run_id, name, tags, started)
        metrics = {metric_name(k): v for k, v in record.metrics.items()} | {"time/total_s": record.seconds}
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
            client.log_table(run_id, _sample_table(run_dir), "samples.json")
            client.log_text(run_id, _first_prompt(run_dir), "prompt.txt")
        client.set_terminated(run_id, status=record.status, end_time=ended)
        return run_id


def push_summary(
    tracking: TrackingConfig, run_id: str, summary: Summary, sweep_dir: Path, note: str, *, finish: bool
) -> None:
    """Put a sweep's numbers, note and picture on its parent run (or on a single run itself).

    Errors: BadInput where MLflow cannot be reached.
    """
    from mlflow.entities import Metric, RunTag

    with _reaching(tracking_uri(tracking)):
        client = _client(tracking)
        metrics = [Metric(k, v, 0, 0) for k, v in _summary_metrics(summary).items()] if finish else []
        tags = {NOTE: _with_note(tracking, note)[:MAX_TAG], "evalsweep.failed_jobs": str(len(summary.failed))}
        client.log_batch(run_id, metrics=metrics, tags=[RunTag(k, v) for k, v in tags.items()])
        for file in (store.RESULTS, store.NOTE, store.PICTURE, store.SWEEP):
            if (sweep_dir / file).exists():
                client.log_artifact(run_id, str(sweep_dir / file))
        if finish:
            client.set_terminated(run_id, status="FAILED" if summary.failed else "FINISHED")


def tracking_uri(tracking: TrackingConfig) -> str:
    """Where runs go: what was asked, else a database in the working directory."""
    return tracking.uri or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def metric_name(name: str) -> str:
    """A metric in the letters that MLflow allows: `gsm8k/exact_match,strict-match` is `gsm8k/exact_match/strict-match`.

    Different names stay different: what is not allowed becomes `_` and its code, as `@` becomes `_at_`.
    """
    named = {",": "/", "@": "_at_"}
    safe = "".join(named.get(c, c if c.isascii() and (c.isalnum() or c in "-_. :/") else f"_{ord(c):x}_") for c in name)
    return safe[:250]


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
        "config_hash": record.config_hash,
        "responses_hash": str(record.responses_hash),
        "decoding": str(record.decoding),
        **({"error": record.error} if record.error else {}),
        **({"alarms": "; ".join(record.alarms)} if record.alarms else {}),
    }


def _summary_metrics(summary: Summary) -> dict[str, float]:
    """`task/[cell/]statistic` to number, for each cell of the sweep."""
    found: dict[str, float] = {}
    for task, cells in cells_by_task(summary).items():
        for cell in cells:
            label = " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in cell.differs.items())
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
            }
            found |= {metric_name(prefix + k): v for k, v in numbers.items() if v is not None}
    return found


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
    """Columns for MLflow's table of samples, which compares runs by document."""
    rows = [
        {
            "document": f"{s.task}/{s.doc_id}",
            "prompt": s.prompt,
            "target": s.target,
            "responses": " | ".join(map(str, s.responses)),
            **{metric_name(k): v for k, v in s.scores.items()},
        }
        for s in store.read_samples(run_dir)
    ]
    columns = list(dict.fromkeys(k for row in rows for k in row))
    return {c: [row.get(c) for row in rows] for c in columns}


def _first_prompt(run_dir: Path) -> str:
    return next((s.prompt for s in store.read_samples(run_dir)), "")


def _with_note(tracking: TrackingConfig, note: str) -> str:
    return f"{tracking.note}\n\n{note}" if tracking.note else note


def _client(tracking: TrackingConfig) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri(tracking))


def _experiment(client: Any, tracking: TrackingConfig) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(tracking.experiment)
    if found is not None:
        return str(found.experiment_id)
    uri = tracking_uri(tracking)
    # Without a server nobody else chooses where artifacts go: beside the database, as an absolute path.
    beside = None
    if uri.startswith("sqlite:///"):
        beside = (Path(uri.removeprefix("sqlite:///")).absolute().parent / "mlartifacts").as_uri()
    # "custom model development" makes the UI open the experiment as a table of runs with their metrics
    tags = {"mlflow.experimentKind": "custom_model_development"}
    try:
        return str(client.create_experiment(tracking.experiment, artifact_location=beside, tags=tags))
    except MlflowException:
        found = client.get_experiment_by_name(tracking.experiment)  # another process was first
        if found is None:
            raise
        return str(found.experiment_id)


def _find_or_create(
    client: Any, experiment: str, uid: str, name: str, tags: Mapping[str, str], started: int | None
) -> str:
    found = client.search_runs([experiment], f"tags.`{UID}` = '{uid}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    run = client.create_run(experiment, start_time=started, run_name=name, tags={UID: uid, **tags})
    return str(run.info.run_id)


def _check_reachable(uri: str) -> None:
    """A plain request first: MLflow's own retries would take long to say that nobody is there."""
    if urlsplit(uri).scheme not in ("http", "https"):
        return
    import requests

    try:
        requests.get(_without_password(uri), timeout=10)
    except requests.RequestException as e:
        raise _unreachable(uri, e) from e


@contextmanager
def _reaching(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as e:
        raise _unreachable(uri, e) from e


def _unreachable(uri: str, error: Exception) -> BadInput:
    return BadInput(
        f"tracking.uri={redact(uri)}",
        f"MLflow cannot be used there ({type(error).__name__}: {redact(first_line(error))}); start it, mend the address, "
        "or go without",
        "tracking=off",
    )


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
