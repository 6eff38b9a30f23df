"""The run directory: the only place that knows file names; writes are atomic, reads say what is broken.

    <sweep>/sweep.json              what was asked
    <sweep>/responses/              answers as they arrive, a file a process (see `responses`)
    <sweep>/<job>/record.json       one run; written last, so its presence is the commit
    <sweep>/<job>/samples.jsonl.gz  a line a document
    <sweep>/<job>/evalsweep.log     everything the libraries said
    <sweep>/results_summary.json, summary.json  the numbers: in a simple shape, and all of them
    <sweep>/report.html, report.md, *.png, *.svg
    <sweep>/report_texts/           prompts and answers for report.html, where they are many

A single run keeps all of it in one directory.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from evalsweep.errors import BadInput, first_line
from evalsweep.record import Audit, Record, Sample, Scores
from evalsweep.redact import redact

LOCK = ".lock"
SWEEP, RECORD, SAMPLES, LOG = "sweep.json", "record.json", "samples.jsonl.gz", "evalsweep.log"
RESPONSES = "responses"
RESULTS, SUMMARY = "results_summary.json", "summary.json"
PAGE, MARKDOWN, TEXTS = "report.html", "report.md", "report_texts"
PICTURES = tuple(f"{name}.{kind}" for name in ("scores", "temperature", "variance") for kind in ("png", "svg"))
AUDIT = "audit.json"
HYDRA, MULTIRUN = ".hydra", "multirun.yaml"


@contextmanager
def only_one(sweep_dir: Path) -> Iterator[None]:
    """Hold a sweep's folder, so that no other process works on it; a lock of a process that died holds nothing.

    On a file system that knows no locks nothing is held. Errors: BadInput where another process holds the folder, or
    it cannot be written.
    """
    check_writable(sweep_dir)
    sweep_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(sweep_dir / LOCK, timeout=0)
    try:
        lock.acquire()
    except NotImplementedError:
        pass
    except Timeout:
        raise BadInput(
            str(sweep_dir),
            "another process works on the sweep there; wait until it is done, or name another folder",
            "hydra.sweep.dir=multirun/second (hydra.run.dir for a single job)",
        ) from None
    try:
        yield
    finally:
        lock.release()  # the file stays: taken away, two processes could hold two files of that name


def release(sweep_dir: Path) -> None:
    """Take away what was made for a sweep that did not begin."""
    for name in (SWEEP, LOCK):
        (sweep_dir / name).unlink(missing_ok=True)
    for folder in (sweep_dir, *sweep_dir.parents[:2]):
        if folder.resolve() == Path.cwd() or any(folder.iterdir()):
            break
        folder.rmdir()


def write_sweep(sweep_dir: Path, asked: dict[str, Any]) -> None:
    """Say what is asked."""
    _write(sweep_dir / SWEEP, _json(asked))


def check_writable(directory: Path) -> None:
    """Errors: BadInput where files cannot be made below `directory`, which itself need not exist."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        if not existing.is_dir():
            raise NotADirectoryError(f"{existing} is a file")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as e:
        raise BadInput(
            str(directory), f"the output folder cannot be written ({first_line(e)})", "hydra.sweep.dir=/tmp/my-sweep"
        ) from e


def read_sweep(sweep_dir: Path) -> dict[str, Any] | None:
    """What was asked, or None where there is no sweep.json, or one of a sweep that has not begun.

    Errors: ValueError with the path for one that is broken.
    """
    path = sweep_dir / SWEEP
    try:
        text = path.read_text()
        data = json.loads(text) if text else None
        for job in data["jobs"] if data is not None else ():
            if not {"name", "directory", "config_hash"} <= set(job):
                raise ValueError("a job lacks its name, directory or config_hash")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise ValueError(f"{path}: {first_line(e)}") from e
    return data


def write_samples(run_dir: Path, samples: Iterable[Sample]) -> None:
    """All samples of a run, in order; byte for byte the same for the same samples."""
    # mtime=0 and no name: the bytes depend on the samples alone
    with (
        _replacing(run_dir / SAMPLES) as path,
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as f,
    ):
        for sample in samples:
            f.write(_encoded(json.dumps(_finite(asdict(sample)), ensure_ascii=False)) + b"\n")


def read_samples(run_dir: Path) -> Iterator[Sample]:
    """Errors: ValueError with the path for a line that is no sample, or a file that is broken; OSError."""
    path = run_dir / SAMPLES
    with _readable(path), gzip.open(path, "rb") as f:
        for line in f:
            yield Sample.from_json(json.loads(line.decode("utf-8", "surrogatepass")))


def read_scores(run_dir: Path) -> Scores:
    """The scores alone, of samples that may be large.

    Errors: as for `read_samples`.
    """
    path = run_dir / SAMPLES
    with _readable(path), gzip.open(path, "rb") as f:
        samples = (Sample.from_json(json.loads(line.decode("utf-8", "surrogatepass"))) for line in f)
        return Scores.of(str(path), samples)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Whatever is wrong with what stands in a file is a ValueError with its path."""
    try:
        yield
    except (ValueError, TypeError, LookupError, EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise ValueError(f"{path}: {first_line(e)}") from e


def write_record(run_dir: Path, record: Record) -> None:
    """Commit a run."""
    _write(run_dir / RECORD, _json(record.to_json()))


def read_record(run_dir: Path) -> Record:
    """Errors: ValueError with the path for a broken record; FileNotFoundError where the run left none."""
    path = run_dir / RECORD
    with _readable(path):
        return Record.from_json(json.loads(path.read_text()))


def read_records(sweep_dir: Path) -> tuple[list[tuple[str, Record]], dict[str, str]]:
    """The records of a sweep by directory, oldest first, and a line for each directory whose record is broken.

    A single run keeps its record in the folder itself: its directory is `.`.
    """
    found: list[tuple[str, Record]] = []
    broken: dict[str, str] = {}
    for path in sorted([sweep_dir / RECORD, *sweep_dir.glob(f"*/{RECORD}")]):
        directory = str(path.parent.relative_to(sweep_dir))
        try:
            found.append((directory, read_record(path.parent)))
        except FileNotFoundError:
            continue
        except (ValueError, OSError) as e:
            broken[directory] = first_line(e)
    return sorted(found, key=lambda pair: pair[1].started), broken


def write_results(sweep_dir: Path, results: dict[str, Any]) -> Path:
    """results_summary.json; gives its path."""
    return _write(sweep_dir / RESULTS, _json(results))


def write_summary(sweep_dir: Path, summary: dict[str, Any]) -> Path:
    return _write(sweep_dir / SUMMARY, _json(summary))


def write_markdown(sweep_dir: Path, markdown: str) -> Path:
    return _write(sweep_dir / MARKDOWN, markdown)


def write_pictures(sweep_dir: Path, pictures: Mapping[str, bytes]) -> None:
    """The pictures by name; those of an earlier report that are no more are taken away."""
    for name in PICTURES:
        if name not in pictures:
            (sweep_dir / name).unlink(missing_ok=True)
    for name, content in pictures.items():
        _write(sweep_dir / name, content)


def write_page(sweep_dir: Path, html: str, texts: Mapping[str, str]) -> Path:
    """report.html, after the texts that it loads; texts of an earlier report are taken away after it."""
    for name, script in texts.items():
        _write(sweep_dir / TEXTS / name, script)
    page = _write(sweep_dir / PAGE, html)
    if (sweep_dir / TEXTS).is_dir():
        for old in (sweep_dir / TEXTS).glob("*.js"):
            if old.name not in texts:
                old.unlink()
        if not texts:
            (sweep_dir / TEXTS).rmdir()
    return page


def write_audit(directory: Path, audit: Audit) -> Path:
    """audit.json; gives its path."""
    return _write(directory / AUDIT, _json(audit.to_json()))


def scrub_hydra(directory: Path, subfolder: str | None = HYDRA) -> None:
    """Take secrets out of what Hydra itself wrote: <subfolder>/*.yaml of a job, multirun.yaml of a sweep."""
    for path in [directory / MULTIRUN, *(directory / (subfolder or HYDRA)).glob("*.yaml")]:
        if path.exists():
            before = path.read_text()
            after = redact(before)
            if after != before:
                _write(path, after)


def _json(data: Any) -> bytes:
    return _encoded(json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _encoded(text: str) -> bytes:
    r"""JSON as UTF-8; half a surrogate pair, which UTF-8 cannot hold, stays the escape that it was: \ud800."""
    return text.encode("utf-8", "backslashreplace")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for both."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def _write(path: Path, content: str | bytes) -> Path:
    with _replacing(path) as beside:
        beside.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    return path


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which then takes its place; nothing half-written is ever seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        with beside.open("rb") as f:
            os.fsync(f.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
