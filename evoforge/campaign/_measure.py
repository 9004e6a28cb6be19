"""Where evaluations come from: the judge, or a store that already holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from evoforge.archives import racers
from evoforge.archives.descriptor import Descriptor
from evoforge.campaign._state import CODE
from evoforge.core import PROTOCOL_VERSION, Candidate, Evaluation, Kind, Params, Status, Target, Task, point
from evoforge.errors import NotFoundError, ParameterError

if TYPE_CHECKING:
    from evoforge.evaluation.judge import Judge
    from evoforge.storage import Store

__all__ = ["Live", "Measurer", "Recorded"]


class Measurer(Protocol):
    """Judges candidates. Evaluations come back described: `cell` is set where facts allow it."""

    def build_ahead(self, jobs: Iterable[tuple[Candidate, Mapping[str, int]]]) -> None: ...

    def object_hash(self, candidate: Candidate, params: Mapping[str, int]) -> str | None:
        """What the compiler made of it; None if that is not known (it does not build, or nothing is built)."""

    def trial(self, candidate: Candidate, params: Mapping[str, int], prune_below: float | None) -> Evaluation: ...

    def confirm(
        self, candidate: Candidate, params: Mapping[str, int], *, both: bool = False, blocks: int = 2
    ) -> Evaluation:
        """Over fresh processes, beside the baseline; `both`: as a bench, beside eager and compiled, hot and
        cold too, and under the sanitizers first.

        `blocks` is how many paired blocks each process gets.
        """

    def race(self, kernels: Sequence[tuple[Candidate, Params]], *, limit_s: float) -> list[Evaluation]:
        """Confirmed kernels in turns, for about `limit_s`; empty where no race was recorded and none can be run."""


class Live:
    """Evaluations by the judge, described by the campaign's frozen descriptor."""

    def __init__(self, judge: Judge, descriptor: Descriptor, *, build_jobs: int) -> None:
        self._judge = judge
        self._descriptor = descriptor
        self._build_jobs = build_jobs
        self._tried: set[str] = set()  # what the compiler made of all that had a trial here

    def build_ahead(self, jobs: Iterable[tuple[Candidate, Mapping[str, int]]]) -> None:
        """Builds and describes in parallel before anything is measured: on a CPU the compiler shares the device.

        What compiles to what had a trial is not described: it will hardly have one of its own, which would do it.
        """
        with ThreadPoolExecutor(self._build_jobs) as pool:
            list(pool.map(lambda job: self._build_ahead(*job), jobs))

    def _build_ahead(self, candidate: Candidate, params: Mapping[str, int]) -> None:
        code = self.object_hash(candidate, params)
        if code is not None and code not in self._tried:
            self._judge.build_ahead(candidate, params)

    def object_hash(self, candidate: Candidate, params: Mapping[str, int]) -> str | None:
        try:
            hashes = [built.text_hash for built in self._judge.build(candidate, params).values()]
        except ParameterError:  # its header cannot be read, as the trial will say
            return None
        return "+".join(hashes) if all(hashes) else None

    def trial(self, candidate: Candidate, params: Mapping[str, int], prune_below: float | None) -> Evaluation:
        found = self._described(self._judge.trial(candidate, params, prune_below=prune_below))
        code = self.object_hash(candidate, params)
        if code is None:
            return found
        self._tried.add(code)
        return replace(found, facts={**found.facts, CODE: code})

    def confirm(
        self, candidate: Candidate, params: Mapping[str, int], *, both: bool = False, blocks: int = 2
    ) -> Evaluation:
        sides: tuple[str, ...] = ("eager", "compiled") if both else ("baseline",)
        kind = Kind.BENCH if both else Kind.CONFIRM
        found = self._judge.confirm(
            candidate, params, sides=sides, kind=kind, blocks_per_process=blocks, hot_and_cold=both, sanitized=both
        )
        return self._described(found)

    def race(self, kernels: Sequence[tuple[Candidate, Params]], *, limit_s: float) -> list[Evaluation]:
        ran = racers(kernels)
        return [replace(found, facts=ran) for found in self._judge.race(kernels, limit_s=limit_s)]

    def _described(self, evaluation: Evaluation) -> Evaluation:
        if not evaluation.status.correct or not evaluation.facts:
            return evaluation
        return replace(evaluation, cell=self._descriptor.cell(evaluation.facts))


class Recorded:
    """Evaluations out of a store, recorded seconds included.

    The k-th confirmation asked for is the k-th recorded, copies aside, those of the campaign `first` before all
    others'. A miss stops the run, or goes to `otherwise` (``--replay-extend``).
    """

    def __init__(
        self, store: Store, task: Task, target: Target, otherwise: Measurer | None = None, *, first: str | None = None
    ) -> None:
        self._store = store
        self._first = first
        self._task = task.id
        self._target = target.id
        self._otherwise = otherwise
        self._served: Counter[tuple[object, ...]] = Counter()

    def build_ahead(self, jobs: Iterable[tuple[Candidate, Mapping[str, int]]]) -> None:
        missing = [job for job in jobs if self._find(job[0], job[1], Kind.TRIAL) is None]
        if missing and self._otherwise is not None:
            self._otherwise.build_ahead(missing)

    def object_hash(self, candidate: Candidate, params: Mapping[str, int]) -> str | None:
        if self._otherwise is None or self._find(candidate, params, Kind.TRIAL) is not None:
            return None  # a recorded duplicate is served as one
        return self._otherwise.object_hash(candidate, params)

    def trial(self, candidate: Candidate, params: Mapping[str, int], prune_below: float | None) -> Evaluation:
        found = self._find(candidate, params, Kind.TRIAL)
        if found is not None:
            # Where the judge itself failed the point was tried again: what comes next is that.
            self._served[point(candidate.id, params), Kind.TRIAL, repr(None)] += found.status is Status.HARNESS_ERROR
            return found
        return self._fallback(candidate, Kind.TRIAL).trial(candidate, params, prune_below)

    def confirm(
        self, candidate: Candidate, params: Mapping[str, int], *, both: bool = False, blocks: int = 2
    ) -> Evaluation:
        kind = Kind.BENCH if both else Kind.CONFIRM
        found = self._find(candidate, params, kind, serve=True)
        if found is not None:
            return found
        return self._fallback(candidate, kind).confirm(candidate, params, both=both, blocks=blocks)

    def race(self, kernels: Sequence[tuple[Candidate, Params]], *, limit_s: float) -> list[Evaluation]:
        """The n-th race of these kernels is their n-th recorded one.

        A recording that holds none, for it was cut off or is older than races, has none; one of part of them is a miss.
        """
        ran = racers(kernels)
        found = [self._find(*kernel, Kind.RACE, serve=True, facts=ran) for kernel in kernels]
        verdicts = [one for one in found if one is not None]
        if len(verdicts) == len(kernels):
            return verdicts
        if self._otherwise is not None or verdicts:
            return self._fallback(kernels[found.index(None)][0], Kind.RACE).race(kernels, limit_s=limit_s)
        return []

    def _find(
        self, candidate: Candidate, params: Params, kind: Kind, *, serve: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> Evaluation | None:  # fmt: skip
        """The recorded evaluation that is next to be served, `serve`: and is served; None: there is none.

        Args:
            facts: only of those that carry these.
        """
        found = self._store.find_recorded(candidate.id, params, self._task, self._target, PROTOCOL_VERSION, kind)
        rows: list[Evaluation] = []
        for row in sorted(found, key=lambda row: row.campaign != self._first):
            fits = facts is None or row.evaluation.facts == facts
            if fits and row.evaluation not in rows:  # a replay stores copies, its own of just now among them
                rows.append(row.evaluation)
        key = (point(candidate.id, params), kind, repr(facts))
        index = self._served[key]
        if serve:
            self._served[key] += 1
        return rows[index] if index < len(rows) else None

    def _fallback(self, candidate: Candidate, kind: Kind) -> Measurer:
        if self._otherwise is None:
            raise NotFoundError(
                f"expected a recorded {kind} of candidate {candidate.short_id}, found none; "
                "add --replay-extend to measure what is missing"
            )
        return self._otherwise
