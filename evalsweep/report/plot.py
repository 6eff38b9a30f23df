"""The picture of a sweep: a row a cell, its runs as dots, its mean as a tick on its interval."""

from __future__ import annotations

import io

from evalsweep.summary.types import Summary

BLUE, INK, GREY = "#0072B2", "#222222", "#777777"


def scores(summary: Summary) -> bytes:
    """A PNG of the scores of all cells; needs at least one cell."""
    from matplotlib.figure import Figure  # slow to import; Figure alone needs no display

    cells = summary.cells
    figure = Figure(figsize=(10, 1.4 + 0.5 * len(cells)), dpi=120, layout="constrained")
    axes = figure.subplots()
    for y, cell in enumerate(cells):
        i = cell.interval
        if i.low is not None and i.high is not None:
            axes.plot([i.low, i.high], [y, y], color=BLUE, linewidth=3, solid_capstyle="round", alpha=0.45)
        else:
            axes.annotate(
                "identical runs" if cell.identical else "no interval",
                (cell.spread.max, y),
                xytext=(12, -3),
                textcoords="offset points",
                fontsize=8,
                color=GREY,
            )
        axes.plot([cell.spread.mean], [y], "|", color=BLUE, markersize=20, markeredgewidth=2.5)
        axes.plot([run.score for run in cell.runs], [y] * len(cell.runs), "o", color=INK, markersize=5, alpha=0.6)
    axes.set_yticks(range(len(cells)), [cell.name for cell in cells], fontsize=9)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.margins(x=0.2)
    seen = [v for c in cells for v in (c.spread.min, c.spread.max, c.interval.low, c.interval.high) if v is not None]
    if min(seen) >= 0 and max(seen) <= 1:  # shares: no tick where no score can be
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, -0.02), right)
        axes.set_xticks([tick for tick in axes.get_xticks() if max(left, 0) <= tick <= min(right, 1.0001)])
    metrics = list(dict.fromkeys(cell.metric for cell in cells))
    axes.set_xlabel(" / ".join(metrics))
    title = "Runs (dots), mean (tick), 95% interval: same questions, another run"
    figure.suptitle(title, fontsize=9, color=INK, x=0.01, ha="left")
    axes.grid(axis="x", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
