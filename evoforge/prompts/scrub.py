"""Takes out of a text what names a person or a machine: paths, the user, the host.

In source code only comments and string literals are touched, since a user or a host may be called
like a variable.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evoforge.core import secrets_of, without_keys

__all__ = ["Identity", "clean", "code_only", "one_line", "scrub", "scrub_source"]

# Accounts that every machine has identify nobody, and are words of programs (root, test).
_GENERIC = re.compile(
    "root|users?|admin|administrator|ubuntu|debian|fedora|nobody|runner|build|builder|test|guest|docker|home|worker"
    "|localhost|local|host|node",
    re.I,
)
# A path from the root of a file system, with at least two components; ~/…; a drive's; a server's. What stands before
# must not make it a quotient, a part of a web address or of a relative path. Sources escape backslashes and spaces.
_PATH = re.compile(
    r"""(?:\bfile://)?(?:(?<![\w./)\]}~-])|(?<=-[ILB])|(?<=-isystem))
        (?:~[\w.-]*)?/(?:(?:[\w.+@%~-]|\\[ ])+/+)+(?P<posix>[\w.+@%~-]*)
    |(?<![\w.])~[\w.-]*/(?P<home>[\w.+@%-]*)
    |(?<!\w)[A-Za-z]:\\{1,2}(?:[^\\\s"'<>|:*?]+\\{1,2})+(?P<drive>[^\\\s"'<>|:*?]*)
    |(?<![\w\\])\\\\[A-Za-z][\w.-]+\\(?=[^\\\s"'<>|:*?]{2})(?:[^\\\s"'<>|:*?]+\\)*(?P<server>[^\\\s"'<>|:*?]*)
    |(?<![\w\\])\\{4}[A-Za-z][\w.-]+\\\\(?:[^\\\s"'<>|:*?]+\\\\)*(?P<escaped>[^\\\s"'<>|:*?]*)""",
    re.X,
)
# One with spaces, all of what is quoted.
_QUOTED_PATH = re.compile(
    r"""(?P<mark>["'`])(?P<path>(?:~[\w.-]*/|/|[A-Za-z]:\\|\\\\)[\w.+@%~-][^"'`\n]{0,999})(?P=mark)"""
)
# What a comment begins with that stays: its slashes belong to no path, those of a kernel's header are quotients.
_KEPT = re.compile(
    r"""(?://|\#)\s*evoforge:\s*
        (?:param\s+[A-Z][A-Z0-9_]*\s*=\s*-?\d+\s+in\s+\{[-\d\s,]*\}\s*;?|require\b[^\#\n]*)\s*(?://|\#)?
    |(?://)?""",
    re.X,
)
_A_WORD, _NO_WORD = (
    3,
    6,
)  # letters: below, a name is told from a word by what stands beside it; from there on, by itself
_HOME = re.compile(r"(?:[A-Za-z]:)?[/\\]+(?:home|Users)[/\\]+[^/\\]+[/\\]*")
_SEPARATORS = re.compile(r"[/\\]+")
_SIGNED_IN = re.compile(r"(?<=://)[^\s/@'\"<>]{1,256}@")
_FILE_URL = re.compile(r"\bfile:///?(?:[\w.+@%~-]+/)*(?P<name>[\w.+@%~-]*)")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+")
# Controls, and the invisible characters that reorder or hide text. Tabs and newlines stay.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_C_QUOTED = re.compile(
    r"""(?P<text>//[^\n]*|/\*.*?(?:\*/|\Z)|R"(?P<end>[^()\\\s]{0,16})\(.*?(?:\)(?P=end)"|\Z)|"(?:\\.|[^"\\\n])*"?)
    |'(?:\\.|[^'\\\n]){1,8}'|\d(?:'?\w|\.)*|\w+""",
    re.S | re.X,
)
_PY_QUOTED = re.compile(
    r'''(?P<text>\#[^\n]*|"""(?:\\.|(?!""")[^\\])*(?:"""|\Z)|\'\'\'(?:\\.|(?!\'\'\')[^\\])*(?:\'\'\'|\Z)
    |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\w+''',
    re.S | re.X,
)


@dataclass(frozen=True)
class Identity:
    """What must not leave the machine; empty entries are nothing. `secrets`: values of keys and passwords."""

    home: str = ""
    cwd: str = ""
    user: str = ""
    host: str = ""
    secrets: tuple[str, ...] = ()

    @classmethod
    def here(cls) -> Identity:
        """Of this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # an account without a name
            user = ""
        home, cwd = _or_empty(lambda: str(Path.home())), _or_empty(lambda: str(Path.cwd()))
        return cls(home, cwd, user, socket.gethostname(), tuple(secrets_of()))

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Home and working directory, the longest first; a bare ``/`` is none."""
        known = {self.home.rstrip("/"), self.cwd.rstrip("/")}
        return tuple(sorted((folder for folder in known if len(folder) > 1), key=len, reverse=True))

    @cached_property
    def names(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        """Patterns of user and host with what stands in their place."""
        hosts = dict.fromkeys((self.host, self.host.partition(".")[0]))
        named = [(self.user, "user"), *((host, "host") for host in hosts)]
        return tuple(
            (_told(name, stand_in), stand_in) for name, stand_in in named if name and not _GENERIC.fullmatch(name)
        )


def scrub(text: str, who: Identity) -> str:
    """`text` without paths (their last part stays), user and host names, mail addresses, invisible characters.

    Nor does it have the values of keys, or who signs in to a web address.
    """
    text = _everywhere(clean(text), who)
    text = _FILE_URL.sub(lambda at: f"…/{at['name']}", text)
    text = _SIGNED_IN.sub("…@", text)
    text = _QUOTED_PATH.sub(_shortened_whole, text)
    text = _PATH.sub(_shortened, text)
    text = without_keys(text)
    text = _MAIL.sub("…", text)
    for pattern, stand_in in who.names:
        text = pattern.sub(stand_in, text)
    return text


def scrub_source(source: str, language: str, who: Identity) -> str:
    """`scrub` in the comments and string literals of a source; `language` is cpp, cuda, triton or python."""
    return _quoted(language).sub(
        lambda at: _scrubbed(at["text"], who) if at["text"] else at[0], _everywhere(clean(source), who)
    )


def _scrubbed(text: str, who: Identity) -> str:
    """A comment or a literal; of a kernel's header only the remark after it changes."""
    kept = _KEPT.match(text)
    assert kept is not None  # it may be empty
    return kept[0] + scrub(text[kept.end() :], who)


def _everywhere(text: str, who: Identity) -> str:
    """Without the person's own folders and keys: of these no code needs any."""
    for secret in who.secrets:
        text = text.replace(secret, "[key]")
    for folder in who.folders:
        text = re.sub(rf"(?<![\w)\]}}]){re.escape(folder)}(?![\w.-])", "…", text)
    return text


def _shortened(at: re.Match[str]) -> str:
    """What stays of a path: its last part, but for a person's folder."""
    return "…" if _HOME.fullmatch(at[0]) else f"…/{next(filter(None, at.groups()), '')}"


def _shortened_whole(at: re.Match[str]) -> str:
    path, mark = at["path"], at["mark"]
    parts = _SEPARATORS.split(path)
    if " " not in path or len(parts) < 3:
        return at[0]
    return f"{mark}…{mark}" if _HOME.fullmatch(path) else f"{mark}…/{parts[-1]}{mark}"


def _told(name: str, stand_in: str) -> re.Pattern[str]:
    """Where a user or a host is named. The shorter the name, the more likely it is also a word of a program."""
    exact = re.escape(name)
    if len(name) < _A_WORD:
        found = rf"(?<!\w){exact}(?=@\w)" if stand_in == "user" else rf"(?<=\w\w@){exact}(?!\w)|(?<!\w){exact}(?=:[/…])"
    elif len(name) < _NO_WORD:
        found = rf"(?<!\w){exact}[\d_]*(?!\w)"
    else:
        found = rf"(?<![^\W\d_]){exact}(?![^\W\d_])"
    return re.compile(found, re.I)


def code_only(source: str, language: str) -> str:
    """`source` with a space for every comment and string literal; linear in its length."""
    return _quoted(language).sub(lambda at: " " if at["text"] else at[0], source)


def _quoted(language: str) -> re.Pattern[str]:
    return _C_QUOTED if language in ("cpp", "cuda") else _PY_QUOTED


def clean(text: str) -> str:
    """`text` with plain newlines, and without control, bidirectional and zero-width characters."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line of at most `limit` characters, spaces joined; cut texts end in an ellipsis."""
    joined = " ".join(clean(text).split())
    return joined if len(joined) <= limit else joined[: limit - 1].rstrip() + "…"


def _or_empty(read: Callable[[], str]) -> str:
    try:
        return read()
    except (OSError, RuntimeError):  # a folder that is gone, a home that is not known
        return ""
