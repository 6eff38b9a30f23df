"""Whole sweeps as a user runs them: success, failure, bad input, interruption."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import SHARED, only

from evalsweep import store, sweep
from evalsweep.errors import BadInput


def complaints(done):
    """What was said on stderr beside progress, which slow machines show."""
    return [line for line in done.stderr.splitlines() if not line.startswith("[")]


QUICK = ("tracking=off", "task.limit=4")


def test_the_main_command_logs_six_runs_under_one_parent(run, tmp_path):
    done = run("-m", "seed=0,42,123", "temperature=0,0.2", "task.limit=6")
    assert done.returncode == 0, done.stderr
    sweep = only(tmp_path.glob("multirun/*/*"))
    results = json.loads((sweep / store.RESULTS).read_text())["sample"]
    assert len(results["runs"]) == 3
    assert [cell["cell"] for cell in results["cells"]] == [{"temperature": 0.0}, {"temperature": 0.2}]
    assert results["identical"], "greedy runs do not depend on the seed"
    assert results["ci_low"] is None
    assert "3 identical runs count as one" in " ".join(done.stdout.split())
    assert (sweep / store.PAGE).exists()
    assert "6 of 6 jobs finished" in done.stdout
    assert complaints(done) == [], "what the libraries say is in the log"

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("evalsweep").experiment_id])
    (parent,) = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(children) == 6
    assert {r.info.status for r in runs} == {"FINISHED"}
    assert {r.info.run_name for r in children} == {f"t={t} s={s} sample" for t in (0, 0.2) for s in (0, 42, 123)}
    child = next(r for r in children if r.info.run_name == "t=0.2 s=42 sample")
    record = store.read_record(only(sweep.glob("t=0.2,seed=42*")))
    assert child.data.metrics["sample/exact_match/number"] == record.metrics["sample/exact_match,number"]
    assert (child.data.params["temperature"], child.data.params["seed"], child.data.params["model"]) == (
        "0.2",
        "42",
        "smollm2",
    )
    assert child.data.tags["version.lm_eval"] == record.provenance["versions"]["lm_eval"]
    assert child.inputs.dataset_inputs[0].dataset.digest == record.provenance["dataset_fingerprint"]
    files, parents = ({f.path for f in client.list_artifacts(r.info.run_id)} for r in (child, parent))
    assert {"record.json", "samples.jsonl.gz", "samples.json", "prompt.txt", "evalsweep.log"} <= files
    assert {"scores.png", "results_summary.json", "report.md", "report.html", "summary.json"} <= parents
    assert "| sample | 0.2 | 3 |" in parent.data.tags["mlflow.note.content"]
    warm = results["cells"][1]
    assert parent.data.metrics["sample/temperature 0.2/mean"] == pytest.approx(warm["mean"])


def test_a_single_job_with_numbers_of_ones_own(run, tmp_path):
    done = run("seed=7", "temperature=0.35", *QUICK)
    assert done.returncode == 0, done.stderr
    record = store.read_record(only(tmp_path.glob("multirun/*/*")))
    assert (record.seeds["generation"], record.config["temperature"]) == (7, 0.35)
    assert record.decoding["sent"][0]["temperature"] == 0.35
    for name in (
        "evalsweep",
        "lm_eval",
        "transformers",
        "torch",
        "tokenizers",
        "datasets",
        "hydra",
        "mlflow",
        "python",
    ):
        assert record.provenance["versions"][name][0].isdigit()
    assert record.provenance["command"] == "python -m evalsweep seed=7 temperature=0.35 tracking=off task.limit=4"
    assert not (tmp_path / "mlflow.db").exists()


def test_a_sweep_over_seeds_alone(run, tmp_path):
    done = run("-m", "seed=range(0,3)", *QUICK)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("multirun/*/*/*/record.json"))) == 3


def test_the_first_job_repeats_itself_byte_for_byte(run, tmp_path):
    for name in ("a", "b"):
        assert run("seed=3", "temperature=0.9", f"hydra.run.dir={name}", *QUICK).returncode == 0
    a, b = ((tmp_path / name / store.SAMPLES).read_bytes() for name in ("a", "b"))
    assert a == b


@pytest.mark.parametrize(
    "line",
    ["temperature=-1", "temperature=abc", "seed=1.5", "task=gsm9k", "model.dtyp=float32", "-m seed=0,x", "report"],
)
def test_bad_input_is_one_line_and_starts_no_job(run, tmp_path, line):
    done = run(*line.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("evalsweep: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["--help", "model.dtyp=float32", "--cfg job"])
def test_help_and_refusals_import_nothing_heavy(line, tmp_path):
    code = (
        "import sys\nfrom evalsweep.sweep import run\ntry:\n    run(sys.argv[1:])\nfinally:\n"
        "    print('heavy:', sorted(m for m in ('torch', 'transformers', 'lm_eval', 'datasets', 'mlflow', 'scipy', "
        "'matplotlib', 'pandas') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *line.split()], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "heavy: []" in done.stdout


def test_a_failed_job_is_recorded_and_fails_the_sweep_and_the_others_go_on(run, tmp_path, model_copy):
    (model_copy / "config.json").write_text("{ cut off")
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "broken.yaml").write_text(f"name: broken\nkind: hf\npretrained: {model_copy}\n")
    done = run("--config-dir", "mine", "-m", "model=broken,smollm2", "task.limit=4")
    assert done.returncode == 1
    (line,) = complaints(done)
    assert f"model.pretrained={model_copy}: the folder cannot be loaded" in line
    sweep = only(tmp_path.glob("multirun/*/*"))
    records = {r.config["model"]["name"]: r for _, r in store.read_records(sweep)[0]}
    assert (records["broken"].status, records["smollm2"].status) == ("FAILED", "FINISHED")
    assert "Traceback" not in str(records["broken"].error)
    assert "Traceback" in _log_of(sweep, records["broken"]).read_text()
    assert "FAILED broken sample" in done.stdout
    assert json.loads((sweep / store.RESULTS).read_text())["sample"]["n"] == 1

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("evalsweep").experiment_id])
    assert sorted(r.info.status for r in runs) == ["FAILED", "FAILED", "FINISHED"], (
        "the parent and the broken job failed"
    )


def _log_of(sweep, record):
    name = next(d for d, r in store.read_records(sweep)[0] if r.run_id == record.run_id)
    return sweep / name / store.LOG


@pytest.mark.parametrize(
    ("line", "told", "code"),
    [
        ("model=hf model.pretrained=./nowhere", "model.pretrained=./nowhere: there is no such folder", 2),
        ("model=hf model.pretrained=me/absent-model", "not in the hub's local cache, and the hub cannot be reached", 1),
        ("task=gsm8k task.data=nowhere", "task.data=nowhere: there is no such folder", 2),
        ("fewshot=file fewshot.path=nowhere.jsonl", "fewshot.path=nowhere.jsonl: there is no such file", 2),
        ("prompt=file prompt.file=nowhere.txt", "prompt.file=nowhere.txt: there is no such file", 2),
        ("hydra.run.dir=/proc/evalsweep", "the output folder cannot be written", 2),
        (
            "tracking=mlflow tracking.uri=http://127.0.0.1:9",
            "tracking.uri=http://127.0.0.1:9: MLflow cannot be used there",
            2,
        ),
        ("tracking=mlflow tracking.uri=sqlite:////proc/x/mlflow.db", "MLflow cannot be used there", 2),
        ("tracking=mlflow tracking.uri=postgresql://u:pw@localhost/db", "MLflow cannot be used there", 2),
        ("tracking=mlflow tracking.uri=sqlite://", "is gone with the process", 2),
        ("model=server model.base_url=http://127.0.0.1:9/v1 model.pretrained=x", "no server answers there", 2),
        ("task=humaneval task.k=[5]", "pass@5 needs 1 <= k <= task.samples", 2),
    ],
)
def test_what_is_missing_is_one_line_what_where_and_what_to_do(run, tmp_path, line, told, code):
    done = run("tracking=off", *line.split())
    assert done.returncode == code
    (complaint,) = complaints(done)
    assert told in complaint
    assert "Traceback" not in done.stdout
    if code == 2:
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == [], "nothing half-written"


def test_secrets_appear_nowhere(run, tmp_path):
    secret = "S3cretS3cret"
    done = run(
        "task.limit=1",
        f"+model.extra_body.api_key={secret}",
        f"+model.extra_body.more={{token:{secret}}}",
        f"tracking.note='token={secret}'",
        f"hydra.run.dir={tmp_path / 'out'}",
        HF_TOKEN=f"hf_{secret}aaaaaaaa",
        MLFLOW_TRACKING_PASSWORD=secret,
    )
    assert done.returncode == 0, done.stderr
    assert secret not in done.stdout + done.stderr
    files = [f for f in (tmp_path / "out").rglob("*") if f.is_file()]
    assert any(f.name == "overrides.yaml" for f in files)
    for file in [*files, tmp_path / "mlflow.db"]:
        assert secret.encode() not in file.read_bytes(), file


def test_a_terminated_sweep_records_the_job_as_killed(tmp_path):
    command = [sys.executable, "-m", "evalsweep", "-m", "seed=0,1", "temperature=0.5", "hydra.sweep.dir=out"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(f.stat().st_size for f in tmp_path.glob("out/responses/*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    records, _ = store.read_records(tmp_path / "out")
    assert [r.status for _, r in records] == ["KILLED"]
    assert "KILLED s=0 sample" in out
    assert "MISSING s=1 sample" in out


@pytest.mark.parametrize("seconds", [1.0, 2.5])
def test_an_interrupt_before_any_job_is_one_line(tmp_path, seconds):
    command = [sys.executable, "-m", "evalsweep", "-m", "seed=range(0,5000)", "hydra.sweep.dir=out"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)  # composing 5,000 jobs takes longer
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, "", "evalsweep: stopped before any job started\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_a_library_turns_into_another_error_is_still_one(monkeypatch, capsys):
    """OmegaConf, broken off between two of its lines, fails with an AttributeError in place of the interrupt."""

    def broken_off(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise BadInput("seed=0", "'NoneType' object has no attribute '_invalidate_flags_cache'")

    monkeypatch.setattr(sweep.compose, "plan", broken_off)
    assert sweep.run(["seed=0"]) == 130
    assert capsys.readouterr().err == "evalsweep: stopped before any job started\n"


def test_progress_is_drawn_on_a_terminal_and_taken_away(tmp_path):
    script = shutil.which("script")
    assert script, "util-linux's script is needed"
    command = f"{sys.executable} -m evalsweep tracking=off task.limit=40"
    done = subprocess.run([script, "-qec", command, "/dev/null"], cwd=tmp_path, capture_output=True, check=False)
    drawn = done.stdout.decode().split("\r")
    assert any("generating" in line and "/40" in line and "━" in line for line in drawn)
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["a folder ü", "odd dir#1%20?x"])
def test_odd_folders_hold_all_of_their_sweep(tmp_path, name):
    odd = tmp_path / name
    odd.mkdir()
    command = [sys.executable, "-m", "evalsweep", "task.limit=1"]
    done = subprocess.run(command, cwd=odd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(odd in p.parents for p in tmp_path.rglob("*") if p.is_file())
    assert {p.name for p in odd.iterdir()} == {"multirun", "mlflow.db", "mlartifacts"}
    database = sqlite3.connect(odd / "mlflow.db")
    assert database.execute("select count(*) from runs").fetchone() == (1,)
    database.close()


def test_a_terminal_without_unicode_and_a_closed_pipe_lose_nothing(run, tmp_path):
    done = run(*QUICK, "hydra.run.dir=a", PYTHONIOENCODING="ascii")
    assert (done.returncode, complaints(done)) == (0, [])
    command = f"{sys.executable} -m evalsweep tracking=off task.limit=2 hydra.run.dir=b | head -1"
    assert subprocess.run(command, shell=True, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    for name in "ab":
        assert (tmp_path / name / store.RESULTS).is_file()


def test_results_that_cannot_be_written_are_told_after_the_table(run, tmp_path):
    (tmp_path / "out" / store.RESULTS).mkdir(parents=True)
    done = run(*QUICK, "hydra.run.dir=out")
    assert done.returncode == 1
    assert "exact_match" in done.stdout
    assert any("the results cannot be written" in line for line in complaints(done))


def test_a_refused_sweep_leaves_no_run_in_mlflow(run, tmp_path):
    assert run("task.limit=1", "hydra.run.dir=out").returncode == 0
    refused = run("-m", "seed=0,1", "hydra.sweep.dir=out")
    assert refused.returncode == 2
    assert "already holds a sweep" in refused.stderr
    from mlflow import MlflowClient

    assert len(MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").search_runs(["1"])) == 1


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark data beside the checkout is not here")
@pytest.mark.parametrize(("task", "folder"), [("gsm8k", "gsm8k"), ("mmlu", "mmlu_redux")])
def test_real_benchmark_data_runs_to_the_end(run, tmp_path, task, folder):
    more = ["task.num_fewshot=0"] if task == "mmlu" else ["task.num_fewshot=1", "task.max_gen_toks=32"]
    done = run(f"task={task}", f"task.data={SHARED / folder}", "tracking=off", "task.limit=1", *more)
    assert done.returncode == 0, done.stderr
    record = store.read_record(only(tmp_path.glob("multirun/*/*")))
    assert record.documents == (57 if task == "mmlu" else 1)
    assert str(record.headline).startswith(f"{task}/")
    if task == "mmlu":
        samples = list(store.read_samples(only(tmp_path.glob("multirun/*/*"))))
        assert record.metrics["mmlu/acc"] == pytest.approx(sum(s.scores["acc"] for s in samples) / 57)
