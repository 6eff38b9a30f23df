"""The table that people open, saved as a view: left alone, MLflow shows a sweep's parent alone, and no metrics.

The format is MLflow's own and undocumented (3.17: a shared view is a tag of the experiment). A view that cannot be
saved is a line in the log and nothing more.
"""

from __future__ import annotations

import base64
import json
import logging
import time
import zlib
from collections.abc import Sequence
from typing import Any

KEY = "evalsweep"

log = logging.getLogger(__name__)


def save(client: Any, experiment: str, parent: str, columns: Sequence[str]) -> None:
    """Save the view "last sweep": its jobs with `columns` such as "metrics.`sample/acc`", ordered by the first."""
    state = {
        "searchFilter": f"tags.`mlflow.parentRunId` = '{parent}'",
        "orderByKey": columns[0],  # ordered by time, MLflow would fold the jobs under their parent
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "FIRST_20_RUNS",
    }
    packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    now = int(time.time() * 1000)
    shared = {"name": "last sweep", "createdAt": now, "updatedAt": now, "state": packed}
    try:
        client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{KEY}", json.dumps(shared))
    except Exception:
        log.exception("the view of the sweep was not saved")


def path(experiment: str) -> str:
    """Where the view is, after the server's address."""
    return f"/#/experiments/{experiment}/runs?viewStateShareKey={KEY}"
