"""How one candidate travels: judged, tuned, confirmed; and what that does to the archive.

Every evaluation is committed as it ends.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evoforge.archives import DISQUALIFYING
from evoforge.campaign._budget import Clock
from evoforge.campaign._events import Narrator
from evoforge.campaign._measure import Measurer
from evoforge.campaign._state import CODE, TWIN, State
from evoforge.core import Candidate, Cell, Elite, Evaluation, Params, Point, Status, point
from evoforge.emitters import Outcome, Proposal, Ranker
from evoforge.errors import ParameterError, WorkerError
from evoforge.storage import Placement, Store
from evoforge.tuning import Tuner

__all__ = ["BREADTH", "CLOSE", "WINNERS", "WORTHLESS", "Journey"]

CLOSE = 0.585  # log2 1.5: what is further below its cell's elite, or the campaign's best, is not tuned
WORTHLESS = -3.0  # log2: eight times slower than the baseline is not worth the time of a measurement
WINNERS = 4  # settings that did best on whatever kernel: they are tried on others before any are drawn
BREADTH = 0.35  # share of the budget for drawing the map, before the best of it is tuned
_NEAR = 0.2  # log2 1.15: what new kernels have to be within of the best to be tuned at once
_ENOUGH = 8  # right trials before drafts and settings are ranked by what was measured
_REFITS = 64  # evaluations up to which each is learned at once; of thousands, a fit takes a second
_TUNE_SLICE = 2  # trials of one candidate in a row: what it is worth is looked at again in between
_TUNE_AHEAD = 2  # points of one candidate that are built side by side
_IDLE = 32  # points of one candidate that compiled to what was known, after which it is tuned no more
_POINTS = 1024  # combinations of a declared space up to which the one most unlike the first is looked for
_RACERS = 16  # at most, in the race at the end
_LAP = 4  # rounds that there must be time for
_REPORTS = 2  # attempts at the last measurement
_BROKEN = 8  # trials in a row in which the judge itself failed: the machine is at fault, and what comes would be lost
_MAX_CONFIRMATIONS = 3  # per point, when intervals of challenger and incumbent overlap
_UNTOLD = (Status.HARNESS_ERROR, Status.TIMING_SUSPECT)  # verdicts that say nothing of the program


@dataclass
class Journey:
    """The judging half of a search; which candidates travel is the loop's.

    `lead` maps eager and compiled to log2(side / baseline): what to add to an objective to get the
    speed-up over that side (None: that side was not timed). `breadth` is the share of the budget in which
    nothing is tuned. `book` is called after every evaluation that was committed, `notice` with a sentence that the
    campaign's result shall hold.
    """

    campaign: str
    store: Store
    state: State
    measurer: Measurer
    narrator: Narrator
    clock: Clock
    seed: int
    trials: int
    lead: Mapping[str, float | None]
    breadth: float = BREADTH
    book: Callable[[], object] = lambda: None
    notice: Callable[[str], object] = lambda text: None
    report: Evaluation | None = None
    _exhausted: set[str] = field(default_factory=set)
    _ranker: tuple[tuple[int, int], Ranker | None] | None = None
    _just_confirmed: set[Point] = field(default_factory=set)
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
            self._tune(ticket, proposal, self._worth(first), rows)
            self.confirm(ticket, candidate, rows)
        return self.state.outcome(proposal, ticket, rows, before)

    def _duplicate(self, ticket: int, proposal: Proposal, params: Params, rows: list[Evaluation]) -> Evaluation | None:
        """The free verdict on a text that compiles to what another candidate compiled to."""
        digest = self.measurer.object_hash(proposal.candidate, params)
        twin = self.state.gate.object_twin(proposal.candidate, digest) if digest else None
        if (
            twin is None
            or self.state.unjudged(twin.candidate)
            or self._another_template(proposal.candidate, params, digest, twin.candidate)
        ):
            return None
        return self._same(ticket, proposal, params, f"as candidate {twin.candidate[:12]}", rows)

    def _same(
        self, ticket: int, proposal: Proposal, params: Params, what: str, rows: list[Evaluation],
        twin: Params | None = None,
    ) -> Evaluation:  # fmt: skip
        """Files that a point compiles to what is known; `twin`: of the same candidate, at these values."""
        known = next(iter(self.state.trials.values()))
        evaluation = Evaluation(
            candidate=proposal.candidate.id,
            params=params,
            task=known.task,
            target=known.target,
            status=Status.DUPLICATE,
            reason=f"compiles to the same instructions {what}",
            facts={} if twin is None else {TWIN: dict(twin)},
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
            rows = [({**(one.genome or {}), **row.params}, row.objective or 0.0) for one, row in measured]
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
        best = max((_height(row) for row in tried if self.state.standing(row) is Status.CORRECT), default=-5.0)
        tuner = Tuner(
            candidate.space,
            seed=int(np.random.default_rng([self.seed, ticket, len(known)]).integers(2**31)),
            trials=trials,
            later=max(self.trials - len(tried) + 1 - trials, 0),
            known=[(params, row.objective, self.state.standing(row)) for params, row in known],
            enqueue=[candidate.space.defaults(), *self.state.winners(WINNERS)],
            scores=self._scores_of(candidate),
        )
        judged = [row for row in tried if row.status not in _UNTOLD]
        compiled = {row.facts.get(CODE) or self.measurer.object_hash(candidate, row.params): row for row in judged}
        idle = len(same)
        while points := [point for point in (tuner.ask() for _ in range(_TUNE_AHEAD)) if point is not None]:
            self.measurer.build_ahead([(candidate, params) for params in points])
            for params in points:
                if idle >= _IDLE or self.clock.stop_reason(self.state.spent):
                    return
                digest = self.measurer.object_hash(candidate, params)
                if digest and (twin := compiled.get(digest)):  # a parameter that changes nothing here
                    what = "at " + " ".join(f"{name}={value}" for name, value in twin.params.items())
                    evaluation = self._same(ticket, proposal, params, what, rows, twin.params)
                else:
                    evaluation = self._trial(ticket, proposal, params, best, rows)
                if evaluation.status is Status.DUPLICATE:  # this one, or a recorded one
                    told, idle = self.state.twin(evaluation) or evaluation, idle + 1
                    tuner.tell(params, told.objective, self.state.standing(told), free=True)
                    continue
                if evaluation.status not in _UNTOLD:
                    compiled[digest] = evaluation
                tuner.tell(params, evaluation.objective, evaluation.status)
                if evaluation.status is Status.CORRECT and evaluation.objective is not None:
                    best = max(best, evaluation.objective)

    def _scores_of(self, candidate: Candidate) -> Callable[[Sequence[Params]], Sequence[float]] | None:
        """What is expected of a generated kernel at each of some settings."""
        genome, ranker = candidate.genome, self.ranker()
        if genome is None or ranker is None:
            return None
        return lambda settings: ranker.scores([{**genome, **values} for values in settings]).tolist()

    def _worth(self, first: Evaluation) -> int:
        """Trials for a new candidate: none for what is far below its cell's elite, or not near the campaign's best.

        Breadth comes first. What becomes an elite has the rest of its trials later (`deepen`).
        """
        objective = _height(first)
        elite = self.state.archive.get(first.cell) if first.cell is not None else None
        best = self.state.archive.best()
        if elite is not None and objective < elite.objective - CLOSE:
            return 0
        if best is not None and objective < best.objective - _NEAR:
            return 0
        return min(self.trials, _TUNE_SLICE) if self.clock.progress(self.state.spent) >= self.breadth else 0

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
            tried, same = len(self.state.tried(candidate.id)), len(self.state.same(candidate.id))
            left = self.trials - tried + 1
            untried = tried + same < candidate.declared.product_size() and same < _IDLE
            near = elite.objective > best.objective - CLOSE
            if near and left > 0 and untried and candidate.id not in self._exhausted:
                ticket = self.state.tickets[candidate.id]
                rows: list[Evaluation] = []
                proposal = Proposal(candidate, operator=candidate.operator, emitter=candidate.operator)
                self._tune(ticket, proposal, min(left, _TUNE_SLICE), rows)
                if not rows:
                    self._exhausted.add(candidate.id)
                self.confirm(ticket, candidate, rows)
                return True
        return False

    def confirm(self, ticket: int, candidate: Candidate, rows: list[Evaluation]) -> None:
        """Confirms the candidate's best trial of every cell that it could enter; once time is up, of one."""
        champions: dict[Cell, Evaluation] = {}
        for row in rows:
            if row.status is not Status.CORRECT or row.cell is None or (row.objective or 0.0) < WORTHLESS:
                continue
            held = champions.get(row.cell)
            if held is None or _height(row) > _height(held):
                champions[row.cell] = row
        began = len(rows)
        for cell, row in sorted(champions.items()):
            if len(rows) > began and not self.clock.in_time:
                break
            incumbent, best = self.state.archive.get(cell), self.state.archive.best()
            # Where the best kernels are, a challenger gets the benefit of the doubt and both are measured
            # until they can be told apart; elsewhere it must look better, and one confirmation decides, as
            # it does between one kernel's own parameters.
            close = best is None or _height(row) > best.objective - CLOSE
            if incumbent is None or _height(row) > (incumbent.lower if close else incumbent.objective):
                self.phase("confirming")
                rivals = close and (incumbent is None or incumbent.candidate != row.candidate)
                self._duel(ticket, cell, row, rows, _MAX_CONFIRMATIONS if rivals else 1)

    def doubt(self) -> None:
        """Measures the best elite again, some other time: a storm may have struck its baseline all along.

        Where it falls, the fastest trial that it had kept out of its cell gets the confirmation it was denied.
        """
        best = self.state.archive.best()
        if best is not None and self.clock.may_doubt(self.state.spent):
            at = point(best.candidate, best.params)
            if at not in self._just_confirmed and len(self.state.confirmations[at]) < _MAX_CONFIRMATIONS:
                self.phase("confirming the best")
                self._confirm_once(self.state.tickets[best.candidate], at, [])
                denied = self._denied(best.cell)
                if denied is not None:
                    self._confirm_once(self.state.tickets[denied[0]], denied, [])
        self._just_confirmed.clear()

    def _denied(self, cell: Cell) -> Point | None:
        """The fastest trial of a cell that was never confirmed and would be now, the elite there being what it is."""
        elite = self.state.archive.get(cell)
        least = elite.lower if elite is not None else WORTHLESS
        points = [
            at
            for at, row in self.state.trials.items()
            if row.status is Status.CORRECT and row.cell == cell and not self.state.confirmations.get(at)
            if _height(row) > least
        ]
        return max(points, key=lambda at: _height(self.state.trials[at]), default=None)

    def _duel(self, ticket: int, cell: Cell, row: Evaluation, rows: list[Evaluation], most: int) -> None:
        """Measures the challenger, and both again while their intervals overlap, at most `most` times each.

        A challenger that takes the cell at once and narrowly is measured a second time as well: its first time may
        have been a lucky one, as that of one who loses an unlucky one.
        """
        challenger, held = point(row.candidate, row.params), self.state.archive.get(cell)
        self._confirm_once(ticket, challenger, rows)
        won = self.state.archive.get(cell)
        took = won is not None and point(won.candidate, won.params) == challenger
        narrowly = took and held is not None and won is not None and won.lower < held.objective
        if most > 1 and narrowly and self.clock.in_time:
            self._confirm_once(ticket, challenger, rows)
        for _ in range(most - 1):
            if not self.clock.in_time:
                break
            incumbent, claim = self.state.archive.get(cell), self.state.claims.get(challenger)
            if incumbent is None or claim is None:
                break
            holder = point(incumbent.candidate, incumbent.params)
            if holder == challenger or not (claim.lower < incumbent.objective and incumbent.lower < claim.objective):
                break
            short = [at for at in (challenger, holder) if len(self.state.confirmations[at]) < most]
            if not short:
                break
            for at in short:
                if self.clock.in_time:
                    self._confirm_once(ticket, at, rows)

    def _confirm_once(self, ticket: int, at: Point, rows: list[Evaluation]) -> None:
        """One confirmation and what it does to the archive, in one transaction."""
        candidate, trial, best = self.state.candidates[at[0]], self.state.trials.get(at), self.state.archive.best()
        far = best is not None and trial is not None and (trial.objective or 0.0) < best.objective - CLOSE
        evaluation = self.measurer.confirm(candidate, dict(at[1]), blocks=1 if far else 2)
        if evaluation.cell is None and trial is not None and evaluation.status is Status.CORRECT:
            evaluation = replace(evaluation, cell=trial.cell)
        self._just_confirmed.add(at)
        self.clock.note(evaluation)
        rows.append(evaluation)
        self._settle(ticket, [evaluation], "confirming")

    def _settle(self, ticket: int | None, evaluations: Sequence[Evaluation], phase: str) -> None:
        """Commits evaluations that claims rest on, with what they do to the archive."""
        before = list(self.state.archive)
        for evaluation in evaluations:
            self.state.note(evaluation)
        changes = self.state.settle()
        placements = [
            Placement(str(status), cell, elite.candidate, elite.params, elite.objective, elite.lower)
            for cell, (status, elite) in changes.items()
        ]
        reasons = {point(row.candidate, row.params): row.reason for row in evaluations}
        placements += [
            Placement("DEMOTED", e.cell, e.candidate, e.params, e.objective, e.lower, reasons.get(at, ""))
            for e in before
            if (at := point(e.candidate, e.params)) not in self.state.claims
        ]
        self.store.record_outcome(self.campaign, ticket, None, evaluations, placements)
        for cell, (status, elite) in changes.items():
            self.narrator.tell("placement", cell=cell, status=str(status), objective=elite.objective)
        self.show(phase)

    def race(self) -> None:
        """Sets apart what stands near the best: kernels whose claims differ by less than the machine's hour does.

        Who packs weights is held to another torch, so it races with its like alone. Of slow kernels fewer race: as many
        as can run a lap in time, by what a process of the best one's confirmations took.
        """
        best = self.state.archive.best()
        if best is None:
            return
        near = sorted(self.state.claims.values(), key=lambda claim: claim.rank, reverse=True)
        packs = self._packs(best)
        seats = min(_RACERS, int(self.clock.race_s / (_LAP * self._process_s(best))))
        ran = [one for one in near if one.objective > best.objective - CLOSE and self._packs(one) == packs][:seats]
        if len(ran) > 1:
            self.phase("racing the best")
            kernels = [(self.state.candidates[claim.candidate], claim.params) for claim in ran]
            if rows := self.measurer.race(kernels, limit_s=self.clock.race_s):
                self._settle(None, rows, "racing the best")

    def _process_s(self, claim: Elite) -> float:
        """Seconds of measuring per process of its confirmations."""
        rows = self.state.confirmations[point(claim.candidate, claim.params)]
        processes = sum(len({block.process for block in timing.blocks}) for row in rows for timing in row.timings[:1])
        return max(sum(row.seconds.get("time", 0.0) for row in rows), 1e-3) / max(processes, 1)

    def _packs(self, claim: Elite) -> bool:
        return any("prepacked" in row.flags for row in self.state.confirmations[point(claim.candidate, claim.params)])

    def finish(self) -> None:
        """Races the best, and measures the winner beside eager and compiled, for the report; the next best if it fails.

        Where that cannot be timed, twice, the claim of the search stands and a notice says so.
        """
        self.race()
        untimed = 0
        while (best := self.state.archive.best()) is not None:
            self.phase("reporting")
            evaluation = self.measurer.confirm(self.state.candidates[best.candidate], best.params, both=True)
            failed = evaluation.status in DISQUALIFYING
            lost = Placement(
                "DEMOTED", best.cell, best.candidate, best.params, best.objective, best.lower, evaluation.reason
            )
            self.store.record_outcome(self.campaign, None, None, [evaluation], [lost] if failed else [])
            if evaluation.status is Status.CORRECT:
                self.report = evaluation
                return
            if not failed:
                untimed += 1
                if untimed == _REPORTS:
                    self.notice(
                        f"the best kernel could not be measured once more ({evaluation.status}: {evaluation.reason}); "
                        "its speed-up is what the search found"
                    )
                    return
                continue
            untimed = 0
            self.state.note(evaluation)
            self.state.settle()
            self.show("reporting")

    def show(self, phase: str) -> None:
        """Tells how the archive stands: after what changed it, and where a search goes on that was restored."""
        self._best()
        self.progress(phase)

    def _best(self) -> None:
        """Tells the best elite, with the bound that ranks it and the mirror of it: a 90% interval."""
        best = self.state.archive.best()
        if best is None:
            return
        over = {
            f"speedup_{side}": None if lead is None else 2 ** (best.objective + lead)
            for side, lead in self.lead.items()
        }
        self.narrator.tell(
            "best",
            **over,
            speedup=2**best.objective,
            low=2**best.lower,
            high=2 ** (2 * best.objective - best.lower),
            cell=best.cell,
            candidate=best.candidate,
        )

    def phase(self, text: str) -> None:
        self.narrator.tell("phase", text=text)

    def progress(self, phase: str) -> None:
        archive = self.state.archive
        self.narrator.tell(
            "progress",
            evaluations=self.state.spent,
            correct=self.state.correct,
            budget_evals=self.clock.evals,
            elapsed_s=self.clock.elapsed_s,
            budget_s=self.clock.budget_s,
            coverage=archive.coverage,
            filled=len(archive),
            reachable=len(archive.reachable),
            cells={elite.cell: elite.objective for elite in archive},
            phase=phase,
        )


def _height(row: Evaluation) -> float:
    return row.objective if row.objective is not None else -5.0
