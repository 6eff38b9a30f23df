from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from evalsweep import store
from evalsweep.errors import BadInput
from evalsweep.record import FINISHED, Record, Sample, Shot

RECORD = Record(
    run_id="u-1",
    config_hash="1",
    cell_hash="c",
    status=FINISHED,
    config={"model": {"name": "m"}, "task": {"name": "sample"}, "fewshot": {"name": "fixed"}},
    decoding={},
    seeds={"generation": 0},
    provenance={},
    metrics={"sample/acc": 0.5},
    headline="sample/acc",
    responses_hash="a",
    documents=2,
    alarms=[],
    error=None,
    started=1.0,
    seconds=2.0,
)
SAMPLE = Sample(
    "sample", 0, "d", "Question: 1+1?\u2028", "p", [Shot(3, "2+2? 4")], "2", [" 2\ud800", "two"], {"acc": 0.5}
)


def test_a_record_is_read_as_it_was_written(tmp_path):
    store.write_record(tmp_path, RECORD)
    assert store.read_record(tmp_path) == RECORD


def test_samples_are_read_as_they_were_written_even_with_broken_unicode(tmp_path):
    store.write_samples(tmp_path, [SAMPLE, replace(SAMPLE, doc_id=1)])
    assert list(store.read_samples(tmp_path)) == [SAMPLE, replace(SAMPLE, doc_id=1)]


def test_the_same_samples_are_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        store.write_samples(tmp_path / name, [SAMPLE])
    assert (tmp_path / "a" / store.SAMPLES).read_bytes() == (tmp_path / "b" / store.SAMPLES).read_bytes()


def test_json_holds_no_nan_and_no_infinity(tmp_path):
    store.write_record(tmp_path, replace(RECORD, metrics={"a": float("nan"), "b": float("-inf")}))
    assert json.loads((tmp_path / store.RECORD).read_text())["metrics"] == {"a": None, "b": None}
    store.write_samples(tmp_path, [replace(SAMPLE, responses=[float("-inf")])])
    line = json.loads(gzip.decompress((tmp_path / store.SAMPLES).read_bytes()))
    assert line["responses"] == [None]


def test_nothing_half_written_is_left_after_a_failure(tmp_path):
    def samples():
        yield SAMPLE
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        store.write_samples(tmp_path, samples())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[]", "schema"),
        (json.dumps({"schema": 99}), "schema 99 is not 3"),
        (json.dumps({"schema": 2}), "fields differ"),
    ],
)
def test_a_broken_record_is_named_with_its_path(tmp_path, text, why):
    job = tmp_path / "job"
    job.mkdir()
    (job / store.RECORD).write_text(text)
    found, broken = store.read_records(tmp_path)
    assert found == []
    assert str(job / store.RECORD) in broken["job"]
    assert why in broken["job"]


def test_one_process_at_a_time_works_on_a_folder(tmp_path):
    code = (
        "import sys; from pathlib import Path; from evalsweep import store\n"
        "with store.only_one(Path(sys.argv[1])): print('held', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BadInput, match="another process works on the sweep there"), store.only_one(tmp_path / "s"):
            pass
        other.kill()
    with store.only_one(tmp_path / "s"):
        pass


def test_a_file_system_without_locks_is_worked_on_all_the_same(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(store.FileLock, "acquire", refuse)
    with store.only_one(tmp_path / "s"):
        assert (tmp_path / "s").is_dir()


def test_a_released_directory_leaves_nothing_of_its_own_behind(tmp_path):
    (tmp_path / "multirun").mkdir()
    (tmp_path / "multirun" / ".gitkeep").touch()
    with store.only_one(tmp_path / "multirun" / "date" / "time"):
        store.release(tmp_path / "multirun" / "date" / "time")
    assert [p.name for p in (tmp_path / "multirun").iterdir()] == [".gitkeep"]


def test_an_output_folder_below_a_file_is_refused_and_nothing_is_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot be written.*is a file"):
        store.check_writable(tmp_path / "file" / "x")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_secrets_are_scrubbed_from_what_hydra_wrote(tmp_path):
    hydra = tmp_path / store.HYDRA
    hydra.mkdir()
    (hydra / "overrides.yaml").write_text("- tracking.uri=http://ann:s3cret@host\n- seed=1\n")
    store.scrub_hydra(tmp_path)
    assert (hydra / "overrides.yaml").read_text() == "- tracking.uri=http://***@host\n- seed=1\n"
