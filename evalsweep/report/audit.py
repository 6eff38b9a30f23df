"""An audit for the terminal: the prompt as the model gets it, what is sent with it, and the measured noise."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evalsweep.record import Audit, Difference
from evalsweep.report.words import visible

ENDS = 8  # token ids that are shown at each end of a prompt


def terminal(audit: Audit, width: int = 100) -> str:
    """The whole audit, at most `width` columns wide; the prompt is shown in full."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True, highlight=False)
    metric = audit.metric.partition("/")[2]
    console.print(f"audit of {escape(audit.name)}: {audit.documents} documents, {escape(metric)} {audit.score:.3f}\n")
    console.print(f"prompt of the first document{escape(_ids(audit))}:")
    for line in audit.prompt.splitlines():
        console.print(f"  | {escape(visible(line))}", soft_wrap=True)
    console.print()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(audit):
        facts.add_row(name, escape(visible(value)))
    console.print(facts)
    for alarm in audit.alarms:
        console.print(f"! {escape(alarm.message)}")
    console.print()
    console.print(_noise(audit))
    for condition, why in audit.skipped.items():
        console.print(f"{escape(condition)}: not compared: {escape(why)}")
    console.print(
        f"noise floor {audit.noise_floor:.4f}: a smaller difference between two mean scores on these documents means "
        "nothing"
        if audit.noise_floor
        else "noise floor 0: nothing but the model, the seed and the settings moved a score here"
    )
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _ids(audit: Audit) -> str:
    if not audit.tokens:
        return ", as it is sent"
    ids = audit.tokens
    if len(ids) <= 2 * ENDS:
        shown = " ".join(map(str, ids))
    else:
        shown = f"{' '.join(map(str, ids[:ENDS]))} ... {' '.join(map(str, ids[-ENDS:]))}"
    return f", {len(ids)} tokens: {shown}"


def _facts(audit: Audit) -> list[tuple[str, str]]:
    facts = []
    for sent in audit.decoding.get("sent", []):
        settings = {k: v for k, v in sent.items() if k not in ("stop", "model")}
        facts.append(("decoding", ", ".join(f"{k} {v}" for k, v in settings.items())))
        facts.append(("stop", ", ".join(map(repr, sent.get("stop", []))) or "none"))
    if note := audit.decoding.get("note"):
        facts.append(("decoding", str(note)))
    shots = ", ".join(str(shot.id) for shot in audit.shots)
    facts.append(("shots", f"{len(audit.shots)}: numbers {shots} of the pool" if audit.shots else "none"))
    cut = [a for a in audit.alarms if a.kind in ("truncated", "dropped_shots")]
    facts.append(("cut to fit", f"{sum(a.count for a in cut)} of {audit.documents} prompts" if cut else "no prompt"))
    about = audit.provenance
    facts.append(("model", f"{about.get('model')}, {about.get('dtype')}, {about.get('device')}"))
    return facts


def _noise(audit: Audit) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    generated = all(d.texts is not None for d in audit.differences)
    table.add_column("against the run itself", overflow="fold")
    for head in ("texts that differ" if generated else "largest change", "scores that differ", "mean score"):
        table.add_column(head, justify="right")
    for d in audit.differences:
        table.add_row(
            escape(d.condition),
            _change(d),
            "-" if d.scores is None else f"{d.scores} of {d.documents}",
            f"{d.mean:+.4f}",
        )
    return table


def _change(d: Difference) -> str:
    return f"{d.texts} of {d.answers}" if d.texts is not None else f"{d.largest:.2g} nats"
