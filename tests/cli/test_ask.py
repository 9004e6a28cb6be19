"""`ask` and `tell` from a shell: from an empty archive to a verified elite."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evoforge.campaign import Tickets

Cli = Callable[..., Any]


def test_an_agent_at_a_shell(cli: Cli, prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ("--store", prepared.url)
    assert cli("elites", "agent", *store, "--json").json["elites"] == []
    shown = cli("ask", "agent", "--show", *store, "--json").json
    assert shown["ticket"] is None
    assert cli("ask", "agent", "--show", *store).out.startswith(shown["prompt"]["system"].rstrip())
    asked = cli("ask", "agent", *store, "--json").json
    assert asked["prompt"] == shown["prompt"]
    plain = cli("ask", "agent", "--emitter", "invent", *store)
    assert plain.status == 0
    head, _, text = plain.out.partition("\n\n")
    assert f"ticket {asked['ticket'] + 1} of agent" in head and "open until" in head and "evoforge tell agent" in head
    assert "return x + y" in text

    kernel = tmp_path / "kernel.cpp"
    kernel.write_text(prepared.right)
    told = cli("tell", "agent", asked["ticket"], kernel, *store, "--json")
    assert told.status == 0 and told.json["status"] == "CORRECT" and told.json["placement"] == "NEW"
    again = cli("tell", "agent", asked["ticket"], kernel, *store)
    assert again.status == 0 and "CORRECT" in again.out and "NEW" in again.out and "bound default" in again.out
    (elite,) = cli("elites", "agent", *store, "--json").json["elites"]
    assert elite["candidate"] == told.json["candidate"]

    def stdin(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    stdin(b"There is no kernel in this.")
    unread = cli("tell", "agent", asked["ticket"] + 1, "-", *store, "--json")
    assert unread.status == 2 and unread.json["error"]["type"] == "ReplyError"
    stdin(prepared.right.encode())  # what is known is not judged again, and is no new kernel
    twin = cli("tell", "agent", asked["ticket"] + 1, "-", *store, "--json")
    assert twin.status == 1 and twin.json["status"] == "DUPLICATE"
    stdin(prepared.right.encode())
    twin = cli("tell", "agent", asked["ticket"] + 1, "-", *store)
    assert f"of candidate {told.json['candidate'][:12]}: cell" in twin.out, "whose placement is NEW"


def test_who_is_stopped_may_tell_the_same_again(
    cli: Cli, prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tickets, "tell", stopped)
    (tmp_path / "kernel.cpp").write_text(prepared.right)
    done = cli("tell", "agent", 7, tmp_path / "kernel.cpp", "--store", prepared.url)
    assert done.status == 130 and done.err == "evoforge: interrupted; the same text can be told to ticket 7 again\n"


def test_misuse_is_named(cli: Cli, prepared: Any, tmp_path: Path) -> None:
    store = ("--store", prepared.url, "--json")
    for argv, said in (
        (["ask", "nobody"], "nobody"),
        (["ask", "n" * 5000], "n" * 79 + "…' in this store"),
        (["show", "z" * 5000], "z" * 79 + "…'"),
        (["ask", "agent", "--emitter", "guess"], "invent"),
        (["tell", "agent", "7", str(prepared.task)], "7"),
        (["tell", "agent", "0", str(tmp_path / "missing.cpp")], "check the path"),
        (["tell", "agent", "0", str(tmp_path)], "check the path"),
        (["tell", "agent", "zero", str(prepared.task)], "integer"),
    ):
        done = cli(*argv, *store)
        assert done.status == 2 and said in json.loads(done.out)["error"]["message"], argv
    (tmp_path / "bytes.cpp").write_bytes(b"\xff\xfe")
    assert "UTF-8" in cli("tell", "agent", 0, tmp_path / "bytes.cpp", *store).json["error"]["message"]
    (tmp_path / "huge.cpp").write_bytes(b"x" * 4_000_001)
    assert "4000000 bytes" in cli("tell", "agent", 0, tmp_path / "huge.cpp", *store).json["error"]["message"]


def test_a_prepared_campaign_says_what_comes_next(capsys: pytest.CaptureFixture[str], prepared: Any) -> None:
    from evoforge.campaign import Result
    from evoforge.cli._summary import print_result

    print_result(Result("agent", "add", "cpu", 0, 0, 0.0, 0.0, 9.0, 0.0, "prepared", None), prepared.url)
    assert "evoforge ask agent" in capsys.readouterr().out
