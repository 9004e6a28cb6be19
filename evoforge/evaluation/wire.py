"""Messages between a worker process and its client: length-prefixed JSON with descriptors.

A message is a 4-byte little-endian length and that many bytes of JSON. Descriptors travel with the
length (SCM_RIGHTS) and arrive close-on-exec. Numbers that are not finite use JSON's ``NaN`` and
``Infinity`` as Python writes them: both ends are Python.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["MAX_FDS", "PARTLY", "receive", "send"]

MAX_FDS = 128
"""Descriptors in one message; the kernel allows 253."""

PARTLY = 1 << 32
"""Seeds of weights from n times this on draw n elements of one parameter anew, those below it all weights."""

_LENGTH = struct.Struct("<I")
_MAX_BYTES = 1 << 28


def send(sock: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Sends one message; at most `MAX_FDS` descriptors go with it."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if fds:
        socket.send_fds(sock, [_LENGTH.pack(len(body))], list(fds))
        sock.sendall(body)
    else:
        sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """The next message and its descriptors, owned by the caller.

    Raises:
        EOFError: the other end is gone.
        TimeoutError: the socket's timeout passed.
        ValueError: what came is not a message.
    """
    head, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    if not head:
        raise EOFError
    head += _exactly(sock, _LENGTH.size - len(head))
    (length,) = _LENGTH.unpack(head)
    if length > _MAX_BYTES:
        raise ValueError(f"expected a message of at most {_MAX_BYTES} bytes, got {length}")
    return json.loads(_exactly(sock, length)), list(fds)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
