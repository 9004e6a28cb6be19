"""From a stored campaign to a ground on which to search: judge, set-up, schedule space."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evoforge.campaign._events import Narrator
from evoforge.campaign._setup import Setup, analyse, bounded, with_baseline
from evoforge.config import CampaignConfig
from evoforge.core import Candidate, Cell, Status, Target, Tolerance
from evoforge.emitters import Ranker
from evoforge.errors import EnvironmentChangedError, TaskError, UnsupportedError
from evoforge.storage import CampaignRow

if TYPE_CHECKING:
    from evoforge.evaluation.judge import Judge
    from evoforge.lowering.space import ScheduleSpace

__all__ = ["Ground", "prepare"]

_NOISY = 0.1375  # log2 of 10%
_CALM_TRIES = 4  # at least two
_APART_S = 0.5
_NO_COMPILE = "torch.compile does not work on this task"


@dataclass(frozen=True)
class Ground:
    """Where the generator searches; both are None for a task that the lowering does not cover."""

    space: ScheduleSpace | None
    reachable: frozenset[Cell] | None

    @classmethod
    def of(
        cls, setup: Setup, target: Target, tolerance: Tolerance, reachable: Iterable[Sequence[int]] | None = None
    ) -> Ground:
        """`reachable` as it was found before; it takes seconds to find, once per process. `tolerance`: the task's."""
        if not setup.graphs:
            return cls(None, None)
        space = _space(
            json.dumps(setup.to_json()["graphs"]), target.l1_bytes, target.l2_bytes, target.vector_bytes,
            target.threads, target.matrix_parts(tolerance.precision), tolerance.nonfinite != "match",
        )  # fmt: skip
        return cls(space, space.reachable() if reachable is None else frozenset(map(tuple, reachable)))

    def first_kernels(self) -> list[Candidate]:
        """Textbook schedules of the task, which nobody asked for; the first is plain: something that works."""
        assert self.space is not None
        return [
            Candidate("cpp", self.space.render(genome), genome=genome, operator="sample")
            for genome in self.space.textbook()
        ]


@functools.lru_cache(maxsize=4)
def _space(
    graphs: str, l1_bytes: int, l2_bytes: int, vector_bytes: int, threads: int, matrix_parts: int, finite: bool
) -> ScheduleSpace:
    from evoforge.lowering.ir import from_json
    from evoforge.lowering.space import ScheduleSpace

    return ScheduleSpace(
        [from_json(graph) for graph in json.loads(graphs).values()],
        l1_bytes=l1_bytes, l2_bytes=l2_bytes, vector_bytes=vector_bytes, threads=threads,
        matrix_parts=matrix_parts, finite=finite,
    )  # fmt: skip


def prepare(
    row: CampaignRow, config: CampaignConfig, known: Setup | None, narrator: Narrator, stack: ExitStack
) -> tuple[Target, Judge, Setup]:
    """Opens the judge and finds out what the search stands on.

    Cheap things first: the first kernel is shown before torch.compile has the machine. A set-up that
    is `known` (resume, replay) is taken as it is, baselines and bounds included.

    Raises:
        UnsupportedError: an operator is not covered and nobody but the generator would write kernels.
        TaskError: the task cannot be run or is not fit to be searched.
    """
    from evoforge.evaluation.ceilings import build_probe, known_ceilings, measure_ceilings
    from evoforge.evaluation.judge import Judge

    target = known_ceilings(row.target)
    narrator.tell("phase", text="starting the reference")
    judge = stack.enter_context(Judge(row.task, target, seed=config.seed, sandbox=config.judge.sandbox))
    judge.open(compiled=True)
    setup = known or analyse(judge, row.task, target)
    judge.set_context(setup.trace_signatures, setup.unfused)
    judge.set_bounds(setup.bounds_ms or {})
    fresh = known is None or known.baseline is None
    answered = bool(config.asking) or config.budget.evals == 0  # by models, or by who answers tickets
    if fresh and setup.uncovered and not row.setup.get("seeds") and not answered:
        raise UnsupportedError(setup.uncovered)
    if fresh:
        _show_first(judge, setup, target, config, narrator)
        judge.start_compiling()
        _admit(judge, row, narrator)
        # While torch.compile leaves a core free: the space is kept for later, and what fits the ranking is imported.
        Ground.of(setup, target, row.task.tolerance)
        Ranker.fit([({"vector": "vector"}, 0.0)])
        if not target.ceilings:
            build_probe(target)
    narrator.tell("phase", text="waiting for torch.compile")
    state = judge.wait_compiled(600.0)
    if not target.ceilings:
        narrator.tell("phase", text="measuring this machine's ceilings")
        target = measure_ceilings(target)
        if known is None or known.bounds_ms is None:
            setup = bounded(setup, judge, target)
    setup = _baselines(judge, setup, state, config, narrator)
    if setup.at_bound and fresh:
        # Ceilings met in a busy moment would end the campaign before it began.
        narrator.tell("phase", text="measuring this machine's ceilings again")
        target = measure_ceilings(target, refresh=True)
        setup = bounded(setup, judge, target)
    return target, judge, setup


def _show_first(judge: Judge, setup: Setup, target: Target, config: CampaignConfig, narrator: Narrator) -> None:
    """Judges the plain schedule against eager only, so that a person sees within seconds that it works."""
    ground = Ground.of(setup, target, judge.task.tolerance, reachable=())
    if ground.space is None:
        return
    narrator.tell("phase", text="first kernel")
    evaluation = judge.trial(ground.first_kernels()[0], {}, wanted_facts=False)
    if evaluation.status is Status.CORRECT:
        narrator.tell(
            "first",
            candidate=evaluation.candidate,
            latency_ms=evaluation.latency_ms,
            speedup_eager=evaluation.speedup("eager"),
        )
    else:
        narrator.tell("notice", text=f"the first kernel ended {evaluation.status}: {evaluation.reason}")


def _admit(judge: Judge, row: CampaignRow, narrator: Narrator) -> None:
    narrator.tell("phase", text="checking the task")
    admission = judge.admit()
    if not admission.fit:
        raise TaskError(
            f"task {row.task.name} is not fit to be searched: {'; '.join(admission.reasons)}; "
            "evoforge tasks check prints every control"
        )


def _baselines(judge: Judge, setup: Setup, state: str, config: CampaignConfig, narrator: Narrator) -> Setup:
    """Settles the baseline; a failed compile (`state`) leaves eager alone, flagged.

    Raises:
        EnvironmentChangedError: what the campaign was measured against is not to be had any more.
    """
    if state != "ready" and "compiled" in (setup.baseline or {}).values():
        raise EnvironmentChangedError(
            f"the campaign was measured against torch.compile, which does not work here now ({state}): its numbers "
            "cannot be mixed with others; mend that (evoforge doctor), or start a new campaign (evoforge run)"
        )
    notices = list(setup.notices)
    if state != "ready" and not any(text.startswith(_NO_COMPILE) for text in notices):
        notices.append(f"{_NO_COMPILE} ({state}); eager is the only baseline")
    if setup.baseline is None:
        narrator.tell("phase", text="timing the baselines")
        # Right after a compile a machine may not be calm yet, and a baseline chosen in a storm is a wrong one.
        for attempt in range(_CALM_TRIES):
            time.sleep(_APART_S * attempt)
            judge.choose_baseline(config.baseline)
            setup = with_baseline(setup, judge)
            if attempt and (setup.aa_margin or 0.0) <= _NOISY:
                break
        if setup.aa_margin is not None and setup.aa_margin > _NOISY:
            notices.append(
                f"this machine is noisy: a binary against itself differs by {100 * (2**setup.aa_margin - 1):.0f}%; "
                "close other programs, or trust only differences larger than that"
            )
    else:
        judge.baseline = dict(setup.baseline)
    for workload, side in (setup.baseline or {}).items():
        times = (setup.baseline_ms or {}).get(workload, {})
        narrator.tell(
            "baseline",
            workload=workload,
            eager_ms=times.get("eager"),
            compiled_ms=times.get("compiled"),
            chosen=side,
            note="" if state == "ready" else state,
        )
    for text in notices:
        narrator.tell("notice", text=text)
    return replace(setup, notices=tuple(notices))
