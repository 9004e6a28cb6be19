"""Ctrl-C and SIGTERM end a command wherever they arrive."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli


def raised_in_a_callback(number: int) -> None:
    class Thing:
        pass

    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
    del thing  # Python reports what the callback raises, and goes on
    assert kept() is None


def raised_under_a_bare_except(number: int) -> None:
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("lose", [raised_in_a_callback, raised_under_a_bare_except])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_stop_that_somebody_swallowed_is_heeded(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, lose: Callable[[int], None], number: int, status: int
) -> None:
    def work(_: str) -> None:
        lose(number)
        time.sleep(60)

    monkeypatch.setattr("evoforge.campaign.campaigns", work)
    before = signal.signal(number, signal.SIG_DFL)  # under nohup it would be ignored
    try:
        done = cli("campaigns")
    finally:
        signal.signal(number, before)
    assert (done.status, done.err) == (status, "evoforge: interrupted\n")


def test_clearing_up_after_a_stop_is_not_stopped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared = []

    def work(_: str) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            time.sleep(1.2)  # longer than it takes to ask again, twice
            with contextlib.suppress(ValueError):
                int("no")
            time.sleep(0.6)
            cleared.append(True)

    monkeypatch.setattr("evoforge.campaign.campaigns", work)
    assert cli("campaigns").status == 130
    assert cleared == [True]


def test_handlers_are_given_back_and_what_is_ignored_stays_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = [signal.getsignal(kind) for kind in kinds]
    heard = []

    def work(_: str) -> list[object]:
        os.kill(os.getpid(), signal.SIGINT)
        heard.append("nothing")
        return []

    monkeypatch.setattr("evoforge.campaign.campaigns", work)
    cli("campaigns")
    assert heard == ["nothing"]
    assert [signal.getsignal(kind) for kind in kinds] == before


def test_a_second_stop_does_not_stop_the_clearing_up() -> None:
    program = """
import atexit, os, signal, sys, evoforge.campaign
from evoforge.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
evoforge.campaign.campaigns = lambda _: os.kill(os.getpid(), signal.SIGINT)
atexit.register(print, "cleared")
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["evoforge", "campaigns"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "cleared\n", "evoforge: interrupted\n")
