"""Jobs that need a judge but no search: one kernel, one task, an archive measured again."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from evoforge.archives import DISQUALIFYING, speedup_interval
from evoforge.archives.descriptor import Descriptor
from evoforge.campaign._checks import check_unchanged, read_kernel
from evoforge.campaign._events import Narrator, Observer
from evoforge.campaign._measure import Live
from evoforge.campaign._prepare import prepare
from evoforge.campaign._queries import archive_of, hot_and_cold, over_the_better
from evoforge.campaign._setup import Setup, analyse
from evoforge.config import CampaignConfig
from evoforge.core import Candidate, Cell, Elite, Evaluation, Kind, Params, Status, Task
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
    if not candidate.space.feasible(values):
        declared = ", ".join(f"{p.name} in {sorted(p.choices)}" for p in candidate.space.parameters) or "none"
        raise UsageError(f"expected values of the kernel's parameters ({declared}), got {values}")
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


def check_task(task: Task, target_spec: str = "cpu") -> dict[str, Any]:
    """Whether a task accepts itself and rejects wrong answers: ``{"task", "fit", "reason", "checks", "uncovered"}``."""
    from evoforge.evaluation.judge import Judge
    from evoforge.evaluation.targets import resolve_target

    with Judge(task, resolve_target(target_spec), seed=0) as judge:
        judge.open()
        admission = judge.admit()
        uncovered = analyse(judge, task, judge.target).uncovered
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
        "uncovered": uncovered or None,
    }


def bench(name: str, store_url: str, *, top: int | None = None, observer: Observer | None = None) -> dict[str, Any]:
    """Measures every elite of a campaign again in fresh processes, beside eager and compiled, in rounds.

    With `top` only so many, those of the highest claims (`Elite.rank`).
    The rows are stored as new evaluations at the end, a demotion at once. `low` and `high` bound
    `speedup_best_baseline`, the speed-up over the faster of both (95%); `claimed_best_baseline` is what the archive
    claims of it, None where one of both was never timed. `claimed` and its lower bound `claimed_low` are over the
    campaign's own baseline; `moved` compares the fresh interval over that baseline with them: SAME where they
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
        config = CampaignConfig.model_validate(dict(row.config))
        _, judge, setup = prepare(row, config, Setup.from_json(row.setup), narrator, stack)
        by_claim = sorted(archive, key=lambda elite: elite.rank, reverse=True)
        elites = sorted(by_claim[:top], key=lambda elite: elite.cell)
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
                rows[at] = _row(elite, fresh, over_the_better(row, elite.objective), setup.aa_margin or 0.0)
    in_order = [rows[at] for at in sorted(rows)]
    return {"campaign": name, "task": row.task.name, "target": row.target.spec, "rows": in_order}


def _row(elite: Elite, fresh: Evaluation, claim: float | None, margin: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cell": list(elite.cell),
        "candidate": elite.candidate,
        "params": dict(elite.params),
        "claimed": 2**elite.objective,
        "claimed_low": 2**elite.lower,
        "claimed_best_baseline": claim,
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
    if fresh.status is not Status.CORRECT:
        return row
    ours, best = speedup_interval([fresh]), speedup_interval([fresh.against_fastest()])
    over_both = fresh.speedup_best_baseline
    assert ours is not None and best is not None and over_both is not None, "a bench has at least two processes"
    # Medians over processes and over blocks may differ where times have two modes: the lower one, so that a speed-up
    # over the faster side never stands beside a lower one over either.
    middle = min(best[1], over_both)
    noise = max(2**margin, _LEAST_NOISE)
    claim_high = 2 ** (2 * elite.objective - elite.lower)
    row.update(
        speedup_eager=fresh.speedup("eager"),
        speedup_compiled=fresh.speedup("compiled"),
        speedup_best_baseline=middle,
        low=min(best[0], middle),
        high=best[2],
        verdict="FAST" if best[0] > noise else "SLOW" if best[2] < 1 / noise else "SAME",
        moved="FASTER" if ours[0] > claim_high else "SLOWER" if ours[2] < 2**elite.lower else "SAME",
    )
    return row
