"""Requests to a server: a few at a time, tried again where it may help, refused in the server's own words.

`requests` sends, `urllib3` tries again with backoff and jitter and heeds Retry-After, in seconds or as a date.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.util import Retry

from evalsweep.config import ModelConfig
from evalsweep.errors import BadInput, first_line
from evalsweep.redact import redact

AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)  # answers that may be others the next time
BACKOFF, LONGEST = 0.5, 60.0  # seconds: the first wait, which doubles, and the longest; Retry-After may ask for more
CONNECT = 10.0  # seconds


class _Bearer(AuthBase):
    """The key of $OPENAI_API_KEY; set as `auth`, since requests would else take another one from ~/.netrc."""

    def __init__(self, key: str | None) -> None:
        self.key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.key:
            request.headers["Authorization"] = f"Bearer {self.key}"
        return request


class Client:
    """Asks one endpoint."""

    def __init__(self, model: ModelConfig) -> None:
        self.model = model
        url = urlsplit(str(model.base_url))
        auth: AuthBase = _Bearer(os.environ.get("OPENAI_API_KEY"))
        if url.username:
            auth = HTTPBasicAuth(unquote(url.username), unquote(url.password or ""))
        host = url.netloc.rpartition("@")[2]
        self.url = urlunsplit((url.scheme, host, url.path, url.query, ""))
        self.auth = auth
        self._local = threading.local()

    def ask(self, bodies: Sequence[dict[str, Any]], done: Callable[[int, dict[str, Any]], None]) -> None:
        """Post every body, `model.num_concurrent` at a time; `done` gets each position and answer as it arrives.

        Where one fails for good, those in flight are still waited for and told, no further one is sent.

        Errors: BadInput with the server's own words.
        """
        failure: BaseException | None = None
        pending: dict[Future[dict[str, Any]], int] = {}
        left: Iterator[tuple[int, dict[str, Any]]] = iter(enumerate(bodies))
        with ThreadPoolExecutor(self.model.num_concurrent, "request") as pool:
            while True:
                while failure is None and len(pending) < self.model.num_concurrent:
                    position, body = next(left, (-1, {}))
                    if position < 0:
                        break
                    pending[pool.submit(self.post, body)] = position
                if not pending:
                    break
                try:
                    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                for future in finished:
                    position = pending.pop(future)
                    error = future.exception()
                    if error is None:
                        done(position, future.result())
                    else:
                        failure = failure or error
        if failure is not None:
            raise failure

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Post one body and give the answer's JSON. Errors: BadInput with the server's own words."""
        try:
            response = self._session().post(self.url, json=body, timeout=(CONNECT, self.model.timeout))
        except requests.RequestException as e:
            raise self._refused(
                f"the server broke off or refused a request ({type(e).__name__}: {redact(first_line(e))})"
            ) from e
        if response.status_code >= 400:
            raise self._refused(f"the server answers {response.status_code}: {_words(response)}")
        try:
            found = response.json()
        except ValueError as e:
            raise self._refused(f"this is no answer in JSON: {response.text[:200]!r}") from e
        if not isinstance(found, dict) or not isinstance(found.get("choices"), list) or not found["choices"]:
            raise self._refused(f"this is no answer of such an endpoint: {str(found)[:300]}")
        return found

    def get(self, path: str) -> Any:
        """Get the JSON of another path of the same server, or None where it has none."""
        url = urlsplit(self.url)
        try:
            response = self._session().get(
                urlunsplit((url.scheme, url.netloc, path, "", "")), timeout=(CONNECT, CONNECT)
            )
            return response.json() if response.ok else None
        except (requests.RequestException, ValueError):
            return None

    def _session(self) -> requests.Session:
        """Give this thread's session: they are not made to be shared, and each keeps its connection."""
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.auth = self.auth
            retry = Retry(
                total=self.model.retries,
                status_forcelist=AGAIN,
                allowed_methods=None,
                backoff_factor=BACKOFF,
                backoff_max=LONGEST,
                backoff_jitter=BACKOFF,
                respect_retry_after_header=True,
                raise_on_status=False,
            )
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            self._local.session = session
        return session

    def _refused(self, problem: str) -> BadInput:
        return BadInput(f"model.base_url={redact(str(self.model.base_url))}", problem)


def reach(model: ModelConfig) -> str:
    """Give host and port of a server that answers. Errors: BadInput where nobody does."""
    try:
        url = urlsplit(str(model.base_url))
        port = url.port or {"https": 443, "http": 80}[url.scheme]
        with socket.create_connection((str(url.hostname), port), timeout=CONNECT):
            return f"{url.hostname}:{port}"
    except (OSError, KeyError, ValueError) as e:
        raise BadInput(
            f"model.base_url={redact(str(model.base_url))}",
            f"no server answers there ({first_line(e)}); start the server or fix the address",
            "model.base_url=http://localhost:8000/v1/completions",
        ) from e


def _words(response: requests.Response) -> str:
    """Give the server's own words of an error: OpenAI's form, FastAPI's, or the text."""
    try:
        found = response.json()
    except ValueError:
        return " ".join(response.text.split())[:400] or response.reason or "nothing"
    if isinstance(found, dict):
        error = found.get("error", found)
        found = error.get("message", error.get("detail", error)) if isinstance(error, dict) else error
    return " ".join(str(found).split())[:400]
