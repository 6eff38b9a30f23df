"""A sweep: checks the grid, runs its jobs with Hydra, summarises what they left, and says how it went."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from evalsweep import compose, inputs, job, preflight, provenance, responses, store, tracking
from evalsweep.config import JobConfig
from evalsweep.engine.models import backends
from evalsweep.errors import BadInput, first_line
from evalsweep.identity import config_hash
from evalsweep.publish import publish
from evalsweep.record import FAILED, FINISHED
from evalsweep.redact import redact_tree
from evalsweep.refusals import in_words
from evalsweep.report import table
from evalsweep.summary.types import Job, Summary
from evalsweep.terminal import complain, say, tolerate_any_encoding, width

OK, FAILED_JOBS, BAD_INPUT = 0, 1, 2


class Stopped(BaseException):
    """Ctrl-C or SIGTERM: the running job is recorded as KILLED, no further one starts, the rest is summarised."""


# The jobs that this process runs and that none has asked for yet, by its number: a launcher's processes find none.
_grid: dict[int, dict[str, JobConfig]] = {}
_finished: set[str] = set()  # the jobs, by their hash, that an earlier run of the same sweep has done
_stop: dict[
    str, int
] = {}  # the signal that came, under "signal": libraries swallow exceptions, so it is also looked up


def run(argv: Sequence[str], again: bool = False) -> int:
    """Run what the command line asks for; gives the exit code.

    In a folder that holds the same sweep only what is missing is done; `again` runs its failed jobs again.

    0: every job finished. 1: a job failed or is missing. 2: bad input, no job started. 130 and 143: interrupted,
    terminated.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # the libraries' bars; read when tqdm is first imported
    tolerate_any_encoding()
    with _stoppable():
        try:
            parser = get_args_parser()
            args = _arguments(parser, argv)
            hydra = compose.open_hydra(args.config_dir)
            try:
                return _answer(hydra, args, parser, again)
            finally:
                compose.close_hydra()
        except (Exception, Stopped) as e:
            if _stop:  # whatever a library made of the interrupt, which can break off its work anywhere
                complain("stopped before any job started")
                return _stopped_code()
            if not isinstance(e, BadInput):
                raise
            complain(str(e))
            return BAD_INPUT


def _arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    args, unknown = parser.parse_known_intermixed_args(list(argv))
    if unknown:
        name = unknown[0].lstrip("-").partition("=")[0]
        raise BadInput(
            unknown[0], "is no flag of evalsweep (values are key=value, without dashes)", f"{name}=7 or --help"
        )
    for flag in ("config_path", "experimental_rerun"):
        if getattr(args, flag) is not None:
            raise BadInput(f"--{flag.replace('_', '-')}", "is not used; own options are added with", "--config-dir DIR")
    return args


def _answer(hydra: Hydra, args: argparse.Namespace, parser: argparse.ArgumentParser, again: bool) -> int:
    if args.help or args.hydra_help or args.shell_completion:
        return _show(hydra, args, parser)
    plan = compose.plan(hydra, args)
    if args.cfg or args.info is not None:
        if plan.multirun:
            raise BadInput(
                "--cfg with a sweep", "shows one job; give one value for each key, without -m", "--cfg job seed=0"
            )
        return _show(hydra, args, parser)
    preflight.check([j.config for j in plan.jobs] or [plan.first])
    with store.only_one(plan.directory):
        return _run(hydra, plan, args, again)


def _show(hydra: Hydra, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Hydra's own pages: --help, --hydra-help, --cfg, --info and completion in the shell."""
    name, overrides = args.config_name or compose.CONFIG_NAME, args.overrides
    with in_words(overrides):
        if args.help:
            hydra.app_help(config_name=name, args_parser=parser, args=args)
        elif args.hydra_help:
            args.overrides = []
            hydra.hydra_help(config_name=name, args_parser=parser, args=args)
        elif args.shell_completion:
            hydra.shell_completion(config_name=name, overrides=overrides)
        elif args.cfg:
            hydra.show_cfg(name, overrides, cfg_type=args.cfg, package=args.package, resolve=args.resolve)
        else:
            hydra.show_info(args.info, name, overrides)
    return OK


def _run(hydra: Hydra, plan: compose.Plan, args: argparse.Namespace, again: bool) -> int:
    parent = _open(plan, args)
    done = _done(plan, again)
    before = f", {len(done)} of them done before" if done else ""
    say(f"evalsweep: {_count(plan)}{before}, results in {plan.directory}")
    started = time.time()
    code = OK
    try:
        _grid[os.getpid()] = {job.name: job.config for job in plan.jobs if job.config_hash not in done}
        _finished.update(done)
        start = hydra.multirun if plan.multirun else hydra.run
        start(args.config_name or compose.CONFIG_NAME, _job, list(plan.overrides))
    except Stopped:
        code = _stopped_code()
    except OSError as e:
        complain(f"{plan.directory}: the sweep broke off ({first_line(e)}); what is finished is kept")
        code = FAILED_JOBS
    finally:
        _grid.clear()
        _finished.clear()
    _responses(plan.directory).close()
    summary, written = _summarise(plan)
    say(f"{summary.jobs - len(summary.failed)} of {summary.jobs} jobs finished in {time.time() - started:.0f} s")
    say(f"results  {plan.directory / store.RESULTS}")
    say(f"report   {plan.directory / store.PAGE}")
    if not summary.whole:
        flag = "" if code > FAILED_JOBS else " --failed"
        say(f"resume   evalsweep resume {shlex.quote(str(plan.directory))}{flag}")
    _mirror(plan, parent, summary, ended=code > FAILED_JOBS)
    return code or (OK if summary.whole and written else FAILED_JOBS)


def _done(plan: compose.Plan, again: bool) -> set[str]:
    """Find the jobs that a sweep in the same folder has finished; failed ones too, where they are not to run again."""
    keep = (FINISHED,) if again else (FINISHED, FAILED)
    planned = {job.config_hash for job in plan.jobs}
    records, _ = store.read_records(plan.directory)
    return {record.config_hash for _, record in records if record.status in keep and record.config_hash in planned}


def _count(plan: compose.Plan) -> str:
    if not plan.jobs:
        return "as many jobs as the sweeper chooses"
    return f"{len(plan.jobs)} job{'s' if len(plan.jobs) > 1 else ''}"


def _open(plan: compose.Plan, args: argparse.Namespace) -> str | None:
    """Open the parent run and say what is asked, or neither; gives the parent's id.

    Errors: BadInput where the folder holds another sweep.
    """
    settings = plan.first.tracking
    name = f"{plan.directory.name} {plan.first.task.name}" if plan.multirun else plan.jobs[0].name
    before = _before(plan)
    uid = before["uid"] if before else uuid.uuid4().hex[:12]
    try:
        parent = tracking.open_sweep(settings, uid, name, provenance.command_line(), single=not plan.multirun)
        if before is None:
            store.write_sweep(plan.directory, _asked(plan, args, uid, parent))
    except BaseException:
        if before is None:
            store.release(plan.directory)
        raise
    return parent


def _before(plan: compose.Plan) -> dict[str, Any] | None:
    """Give what was asked of the sweep that the folder holds, None where it holds none.

    Errors: BadInput where it is another one, or cannot be read.
    """
    another = "hydra.sweep.dir=multirun/second (hydra.run.dir for a single job)"
    try:
        asked = store.read_sweep(plan.directory)
    except ValueError as e:
        raise BadInput(str(plan.directory), f"already holds a sweep that cannot be read ({e})", another) from e
    if asked is None:
        return None
    had, have = ({j["config_hash"]: j["name"] for j in jobs} for jobs in (asked["jobs"], _listed(plan)))
    differing = [f"{name} (there)" for key, name in had.items() if key not in have]
    differing += [f"{name} (here)" for key, name in have.items() if key not in had]
    if differing or not plan.jobs:
        shown = ", ".join(differing[:4]) + (f" and {len(differing) - 4} more" if len(differing) > 4 else "")
        raise BadInput(
            str(plan.directory),
            f"already holds a sweep, of other jobs: {shown or 'of a sweeper that chooses as it goes'}; the same "
            "overrides go on with it, others need another folder",
            another,
        )
    return asked


def _job(config: DictConfig) -> None:
    """What Hydra calls for each point; everything that fails is told by the record, or by its absence."""
    compose.prepare()  # launchers start processes of their own
    if _stop:
        raise Stopped
    settings = HydraConfig.get()
    run_dir = Path(settings.runtime.output_dir)
    sweep_dir = Path(settings.sweep.dir) if settings.mode == RunMode.MULTIRUN else run_dir
    plain = compose.job_config(config)
    try:
        store.scrub_hydra(run_dir, settings.output_subdir)
        store.scrub_hydra(sweep_dir)
        if config_hash(backends.acting(plain)) in _finished:
            return
        job.run(plain, run_dir, _place(plain, sweep_dir))
    except (BadInput, OSError) as e:
        complain(f"{run_dir}: {first_line(e)}")


def _place(plain: JobConfig, sweep_dir: Path) -> job.Place:
    asked = store.read_sweep(sweep_dir) or {}  # written by this sweep before its first job
    own = config_hash(backends.acting(plain))
    grid: list[dict[str, Any]] = asked.get("jobs", [])
    number = next((i for i, j in enumerate(grid) if j["config_hash"] == own), None)
    default = f"t={plain.temperature:g} s={plain.seed} {plain.task.name}"
    return job.Place(
        name=grid[number]["name"] if number is not None else default,
        number=(number or 0) + 1,
        total=max(1, len(grid)),
        sweep=str(asked.get("uid", "")),
        parent=asked.get("mlflow_parent"),
        responses=_responses(sweep_dir),
        earlier=_earlier(plain.engine.reuse),
        beside=_beside(plain),
    )


def _beside(job: JobConfig) -> dict[str, JobConfig]:
    """Take the jobs that share the model of this one, by their names: the first of them asks for all."""
    grid = _grid.get(os.getpid(), {})
    alike = {n: j for n, j in grid.items() if (j.model, j.prompt.placement) == (job.model, job.prompt.placement)}
    _grid[os.getpid()] = {n: j for n, j in grid.items() if n not in alike}
    return alike


def _responses(sweep_dir: Path) -> responses.Responses:
    found = responses.shared((sweep_dir / store.RESPONSES).absolute())
    found.refresh()  # other processes may have answered meanwhile
    return found


def _earlier(path: str | None) -> responses.Earlier | None:
    """Open the answers of an earlier sweep. Errors: BadInput for one that cannot be read."""
    if path is None:
        return None
    folder = Path(path).expanduser()
    try:
        asked = store.read_sweep(folder) or {}
    except ValueError as e:
        raise BadInput(f"engine.reuse={path}", f"cannot be read ({e})", "engine.reuse=multirun/<day>/<time>") from e
    return responses.Earlier(str(asked.get("uid") or folder.name), _responses(folder))


def _listed(plan: compose.Plan) -> list[dict[str, Any]]:
    return [{"name": j.name, "directory": j.directory, "config_hash": j.config_hash} for j in plan.jobs]


def _asked(plan: compose.Plan, args: argparse.Namespace, uid: str, parent: str | None) -> dict[str, Any]:
    overrides = list(args.overrides)
    return {
        "schema": 2,
        "uid": uid,
        "command": provenance.command_line(),
        "multirun": plan.multirun,
        "started": time.time(),
        "mlflow_parent": parent,
        # a secret is not kept, and without it the command is another one
        "overrides": overrides if redact_tree(overrides) == overrides else None,
        "config_name": args.config_name,
        "config_dir": args.config_dir and str(Path(args.config_dir).absolute()),
        "jobs": _listed(plan),
    }


def _summarise(plan: compose.Plan) -> tuple[Summary, bool]:
    """Summarise from disk, show, then write; also when jobs failed. Says whether the results could be written."""
    found = inputs.load(plan.directory, [Job(j.name, j.directory, j.config_hash) for j in plan.jobs])
    say("\n" + table.terminal(found.summary, width(), colour=sys.stdout.isatty()).strip("\n") + "\n")
    try:
        store.scrub_hydra(plan.directory)
        publish(found, plan.directory, inputs.title(plan.directory))
    except OSError as e:
        complain(f"{plan.directory}: the results cannot be written ({first_line(e)}); the table above is all there is")
        return found.summary, False
    return found.summary, True


def _mirror(plan: compose.Plan, parent: str | None, summary: Summary, ended: bool) -> None:
    """Put the summary on the parent run, and say where people find it."""
    settings = plan.first.tracking
    if settings.name == "off":
        return
    uri = settings.uri or "sqlite:///mlflow.db"  # as seen from here
    page = ""
    if parent is not None:
        try:
            note = table.note(summary)
            page = tracking.push_summary(settings, parent, summary, plan.directory, note, ended=ended)
        except BadInput as e:
            complain(f"{e}; the summary is whole in {plan.directory}, only MLflow lacks it")
            return
    if uri.startswith("http"):
        say(f"MLflow   {tracking.without_password(uri)}{page}")
    else:
        say(f"MLflow   {uri}, shown by: mlflow server --backend-store-uri {shlex.quote(uri)}")
        say(f"         at http://127.0.0.1:5000{page}")


def _stopped_code() -> int:
    return 128 + _stop.get("signal", signal.SIGINT)


@contextmanager
def _stoppable() -> Iterator[None]:
    def stop(number: int, _frame: FrameType | None) -> None:
        _stop["signal"] = number
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        _stop.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
