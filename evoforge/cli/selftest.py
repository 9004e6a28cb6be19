"""`evoforge selftest`: does the judge hold on this machine?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evoforge.cli._options import Json

if TYPE_CHECKING:
    from evoforge.selftest import Outcome, Report

__all__ = ["selftest"]


def selftest(
    only: Annotated[
        str, typer.Option(metavar="GLOB", help="Fixtures by name: 'attacks/*', 'honest/*', '*thread*'.")
    ] = "*",
    sandbox: Annotated[str, typer.Option(metavar="LEVEL", help="strict, basic or none.")] = "basic",
    repeat: Annotated[int, typer.Option(help="How many times over.", min=1, max=100)] = 1,
    as_json: Json = False,
) -> int:
    """Does the judge hold on this machine?

    Runs attacks that must be refused and honest kernels that must be accepted, in a few minutes.
    Exits 1 if an attack succeeded or an honest kernel was refused.
    """
    from evoforge.cli._output import clock_text, emit
    from evoforge.evaluation.targets import resolve_target
    from evoforge.selftest import load_fixtures, run_suite

    fixtures = load_fixtures(only)
    done: list[Outcome] = []

    def observe(outcome: Outcome) -> None:
        done.append(outcome)
        mark = "FAIL" if outcome.failed else "odd " if outcome.unexpected else "ok  "
        kind = "attack" if outcome.fixture.attack else "honest"
        count = f"{len(done)}/{len(fixtures) * repeat}"
        line = f"{mark} {count:>8} {kind} {outcome.fixture.name}: {_verdict(outcome)} ({outcome.seconds:.1f} s)"
        print(line, file=sys.stderr, flush=True)

    report = run_suite(fixtures, resolve_target("cpu"), sandbox=sandbox, repeat=repeat, observe=observe)
    if as_json:
        emit(_report(report))
    else:
        _print(report)
        print(f"{clock_text(sum(outcome.seconds for outcome in report.outcomes))} of judging")
    return 0 if report.holds else 1


def _verdict(outcome: Outcome) -> str:
    gain = f", {outcome.gain:.2f}× its twin" if outcome.gain is not None else ""
    return f"{outcome.status}{gain}"


def _print(report: Report) -> None:
    from evoforge.cli._output import table

    odd = [
        {
            "what": ("attack succeeded" if one.fixture.attack else "honest refused") if one.failed else "other reason",
            "fixture": one.fixture.name,
            "got": _verdict(one),
            "expected": " ".join(sorted(one.fixture.expect)),
            "reason": one.reason[:160],
        }
        for one in sorted(report.outcomes, key=lambda one: not one.failed)
        if one.unexpected
    ]
    if odd:
        names = ("what", "fixture", "got", "expected", "reason")
        table(odd, [(name, lambda row, name=name: str(row[name])) for name in names])  # type: ignore[misc]
    print(f"attack success {report.succeeded} of {report.attacks}")
    print(f"honest rejection {report.rejected} of {report.honest}")
    print(f"sandbox {' '.join(report.sandboxes) or 'not reached by any kernel'}")


def _report(report: Report) -> dict[str, Any]:
    return {
        "holds": report.holds,
        "attacks": report.attacks,
        "succeeded": report.succeeded,
        "honest": report.honest,
        "rejected": report.rejected,
        "sandbox": list(report.sandboxes),
        "fixtures": [
            {
                "name": one.fixture.name,
                "attack": one.fixture.attack,
                "task": one.fixture.task,
                "tries": one.fixture.tries,
                "expected": sorted(one.fixture.expect),
                "status": one.status,
                "reason": one.reason,
                "gain": one.gain,
                "failed": one.failed,
                "unexpected": one.unexpected,
                "seconds": one.seconds,
            }
            for one in report.outcomes
        ],
    }
