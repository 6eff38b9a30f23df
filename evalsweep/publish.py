"""A summary in all its forms, written into one folder: JSON, Markdown, one HTML page, pictures."""

from __future__ import annotations

from pathlib import Path

from evalsweep import store
from evalsweep.inputs import Inputs
from evalsweep.report import page, plot, results, table
from evalsweep.report.documents import documents


def publish(found: Inputs, directory: Path, title: str) -> None:
    """Write summary.json, results_summary.json, report.md, report.html with its texts, and the pictures.

    The numbers come first: should the disk fill, the smallest files are there.

    Errors: OSError where the folder cannot be written.
    """
    summary = found.summary
    store.write_results(directory, results.results(summary))
    store.write_summary(directory, summary.to_json())
    store.write_markdown(directory, table.markdown(summary, found.command))
    store.write_pictures(directory, plot.pictures(summary))
    texts = documents(summary, found.samples)
    store.write_page(directory, page.html(summary, texts, title, found.command), texts.parts)
