"""The way to MLflow: where it is, whether it answers, its experiment, and runs that are made once."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from evalsweep.config import TrackingConfig
from evalsweep.errors import BadInput, first_line
from evalsweep.redact import redact

UID = "evalsweep.uid"  # finds a run again, so that sending twice makes one run

# The default of 7 retries with doubling pauses would hold a finished job for minutes when a server is gone.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
# It would print the server's address with the password that may be in it.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


def tracking_uri(tracking: TrackingConfig) -> str:
    """Where runs go: what was asked, else a database in the working directory."""
    # only what a URI would misread: MLflow makes an (empty) folder of the name before decoding
    path = re.sub("[%?#]", lambda match: quote(match.group()), str(Path.cwd() / "mlflow.db"))
    return tracking.uri or f"sqlite:///{path}"


def client(tracking: TrackingConfig) -> Any:
    from mlflow import MlflowClient

    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=tracking_uri(tracking))


def experiment_id(mlflow: Any, tracking: TrackingConfig) -> str:
    from mlflow.exceptions import MlflowException

    found = mlflow.get_experiment_by_name(tracking.experiment)
    if found is not None and found.lifecycle_stage != "active":
        raise BadInput(
            f"tracking.experiment={tracking.experiment}",
            "was deleted in MLflow; restore it there, or name another",
            f"tracking.experiment={tracking.experiment}-2",
        )
    if found is not None:
        return str(found.experiment_id)
    uri = tracking_uri(tracking)
    # Without a server nobody else chooses where artifacts go: beside the database, as an absolute path.
    beside = None
    if uri.startswith("sqlite:///"):
        beside = (Path(unquote(uri.removeprefix("sqlite:///"))).absolute().parent / "mlartifacts").as_uri()
    # "custom model development" makes the UI open the experiment as a table of runs with their metrics
    tags = {"mlflow.experimentKind": "custom_model_development"}
    try:
        return str(mlflow.create_experiment(tracking.experiment, artifact_location=beside, tags=tags))
    except MlflowException:
        found = mlflow.get_experiment_by_name(tracking.experiment)  # another process was first
        if found is None:
            raise
        return str(found.experiment_id)


def find_or_create(
    mlflow: Any, experiment: str, uid: str, name: str, tags: Mapping[str, str], started: int | None
) -> str:
    found = mlflow.search_runs([experiment], f"tags.`{UID}` = '{uid}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    run = mlflow.create_run(experiment, start_time=started, run_name=name, tags={UID: uid, **tags})
    return str(run.info.run_id)


def check_reachable(uri: str) -> None:
    """A plain request first: MLflow's own retries would take long to say that nobody is there."""
    import requests

    try:
        if uri in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
            raise ValueError("a database in memory is gone with the process")
        if urlsplit(uri).scheme not in ("http", "https"):
            return
        requests.get(without_password(uri), timeout=10)
    except (requests.RequestException, ValueError) as e:
        raise _unreachable(uri, e) from e


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as e:  # ImportError: a database without its driver
        raise _unreachable(uri, e) from e


def _unreachable(uri: str, error: Exception) -> BadInput:
    return BadInput(
        f"tracking.uri={redact(uri)}",
        f"MLflow cannot be used there ({type(error).__name__}: {redact(first_line(error))}); start it, mend the "
        "address, or go without",
        "tracking=off",
    )


def without_password(uri: str) -> str:
    """The address alone, as it may be shown."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
