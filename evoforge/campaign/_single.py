"""Jobs that need a judge but no search: one kernel, one task, an archive measured again."""

from __future__ import annotations

import difflib
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from evoforge.archives import DISQUALIFYING
from evoforge.archives.descriptor import Descriptor
from evoforge.campaign._checks import check_unchanged, read_kernel, stored_config
from evoforge.campaign._claims import Claim, claim_of
from evoforge.campaign._events import Narrator, Observer
from evoforge.campaign._measure import Live
from evoforge.campaign._prepare import prepare
from evoforge.campaign._queries import archive_of, hot_and_cold, own_of
from evoforge.campaign._setup import Setup, analyse
from evoforge.core import Candidate, Cell, Elite, Evaluation, Kind, ParameterSpace, Params, Status, Task, point
from evoforge.errors import UsageError
from evoforge.storage import Placement, open_store

__all__ = ["bench", "check_task", "evaluate_kernel"]

_LEAST_NOISE = 1.01


def evaluate_kernel(
    kernel: str | Path | Candidate,
    task: Task,
    target_spec: str = "cpu",
    *,
    params: Params | None = None,
    seed: int = 0,
    sandbox: str = "basic",
) -> tuple[Evaluation, Cell | None]:
    """Judges one kernel against a task, beside eager and compiled.

    Args:
        kernel: its file, or the candidate itself.
        params: overlay the kernel's defaults.

    Raises:
        UsageError: values that the kernel does not declare or that break its constraints.
    """
    from evoforge.evaluation.ceilings import measure_ceilings
    from evoforge.evaluation.judge import Judge
    from evoforge.evaluation.targets import resolve_target

    candidate = kernel if isinstance(kernel, Candidate) else read_kernel(str(kernel))
    values = {**candidate.space.defaults(), **(params or {})}
    _check_params(candidate.space, values)
    target = measure_ceilings(resolve_target(target_spec))
    with Judge(task, target, seed=seed, sandbox=sandbox) as judge:
        judge.open(compiled=True)
        setup = analyse(judge, task, target)
        judge.set_context(setup.trace_signatures, setup.unfused)
        early = judge.verify(candidate, values)
        if not early.status.correct:
            return early, None
        judge.wait_compiled(600.0)
        judge.choose_baseline("best")
        live = Live(judge, Descriptor(), build_jobs=target.threads)
        evaluation = live.trial(candidate, values, None)
        if evaluation.status is Status.CORRECT:
            beside = live.confirm(candidate, values, both=True)
            evaluation = replace(beside, kind=Kind.TRIAL, facts=evaluation.facts, cell=evaluation.cell)
    return evaluation, evaluation.cell


def _check_params(space: ParameterSpace, values: Params) -> None:
    if space.feasible(values):
        return
    declared = ", ".join(f"{one.name} in {sorted(one.choices)}" for one in space.parameters) or "none"
    expected = f"expected values of the kernel's parameters ({declared}), got"
    names = [one.name for one in space.parameters]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name.upper(), names, n=1)  # they are upper-case words
            raise UsageError(f"{expected} {name}" + (f"; did you mean {near[0]}?" if near else ""))
    wrong = [f"{one.name}={values[one.name]}" for one in space.parameters if values[one.name] not in one.choices]
    if wrong:
        raise UsageError(f"{expected} {', '.join(wrong)}")
    broken = [text for text in space.constraints if ParameterSpace(space.parameters, (text,)).broken(values)]
    raise UsageError(f"{expected} {dict(values)}, and the kernel requires {' and '.join(broken)}")


def check_task(task: Task, target_spec: str = "cpu") -> dict[str, Any]:
    """Whether a task accepts itself and rejects wrong answers: ``{"task", "fit", "reason", "checks", "uncovered",
    "notices"}``."""
    from evoforge.evaluation.judge import Judge
    from evoforge.evaluation.targets import resolve_target

    with Judge(task, resolve_target(target_spec), seed=0) as judge:
        judge.open()
        admission = judge.admit()
        setup = analyse(judge, task, judge.target)
    checks = [
        {
            "workload": control.workload,
            "check": f"{control.name} {'accepted' if control.passed else 'rejected'} for {control.output}"
            + (f" (overruled by the task: {control.override})" if control.override and control.passed else ""),
            "ok": control.held,
            "reason": "" if control.held else str(control),
        }
        for control in admission.controls
    ]
    return {
        "task": task.name,
        "fit": admission.fit,
        "reason": "; ".join(admission.reasons),
        "checks": checks,
        "uncovered": setup.uncovered or None,
        "notices": list(setup.notices),
    }


def bench(name: str, store_url: str, *, top: int | None = None, observer: Observer | None = None) -> dict[str, Any]:
    """Measures every elite of a campaign again in fresh processes, beside eager and compiled, in rounds.

    With `top` only so many, those of the highest claims (`Elite.rank`).
    The rows are stored as new evaluations at the end, a demotion at once. `low` and `high` bound
    `speedup_best_baseline`, the speed-up over the faster of both (95%); `claimed_best_baseline` is what was claimed of
    it so far (`claim_of`), None where one of both was never timed. `claimed` and its lower bound `claimed_low` are over
    the campaign's own baseline; `moved` compares the fresh interval over that baseline with them: SAME where they
    overlap, else FASTER or SLOWER; or the status of a kernel that is no longer correct, which loses its place.
    `verdict` is FAST where the interval over the faster of both lies above what a binary shows against itself here,
    SLOW where it lies below, else SAME. The keys of `hot_and_cold` and `flags` stand beside them.
    """
    narrator = Narrator(observer)
    with open_store(store_url, create=False) as store, ExitStack() as stack:
        row = store.campaign(name)
        check_unchanged(row)
        archive, candidates = archive_of(store, row)
        if not len(archive):
            raise UsageError(
                f"campaign {name} has no elite to measure; go on with: evoforge resume {shlex.quote(name)} --minutes M"
            )
        stack.enter_context(store.lock_campaign(name))
        config = stored_config(row)
        _, judge, setup = prepare(row, config, Setup.from_json(row.setup), narrator, stack)
        by_claim = sorted(archive, key=lambda elite: elite.rank, reverse=True)
        elites = sorted(by_claim[:top], key=lambda elite: elite.cell)
        own = own_of(store.claims(name)[0])
        claims = [claim_of(row, elite, own[point(elite.candidate, elite.params)]) for elite in elites]
        rounds = judge.bench(
            [(candidates[elite.candidate], elite.params) for elite in elites],
            sanitized={at for at, elite in enumerate(elites) if elite.objective > 0},
        )
        rows: dict[int, dict[str, Any]] = {}
        for number, verdicts in enumerate(rounds, 1):
            left = len(elites) - len(rows)
            narrator.tell("phase", text=f"measuring {left} elites again: round {number} of {len(rounds)}")
            for at, fresh in verdicts:
                elite = elites[at]
                lost = Placement(
                    "DEMOTED", elite.cell, elite.candidate, elite.params, elite.objective, elite.lower,
                    reason=fresh.reason,
                )  # fmt: skip
                demoted = fresh.status in DISQUALIFYING
                store.record_outcome(name, None, None, [fresh], [lost] if demoted else [])
                now = claim_of(row, elite, [fresh]) if fresh.status is Status.CORRECT else None
                rows[at] = _row(elite, fresh, claims[at], now, setup.aa_margin or 0.0)
    in_order = [rows[at] for at in sorted(rows)]
    return {"campaign": name, "task": row.task.name, "target": row.target.spec, "rows": in_order}


def _row(elite: Elite, fresh: Evaluation, claim: Claim, now: Claim | None, margin: float) -> dict[str, Any]:
    claim_low, claimed, claim_high = claim.over_baseline
    row: dict[str, Any] = {
        "cell": list(elite.cell),
        "candidate": elite.candidate,
        "params": dict(elite.params),
        "claimed": claimed,
        "claimed_low": claim_low,
        "claimed_best_baseline": claim.over_faster[1] if claim.over_faster else None,
        "status": str(fresh.status),
        "speedup_eager": None,
        "speedup_compiled": None,
        "speedup_best_baseline": None,
        "low": None,
        "high": None,
        "latency_ms": fresh.latency_ms,
        "roofline_fraction": fresh.roofline_fraction,
        "verdict": None,
        "moved": str(fresh.status),
        **hot_and_cold(fresh),
        "flags": list(fresh.flags),
    }
    if now is None:
        return row
    assert now.fresh is not None and now.over_faster is not None, "a bench has at least two processes"
    ours, best = now.over_baseline, now.over_faster
    noise = max(2**margin, _LEAST_NOISE)
    row.update(
        speedup_eager=now.speedup_eager,
        speedup_compiled=now.speedup_compiled,
        speedup_best_baseline=best[1],
        low=best[0],
        high=best[2],
        verdict="FAST" if best[0] > noise else "SLOW" if best[2] < 1 / noise else "SAME",
        moved="FASTER" if ours[0] > claim_high else "SLOWER" if ours[2] < claim_low else "SAME",
    )
    return row
