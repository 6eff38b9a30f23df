"""Which files belong to a run of lm_eval, and the tasks and groups that its results name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalsweep.errors import first_line

PREFERRED = ("exact_match", "acc", "acc_norm", "pass@1", "pass_at_1", "em", "f1")  # what people mean by a task's score


def find(path: Path) -> list[Path]:
    """The results files below a folder, links followed, oldest first."""
    found, seen = [], set()
    for folder, folders, files in os.walk(path, followlinks=True):
        here = os.path.realpath(folder)
        if here in seen:
            folders.clear()
            continue
        seen.add(here)
        found += [Path(folder) / name for name in files if name.endswith(".json") and _is_results(Path(folder) / name)]
    return sorted(found, key=lambda p: (p.name, str(p)))


def _is_results(file: Path) -> bool:
    """Whether a file is called as lm_eval calls its results, or begins as they do."""
    if file.name in ("results_summary.json", "summary.json"):  # evalsweep's own
        return False
    if re.fullmatch(r"results(_.*)?\.json", file.name):
        return True
    try:
        with file.open("rb") as f:
            return re.match(rb'\s*{\s*"results"\s*:', f.read(200)) is not None
    except OSError:
        return False


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Whatever goes wrong with what stands in a file becomes a ValueError with its path."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as e:
        text = first_line(e)
        raise ValueError(text if str(file.parent) in text else f"{file}: not as lm_eval writes it ({text})") from e


def read(file: Path) -> dict[str, Any]:
    data = json.loads(file.read_text(errors="replace"))
    if not isinstance(data, dict) or not all(isinstance(data.get(key), dict) for key in ("results", "config")):
        raise ValueError("results of lm_eval hold `results` and `config`")
    return data


def tops(data: Mapping[str, Any]) -> list[str]:
    """Tasks and groups that belong to no other group."""
    groups: Mapping[str, list[str]] = data.get("group_subtasks") or {}
    within = {part for group, parts in groups.items() for part in parts if part != group}
    scored = [name for name in data["results"] if name not in within and numbers(data["results"][name])]
    # a group without a score of its own is as good as its parts
    bare = [name for name in groups if name not in within and not numbers(data["results"].get(name, {}))]
    return scored + [p for name in bare for p in parts_of(data, name) if p not in scored]


def parts_of(data: Mapping[str, Any], task: str, above: tuple[str, ...] = ()) -> list[str]:
    """The tasks of a group, of its groups too; a task itself."""
    parts = [part for part in (data.get("group_subtasks") or {}).get(task) or [] if part not in (task, *above)]
    return [leaf for part in parts for leaf in parts_of(data, part, (task, *above))] if parts else [task]


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Metric to number, as evalsweep names them: lm_eval's `,none` is dropped."""
    return {
        name.removesuffix(",none"): float(value)
        for name, value in values.items()
        if "," in name and "_stderr" not in name and isinstance(value, int | float) and not isinstance(value, bool)
    }


def samples_file(file: Path, task: str) -> Path:
    """The samples beside a results file.

    Errors: FileNotFoundError where there are none, as without --log_samples.
    """
    time = re.search(r"_?(\d{4}-\d\d-\d\dT.*)$", file.stem)
    names = (
        [f"samples_{task}_{time.group(1)}.jsonl"] if time else [f"samples_{task}.jsonl", f"{file.stem}_{task}.jsonl"]
    )
    found = [file.parent / name for name in names if (file.parent / name).exists()]
    if not found and not time:  # version 0.4.0 put the model's arguments first
        found = sorted(p for p in file.parent.glob("*.jsonl") if p.name.endswith(f"_{task}.jsonl"))
    if not found:
        raise FileNotFoundError(f"no {names[0]} beside {file}: lm_eval writes it with --log_samples")
    return found[0]
