"""How one candidate travels: judged, tuned and, where it could enter the archive, confirmed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from evoforge.campaign._contest import CLOSE, WORTHLESS, Contest
from evoforge.campaign._state import CODE, TWIN
from evoforge.core import LEAST_OBJECTIVE, Candidate, Evaluation, Params, Status
from evoforge.emitters import Outcome, ParametriseEmitter, Proposal, Ranker
from evoforge.errors import ParameterError, WorkerError
from evoforge.tuning import Tuner

__all__ = ["BREADTH", "WINNERS", "Journey"]

WINNERS = 4  # settings that did best on whatever kernel: they are tried on others before any are drawn
BREADTH = 0.35  # share of the budget for drawing the map, before the best of it is tuned
_NEAR = 0.2  # log2 1.15: what new kernels have to be within of the best to be tuned at once
_ENOUGH = 8  # right trials before drafts and settings are ranked by what was measured
_REFITS = 64  # evaluations up to which each is learned at once; of thousands, a fit takes a second
_TUNE_SLICE = 2  # trials of one candidate in a row
_TUNE_AHEAD = 2  # points of one candidate that are built side by side
_IDLE = 32  # points of one candidate that compiled to what was known, after which it is tuned no more
_POINTS = 1024  # combinations of a declared space up to which the one most unlike the first is looked for
_BROKEN = 8  # trials in a row in which the judge itself failed: the machine is at fault, and what comes would be lost
_UNTOLD = (Status.HARNESS_ERROR, Status.TIMING_SUSPECT)  # verdicts that say nothing of the program


@dataclass
class Journey(Contest):
    """The judging half of a search; which candidates travel is the loop's.

    `trials` are those of a kernel's parameters; `breadth` is the share of the budget in which nothing is tuned.
    After `in_a_row` of a kernel's trials it is looked at again what more of them are worth.
    `book` is called after every evaluation that was committed.
    """

    seed: int
    trials: int
    breadth: float = BREADTH
    in_a_row: int = _TUNE_SLICE
    book: Callable[[], object] = lambda: None
    _exhausted: set[str] = field(default_factory=set)
    _ranker: tuple[tuple[int, int], Ranker | None] | None = None
    _broken: int = 0

    def start(self, proposal: Proposal) -> dict[str, int] | None:
        """The inherited parameters a candidate is first judged at; None if its header is unreadable."""
        try:
            return proposal.candidate.space.inherit(proposal.params_hint)
        except ParameterError:
            return None

    def travel(self, ticket: int, proposal: Proposal) -> Outcome:
        """One candidate from proposal to outcome. Every evaluation is committed as it ends."""
        candidate = proposal.candidate
        before = {elite.cell: elite for elite in self.state.archive}
        self.state.propose(ticket, proposal)
        rows: list[Evaluation] = []
        start = self.start(proposal) or {}
        self.phase("judging")
        first = self._duplicate(ticket, proposal, start, rows) or self._trial(ticket, proposal, start, WORTHLESS, rows)
        if proposal.emitter == "import" and not first.status.correct:
            text = f"your kernel {candidate.short_id} ended {first.status}: {first.reason}"
            self.narrator.tell("notice", text=text)
        if first.status is Status.CORRECT:
            self._tune(ticket, proposal, self._worth(proposal, first), rows)
            self.confirm(ticket, candidate, rows)
        return self.state.outcome(proposal, ticket, rows, before)

    def _duplicate(self, ticket: int, proposal: Proposal, params: Params, rows: list[Evaluation]) -> Evaluation | None:
        """The free verdict on what compiles to what another candidate compiled to, or itself at other values."""
        candidate = proposal.candidate
        digest = self.measurer.object_hash(candidate, params)
        if digest is None:
            return None
        if own := self._compiled(candidate).get(digest):
            return self._same(ticket, proposal, params, own, rows)
        twin = self.state.gate.object_twin(candidate, digest)
        if (
            twin is None
            or self.state.unjudged(twin.candidate)
            or self._another_template(candidate, params, digest, twin.candidate)
        ):
            return None
        return self._same(ticket, proposal, params, twin.candidate, rows)

    def _compiled(self, candidate: Candidate) -> dict[str | None, Evaluation]:
        """The trials of a candidate by what the compiler made of it there."""
        judged = [row for row in self.state.tried(candidate.id) if row.status not in _UNTOLD]
        return {row.facts.get(CODE) or self.measurer.object_hash(candidate, row.params): row for row in judged}

    def _same(
        self, ticket: int, proposal: Proposal, params: Params, twin: Evaluation | str, rows: list[Evaluation]
    ) -> Evaluation:
        """Files that a point compiles to what is known: a trial of the same candidate, or another candidate."""
        if isinstance(twin, Evaluation):
            what = "at " + " ".join(f"{name}={value}" for name, value in twin.params.items())
        else:
            what = f"as candidate {twin[:12]}"
        known = next(iter(self.state.trials.values()))
        evaluation = Evaluation(
            candidate=proposal.candidate.id,
            params=params,
            task=known.task,
            target=known.target,
            status=Status.DUPLICATE,
            reason=f"compiles to the same instructions {what}",
            facts={TWIN: dict(twin.params)} if isinstance(twin, Evaluation) else {},
        )
        self._file(ticket, proposal, evaluation, rows)
        return evaluation

    def _another_template(self, candidate: Candidate, params: Params, digest: str | None, twin: str) -> bool:
        """Whether a text's constants became parameters that do something: with other values it is another program.

        The generator's kernels declare what they can from the start; two of them that meet are twins.
        """
        if candidate.genome is not None or candidate.space == self.state.candidates[twin].declared:
            return False
        if candidate.space.product_size() > _POINTS:
            return True
        points = candidate.space.points()
        farthest = max(points, key=lambda at: sum(at[name] != params[name] for name in at), default=dict(params))
        return farthest != params and self.measurer.object_hash(candidate, farthest) != digest

    def _trial(
        self, ticket: int, proposal: Proposal, params: Params, prune_below: float | None, rows: list[Evaluation]
    ) -> Evaluation:
        evaluation = self.measurer.trial(proposal.candidate, params, prune_below)
        self._file(ticket, proposal, evaluation, rows)
        return evaluation

    def _file(self, ticket: int, proposal: Proposal, evaluation: Evaluation, rows: list[Evaluation]) -> None:
        """Commits an evaluation, learns it and says so.

        Raises:
            WorkerError: the judge failed over and over.
        """
        self.store.record_outcome(
            self.campaign, ticket, proposal.candidate, [evaluation],
            emitter=proposal.emitter, target_cell=proposal.target_cell,
        )  # fmt: skip
        self.book()
        self.state.note(evaluation)
        self.clock.note(evaluation)
        rows.append(evaluation)
        self.narrator.tell(
            "evaluation",
            status=str(evaluation.status),
            cell=evaluation.cell,
            objective=evaluation.objective,
            candidate=evaluation.candidate,
            operator=proposal.operator,
            reason=evaluation.reason,
        )
        self.progress("judging")
        self._broken = self._broken + 1 if evaluation.status is Status.HARNESS_ERROR else 0
        if self._broken == _BROKEN:
            raise WorkerError(
                f"expected a machine that can judge, got {_BROKEN} failures of the judge itself in a row, the last: "
                f"{evaluation.reason}; once that is mended: evoforge resume {shlex.quote(self.campaign)}"
            )

    def ranker(self) -> Ranker | None:
        """Fitted to all that was timed, later on to all but the latest few; None while that is little."""
        if self.state.correct < _ENOUGH:
            return None
        spent = self.state.spent
        known = (spent - spent % max(spent // _REFITS, 1), len(self.state.refuted))
        if self._ranker is None or self._ranker[0] != known:
            measured = self.state.measured()
            rows = [({**(one.genome or {}), **row.params}, self.state.height(row)) for one, row in measured]
            self._ranker = (known, Ranker.fit(rows) if rows else None)
        return self._ranker[1]

    def _tune(self, ticket: int, proposal: Proposal, trials: int, rows: list[Evaluation]) -> None:
        """Optuna over the declared parameters; points are asked in pairs, so that they build side by side.

        A point that compiles to what is known of its candidate costs no trial, and has that one's verdict.
        """
        candidate = proposal.candidate
        if trials <= 0 or not candidate.declared.parameters:
            return
        tried, same = self.state.tried(candidate.id), self.state.same(candidate.id)
        known = [*((row.params, row) for row in tried), *same]
        self.phase("tuning")
        right = [row for row in tried if self.state.standing(row) is Status.CORRECT]
        best = max(map(self.state.height, right), default=LEAST_OBJECTIVE)
        tuner = Tuner(
            candidate.space,
            seed=int(np.random.default_rng([self.seed, ticket, len(known)]).integers(2**31)),
            trials=trials,
            later=self._left(candidate) - trials,
            known=[(params, self._told(row), self.state.standing(row)) for params, row in known],
            enqueue=[candidate.space.defaults(), *self.state.winners(WINNERS)],
            scores=self._scores_of(candidate),
        )
        compiled = self._compiled(candidate)
        idle = len(same)
        while points := [point for point in (tuner.ask() for _ in range(_TUNE_AHEAD)) if point is not None]:
            self.measurer.build_ahead([(candidate, params) for params in points])
            for params in points:
                if idle >= _IDLE or self.clock.stop_reason(self.state.spent):
                    return
                digest = self.measurer.object_hash(candidate, params)
                if digest and (twin := compiled.get(digest)):  # a parameter that changes nothing here
                    evaluation = self._same(ticket, proposal, params, twin, rows)
                else:
                    evaluation = self._trial(ticket, proposal, params, best, rows)
                if evaluation.status is Status.DUPLICATE:  # this one, or a recorded one
                    told, idle = self.state.twin(evaluation) or evaluation, idle + 1
                    tuner.tell(params, self._told(told), self.state.standing(told), free=True)
                    continue
                if evaluation.status not in _UNTOLD:
                    compiled[digest] = evaluation
                tuner.tell(params, evaluation.objective, evaluation.status)
                if evaluation.status is Status.CORRECT and evaluation.objective is not None:
                    best = max(best, evaluation.objective)

    def _told(self, row: Evaluation) -> float | None:
        """What a tuner is told of a trial, or of what has no timing."""
        return None if row.objective is None else self.state.height(row)

    def _scores_of(self, candidate: Candidate) -> Callable[[Sequence[Params]], Sequence[float]] | None:
        """What is expected of a generated kernel at each of some settings."""
        genome, ranker = candidate.genome, self.ranker()
        if genome is None or ranker is None:
            return None
        return lambda settings: ranker.scores([{**genome, **values} for values in settings]).tolist()

    def _worth(self, proposal: Proposal, first: Evaluation) -> int:
        """Trials for a new candidate: none for what is far below its cell's elite, or not near the campaign's best.

        Breadth comes first. What becomes an elite has the rest of its trials later (`deepen`). What was parametrised
        has all at once: as it is it repeats its parent, which it can only beat at other values.
        """
        objective, left = first.height, self._left(proposal.candidate)
        elite = self.state.archive.get(first.cell) if first.cell is not None else None
        best = self.state.archive.best()
        if elite is not None and objective < elite.objective - CLOSE:
            return 0
        if proposal.operator == ParametriseEmitter.name:
            return left
        if best is not None and objective < best.objective - _NEAR:
            return 0
        return min(left, self.in_a_row) if self.clock.progress(self.state.spent) >= self.breadth else 0

    def _left(self, candidate: Candidate) -> int:
        """Trials that a kernel may still have, one for what it was first judged at aside."""
        return max(self.trials + 1 - len(self.state.tried(candidate.id)), 0)

    def deepen(self, drawn: bool = False) -> bool:
        """Tunes the best elite that has not had all its trials yet; False when there is none near the best.

        A few trials at a time, so that new kernels are looked at in between: once the map is drawn, or `drawn` says
        that no more will be.
        """
        best = self.state.archive.best()
        if best is None or (not drawn and self.clock.progress(self.state.spent) < self.breadth):
            return False
        for elite in sorted(self.state.archive, key=lambda elite: elite.rank, reverse=True):
            candidate = self.state.candidates[elite.candidate]
            left = self._left(candidate)
            tried, same = len(self.state.tried(candidate.id)), len(self.state.same(candidate.id))
            untried = tried + same < candidate.declared.product_size() and same < _IDLE
            near = elite.objective > best.objective - CLOSE
            if near and left > 0 and untried and candidate.id not in self._exhausted:
                ticket = self.state.tickets[candidate.id]
                rows: list[Evaluation] = []
                proposal = Proposal(candidate, operator=candidate.operator, emitter=candidate.operator)
                self._tune(ticket, proposal, min(left, self.in_a_row), rows)
                if not rows:
                    self._exhausted.add(candidate.id)
                self.confirm(ticket, candidate, rows)
                return True
        return False
