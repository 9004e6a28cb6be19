"""`evoforge doctor` and `evoforge targets`: what works on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

if TYPE_CHECKING:
    from evoforge.core import Target

__all__ = ["doctor", "targets"]

_MARKS = {"ok": "ok  ", "warn": "weak", "fail": "FAIL"}


def doctor(store: StoreUrl = DEFAULT_STORE, as_json: Json = False) -> int:
    """Check what works on this machine.

    Says what to do about the rest. Exits 1 if something that a search cannot do without is missing.
    """
    from evoforge.cli._doctor import examine
    from evoforge.cli._output import emit

    findings = examine(store)
    works = all(finding.level != "fail" for finding in findings)
    if as_json:
        emit({"ok": works, "checks": findings})
        return 0 if works else 1
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_MARKS[finding.level]}  {finding.name:<{width}}  {finding.found}")
        if finding.mend:
            print(f"{'':<{width + 6}}  → {finding.mend}")
    print("ready to search on target cpu" if works else "not ready: mend what is marked FAIL")
    return 0 if works else 1


def targets(
    spec: Annotated[str | None, typer.Argument(metavar="SPEC", help="Only this one; absent: all.")] = None,
    as_json: Json = False,
) -> None:
    """List targets and their ceilings.

    Those of this machine. Ceilings are measured once, in a few seconds, and kept in the cache.
    """
    from evoforge.cli._output import emit, working
    from evoforge.evaluation.ceilings import measure_ceilings
    from evoforge.evaluation.targets import known_targets, resolve_target

    with working("measuring ceilings"):
        found = [measure_ceilings(target) for target in ([resolve_target(spec)] if spec else known_targets())]
    if as_json:
        emit({"targets": [_row(target) for target in found]})
        return
    for target in found:
        print(f"{target.spec}: {target.fingerprint.get('cpu', target.kind)}, {target.threads} threads, {target.isa}")
        for key, value in sorted(target.ceilings.items()):
            unit = "GFLOP/s" if key.startswith("flops") else "GB/s"
            print(f"    {key:<16} {value / 1e9:8.1f} {unit}")
        if not target.ceilings:
            print("    ceilings: could not be measured; see evoforge doctor")


def _row(target: Target) -> dict[str, Any]:
    return {
        "id": target.id,
        "spec": target.spec,
        "kind": target.kind,
        "threads": target.threads,
        "isa": target.isa,
        "fingerprint": dict(target.fingerprint),
        "ceilings": dict(target.ceilings),
    }
