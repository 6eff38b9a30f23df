"""A sweep against a real MLflow server over HTTP, and what a person sees of it in a browser."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from browser import browser
from conftest import only

from evalsweep import store


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """An MLflow server of its own on a free port; gives its address."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder / 'server.db'}",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 180
            while not _healthy(address):
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline, "the MLflow server did not start"
                time.sleep(0.5)
            yield address
        finally:
            os.killpg(process.pid, 15)
            process.wait(timeout=30)


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def swept(server, tmp_path_factory):
    """The directory of a sweep that was logged to the server."""
    folder = tmp_path_factory.mktemp("swept")
    command = [sys.executable, "-m", "evalsweep", "-m", "seed=0,42", "temperature=0,1.0", "task.limit=8"]
    command += [f"tracking.uri={server.replace('http://', 'http://ann:s3cretpass@')}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "s3cretpass" not in done.stdout + done.stderr
    assert not (folder / "mlflow.db").exists()
    return only(folder.glob("multirun/*/*"))


def test_what_a_sweep_logged_is_read_back_over_http(server, swept, tmp_path):
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("evalsweep")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [r for r in runs if r.data.tags["evalsweep.kind"] == "sweep"]
    children = {r.info.run_name: r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert set(children) == {f"t={t} s={s} sample" for t in ("0", "1") for s in (0, 42)}
    for directory, record in store.read_records(swept)[0]:
        run = next(r for r in children.values() if r.data.tags["evalsweep.uid"] == record.run_id)
        assert run.info.status == "FINISHED"
        assert run.info.start_time == int(record.started * 1000)
        assert run.data.metrics["sample/exact_match/number"] == record.metrics["sample/exact_match,number"]
        assert run.data.params["seed"] == str(record.seeds["generation"])
        path = download_artifacts(
            artifact_uri=f"{run.info.artifact_uri}/record.json", tracking_uri=server, dst_path=tmp_path
        )
        assert Path(path).read_bytes() == (swept / directory / store.RECORD).read_bytes()
        assert len(_table(server, run, tmp_path)) == 8
        assert "s3cretpass" not in str(run.to_dictionary())
    results = json.loads((swept / store.RESULTS).read_text())["sample"]
    for cell, t in zip(results["cells"], ("0", "1"), strict=True):
        for ours, theirs in (
            ("mean", "mean"),
            ("std", "sd"),
            ("median", "median"),
            ("min", "min"),
            ("max", "max"),
            ("n", "n"),
        ):
            assert parent.data.metrics[f"sample/temperature {t}/{theirs}"] == pytest.approx(cell[ours])
        if cell["ci_low"] is not None:
            assert parent.data.metrics[f"sample/temperature {t}/ci_low"] == pytest.approx(cell["ci_low"])


def _table(server, run, folder):
    from mlflow.artifacts import download_artifacts

    uri = f"{run.info.artifact_uri}/samples.json"
    path = download_artifacts(artifact_uri=uri, tracking_uri=server, dst_path=str(folder))
    return json.loads(Path(path).read_text())["data"]


def test_a_sweep_sent_twice_is_there_once(server, swept, tmp_path):
    from mlflow import MlflowClient

    from evalsweep.config import TrackingConfig
    from evalsweep.tracking import push_record

    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("evalsweep").experiment_id
    before = len(client.search_runs([experiment]))
    directory, record = store.read_records(swept)[0][0]
    push_record(TrackingConfig(name="mlflow", uri=server), record, swept / directory, "again", None, "note")
    assert len(client.search_runs([experiment])) == before
    (run,) = client.search_runs([experiment], f"tags.`evalsweep.uid` = '{record.run_id}'")
    assert len(_table(server, run, tmp_path)) == 8


def test_a_person_finds_the_runs_the_note_the_picture_and_the_report(server, swept, tmp_path):
    from mlflow import MlflowClient
    from playwright.sync_api import expect

    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("evalsweep").experiment_id
    (parent,) = client.search_runs([experiment], "tags.`evalsweep.kind` = 'sweep'")
    base = f"{server}/#/experiments/{experiment}/runs"
    shots = Path(os.environ.get("EVALSWEEP_SCREENSHOTS", tmp_path))
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1500, "height": 900})
        page.set_default_timeout(60_000)
        page.goto(f"{base}?viewStateShareKey=evalsweep")
        for name in ("t=0 s=0 sample", "t=0 s=42 sample", "t=1 s=0 sample", "t=1 s=42 sample"):
            expect(page.get_by_text(name).first).to_be_visible(timeout=60_000)
        score = client.search_runs([experiment], "tags.`evalsweep.kind` = 'job'")[0].data.metrics[
            "sample/exact_match/number"
        ]
        expect(page.get_by_text(re.compile(rf"^{score}")).first).to_be_visible(timeout=60_000)
        page.screenshot(path=shots / "runs.png")

        page.goto(f"{base}/{parent.info.run_id}")
        expect(page.get_by_role("columnheader", name="new questions").first).to_be_visible(timeout=60_000)
        page.screenshot(path=shots / "parent.png")

        page.goto(f"{base}/{parent.info.run_id}/artifacts/scores.png")
        width = int.from_bytes((swept / "scores.png").read_bytes()[16:20], "big")  # from the PNG's header
        page.wait_for_function("width => [...document.images].some(i => i.naturalWidth === width)", arg=width)
        page.screenshot(path=shots / "picture.png")

        page = chromium.new_page(viewport={"width": 1500, "height": 900})
        page.goto(f"{base}/{parent.info.run_id}/artifacts/report.html")
        report = page.frame_locator("iframe").first
        expect(report.get_by_text("Where the variance of the mean comes from")).to_be_visible(timeout=60_000)
        report.locator("#search").fill('"What is 11 * 4?"')
        report.locator("#table button.open").click()
        expect(report.locator("tr.detail .answers > div")).to_have_count(4)
        page.screenshot(path=shots / "report.png")
