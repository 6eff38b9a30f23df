"""The pictures of a sweep: its scores, its scores against temperature, where their variance comes from."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from evalsweep.report.words import line
from evalsweep.stats.estimate import Estimate
from evalsweep.summary.types import Cell, Summary, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind tell apart
BLUE, ORANGE, GREEN, INK, GREY = "#0072B2", "#E69F00", "#009E73", "#222222", "#777777"
SERIES = (BLUE, "#D55E00", GREEN, "#CC79A7", ORANGE, "#56B4E9")
MARKS = ("o", "s", "^", "D", "v", "P")
FORMATS = ("png", "svg")


def pictures(summary: Summary) -> dict[str, bytes]:
    """File name to picture, each as PNG and as SVG; none where no cell has a score."""
    figures: dict[str, Figure | None] = {}
    if summary.cells:
        figures = {"scores": _scores(summary), "temperature": _temperature(summary), "variance": _variance(summary)}
    return {
        f"{name}.{suffix}": _saved(figure, suffix)
        for name, figure in figures.items()
        if figure is not None
        for suffix in FORMATS
    }


def _figure(title: str, rows: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # slow to import; Figure alone needs no display

    figure = Figure(figsize=(10, rows), dpi=120, layout="constrained")
    axes = figure.subplots()
    figure.suptitle(title, fontsize=9, color=INK, x=0.01, ha="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes


def _saved(figure: Figure, suffix: str) -> bytes:
    import matplotlib as mpl

    out = io.BytesIO()
    # the same numbers make the same bytes: no date, and names that are not random
    with mpl.rc_context({"svg.hashsalt": "evalsweep"}):
        figure.savefig(out, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
    return out.getvalue()


def _label(text: str) -> str:
    """A name as it is written: no dollar begins a formula."""
    return line(text).replace("$", r"\$")


def _scores(summary: Summary) -> Figure:
    """A row a cell: its runs as dots, its mean as a tick on its two intervals."""
    cells = summary.cells
    title = "Runs (dots) and mean (tick); 95% intervals: thin: new questions, thick: another run on the same questions"
    figure, axes = _figure(title, 1.4 + 0.5 * len(cells))
    for y, cell in enumerate(cells):
        _line(axes, cell.questions, y, 1.6, 1.0)
        _line(axes, cell.interval, y, 6, 0.35)
        axes.plot([cell.spread.mean], [y], "|", color=BLUE, markersize=20, markeredgewidth=2.5)
        axes.plot([run.score for run in cell.runs], [y] * len(cell.runs), "o", color=INK, markersize=5, alpha=0.6)
    axes.set_yticks(range(len(cells)), [_label(cell.name) for cell in cells], fontsize=9)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.margins(x=0.05)
    if _are_shares(cells):  # no tick where no score can be
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, -0.02), min(right, 1.02))
        axes.set_xticks([tick for tick in axes.get_xticks() if max(left, 0) <= tick <= min(right, 1.0001)])
    axes.set_xlabel(_label(" / ".join(dict.fromkeys(cell.metric for cell in cells))))
    axes.grid(axis="x", color="#dddddd", linewidth=0.8)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _line(axes: Any, estimate: Estimate, y: int, width: float, alpha: float) -> None:
    if estimate.low is not None and estimate.high is not None:
        ends = [estimate.low, estimate.high]
        axes.plot(ends, [y, y], color=BLUE, linewidth=width, solid_capstyle="butt", alpha=alpha)


def _temperature(summary: Summary) -> Figure | None:
    """Score against temperature, a line for whatever else differs; None where no temperature differs."""
    series = by_temperature(summary)
    if not series:
        return None
    figure, axes = _figure("Mean and 95% interval (new questions) by temperature", 4.0)
    for i, (name, cells) in enumerate(series.items()):
        colour, mark = SERIES[i % len(SERIES)], MARKS[i % len(MARKS)]
        at = [float(cell.differs["temperature"]) for cell in cells]
        axes.plot(
            at, [cell.spread.mean for cell in cells], color=colour, marker=mark, label=_label(name), linewidth=1.6
        )
        aside = 0.004 * (i - (len(series) - 1) / 2) * (max(at) - min(at))  # lines of one place would hide each other
        for x, cell in zip(at, cells, strict=True):
            low, high = cell.questions.low, cell.questions.high
            if low is not None and high is not None:
                axes.plot([x + aside, x + aside], [low, high], color=colour, linewidth=1, alpha=0.6)
    axes.set_xlabel("temperature")
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.legend(fontsize=8, frameon=False)
    return figure


def by_temperature(summary: Summary) -> dict[str, list[Cell]]:
    """Cells that differ in their temperature, in its order, by the name of whatever else they share."""
    series: dict[str, list[Cell]] = {}
    for cell in summary.cells:
        if isinstance(cell.differs.get("temperature"), int | float):
            others = [f"{k} {shown(v)}" for k, v in cell.differs.items() if k != "temperature"]
            series.setdefault(", ".join([cell.task, *others]), []).append(cell)
    for cells in series.values():
        cells.sort(key=lambda cell: float(cell.differs["temperature"]))
    return series if any(len(cells) > 1 for cells in series.values()) else {}


def _variance(summary: Summary) -> Figure | None:
    """The shares of the variance of each cell's mean."""
    cells = [(cell, cell.variance) for cell in summary.cells if cell.variance]
    if not cells:
        return None
    figure, axes = _figure("Where the variance of the mean comes from", 1.4 + 0.4 * len(cells))
    for y, (_, variance) in enumerate(cells):
        left = 0.0
        for part, colour, hatch in (("documents", BLUE, ""), ("runs", ORANGE, "//"), ("rest", GREY, "..")):
            share = variance.shares[part]
            label = part if y == 0 else None
            axes.barh(y, share, left=left, color=colour, hatch=hatch, edgecolor="white", label=label, height=0.6)
            left += share
    axes.set_yticks(range(len(cells)), [_label(cell.name) for cell, _ in cells], fontsize=9)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    return figure


def _are_shares(cells: tuple[Cell, ...]) -> bool:
    seen = [
        v
        for c in cells
        for v in (c.spread.min, c.spread.max, c.interval.low, c.interval.high, c.questions.low, c.questions.high)
        if v is not None
    ]
    return min(seen) >= 0 and max(seen) <= 1
