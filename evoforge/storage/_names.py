"""Campaign names and candidate prefixes: checks and messages that every store shares."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Sequence

from evoforge.core import cut
from evoforge.errors import NotFoundError, UsageError
from evoforge.storage._owner import Owner

__all__ = ["checked_prefix", "locked_message", "new_name", "no_campaign", "only_match", "shown_url"]


def shown_url(url: str) -> str:
    """A store's URL as it may be printed: whatever may be a password, in its place or as an option, is ``***``."""
    if not url.startswith("sqlite:"):  # whose rest is a path
        url = re.sub(r"(?s)^([^:@/]*:/+[^:@/]*:|(?![^:@/]*:/)[^:@/]*:).*@", r"\1***@", url)
    return re.sub(r"(?i)(pass\w*=)[^&\s]*", r"\1***", url)


def _next_free_name(stem: str, taken: Collection[str]) -> str:
    """``<stem>-<n>``, n one above the highest taken (a deleted campaign's gap is not reused)."""
    numbers = [int(name[len(stem) + 1 :]) for name in taken if re.fullmatch(re.escape(stem) + r"-[0-9]+", name)]
    return f"{stem}-{max(numbers, default=0) + 1}"


def new_name(name: str | None, stem: str, taken: Collection[str]) -> str:
    """`name`, else the next free of `stem`. Raises UsageError for a name that is taken, empty or not printable."""
    if name is None:
        return _next_free_name(stem, taken)
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise UsageError(f"expected a campaign name of 1 to 200 printable characters, got {cut(name)!r}")
    if name in taken:
        free = _next_free_name(name, taken)
        raise UsageError(
            f"a campaign named {name!r} exists; `evoforge resume {shlex.quote(name)}` goes on with it "
            f"(--minutes M: longer), or use --name {shlex.quote(free)}"
        )
    return name


def no_campaign(name: str, taken: Collection[str]) -> NotFoundError:
    close = difflib.get_close_matches(name, taken, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`evoforge campaigns` lists what there is"
    return NotFoundError(f"there is no campaign {cut(name)!r} in this store; {hint}")


def locked_message(name: str, owner: Owner | None) -> str:
    holder = f"process {owner.pid}" if owner else "another process"
    mend = f"wait for it, or stop it and run `evoforge resume {shlex.quote(name)}`"
    return f"campaign {name!r} is being written by {holder}; {mend}"


def checked_prefix(prefix: str) -> str:
    """Lower case, hexadecimal. Raises UsageError otherwise."""
    text = prefix.lower()
    if not re.fullmatch(r"[0-9a-f]{1,64}", text):
        raise UsageError(
            f"expected a candidate id or its first hexadecimal digits, got {cut(prefix)!r}; "
            "`evoforge elites NAME` lists ids"
        )
    return text


def only_match(prefix: str, ids: Sequence[str]) -> str:
    """The one id among those that match `prefix`; a whole id is its own match."""
    if not ids:
        raise NotFoundError(f"no candidate in this store has an id that starts with {cut(prefix)!r}; check --store")
    if len(ids) > 1:
        shown = ", ".join(found[: max(12, len(prefix) + 4)] for found in ids[:3])
        raise UsageError(f"{cut(prefix)!r} is the start of several candidates ({shown}); give more digits")
    return ids[0]
