from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evoforge.evaluation.rounds import in_rounds


class Step:
    """A trial that writes down what is asked of it, and fails where it is told to."""

    def __init__(self, name: str, log: list[tuple[str, str]], fails_in: str = "") -> None:
        self._name, self._log, self._fails_in = name, log, fails_in

    def attempt(self, step: Callable[[], Any]) -> Any:
        return step()

    def prove(self, *, unseen: bool, sanitized: bool) -> str | None:
        return self._done("prove sanitized" if sanitized else "prove")

    def sample(self, process: int, blocks: int, sides: Sequence[str]) -> None:
        self._done(f"process {process}")

    def conclude(self, hot_and_cold: Sequence[str]) -> str:
        return self._done("conclude") or "through"

    def _done(self, what: str) -> str | None:
        self._log.append((self._name, what))
        return "failed" if what.startswith(self._fails_in or "never") else None


def test_every_kernel_has_its_turn_before_one_has_another() -> None:
    log: list[tuple[str, str]] = []
    trials: list[Any] = [Step("a", log), Step("b", log, fails_in="prove"), Step("c", log)]
    rounds = in_rounds(trials, ("eager",), processes=2, blocks=1, hot_and_cold=False, sanitized=[2])
    assert not log, "nothing happens before a round is gone through"
    assert [list(verdicts) for verdicts in rounds] == [[(1, "failed")], [], [], [(0, "through"), (2, "through")]]
    assert log == [
        ("a", "prove"), ("b", "prove"), ("c", "prove sanitized"),
        ("a", "process 0"), ("c", "process 0"),
        ("a", "process 1"), ("c", "process 1"),
        ("a", "conclude"), ("c", "conclude"),
    ]  # fmt: skip
