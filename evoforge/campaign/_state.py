"""Everything a search has learned so far; rebuilt from the store when a campaign resumes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evoforge.archives import DISQUALIFYING, Archive, fold_confirmations, qd_score, raced
from evoforge.core import AddStatus, Block, Candidate, Cell, Elite, Evaluation, Kind, Params, Point, Status, point
from evoforge.emitters import NoveltyGate, Outcome, Proposal

__all__ = ["CODE", "TWIN", "State"]

CODE = "code"
"""The fact of a trial that says what the compiler made of it (`Measurer.object_hash`)."""
TWIN = "twin"
"""The fact of a duplicate that its own candidate compiled to the same at other values: those."""

_RECENT = 4096  # timed trials that decisions are judged by: a search of weeks has many more


class State:
    """The archive as a fold, with the counts and memories that steer the search.

    `trials` and `confirmations` are keyed by point; a point that failed later than in its trial is `refuted`, and its
    trial is believed no more. `attempts` counts the proposals that aimed at a
    cell; `changed` is the highest ticket proposed by the time the archive last got another elite. What is asked every
    round takes no longer when a search has run for weeks.
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
        self._race: list[Evaluation] = []  # the last one
        self._by_cell: dict[Cell, dict[Point, Elite]] = defaultdict(dict)  # claims
        self.attempts: Counter[Cell] = Counter()
        self.changed = 0
        self._newest = 0
        self._twins: set[Point] = set()  # points that compiled to another kernel's code
        self._same: dict[str, list[Evaluation]] = defaultdict(list)  # duplicates of its own trials, by candidate
        self._children: dict[str, list[str]] = defaultdict(list)
        self._latest: dict[str, Evaluation] = {}
        self._points: dict[str, list[Point]] = defaultdict(list)  # of its trials
        self._failed: set[str] = set()
        self._fastest: list[tuple[float, int, Point]] = []  # right trials, the highest first; refuted ones stay
        self._questions: Counter[tuple[str, str]] = Counter()
        self._stale: set[Cell] = set()  # cells whose claims changed since the archive was built
        self.spent = 0
        self.correct = 0

    def propose(self, ticket: int, proposal: Proposal) -> None:
        candidate = proposal.candidate
        self._newest = max(self._newest, ticket)
        self.gate.add(candidate)
        if candidate.id not in self.candidates:
            for parent in dict.fromkeys(candidate.parents):
                self._children[parent].append(candidate.id)
        self.candidates.setdefault(candidate.id, candidate)
        self.tickets.setdefault(candidate.id, ticket)
        if proposal.target_cell is not None:
            self.attempts[proposal.target_cell] += 1

    def note(self, evaluation: Evaluation) -> None:
        """Files one evaluation; confirmations, and a race or bench that a kernel fails, re-fold their point.

        Where the judge itself failed nothing is known of the kernel: it may be tried again.
        """
        at = point(evaluation.candidate, evaluation.params)
        if evaluation.kind is Kind.TRIAL:
            if CODE in evaluation.facts and evaluation.candidate not in self._points:
                self.gate.object_twin(self.candidates[evaluation.candidate], evaluation.facts[CODE])
            self.spent += evaluation.status.charged
            self.correct += evaluation.status is Status.CORRECT
            if evaluation.status is Status.HARNESS_ERROR:
                self._latest[evaluation.candidate] = evaluation
            elif evaluation.status is Status.DUPLICATE:
                if at not in self._twins and TWIN in evaluation.facts:
                    self._same[evaluation.candidate].append(evaluation)
                self._twins.add(at)
            else:
                if at not in self.trials:
                    self.trials[at] = evaluation
                    self._points[evaluation.candidate].append(at)
                    if self._timed(at):
                        insort(self._fastest, self._rank(at))
                self._judge(evaluation)
        elif evaluation.kind is Kind.RACE and evaluation.status is Status.CORRECT:
            if any(row.facts != evaluation.facts or point(row.candidate, row.params) == at for row in self._race):
                self._stale.update(claim.cell for claim in self._raced())
                self._race.clear()
            self._race.append(evaluation)
            self._stale.update(claim.cell for claim in self._raced())
        elif evaluation.kind is Kind.CONFIRM or evaluation.status in DISQUALIFYING:
            self.confirmations[at].append(evaluation)
            self._refold(at)
            if evaluation.status in DISQUALIFYING:
                self.refuted[at] = evaluation.status
                self._judge(evaluation)

    def _judge(self, evaluation: Evaluation) -> None:
        """The candidate's latest word, and whether anything of it still counts as right."""
        name = evaluation.candidate
        self._latest[name] = evaluation
        if any(self.standing(row).correct for row in self.tried(name)):
            self._failed.discard(name)
        else:
            self._failed.add(name)

    def standing(self, trial: Evaluation) -> Status:
        """The status of a trial, or what refuted it later."""
        return self.refuted.get(point(trial.candidate, trial.params), trial.status)

    def height(self, trial: Evaluation) -> float:
        """What is claimed of a trial's point; where nothing is, the trial's objective, which may have been a lucky one.

        `LEAST_OBJECTIVE` where it was not timed.
        """
        claim = self.claims.get(point(trial.candidate, trial.params))
        return trial.height if claim is None else claim.objective

    def _timed(self, at: Point) -> bool:
        trial = self.trials.get(at)
        return trial is not None and trial.status is Status.CORRECT and trial.objective is not None

    def _rank(self, at: Point) -> tuple[float, int, Point]:
        return -self.height(self.trials[at]), self.tickets[at[0]], at

    def _refold(self, at: Point) -> None:
        if self._timed(at):
            del self._fastest[bisect_left(self._fastest, self._rank(at))]
        rows = [*([self.trials[at]] if at in self.trials else []), *self.confirmations[at]]
        lengths = {at[0]: len(self.candidates[at[0]].source)}
        claims = fold_confirmations(rows, source_lengths=lengths, tickets={at[0]: self.tickets[at[0]]})
        old = self.claims.pop(at, None)
        if old is not None:
            self._stale.add(old.cell)
            del self._by_cell[old.cell][at]
        if claims:
            self._stale.add(claims[0].cell)
            self.claims[at] = self._by_cell[claims[0].cell][at] = claims[0]
        if self._timed(at):
            insort(self._fastest, self._rank(at))

    def _raced(self) -> list[Elite]:
        """The claims of those that ran in the last race."""
        points = [point(row.candidate, row.params) for row in self._race]
        return [self.claims[at] for at in points if at in self.claims]

    def settle(self) -> dict[Cell, tuple[AddStatus, Elite]]:
        """Brings the archive up to all claims and the last race; what changed, by cell."""
        if not self._stale:
            return {}
        before = {elite.cell: elite for elite in self.archive}
        apart = {point(claim.candidate, claim.params): claim for claim in raced(self._raced(), self._race)}
        # Where one of them changed, all that ran stand elsewhere.
        for cell in self._stale.union(claim.cell for claim in apart.values()):
            if cell in self.archive:
                self.archive.remove(cell)
            for at, claim in self._by_cell[cell].items():
                self.archive.add(apart.get(at, claim))
        self._stale.clear()
        changes: dict[Cell, tuple[AddStatus, Elite]] = {}
        for elite in self.archive:
            old = before.get(elite.cell)
            if old is None:
                changes[elite.cell] = (AddStatus.NEW, elite)
            elif (old.candidate, dict(old.params)) != (elite.candidate, dict(elite.params)):
                changes[elite.cell] = (AddStatus.IMPROVED, elite)
        if changes:
            self.changed = self._newest
        return changes

    def candidate(self, candidate: str) -> Candidate | None:
        """The candidate with that id, if it was proposed."""
        return self.candidates.get(candidate)

    def trial(self, candidate: str, params: Params) -> Evaluation | None:
        """The trial of `candidate` at these values."""
        return self.trials.get(point(candidate, params))

    def known(self, candidate: str, params: Params) -> bool:
        """Whether `candidate` had a trial at these values, or compiled to what another one had."""
        at = point(candidate, params)
        return at in self.trials or at in self._twins

    def last_trial(self, candidate: str) -> Evaluation | None:
        """The latest trial of `candidate`, however it ended, or what refuted one."""
        return self._latest.get(candidate)

    def unjudged(self, candidate: str) -> bool:
        """Whether nothing is known of a kernel but that the judge itself failed."""
        last = self._latest.get(candidate)
        return last is not None and last.status is Status.HARNESS_ERROR and candidate not in self._points

    def children(self, candidate: str) -> list[Candidate]:
        """What was made from `candidate`, in the order of tickets."""
        return [self.candidates[child] for child in self._children.get(candidate, ())]

    def failed(self) -> list[Candidate]:
        """Candidates none of whose trials computed the right thing, in the order of tickets."""
        return sorted((self.candidates[name] for name in self._failed), key=lambda one: self.tickets[one.id])

    def ask(self, operator: str, parents: Iterable[str]) -> None:
        """A model is asked for something made from `parents`."""
        self._questions.update((operator, parent) for parent in parents)

    def asked(self, operator: str, candidate: str) -> int:
        """How often `operator` asked for something made from `candidate`, whatever came back."""
        made = sum(child.operator == operator for child in self.children(candidate))
        return max(made, self._questions[operator, candidate])

    def best_trial(self, candidate: str) -> Evaluation | None:
        """The correct trial of `candidate` with the highest objective; the first of equal ones."""
        own = [row for row in self.tried(candidate) if self.standing(row) is Status.CORRECT]
        return max(own, key=lambda row: row.height, default=None)

    def timed(self, candidate: str, params: Params) -> Evaluation | None:
        """The trial at these values, with the times of its confirmations where it has some."""
        trial = self.trial(candidate, params)
        rows = [row for row in self.confirmations.get(point(candidate, params), ()) if row.status is Status.CORRECT]
        if trial is None or not rows:
            return trial
        blocks: dict[str, list[Block]] = defaultdict(list)
        for timing in (timing for row in rows for timing in row.timings):
            blocks[timing.workload] += timing.blocks
        return replace(
            trial, timings=tuple(replace(one, blocks=tuple(blocks[one.workload])) for one in rows[-1].timings)
        )

    def claim(self, candidate: str) -> Elite | None:
        """What is claimed of `candidate` at the values that rank highest."""
        own = [self.claims[at] for at in self._points.get(candidate, ()) if at in self.claims]
        return max(own, key=lambda claim: claim.lower, default=None)

    def tried(self, candidate: str) -> list[Evaluation]:
        """Every trial of `candidate` so far, in order."""
        return [self.trials[at] for at in self._points.get(candidate, ())]

    def twin(self, duplicate: Evaluation) -> Evaluation | None:
        """The trial of the same candidate that `duplicate` compiled to; None where it was another candidate's."""
        params = duplicate.facts.get(TWIN)
        return self.trial(duplicate.candidate, params) if params is not None else None

    def same(self, candidate: str) -> list[tuple[Params, Evaluation]]:
        """Values at which `candidate` compiled to what it had been tried as, and those trials."""
        found = [(row.params, self.twin(row)) for row in self._same.get(candidate, ())]
        return [(params, twin) for params, twin in found if twin is not None]

    def measured(self) -> list[tuple[Candidate, Evaluation]]:
        """The latest trials of generated kernels that were timed, if briefly, in order."""
        found: list[tuple[Candidate, Evaluation]] = []
        for at, row in reversed(self.trials.items()):
            timed = self.standing(row) in (Status.CORRECT, Status.PRUNED) and row.objective is not None
            if timed and self.candidates[at[0]].genome is not None:
                found.append((self.candidates[at[0]], row))
            if len(found) == _RECENT:
                break
        return found[::-1]

    def winners(self, most: int) -> list[Params]:
        """The parameter values of the highest correct trials, whoever had them; the best first, none twice."""
        found: list[Params] = []
        for _, _, at in self._fastest:
            row = self.trials[at]
            if self.standing(row) is Status.CORRECT and row.params not in found:
                found.append(row.params)
                if len(found) == most:
                    break
        return found

    def lineage(self, since: int) -> list[Elite]:
        """The highest trial of every cell among candidates of tickets from `since` on, confirmed or not."""
        young = Archive()
        for at, row in self.trials.items():
            ticket = self.tickets[at[0]]
            right = self.standing(row) is Status.CORRECT
            if ticket >= since and right and row.cell is not None and row.objective is not None:
                length, height = len(self.candidates[at[0]].source), self.height(row)
                young.add(Elite(at[0], row.params, row.cell, height, height, length, ticket))
        return young.elites()

    def outcome(
        self, proposal: Proposal, ticket: int, rows: Sequence[Evaluation], before: Mapping[Cell, Elite]
    ) -> Outcome:
        """What the emitters are told.

        `rows` are the evaluations made for this ticket, `before` the elites that there were. The gain is what the QD
        score rose in cells that the candidate holds in the end: that an incumbent was measured again, and did better,
        is nobody's merit.
        """
        own = [elite for elite in self.archive if elite.candidate == proposal.candidate.id]
        gain, placed = 0.0, dict[Cell, AddStatus]()
        for elite in own:
            old = before.get(elite.cell)
            gain += max(qd_score([elite.objective]) - qd_score([old.objective] if old else []), 0.0)
            if old is None or old.candidate != elite.candidate:
                placed[elite.cell] = AddStatus.NEW if old is None else AddStatus.IMPROVED
        trials = [row for row in rows if row.kind is Kind.TRIAL]
        right = [row for row in trials if self.standing(row) is Status.CORRECT]
        best = max(right, key=lambda row: row.height, default=None)
        cell = best.cell if best else None
        placement = placed.get(cell) if cell is not None else None
        if placement is None and any(row.kind is Kind.CONFIRM for row in rows):
            placement = AddStatus.REJECTED
        return Outcome(
            proposal=proposal,
            ticket=ticket,
            statuses=tuple(self.standing(row) for row in trials),
            evaluation=best,
            placement=placement,
            gain=gain,
            cost_s=sum(sum(row.seconds.values()) for row in rows),
            cell=cell,
            cost_usd=proposal.cost_usd,
        )
