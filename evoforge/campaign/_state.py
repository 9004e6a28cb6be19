"""Everything a search has learned so far; rebuilt from the store when a campaign resumes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evoforge.archives import DISQUALIFYING, Archive, fold_confirmations
from evoforge.core import AddStatus, Candidate, Cell, Elite, Evaluation, Kind, Params, Status
from evoforge.emitters import NoveltyGate, Outcome, Proposal

__all__ = ["Point", "State", "point"]

Point = tuple[str, tuple[tuple[str, int], ...]]


def point(candidate: str, params: Params) -> Point:
    """What is measured: a candidate at parameter values."""
    return candidate, tuple(sorted(params.items()))


class State:
    """The archive as a fold, with the counts and memories that steer the search.

    `trials` and `confirmations` are keyed by point; a point that failed later than in its trial is `refuted`, and its
    trial is believed no more. `attempts` counts the proposals that aimed at a
    cell, and `landings` the correct ones that ended in it.
    """

    def __init__(self, reachable: frozenset[Cell] | None) -> None:
        self.archive = Archive(reachable=reachable)
        self.gate = NoveltyGate()
        self.candidates: dict[str, Candidate] = {}
        self.tickets: dict[str, int] = {}
        self.trials: dict[Point, Evaluation] = {}
        self.confirmations: dict[Point, list[Evaluation]] = defaultdict(list)
        self.claims: dict[Point, Elite] = {}
        self.refuted: dict[Point, Status] = {}
        self.attempts: Counter[Cell] = Counter()
        self._children: dict[str, list[str]] = defaultdict(list)
        self._latest: dict[str, Evaluation] = {}
        self.spent = 0
        self.correct = 0

    def propose(self, ticket: int, proposal: Proposal) -> None:
        candidate = proposal.candidate
        self.gate.add(candidate)
        if candidate.id not in self.candidates:
            for parent in dict.fromkeys(candidate.parents):
                self._children[parent].append(candidate.id)
        self.candidates.setdefault(candidate.id, candidate)
        self.tickets.setdefault(candidate.id, ticket)
        if proposal.target_cell is not None:
            self.attempts[proposal.target_cell] += 1

    def note(self, evaluation: Evaluation) -> None:
        """Files one evaluation; confirmations, and a bench that a kernel fails, re-fold their point."""
        at = point(evaluation.candidate, evaluation.params)
        if evaluation.kind is Kind.TRIAL:
            self.spent += evaluation.status.charged
            self.correct += evaluation.status is Status.CORRECT
            if evaluation.status is not Status.DUPLICATE:
                self.trials.setdefault(at, evaluation)
                self._latest[evaluation.candidate] = evaluation
        elif evaluation.kind is Kind.CONFIRM or evaluation.status in DISQUALIFYING:
            self.confirmations[at].append(evaluation)
            self._refold(at)
            if evaluation.status in DISQUALIFYING:
                self.refuted[at] = evaluation.status
                self._latest[evaluation.candidate] = evaluation

    def standing(self, trial: Evaluation) -> Status:
        """The status of a trial, or what refuted it later."""
        return self.refuted.get(point(trial.candidate, trial.params), trial.status)

    def _refold(self, at: Point) -> None:
        rows = [*([self.trials[at]] if at in self.trials else []), *self.confirmations[at]]
        lengths = {at[0]: len(self.candidates[at[0]].source)}
        claims = fold_confirmations(rows, source_lengths=lengths, tickets={at[0]: self.tickets[at[0]]})
        self.claims.pop(at, None)
        if claims:
            self.claims[at] = claims[0]

    def settle(self) -> dict[Cell, tuple[AddStatus, Elite]]:
        """Rebuilds the archive from all claims; what changed, by cell."""
        before = {elite.cell: elite for elite in self.archive}
        self.archive.rebuild(self.claims.values())
        changes: dict[Cell, tuple[AddStatus, Elite]] = {}
        for elite in self.archive:
            old = before.get(elite.cell)
            if old is None:
                changes[elite.cell] = (AddStatus.NEW, elite)
            elif (old.candidate, dict(old.params)) != (elite.candidate, dict(elite.params)):
                changes[elite.cell] = (AddStatus.IMPROVED, elite)
        return changes

    def candidate(self, candidate: str) -> Candidate | None:
        """The candidate with that id, if it was proposed."""
        return self.candidates.get(candidate)

    def trial(self, candidate: str, params: Params) -> Evaluation | None:
        """The trial of `candidate` at these values."""
        return self.trials.get(point(candidate, params))

    def last_trial(self, candidate: str) -> Evaluation | None:
        """The latest trial of `candidate`, however it ended, or what refuted one."""
        return self._latest.get(candidate)

    def children(self, candidate: str) -> list[Candidate]:
        """What was made from `candidate`, in the order of tickets."""
        return [self.candidates[child] for child in self._children.get(candidate, ())]

    def failed(self) -> list[Candidate]:
        """Candidates none of whose trials computed the right thing, in the order of tickets."""
        right = {at[0] for at, row in self.trials.items() if self.standing(row).correct}
        judged = [self.candidates[name] for name in self._latest if name not in right]
        return sorted(judged, key=lambda candidate: self.tickets[candidate.id])

    def best_trial(self, candidate: str) -> Evaluation | None:
        """The correct trial of `candidate` with the highest objective; the first of equal ones."""
        own = [row for row in self.tried(candidate) if self.standing(row) is Status.CORRECT]
        return max(own, key=lambda row: row.objective if row.objective is not None else -5.0, default=None)

    def tried(self, candidate: str) -> list[Evaluation]:
        """Every trial of `candidate` so far, in order."""
        return [row for at, row in self.trials.items() if at[0] == candidate]

    def measured(self) -> list[tuple[Mapping[str, Any], Params, float]]:
        """(genome, values, objective) of every trial of a generated kernel that was timed, if briefly, in order."""
        return [
            (genome, row.params, row.objective)
            for at, row in self.trials.items()
            if self.standing(row) in (Status.CORRECT, Status.PRUNED) and row.objective is not None
            if (genome := self.candidates[at[0]].genome) is not None
        ]

    def winners(self, most: int) -> list[Params]:
        """The parameter values that did best in correct trials, whoever had them; the best first, none twice."""
        right = [row for row in self.trials.values() if self.standing(row) is Status.CORRECT]
        rows = [row for row in right if row.objective is not None]
        found: list[Params] = []
        for row in sorted(rows, key=lambda row: row.objective or 0.0, reverse=True):
            if len(found) < most and row.params not in found:
                found.append(row.params)
        return found

    def lineage(self, since: int) -> list[Elite]:
        """The best trial of every cell among candidates of tickets from `since` on, confirmed or not."""
        young = Archive()
        for at, row in self.trials.items():
            ticket = self.tickets[at[0]]
            right = self.standing(row) is Status.CORRECT
            if ticket >= since and right and row.cell is not None and row.objective is not None:
                length = len(self.candidates[at[0]].source)
                young.add(Elite(at[0], row.params, row.cell, row.objective, row.objective, length, ticket))
        return young.elites()

    def outcome(
        self, proposal: Proposal, ticket: int, rows: Sequence[Evaluation], gain: float, placed: Mapping[Cell, AddStatus]
    ) -> Outcome:
        """What the emitters are told.

        `rows` are the evaluations made for this ticket, `placed` the cells that this candidate took.
        """
        best = self.best_trial(proposal.candidate.id)
        cell = best.cell if best else None
        trials = [row for row in rows if row.kind is Kind.TRIAL]
        placement = placed.get(cell) if cell is not None else None
        if placement is None and any(row.kind is Kind.CONFIRM for row in rows):
            placement = AddStatus.REJECTED
        return Outcome(
            proposal=proposal,
            ticket=ticket,
            statuses=tuple(self.standing(row) for row in trials),
            evaluation=best,
            placement=placement,
            gain=max(gain, 0.0),
            cost_s=sum(sum(row.seconds.values()) for row in rows),
            cell=cell,
            cost_usd=proposal.cost_usd,
        )
