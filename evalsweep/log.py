"""The log file of a run: what the libraries say goes there, and not to the terminal."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path

from evalsweep import store
from evalsweep.redact import redact


@contextlib.contextmanager
def logged(run_dir: Path) -> Iterator[None]:
    """Whatever the libraries log, print and warn goes to the log file of a run directory, without secrets."""
    handler = _LogFile(run_dir / store.LOG, encoding="utf-8")
    handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    _unhandle()
    try:
        with contextlib.redirect_stdout(_ToLog("stdout")), contextlib.redirect_stderr(_ToLog("stderr")):
            yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()


def _unhandle() -> None:
    """Take from the libraries the handlers with which they write past the log, straight to the terminal."""
    for name, logger in logging.Logger.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in (
            "transformers",
            "lm_eval",
            "datasets",
            "mlflow",
        ):
            for handler in [h for h in logger.handlers if isinstance(h, logging.StreamHandler)]:
                logger.removeHandler(handler)
            logger.propagate = True


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk loses the line; telling it on stderr would come back here."""


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _ToLog(io.TextIOBase):
    """A stream whose lines are log lines; a line that `\\r` overwrites is dropped, as a terminal would."""

    def __init__(self, name: str) -> None:
        self.log = logging.getLogger(name)
        self.rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if (shown := line.rpartition("\r")[2]).strip():
                self.log.info(shown)
        self.rest = self.rest.rpartition("\r")[2]
        return len(text)
