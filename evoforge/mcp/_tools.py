"""What an agent may do, as plain calls: everything but the protocol.

What comes in is hostile text. The store and the folder were named by who started the server, and no
argument reaches beyond them; kernels and tasks are read here and run in the judge's sandbox only.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from evoforge.campaign import Tickets, campaigns, elites, evaluate_kernel, report, show
from evoforge.core import Candidate, cut
from evoforge.errors import NotFoundError, TaskError, UsageError
from evoforge.evaluation.tasks import build_task
from evoforge.prompts import Identity, scrub, scrub_source
from evoforge.storage import open_store

__all__ = ["Tools"]

_MOST_BYTES = 4_000_000
_MOST_SAID = 200


class Tools:
    """The calls behind the tools. A context manager.

    The judge of the campaign that was answered last stays open, so that the next answer is judged at
    once; another campaign's, and `evaluate`, close it first. Calls are not for several threads at once.

    Args:
        root: files are read from below it, wherever symbolic links lead.

    Raises:
        UsageError: `root` is no folder, or `store_url` no store's.
        StoreError: there is a store that cannot be opened. One that is not there yet may come.
    """

    def __init__(self, store_url: str, root: str | Path = ".", *, sandbox: str = "strict") -> None:
        self._store, self._sandbox = store_url, sandbox
        self._root = Path(root).resolve()
        if not self._root.is_dir():
            raise UsageError(f"expected a folder, got {root}; give --root FOLDER")
        self.missing = ""
        """Why there is no store yet; empty where there is one."""
        try:
            open_store(store_url, create=False).close()  # said now, and not at every call
        except NotFoundError as error:
            self.missing = str(error)
        self._open: tuple[str, Tickets] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the judge that is open; safe to call twice."""
        if self._open is not None:
            held, self._open = self._open[1], None
            held.close()

    def campaigns(self) -> dict[str, Any]:
        """The campaigns of the store, the oldest first."""
        return _plain({"campaigns": campaigns(self._store)})

    def elites(self, campaign: str) -> dict[str, Any]:
        """The best kernel of every niche of a campaign."""
        return _plain({"campaign": campaign, "elites": elites(campaign, self._store)})

    def show(self, candidate: str) -> dict[str, Any]:
        """A candidate with source and evaluations."""
        found = show(candidate, self._store)
        return _plain({**found, "source": scrub_source(found["source"], found["language"], Identity.here())})

    def ask(self, campaign: str, emitter: str | None = None) -> dict[str, Any]:
        """A ticket with its prompt."""
        if self._open is not None and self._open[0] == campaign:
            return _plain(self._open[1].ask(emitter))
        with Tickets(campaign, self._store, sandbox=self._sandbox, waits=_note) as tickets:
            return _plain(tickets.ask(emitter))

    def tell(self, campaign: str, ticket: int, answer: str | None = None, file: str | None = None) -> dict[str, Any]:
        """The verdict on an answer, given as text or as a file below the root."""
        with _briefly():
            return _plain(self._tickets(campaign).tell(ticket, self._one_text("answer", answer, file)))

    def evaluate(self, task: str, source: str | None = None, file: str | None = None) -> dict[str, Any]:
        """The verdict on a kernel for a task file, beside eager and compiled; nothing is stored."""
        kernel = Candidate("cpp", self._one_text("source", source, file))
        _ = kernel.space  # a header that cannot be read is said before a judge is opened
        where = self._path(task, ".py")
        loaded = build_task(self._read(task, ".py"), where.stem, where.name, root=str(where.parent))
        self.close()
        with _briefly():
            evaluation, cell = evaluate_kernel(kernel, loaded, sandbox=self._sandbox)
        return _plain(report(evaluation, cell))

    def _tickets(self, campaign: str) -> Tickets:
        if self._open is None or self._open[0] != campaign:
            fresh = Tickets(campaign, self._store, sandbox=self._sandbox, waits=_note)
            self.close()
            self._open = (campaign, fresh)
        return self._open[1]

    def _one_text(self, name: str, text: str | None, file: str | None) -> str:
        if (text is None) == (file is None):
            raise UsageError(
                f"expected either {name} (text) or file (a path), got {'neither' if text is None else 'both'}"
            )
        if text is not None:
            return text
        assert file is not None
        return self._read(file)

    def _read(self, given: str, suffix: str = "") -> str:
        path, shown = self._path(given, suffix), cut(given)
        # Not a pipe or a device: opened without waiting, and asked what it is.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"expected a file, got something else at {shown!r}")
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(f"expected a file of at most {_MOST_BYTES} bytes, got more in {shown!r}")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"expected UTF-8 text in {shown!r}, got a byte that is none at {error.start}") from None

    def _path(self, given: str, suffix: str = "") -> Path:
        """The file that `given` names, links followed; what lies outside is refused before it is looked at."""
        shown = cut(given)  # who gives a text for a path would read all of it again
        inside = f"expected a path below the folder of this server, got {shown!r}; copy the file there"
        if "\x00" in given:
            raise UsageError(inside)
        try:
            path = (self._root / given).resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links
            raise UsageError(inside) from None
        if not path.is_relative_to(self._root):
            raise UsageError(inside)
        if suffix and path.suffix != suffix:
            raise UsageError(f"expected a file that ends in {suffix}, got {shown!r}")
        try:
            found = path.stat()
        except OSError as error:
            raise UsageError(f"expected a file at {shown!r}, got: {error.strerror}; check the path") from None
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"expected a file at {shown!r}, got something else, such as a folder or a pipe")
        if found.st_size > _MOST_BYTES:
            raise UsageError(f"expected a file of at most {_MOST_BYTES} bytes, got {found.st_size} in {shown!r}")
        return path


@contextlib.contextmanager
def _briefly() -> Iterator[None]:
    """Of what a task raises the beginning goes on."""
    try:
        yield
    except TaskError as error:
        raise TaskError(_brief(str(error))) from None


def _brief(text: str) -> str:
    """`text` with no more than the beginning of what a task raised: that can be any file it has read."""
    sentence, raised, said = text.partition(" it raised ")
    return sentence + raised + cut(said, _MOST_SAID)


def _note(text: str) -> None:
    sys.stderr.write(f"note: {text}\n")


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """`value` as strict JSON data: NaN and infinities become null."""
    said = ("reason", "stop_reason")
    return {str(k): _said(item) if k in said and item is not None else _data(item) for k, item in value.items()}


def _said(text: Any) -> str:
    """A reason, which may quote a compiler, without names of folders and people: agents are models too."""
    return scrub(_brief(str(text or "")), Identity.here())


def _data(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, list | tuple):
        return [_data(item) for item in value]
    return value if isinstance(value, bool | int) or value is None else str(value)
