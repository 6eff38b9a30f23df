"""Benchmark data from local files: a folder with one <split>.jsonl a split."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalsweep.engine.benchmarks.benchmark import selecting_column
from evalsweep.errors import BadInput, first_line


def read_split(path: Path, columns: Iterable[str]) -> list[dict[str, Any]]:
    """All rows of a JSON Lines file.

    Errors: BadInput with path and line for a line that is no JSON object, lacks one of `columns`, or holds null there.
    """
    rows = _read(path, path.stat().st_mtime_ns)
    for number, row in rows:
        for column in columns:
            if row.get(column) is None:
                what = "is missing" if column not in row else "is null"
                raise BadInput(f"{path} line {number}", f"column '{column}' {what}; the line has: {', '.join(row)}")
    return [row for _, row in rows]


@lru_cache(maxsize=8)
def _read(path: Path, _mtime: int) -> list[tuple[int, dict[str, Any]]]:
    rows: list[tuple[int, dict[str, Any]]] = []
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as f:
            for number, line in enumerate(f, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise BadInput(f"{path} line {number}", "is not a JSON object, one document a line is expected")
                    rows.append((number, row))
    except json.JSONDecodeError as e:
        raise BadInput(f"{path} line {number}", f"is not valid JSON ({e.msg} at column {e.colno})") from e
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(str(path), f"cannot be read ({first_line(e)})") from e
    if not rows:
        raise BadInput(str(path), "holds no document")
    return rows


def columns_of(task: Mapping[str, Any]) -> list[str]:
    """The columns that a task's templates name: what every row of its data must have.

    Where the task's own code makes its documents, as HellaSwag's does, their columns are not those of the data.
    """
    from jinja2 import Environment, TemplateSyntaxError, meta

    environment = Environment()  # parsed only, never rendered
    environment.filters["regex_replace"] = str
    found: dict[str, None] = {}
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice") if task.get("process_docs") is None else ():
        template = task.get(key)
        if not isinstance(template, str) or "is defined" in template:  # it does with what is there
            continue
        if "{" not in template:
            # lm_eval takes a bare word for a column, and for literal text where no such column is: the silent case
            if re.fullmatch(r"[A-Za-z_]\w*", template):
                found[template] = None
            continue
        try:
            found |= dict.fromkeys(sorted(meta.find_undeclared_variables(environment.parse(template))))
        except TemplateSyntaxError:
            continue  # lm_eval judges its own templates
    if column := selecting_column(str(task.get("dataset_path"))):
        found[column] = None
    return list(found)


def load(folder: Path, task: Mapping[str, Any], num_fewshot: int) -> dict[str, list[dict[str, Any]]]:
    """The splits that a task needs from `folder`, rows checked; rows of another task of the same dataset are left out.

    Args:
        folder: holds <split>.jsonl.
        task: lm_eval's task configuration.
        num_fewshot: 0 makes the few-shot split optional.

    Errors: BadInput for a missing folder or file, a broken line, a missing column, an answer outside the choices.
    """
    if not folder.is_dir():
        raise BadInput(f"task.data={folder}", "is not a folder; it must hold <split>.jsonl", "task.data=data/my-task")
    evaluated = task.get("test_split") or task.get("validation_split")
    wanted = [task.get(k) for k in ("test_split", "validation_split", "fewshot_split", "training_split")]
    splits: dict[str, list[dict[str, Any]]] = {}
    for split in dict.fromkeys(s for s in wanted if s):
        path = folder / f"{split}.jsonl"
        if path.is_file():
            splits[split] = _selected(read_split(path, columns_of(task)), task, path)
            _check_answers(splits[split], task, path)
        elif split == evaluated or (split == task.get("fewshot_split") and num_fewshot > 0):
            have = ", ".join(sorted(p.name for p in folder.glob("*.jsonl"))) or "no .jsonl file"
            raise BadInput(
                f"task.data={folder}", f"{split}.jsonl is missing for task {task['task']}; the folder has {have}"
            )
    return splits


def _selected(rows: list[dict[str, Any]], task: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    column = selecting_column(str(task.get("dataset_path")))
    if column is None:
        return rows
    kept = [row for row in rows if row[column] == task["dataset_name"]]
    if not kept:
        name = task["dataset_name"]
        raise BadInput(str(path), f"has no row with {column} '{name}', which task {task['task']} asks for")
    return kept


def _check_answers(rows: list[dict[str, Any]], task: Mapping[str, Any], path: Path) -> None:
    """A multiple-choice answer is a position among the row's choices; anything else would score silently wrong."""
    target, choices = task.get("doc_to_target"), task.get("doc_to_choice")
    if task.get("output_type") != "multiple_choice" or not isinstance(target, str) or target not in rows[0]:
        return
    for row in rows:
        options = row.get(choices) if isinstance(choices, str) else choices
        n = len(options) if isinstance(options, list) else None
        answer = row[target]
        if n is not None and not (isinstance(answer, int) and 0 <= answer < n):
            raise BadInput(
                str(path),
                f"'{target}' is {answer!r} where a position from 0 to {n - 1} is needed; the row is {str(row)[:80]}",
            )
