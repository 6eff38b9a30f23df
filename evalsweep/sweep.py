"""A sweep: checks the grid, runs its jobs with Hydra, summarises what they left, and says how it went."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from evalsweep import compose, job, preflight, provenance, store, tracking
from evalsweep.config import JobConfig, config_hash
from evalsweep.errors import BadInput
from evalsweep.report import results, table
from evalsweep.summary import Job, Summary, summarise
from evalsweep.terminal import complain, say, width

OK, FAILED_JOBS, BAD_INPUT = 0, 1, 2


class Terminated(BaseException):
    """SIGTERM: the running job is recorded as KILLED, as after Ctrl-C."""


def run(argv: Sequence[str]) -> int:
    """Run what the command line asks for; gives the exit code.

    0: every job finished. 1: a job failed or is missing. 2: bad input, no job started. 130 and 143: interrupted,
    terminated.
    """
    parser = get_args_parser()
    args = parser.parse_args(list(argv))
    os.environ.setdefault("TQDM_DISABLE", "1")  # the libraries' bars; read when tqdm is first imported
    try:
        hydra = compose.open_hydra(args.config_dir)
        try:
            if args.help or args.hydra_help or args.shell_completion:
                with compose.in_words(args.overrides):
                    return _show(hydra, args, parser)
            plan = compose.plan(hydra, args)
            if args.cfg or args.info is not None:
                return _show(hydra, args, parser)
            return _run(hydra, plan, args)
        finally:
            compose.close_hydra()
    except BadInput as e:
        complain(str(e))
        return BAD_INPUT


def _show(hydra: Hydra, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Hydra's own pages: --help, --hydra-help, --cfg, --info and completion in the shell."""
    name, overrides = args.config_name or compose.CONFIG_NAME, args.overrides
    if args.help:
        hydra.app_help(config_name=name, args_parser=parser, args=args)
    elif args.hydra_help:
        hydra.hydra_help(config_name=name, args_parser=parser, args=args)
    elif args.shell_completion:
        hydra.shell_completion(config_name=name, overrides=overrides)
    elif args.cfg:
        hydra.show_cfg(name, overrides, cfg_type=args.cfg, package=args.package, resolve=args.resolve)
    else:
        hydra.show_info(args.info, name, overrides)
    return OK


def _run(hydra: Hydra, plan: compose.Plan, args: argparse.Namespace) -> int:
    first = plan.first
    preflight.check([j.config for j in plan.jobs] or [plan.first])
    store.check_writable(plan.directory)
    uid = uuid.uuid4().hex[:12]
    name = f"{plan.directory.name} {first.task.name}" if plan.multirun else plan.jobs[0].name
    parent = tracking.open_sweep(first.tracking, uid, name, provenance.command_line(), single=not plan.multirun)
    store.write_sweep(plan.directory, _asked(plan, uid, parent))
    count = len(plan.jobs) or "as many as the sweeper chooses"
    say(f"evalsweep: {count} job{'s' if count != 1 else ''}, results in {plan.directory}")
    code = OK
    started = time.time()
    with _terminable():
        try:
            if plan.multirun:
                hydra.multirun(args.config_name or compose.CONFIG_NAME, _job, list(plan.overrides))
            else:
                hydra.run(args.config_name or compose.CONFIG_NAME, _job, list(plan.overrides))
        except KeyboardInterrupt:
            code = 130
        except Terminated:
            code = 143
    store.scrub_hydra(plan.directory)
    summary = _summarise(plan)
    say("\n" + table.terminal(summary, width(), colour=sys.stdout.isatty()).rstrip() + "\n")
    say(f"{summary.jobs - len(summary.failed)} of {summary.jobs} jobs finished in {time.time() - started:.0f} s")
    say(f"results  {plan.directory / store.RESULTS}")
    _mirror(plan, parent, summary)
    return code or (OK if summary.cells and not summary.failed else FAILED_JOBS)


def _job(config: DictConfig) -> None:
    """What Hydra calls for each point; everything that fails is told by the record, or by its absence."""
    compose.prepare()  # launchers start processes of their own
    settings = HydraConfig.get()
    run_dir = Path(settings.runtime.output_dir)
    sweep_dir = Path(settings.sweep.dir) if settings.mode == RunMode.MULTIRUN else run_dir
    plain = compose.job_config(config)
    try:
        job.run(plain, run_dir, _place(plain, sweep_dir))
    except BadInput as e:
        complain(str(e))


def _place(plain: JobConfig, sweep_dir: Path) -> job.Place:
    asked = store.read_sweep(sweep_dir) or {}
    own = config_hash(asdict(plain))
    grid: list[dict[str, Any]] = asked.get("jobs", [])
    number = next((i for i, j in enumerate(grid) if j["config_hash"] == own), None)
    default = f"t={plain.temperature:g} s={plain.seed} {plain.task.name}"
    return job.Place(
        name=grid[number]["name"] if number is not None else default,
        number=(number or 0) + 1,
        total=max(1, len(grid)),
        sweep=str(asked.get("uid", "")),
        parent=asked.get("mlflow_parent"),
    )


def _asked(plan: compose.Plan, uid: str, parent: str | None) -> dict[str, Any]:
    return {
        "schema": 1,
        "uid": uid,
        "command": provenance.command_line(),
        "multirun": plan.multirun,
        "started": time.time(),
        "mlflow_parent": parent,
        "jobs": [{"name": j.name, "directory": j.directory, "config_hash": j.config_hash} for j in plan.jobs],
    }


def _summarise(plan: compose.Plan) -> Summary:
    """Summarise from disk and write the results; also when jobs failed."""
    found, broken = store.read_records(plan.directory)
    summary = summarise(found, [Job(j.name, j.directory, j.config_hash) for j in plan.jobs], broken)
    store.write_results(plan.directory, results.results(summary))
    store.write_note(plan.directory, table.markdown(summary))
    if summary.cells:
        from evalsweep.report import plot

        store.write_picture(plan.directory, plot.scores(summary))
    return summary


def _mirror(plan: compose.Plan, parent: str | None, summary: Summary) -> None:
    """Put the summary on the parent run, and say where people find it."""
    settings = plan.first.tracking
    if settings.name == "off":
        return
    uri = tracking.tracking_uri(settings)
    page = ""
    if parent is not None:
        try:
            page = tracking.push_summary(settings, parent, summary, plan.directory, table.markdown(summary))
        except BadInput as e:
            complain(f"{e}; the summary is whole in {plan.directory}, only MLflow lacks it")
            return
    if uri.startswith("http"):
        say(f"MLflow   {tracking.without_password(uri)}{page}")
    else:
        say(f"MLflow   {uri}")
        say(f"         mlflow server --backend-store-uri {uri}  shows it at http://127.0.0.1:5000{page}")


@contextmanager
def _terminable() -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
