"""A sweep that was broken off is gone on with: finished jobs and answers that came are kept, the end is the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from endpoint import Reply, completed, endpoint

from evalsweep import store

GRID = ("-m", "seed=0,42", "temperature=0,0.7", "task.limit=4")
TIMES = {"started", "seconds"}


def own(url: str) -> tuple[str, ...]:
    return ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m", "model.num_concurrent=2")


def by_seed(asked) -> Reply:
    return completed(f" {asked.body['seed'] % 10}, for {len(asked.body['prompt'])} letters")


def results(folder: Path) -> dict[str, object]:
    """What a sweep found, times and places aside."""
    found: dict[str, object] = {}
    for path in sorted(folder.glob("*/record.json")):
        record = {k: v for k, v in json.loads(path.read_text()).items() if k not in TIMES}
        record["run_id"] = record["run_id"].partition("-")[2]
        record["provenance"].pop("command")
        found[path.parent.name] = (record, (path.parent / store.SAMPLES).read_bytes())
    return found


def started(tmp_path: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evalsweep", *args]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_was_ended_is_gone_on_with_and_ends_as_if_nothing_had_been(run, tmp_path, number):
    stuck, gate = threading.Event(), threading.Event()

    def answer(asked) -> Reply:
        if len(seen) > 5 and not gate.is_set():
            stuck.set()
            gate.wait(60)
        return by_seed(asked)

    with endpoint(answer) as (url, seen):
        process = started(tmp_path, *GRID, *own(url), "hydra.sweep.dir=out", "tracking=off")
        assert stuck.wait(120)
        time.sleep(0.5)  # what was answered meanwhile is written
        process.send_signal(number)
        time.sleep(0.5)
        gate.set()
        out, _ = process.communicate(timeout=120)
        assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
        assert ("resume   evalsweep resume out" in out) == (number != signal.SIGKILL)
        kept = sum(len(f.read_text().splitlines()) for f in (tmp_path / "out" / "responses").glob("*"))
        assert 4 <= kept < 12
        before = len(seen)
        done = run("resume", "out")
        assert done.returncode == 0, done.stderr
        assert "4 of 4 jobs finished" in done.stdout
        assert len(seen) - before == 12 - kept, "only what was missing"
        assert f"{kept} of them answered before" in done.stdout
        assert run(*GRID, *own(url), "hydra.sweep.dir=whole", "tracking=off").returncode == 0
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    assert len(results(tmp_path / "out")) == 4


def test_the_same_command_in_the_same_folder_does_nothing_twice_and_mlflow_has_each_run_once(run, tmp_path):
    from mlflow import MlflowClient

    with endpoint(by_seed) as (url, seen):
        command = (*GRID, *own(url), "hydra.sweep.dir=out")
        assert run(*command).returncode == 0
        before, first = len(seen), results(tmp_path / "out")
        again = run(*command)
        assert run("resume", "out").returncode == 0
    assert again.returncode == 0, again.stderr
    assert "4 jobs, 4 of them done before" in again.stdout
    assert "4 of 4 jobs finished" in again.stdout
    assert len(seen) == before
    assert results(tmp_path / "out") == first
    runs = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").search_runs(["1"])
    assert sorted(r.data.tags["evalsweep.kind"] for r in runs) == ["job"] * 4 + ["sweep"]
    assert {r.info.status for r in runs} == {"FINISHED"}


def test_failed_jobs_are_run_again_where_that_is_asked_for(run, tmp_path):
    broken = True

    def answer(asked) -> Reply:
        return Reply({"error": "no"}, 403) if broken and asked.body["temperature"] and len(seen) > 6 else by_seed(asked)

    with endpoint(answer) as (url, seen):
        first = run(*GRID, *own(url), "hydra.sweep.dir=out", "tracking=off", "model.retries=0")
        assert first.returncode == 1
        assert "resume   evalsweep resume out --failed" in first.stdout
        broken = False
        before = len(seen)
        kept = run("resume", "out")
        assert (kept.returncode, len(seen)) == (1, before), "failed jobs are left as they are"
        done = run("resume", "out", "--failed")
        assert done.returncode == 0, done.stderr
        assert "4 of 4 jobs finished" in done.stdout
        assert 0 < len(seen) - before < 8


def test_a_new_sweep_asks_only_for_what_an_earlier_one_lacks(run, tmp_path):
    with endpoint(by_seed) as (url, seen):
        assert (
            run("-m", "seed=0,1", *own(url), "temperature=0.5", "task.limit=3", "hydra.sweep.dir=old").returncode == 0
        )
        before = len(seen)
        more = ("-m", "seed=0,1,2", *own(url), "temperature=0.5", "task.limit=4", "hydra.sweep.dir=new")
        done = run(*more, "engine.reuse=old")
        assert done.returncode == 0, done.stderr
        assert len(seen) - before == 2 * 1 + 4
        assert "12 answers, 12 of them distinct, 6 taken over" in done.stdout
        uid = json.loads((tmp_path / "old" / store.SWEEP).read_text())["uid"]
        records = [json.loads(p.read_text()) for p in (tmp_path / "new").glob("*/record.json")]
        taken = [r["provenance"]["taken_over"] for r in records]
        assert sorted(sum(t["answers"] for t in one) for one in taken) == [0, 3, 3]
        assert {t["sweep"] for one in taken for t in one} == {uid}
        assert run(*more[:-1], "hydra.sweep.dir=whole").returncode == 0
    samples = [
        sorted(p.read_bytes() for p in (tmp_path / name).glob("*/samples.jsonl.gz")) for name in ("new", "whole")
    ]
    assert samples[0] == samples[1]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("engine.reuse=nowhere",), "engine.reuse=nowhere: is not the folder of a sweep that keeps answers"),
        (("engine.reuse=.", "engine.share=false"), "engine.share=false engine.reuse=.: exclude each other"),
        (("engine.sahre=false",), "engine has no 'sahre'"),
        (("model.batch_size=many",), "model.batch_size=many: must be a whole number of 1 or more, or auto"),
    ],
)
def test_what_the_engine_cannot_do_is_one_line(run, given, line):
    done = run("task.limit=1", *given)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_other_overrides_are_refused_with_what_differs(run, tmp_path):
    with endpoint(by_seed) as (url, seen):
        assert run(*GRID, *own(url), "hydra.sweep.dir=out", "tracking=off").returncode == 0
        before = len(seen)
        other = run(*GRID, *own(url), "hydra.sweep.dir=out", "tracking=off", "seed=0,7")
        assert other.returncode == 2
        assert "already holds a sweep, of other jobs: " in other.stderr
        assert "t=0 s=42 sample (there)" in other.stderr
        assert "t=0 s=7 sample (here)" in other.stderr
        assert len(seen) == before
        assert "4 of 4" in run("resume", "out").stdout, "nothing was lost by it"


def test_a_command_with_a_secret_is_not_kept_and_can_be_given_again(run, tmp_path):
    secret = "model.extra_body={api_key: 5up3r-s3cret-word}"
    with endpoint(by_seed) as (url, seen):
        command = ("-m", "seed=0,1", "task.limit=2", *own(url), secret, "hydra.sweep.dir=out", "tracking=off")
        assert run(*command).returncode == 0
        refused = run("resume", "out")
        assert refused.returncode == 2
        assert "give the command again with the same folder; for example hydra.sweep.dir=out" in refused.stderr
        before = len(seen)
        assert run(*command).returncode == 0
        assert len(seen) == before
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"5up3r" not in path.read_bytes(), path


@pytest.mark.parametrize("given", ["nowhere", "empty", "broken"])
def test_what_cannot_be_gone_on_with_is_one_line(run, tmp_path, given):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / store.SWEEP).write_text("{")
    done = run("resume", given)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert given in done.stderr


def test_a_single_run_is_gone_on_with(run, tmp_path):
    broken = True
    with endpoint(lambda a: Reply({"error": "no"}, 403) if broken and len(seen) > 2 else by_seed(a)) as (url, seen):
        first = run("temperature=0.5", "task.limit=4", *own(url), "hydra.run.dir=out", "tracking=off")
        assert first.returncode == 1
        broken = False
        done = run("resume", "out", "--failed")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "record.json").read_text())["status"] == "FINISHED"
    assert list((tmp_path / "out" / "responses").glob("*.jsonl"))
