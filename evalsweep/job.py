"""One job: evaluates a point of the grid and leaves a record, whatever happens."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evalsweep import provenance, store, tracking
from evalsweep.config import JobConfig
from evalsweep.engine.models import backends
from evalsweep.errors import BadInput, first_line
from evalsweep.identity import config_hash, without_seed
from evalsweep.log import logged
from evalsweep.record import FAILED, FINISHED, KILLED, Record
from evalsweep.redact import redact, redact_tree
from evalsweep.responses import Earlier, Responses
from evalsweep.terminal import complain, progress, say

if TYPE_CHECKING:
    from evalsweep.engine.evaluate import Evaluation

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """A job's place in its sweep: its name, number (from 1) of total, the sweep's uid and its parent run in MLflow.

    `responses` holds the answers of the whole sweep, `earlier` those of one from which some may be taken over; `beside`
    are the jobs for which this one asks too, itself among them, by their names.
    """

    name: str
    number: int
    total: int
    sweep: str
    parent: str | None
    responses: Responses
    earlier: Earlier | None = None
    beside: Mapping[str, JobConfig] = field(default_factory=dict)


def run(job: JobConfig, run_dir: Path, place: Place) -> Record:
    """Evaluate, write samples and record, then mirror them to MLflow.

    A failed evaluation is a record with its error; the traceback is in the job's log. Only what ends the process
    (an interrupt, a termination) is raised again, after the record is written.

    Errors: BadInput where the run directory cannot be written.
    """
    started, before = time.time(), len(place.responses)
    found: Evaluation | None = None
    status, error, interrupt = FINISHED, None, None
    # progress first: it writes to the terminal, from which the log then takes everything else
    with progress(f"[{place.number}/{place.total}] {place.name}") as shown, logged(run_dir):
        try:
            from evalsweep.engine.evaluate import evaluate  # seconds of imports, late so that refusals are instant
            from evalsweep.engine.together import Beside

            beside = Beside(place.beside, shown.tell)
            found = evaluate(job, shown, responses=place.responses, earlier=place.earlier, beside=beside)
        except Exception as e:
            log.exception("the job failed")
            status = FAILED
            error = redact(first_line(e) if isinstance(e, BadInput) else f"{type(e).__name__}: {first_line(e)}")
        except BaseException as e:
            log.exception("the job was ended")
            status, error, interrupt = KILLED, f"stopped before it was done ({type(e).__name__})", e
        # asyncio complains, headers and all, of requests that were given up, once they are collected: now, into the log
        gc.collect()
    if found is None and len(place.responses) > before:
        error = f"{error}; {len(place.responses) - before} answers that came are kept"
    record = _record(job, place, found, status, error, started)
    try:
        if found is not None:
            store.write_samples(run_dir, found.samples)
        store.write_record(run_dir, record)
    except OSError as e:
        raise BadInput(str(run_dir), f"the run cannot be written ({first_line(e)})") from e
    _tell(record, place, run_dir)
    with logged(run_dir):
        _push(job, record, run_dir, place)
    if interrupt is not None:
        raise interrupt
    return record


def note(record: Record) -> str:
    """Markdown for MLflow's page of the run."""
    score = record.metrics.get(record.headline) if record.headline else None
    lines = [f"**{record.headline}: {score:.4f}**" if score is not None else f"**{record.status}**"]
    lines += [f"- error: `{record.error}`"] if record.error else []
    lines += [f"- {record.documents} documents, {record.seconds:.1f} s", f"- seeds: {record.seeds}"]
    lines += [f"- decoding as sent: `{sent}`" for sent in record.decoding.get("sent", [])]
    lines += [f"- alarm: {alarm.message}" for alarm in record.alarms]
    lines += [f"- `{record.provenance.get('command')}`"]
    return "\n".join(lines)


def _record(
    job: JobConfig, place: Place, found: Evaluation | None, status: str, error: str | None, started: float
) -> Record:
    config, acting = asdict(job), backends.acting(job)
    identity = config_hash(acting)
    shown = redact_tree(config)
    shown["prompt"]["system"] = job.prompt.system  # the prompt is what is measured: every sample holds it too
    return Record(
        run_id=f"{place.sweep}-{identity}",
        config_hash=identity,
        cell_hash=provenance.value_hash(without_seed(acting)),
        status=status,
        config=shown,
        decoding=redact_tree(found.decoding) if found else {},
        seeds={
            "generation": job.seed,
            "fewshot": job.fewshot.seed,
            "python": job.seed,
            "numpy": job.seed,
            "torch": job.seed,
        },
        provenance={
            "versions": provenance.versions(),
            **provenance.machine(),
            **provenance.git(Path.cwd()),
            "command": provenance.command_line(),
            **(redact_tree(found.provenance) if found else {}),
            "batch_size": job.model.batch_size,
        },
        metrics=found.metrics if found else {},
        metric_info=found.metric_info if found else {},
        headline=found.headline if found else None,
        responses_hash=found.responses_hash if found else None,
        documents=len(found.samples) if found else 0,
        alarms=found.alarms if found else [],
        error=error,
        started=started,
        seconds=time.time() - started,
    )


def _tell(record: Record, place: Place, run_dir: Path) -> None:
    where = f"[{place.number}/{place.total}] {place.name}"
    found = record.metrics.get(record.headline) if record.headline else None
    if found is not None:
        metric = str(record.headline).partition("/")[2]
        say(f"{where}  {metric} {found:.3f}  {record.documents} documents  {record.seconds:.1f} s")
    else:
        complain(f"{where} {record.status}: {record.error} (log: {run_dir / store.LOG})")


def _push(job: JobConfig, record: Record, run_dir: Path, place: Place) -> None:
    try:
        tracking.push_record(job.tracking, record, run_dir, place.name, place.parent, note(record))
    except BadInput as e:
        # A finished evaluation is never lost to an outage: the run directory has everything.
        log.exception("MLflow")
        complain(f"{e}; the run is whole in {run_dir}, only MLflow lacks it")
