"""Whose claim stands: confirmations, doubts, duels and the race at the end, and what they do to the archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evoforge.archives import DISQUALIFYING
from evoforge.campaign._budget import Clock
from evoforge.campaign._claims import beside_packed
from evoforge.campaign._events import Narrator
from evoforge.campaign._measure import Measurer
from evoforge.campaign._state import State
from evoforge.core import Candidate, Cell, Elite, Evaluation, Point, Status, point
from evoforge.storage import Placement, Store

__all__ = ["CLOSE", "WORTHLESS", "Contest"]

CLOSE = 0.585  # log2 1.5: what is further below its cell's elite, or the campaign's best, is not tuned
WORTHLESS = -3.0  # log2: eight times slower than the baseline is not worth the time of a measurement
_RACERS = 16  # at most, in the race at the end
_LAP = 4  # rounds that there must be time for
_REPORTS = 2  # attempts at the last measurement
_MAX_CONFIRMATIONS = 3  # per point, where intervals of challenger and incumbent overlap, or a clock was suspect


@dataclass
class Contest:
    """What a search measures again, so that it may claim it. Every evaluation is committed as it ends.

    `lead` maps eager and compiled to log2(side / baseline): what to add to an objective to get the
    speed-up over that side (None: that side was not timed). `notice` is called with a sentence that the
    campaign's result shall hold; `report` is the last measurement of the best.
    """

    campaign: str
    store: Store
    state: State
    measurer: Measurer
    narrator: Narrator
    clock: Clock
    lead: Mapping[str, float | None]
    notice: Callable[[str], object] = field(default=lambda text: None, kw_only=True)
    report: Evaluation | None = field(default=None, kw_only=True)
    _just_confirmed: set[Point] = field(default_factory=set, kw_only=True)

    def confirm(self, ticket: int, candidate: Candidate, rows: list[Evaluation]) -> None:
        """Confirms the candidate's best trial of every cell that it could enter; once time is up, of one."""
        champions: dict[Cell, Evaluation] = {}
        for row in rows:
            if row.status is not Status.CORRECT or row.cell is None or (row.objective or 0.0) < WORTHLESS:
                continue
            held = champions.get(row.cell)
            if held is None or row.height > held.height:
                champions[row.cell] = row
        began = len(rows)
        for cell, row in sorted(champions.items()):
            if len(rows) > began and not self.clock.in_time:
                break
            incumbent, best = self.state.archive.get(cell), self.state.archive.best()
            # Where the best kernels are, a challenger gets the benefit of the doubt and both are measured
            # until they can be told apart; elsewhere it must look better, and one confirmation decides, as
            # it does between one kernel's own parameters.
            close = best is None or row.height > best.objective - CLOSE
            if incumbent is None or row.height > (incumbent.lower if close else incumbent.objective):
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
            if row.height > least
        ]
        return max(points, key=lambda at: self.state.trials[at].height, default=None)

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
        """One confirmation and what it does to the archive, in one transaction.

        Another one, where a suspect clock or a failure of the judge left it open whether there is a claim.
        """
        candidate, trial, best = self.state.candidates[at[0]], self.state.trials.get(at), self.state.archive.best()
        far = best is not None and trial is not None and (trial.objective or 0.0) < best.objective - CLOSE
        evaluation = self.measurer.confirm(candidate, dict(at[1]), blocks=1 if far else 2)
        if evaluation.cell is None and trial is not None and evaluation.status is Status.CORRECT:
            evaluation = replace(evaluation, cell=trial.cell)
        self._just_confirmed.add(at)
        self.clock.note(evaluation)
        rows.append(evaluation)
        self._settle(ticket, [evaluation], "confirming")
        left_open = at not in self.state.claims and at not in self.state.refuted
        if left_open and len(self.state.confirmations[at]) < _MAX_CONFIRMATIONS and self.clock.in_time:
            self._confirm_once(ticket, at, rows)

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
        packed = beside_packed(self.state.confirmations[point(best.candidate, best.params)])
        over = {
            f"speedup_{side}": None if lead is None or packed else 2 ** (best.objective + lead)
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
