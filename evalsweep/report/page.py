"""The report as one HTML page that needs nothing but itself: page.html is its frame, page.css its looks, page.js its
table of documents."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from evalsweep.report import methods, plot, words
from evalsweep.report.documents import FOLDER, Documents, script_json
from evalsweep.report.table import about
from evalsweep.stats.estimate import Estimate
from evalsweep.summary.types import Cell, Summary, shown

_SPACE = re.compile(r"\s")
MATRIX = 12  # cells of a task up to which all pairs are also shown as a matrix


def html(summary: Summary, documents: Documents, title: str, command: str | None) -> str:
    """The page. What comes from a model, a task or a user is escaped, or stands in JSON of which only text is made."""
    from jinja2 import Environment, StrictUndefined

    here = resources.files("evalsweep.report")
    from markupsafe import Markup

    jinja = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # what is written into the page is as harmless as what its script writes
    jinja.finalize = lambda value: value if isinstance(value, Markup) else words.visible(_SPACE.sub(" ", str(value)))
    frame = jinja.from_string(here.joinpath("page.html").read_text())

    data = {"tables": documents.tables, "inline": bool(documents.inline) or not documents.parts, "folder": FOLDER}
    return frame.render(
        title=title,
        command=command,
        headline=words.headline(summary),
        summary=summary,
        tasks=[_task(task, cells, summary) for task, cells in summary.by_task().items()],
        temperatures=_temperatures(summary),
        comparisons=[_comparison(summary, c) for c in summary.comparisons],
        computed=methods.computed(summary),
        notes=words.notes(summary.cells),
        provenance=[(cell.name, about(cell), _config(cell)) for cell in summary.cells],
        css=Markup(here.joinpath("page.css").read_text()),
        js=Markup(here.joinpath("page.js").read_text()),
        data=Markup(script_json(data)),
        texts=[Markup(part) for part in documents.inline],
        words=words,
    )


def _task(task: str, cells: list[Cell], summary: Summary) -> dict[str, Any]:
    scale = _Scale([v for cell in cells for v in _ends(cell)], _bounded(cells))
    places = {id(cell): i for i, cell in enumerate(summary.cells)}
    groups = list(dict.fromkeys(group.name for cell in cells for group in cell.groups))
    return {
        "name": task,
        "metric": cells[0].metric,
        "axes": list(dict.fromkeys(key for cell in cells for key in cell.differs)),
        "ticks": scale.ticks,
        "cells": [
            {
                "cell": cell,
                "new": scale.line(cell.questions),
                "again": scale.line(cell.interval),
                "mean": scale.at(cell.spread.mean),
                "dots": [scale.at(run.score) for run in cell.runs],
                "identical": cell.identical,
            }
            for cell in cells
        ],
        "groups": [
            (name, [next((g.questions for g in cell.groups if g.name == name), None) for cell in cells])
            for name in groups
        ],
        "matrix": _matrix(cells, [places[id(cell)] for cell in cells], summary),
    }


class _Scale:
    """Scores to per cent of a plot's width, with round ticks."""

    def __init__(self, values: Sequence[float], bounded: bool, margin: float = 0.04) -> None:
        low, high = min(values), max(values)
        room = (high - low) * margin or 0.05
        self.low, self.high = low - room, high + room
        if bounded:
            self.low, self.high = max(self.low, -0.01), min(self.high, 1.01)
        step = 10 ** math.floor(math.log10(self.high - self.low))
        step = next(s for s in (step / 5, step / 2, step, step * 2) if (self.high - self.low) / s <= 6)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        self.ticks = [(self.at(k * step), f"{k * step:.6g}") for k in range(first, last + 1)]

    def at(self, value: float) -> float:
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def line(self, estimate: Estimate) -> tuple[float, float] | None:
        if estimate.low is None or estimate.high is None:
            return None
        return self.at(estimate.low), self.at(estimate.high)


def _ends(cell: Cell) -> list[float]:
    ends = (cell.spread.min, cell.spread.max, cell.interval.low, cell.interval.high)
    return [v for v in (*ends, cell.questions.low, cell.questions.high) if v is not None]


def _bounded(cells: list[Cell]) -> bool:
    return all(0 <= v <= 1 for cell in cells for v in _ends(cell))


def _matrix(cells: list[Cell], places: list[int], summary: Summary) -> list[list[dict[str, Any] | None]]:
    """Row less column for the pairs that were compared; empty where there are too few or too many cells."""
    if not 2 < len(cells) <= MATRIX:
        return []
    pairs = {(c.a, c.b): c for c in summary.comparisons if c.difference is not None}
    found = []
    for row in places:
        line: list[dict[str, Any] | None] = []
        for column in places:
            c = pairs.get((column, row)) or pairs.get((row, column))
            if c is None or c.difference is None:
                line.append(None)
                continue
            value = c.difference.value * (1 if (c.b, c.a) == (row, column) else -1)
            line.append({"value": words.signed(value), "beyond": words.is_clear(c), "up": value > 0})
        found.append(line)
    return found


def _comparison(summary: Summary, c: Any) -> dict[str, Any]:
    scaled = None
    seen = [x.difference for x in summary.comparisons if x.difference is not None and x.difference.low is not None]
    if c.difference is not None and c.difference.low is not None:
        ends = [0.0, *(v for d in seen for v in (d.low, d.high, d.value) if v is not None)]
        scale = _Scale(ends, False)
        scaled = {"zero": scale.at(0), "line": scale.line(c.difference), "value": scale.at(c.difference.value)}
    return {
        "task": summary.cells[c.a].task,
        "name": words.versus(summary, c),
        "c": c,
        "beyond": words.is_clear(c),
        "plot": scaled,
    }


def _temperatures(summary: Summary) -> list[dict[str, Any]]:
    """A plot a task, in per cent of its width and height."""
    plots = []
    for task, cells in summary.by_task().items():
        lines = {name: of for name, of in plot.by_temperature(summary).items() if of[0].task == task}
        if not lines:
            continue
        up = _Scale([v for cell in cells for v in _ends(cell)], _bounded(cells))
        across = _Scale(_temperatures_of(lines), False, 0.14)
        plots.append(
            {
                "task": task,
                "y": up.ticks,
                "x": [(across.at(t), shown(t)) for t in _temperatures_of(lines)],
                "series": [
                    {
                        "name": name.partition(", ")[2] or task,
                        # side by side, as lines of one temperature would hide each other
                        "points": [_point(cell, across, up, 1.2 * (i - (len(lines) - 1) / 2)) for cell in of],
                    }
                    for i, (name, of) in enumerate(lines.items())
                ],
            }
        )
    return plots


def _temperatures_of(lines: dict[str, list[Cell]]) -> list[float]:
    return sorted({float(cell.differs["temperature"]) for of in lines.values() for cell in of})


def _point(cell: Cell, across: _Scale, up: _Scale, aside: float) -> dict[str, Any]:
    line = up.line(cell.questions)
    return {
        "x": round(across.at(float(cell.differs["temperature"])) + aside, 3),
        "y": round(100 - up.at(cell.spread.mean), 3),
        "low": None if line is None else round(100 - line[0], 3),
        "high": None if line is None else round(100 - line[1], 3),
        "label": f"{cell.name}: {words.interval(cell.questions)}",
    }


def _config(cell: Cell) -> list[tuple[str, str]]:
    """The configuration, flat; what is empty is left out."""
    flat: list[tuple[str, str]] = []

    def walk(value: Any, key: str) -> None:
        if isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{key}.{k}" if key else str(k))
        elif value not in (None, [], ""):
            flat.append((key, str(value)))

    walk(cell.config, "")
    walk({"sent": cell.decoding.get("sent")}, "")
    return flat
