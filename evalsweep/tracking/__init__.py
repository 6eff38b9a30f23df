"""Mirrors sweeps and records to MLflow; whatever is sent can be sent again from the run directory."""

from evalsweep.tracking.connection import tracking_uri, without_password
from evalsweep.tracking.runs import open_sweep, push_record, push_summary

__all__ = ["open_sweep", "push_record", "push_summary", "tracking_uri", "without_password"]
