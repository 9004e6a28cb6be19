"""The search loop: ask a round of proposals, judge each, keep what is confirmed, tell.

A round is `workers` tickets. Its proposals are made before any of them is judged, so ticket t has read
only outcomes of earlier rounds, and every random choice derives from (seed, ticket): with recorded
evaluations a campaign repeats itself exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from evoforge.archives import DISQUALIFYING
from evoforge.campaign._budget import Clock
from evoforge.campaign._desk import Answered, Desk
from evoforge.campaign._events import Narrator
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._measure import Measurer
from evoforge.campaign._state import Point, State, point
from evoforge.core import AddStatus, Call, Candidate, Cell, Evaluation, MetaPrompt, Params, Status
from evoforge.emitters import (
    Arm,
    Assignment,
    Bandit,
    Emitter,
    ModelEmitter,
    Outcome,
    Proposal,
    Ranker,
    SearchView,
    Space,
    Twin,
    arms_of,
)  # fmt: skip
from evoforge.errors import ParameterError, UsageError
from evoforge.prompts import Note, PromptPool, TaskBrief
from evoforge.storage import Placement, Store
from evoforge.tuning import Tuner

__all__ = ["Loop"]

_CLOSE = 0.585  # log2 1.5: what is further below its cell's elite, or the campaign's best, is not tuned
_WORTHLESS = -3.0  # log2: eight times slower than the baseline is not worth the time of a measurement
_BREADTH = 0.6  # share of the budget for drawing the map, before the best of it is tuned
_TUNE_SLICE = 4  # trials of one candidate in a row: what it is worth is looked at again in between
_ENOUGH = 8  # measured kernels before drafts are ranked by what their decisions have done
_UNRANKED = 0.1  # share of the proposals that are taken as they come all the same
_TUNE_AHEAD = 2  # points of one candidate that are built side by side
_MAX_CONFIRMATIONS = 3  # per point, when intervals of challenger and incumbent overlap
_ATTEMPTS = 64  # asks of a round that may find nothing before the space counts as exhausted


@dataclass
class Loop:
    """One run of a search over what is already in `state`.

    `emitters` write kernels themselves, `writers` what `desk` asks models; `told` is what these are told
    of the task. `lead` maps eager and compiled to log2(side / baseline): what to add to an objective to
    get the speed-up over that side (None: that side was not timed).
    """

    campaign: str
    store: Store
    state: State
    measurer: Measurer
    narrator: Narrator
    clock: Clock
    space: Space | None
    emitters: Sequence[Emitter]
    bandit: Bandit
    pool: PromptPool
    evolution: Evolution
    seed: int
    workers: int
    trials: int
    lead: Mapping[str, float | None]
    told: TaskBrief | None = None
    writers: Sequence[ModelEmitter] = ()
    desk: Desk | None = None
    next_ticket: int = 0
    report: Evaluation | None = None
    _placed: dict[Cell, AddStatus] = field(default_factory=dict)
    _exhausted: set[str] = field(default_factory=set)
    _just_confirmed: set[Point] = field(default_factory=set)

    def run(self, seeds: Sequence[Candidate]) -> str:
        """Judges the seeds, then searches until something says stop; returns that reason."""
        fresh = [seed for seed in seeds if seed.id not in self.state.candidates]
        for start in range(0, len(fresh), self.workers):
            if reason := self.clock.stop_reason(self.state.spent):
                return reason
            self._round([self._imported(seed) for seed in fresh[start : start + self.workers]])
        while not (reason := self.clock.stop_reason(self.state.spent)):
            deeper = self._deepen()
            # What was asked in the round before; models work while the round is judged.
            answered = self.desk.collect() if self.desk else []
            batch = self._ask()
            if not batch and not deeper and not answered and not (self.desk and self.desk.waiting):
                return self._nothing_left()
            self._round(batch)
            self._round([pair for one in answered if (pair := self._answer(one)) is not None])
            self._doubt()
            self._evolve()
        return reason

    def _nothing_left(self) -> str:
        if self.desk and self.desk.spent:
            self.narrator.tell("notice", text=self.desk.spent)
            return "model budget"
        return "no generator" if self.space is None and not self.desk else "space exhausted"

    def _imported(self, candidate: Candidate) -> tuple[int, Proposal]:
        return self._ticket(), Proposal(candidate, operator=candidate.operator, emitter=candidate.operator)

    def _ticket(self) -> int:
        self.next_ticket += 1
        return self.next_ticket - 1

    def _ask(self) -> list[tuple[int, Proposal]]:
        """Up to `workers` proposals and questions to models, all from the same snapshot."""
        batch: list[tuple[int, Proposal]] = []
        asked = 0
        view = self._view()
        tried = set(view.tried)
        attempts = dict(view.attempts)
        measured = self.state.measured()
        ranker = Ranker.fit(measured) if len(measured) >= _ENOUGH else None
        for _ in range(_ATTEMPTS):
            if len(batch) + asked == self.workers:
                break
            ticket = self._ticket()
            rng = np.random.default_rng([self.seed, ticket])
            now = replace(view, tried=tried, attempts=attempts, asked=self.desk.out if self.desk else frozenset())
            if ranker is not None and rng.random() >= _UNRANKED:
                now = replace(now, score=ranker.score)
            if len(batch) % 2 and self.clock.progress(self.state.spent) >= _BREADTH:
                now = self._summit(now)
            arms = self._arms(now, first=not batch)
            if not arms:
                break
            arm = self.bandit.choose(arms, ticket, rng)
            prompt = self.pool[arm.meta_prompt]
            if arm.model is not None and self.desk is not None:
                assignment = next(one for one in self.writers if one.name == arm.emitter).assign(now, prompt, rng)
                if assignment is None:
                    self.bandit.forget(ticket)
                    continue
                self.desk.submit(ticket, assignment, prompt, arm.model)
                asked += 1
                continue
            proposal = next(one for one in self.emitters if one.name == arm.emitter).ask(now, prompt, rng)
            if proposal is None or self.state.gate.twin(proposal.candidate):
                self.bandit.forget(ticket)
                continue
            batch.append((ticket, proposal))
            tried.add(proposal.candidate.id)
            if proposal.target_cell is not None:
                attempts[proposal.target_cell] = attempts.get(proposal.target_cell, 0) + 1
        return batch

    def _summit(self, view: SearchView) -> SearchView:
        """The view of an emitter that may only build on what is near the best (half of the tickets, late)."""
        best = self.state.archive.best()
        if best is None:
            return view
        near = {cell: pair for cell, pair in view.elites.items() if pair[0].objective > best.objective - _CLOSE / 2}
        return replace(view, elites=near, reachable=frozenset(near))

    def _arms(self, view: SearchView, *, first: bool) -> list[Arm]:
        """What may be pulled. While the map is drawn, all but the first of a round aim at empty cells."""
        models = self.desk.models if self.desk else ()
        emitters = self.emitters if self.space is not None else ()
        arms = arms_of([*emitters, *self.writers], self.pool.active(), view, models)
        empty = view.reachable - view.elites.keys()
        if first or not empty or self.clock.progress(self.state.spent) >= _BREADTH:
            return arms
        return [arm for arm in arms if arm.emitter == "aim" or arm.model is not None] or arms

    def _answer(self, answered: Answered) -> tuple[int, Proposal] | None:
        """A model's proposal; a useless reply, or a text that is known, costs and teaches all the same."""
        arm = Arm(answered.assignment.emitter, answered.meta_prompt, answered.model)
        reason = answered.reason
        if answered.proposal is None and not reason:
            self.bandit.forget(answered.ticket)
            return None
        if answered.proposal is not None:
            twin = self.state.gate.twin(answered.proposal.candidate)
            if twin is None:
                return answered.ticket, answered.proposal
            reason = f"the same text as candidate {twin.candidate[:12]}"
        self._waste(answered.ticket, arm, answered.usd, reason)
        self.narrator.tell("useless", text=reason, model=answered.model, operator=arm.emitter, usd=answered.usd)
        return None

    def assign(self, ticket: int, model: str, emitter: str | None) -> tuple[Assignment, MetaPrompt]:
        """What somebody outside is asked under `ticket`, who answers as `model`.

        Raises:
            UsageError: the emitter cannot ask for anything now; names those that can.
        """
        rng = np.random.default_rng([self.seed, ticket])
        view = self._view()
        arms = arms_of(self.writers, self.pool.active(), view, (model,))
        ready = sorted({arm.emitter for arm in arms})
        arms = [arm for arm in arms if emitter in (None, arm.emitter)]
        for _ in range(_ATTEMPTS if arms else 0):
            arm = self.bandit.choose(arms, ticket, rng)
            prompt = self.pool[arm.meta_prompt]
            assignment = next(one for one in self.writers if one.name == arm.emitter).assign(view, prompt, rng)
            if assignment is not None:
                return assignment, prompt
        raise UsageError(f"expected an emitter of {', '.join(ready)}, got {emitter!r}: it has nothing to ask for now")

    def accept(self, ticket: int, proposal: Proposal) -> Twin | None:
        """Judges an answer from outside; None, or the candidate that already has this text."""
        twin = self.state.gate.twin(proposal.candidate)
        if twin is None:
            self._travel(ticket, proposal)
        return twin

    def _waste(self, ticket: int, arm: Arm, usd: float, reason: str) -> None:
        note = Note(ticket, arm.emitter, "no kernel", reason=reason)
        self.bandit.waste(ticket, arm, usd)
        self.pool.credit(arm.meta_prompt, gain=0.0, cost_s=0.0, cost_usd=usd, valid=False, note=note)
        self.evolution.told += 1

    def forfeit(self, ticket: int, call: Call) -> None:
        """Learns a stored call that led to no candidate (resume)."""
        self._waste(ticket, Arm(call.purpose, call.meta_prompt or "", call.model), call.usd, str(call.outcome))

    def _evolve(self) -> None:
        """A new meta-prompt every so many outcomes."""
        for prompt in self.evolution.due(self.pool, self.desk):
            self.store.add_meta_prompt(self.campaign, prompt)
            self.narrator.tell("meta_prompt", ref=prompt.ref, parents=prompt.parents)

    def _view(self) -> SearchView:
        elites = {elite.cell: (elite, self.state.candidates[elite.candidate]) for elite in self.state.archive}
        return SearchView(
            space=cast("Space", self.space),  # without one no generator is asked
            elites=elites,
            reachable=self.state.archive.reachable,
            tried=self.state.gate.ids,
            attempts=dict(self.state.attempts),
            task=self.told,
            memory=self.state,
        )

    def _round(self, batch: Sequence[tuple[int, Proposal]]) -> None:
        """Builds all in parallel, then measures one after the other: builds and kernels share the CPU."""
        self._phase("building")
        jobs = [(p.candidate, start) for _, p in batch if (start := self._start(p)) is not None]
        self.measurer.build_ahead(jobs)
        for ticket, proposal in batch:
            if self.clock.stop_reason(self.state.spent):
                return
            self._travel(ticket, proposal)

    def _start(self, proposal: Proposal) -> dict[str, int] | None:
        """The inherited parameters a candidate is first judged at; None if its header is unreadable."""
        try:
            return proposal.candidate.space.inherit(proposal.params_hint)
        except ParameterError:
            return None

    def _travel(self, ticket: int, proposal: Proposal) -> None:
        """One candidate from proposal to outcome. Every evaluation is committed as it ends."""
        candidate = proposal.candidate
        before = self.state.archive.qd_score
        self.state.propose(ticket, proposal)
        rows: list[Evaluation] = []
        self._placed.clear()
        start = self._start(proposal) or {}
        self._phase("judging")
        first = self._duplicate(ticket, proposal, start, rows) or self._trial(ticket, proposal, start, _WORTHLESS, rows)
        if proposal.emitter == "import" and not first.status.correct:
            text = f"your kernel {candidate.short_id} ended {first.status}: {first.reason}"
            self.narrator.tell("notice", text=text)
        if first.status is Status.CORRECT:
            self._tune(ticket, proposal, self._worth(first), rows)
            self._confirm(ticket, candidate, rows)
        gain = self.state.archive.qd_score - before
        self._learn(self.state.outcome(proposal, ticket, rows, gain, self._placed))
        self._progress("searching")

    def _learn(self, outcome: Outcome) -> None:
        self.bandit.tell(outcome)
        proposal = outcome.proposal
        status = outcome.evaluation.status if outcome.evaluation else (*outcome.statuses, "unjudged")[0]
        last = self.state.last_trial(proposal.candidate.id)
        note = Note(
            outcome.ticket, proposal.operator, str(status), outcome.gain,
            str(proposal.candidate.notes.get("hypothesis", "")), last.reason if last else "",
        )  # fmt: skip
        self.pool.credit(
            proposal.meta_prompt, gain=outcome.gain, cost_s=outcome.cost_s, cost_usd=outcome.cost_usd,
            valid=outcome.valid, note=note,
        )  # fmt: skip
        self.evolution.told += 1
        listeners: list[Emitter | ModelEmitter] = [*self.emitters, *self.writers]
        for emitter in listeners:
            emitter.tell(outcome)

    def _duplicate(self, ticket: int, proposal: Proposal, params: Params, rows: list[Evaluation]) -> Evaluation | None:
        """The free verdict on a text that compiles to what another candidate compiled to."""
        digest = self.measurer.object_hash(proposal.candidate, params)
        twin = self.state.gate.object_twin(proposal.candidate, digest) if digest else None
        if twin is None:
            return None
        known = next(iter(self.state.trials.values()))
        evaluation = Evaluation(
            candidate=proposal.candidate.id,
            params=params,
            task=known.task,
            target=known.target,
            status=Status.DUPLICATE,
            reason=f"compiles to the same instructions as candidate {twin.candidate[:12]}",
        )
        self._file(ticket, proposal, evaluation, rows)
        return evaluation

    def _trial(
        self, ticket: int, proposal: Proposal, params: Params, prune_below: float | None, rows: list[Evaluation]
    ) -> Evaluation:
        evaluation = self.measurer.trial(proposal.candidate, params, prune_below)
        self._file(ticket, proposal, evaluation, rows)
        return evaluation

    def _file(self, ticket: int, proposal: Proposal, evaluation: Evaluation, rows: list[Evaluation]) -> None:
        """Commits an evaluation, learns it and says so."""
        self.store.record_outcome(
            self.campaign, ticket, proposal.candidate, [evaluation],
            emitter=proposal.emitter, target_cell=proposal.target_cell,
        )  # fmt: skip
        self.state.note(evaluation)
        self.clock.recorded_s += sum(evaluation.seconds.values())
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
        self._progress("judging")

    def _tune(self, ticket: int, proposal: Proposal, trials: int, rows: list[Evaluation]) -> None:
        """Optuna over the declared parameters; points are asked in pairs, so that they build side by side."""
        candidate = proposal.candidate
        known = self.state.tried(candidate.id)
        if trials <= 0 or not candidate.space.parameters:
            return
        self._phase("tuning")
        best = max((row.objective for row in known if row.objective is not None), default=-5.0)
        tuner = Tuner(
            candidate.space,
            seed=int(np.random.default_rng([self.seed, ticket, len(known)]).integers(2**31)),
            trials=trials,
            known=[(row.params, row.objective if row.status is Status.CORRECT else None) for row in known],
            enqueue=[candidate.space.defaults()],
        )
        while points := [point for point in (tuner.ask() for _ in range(_TUNE_AHEAD)) if point is not None]:
            self.measurer.build_ahead([(candidate, params) for params in points])
            for params in points:
                if self.clock.stop_reason(self.state.spent):
                    return
                evaluation = self._trial(ticket, proposal, params, best, rows)
                tuner.tell(params, evaluation.objective, evaluation.status)
                if evaluation.status is Status.CORRECT and evaluation.objective is not None:
                    best = max(best, evaluation.objective)

    def _worth(self, first: Evaluation) -> int:
        """Trials for a new candidate: none for what is far below its cell's elite or the campaign's best.

        Breadth comes first. What becomes an elite has the rest of its trials later (`_deepen`).
        """
        objective = _height(first)
        elite = self.state.archive.get(first.cell) if first.cell is not None else None
        best = self.state.archive.best()
        if elite is not None and objective < elite.objective - _CLOSE:
            return 0
        if best is not None and objective < best.objective - _CLOSE:
            return 0
        return min(self.trials, _TUNE_SLICE) if self.clock.progress(self.state.spent) >= _BREADTH else 0

    def _deepen(self) -> bool:
        """Tunes the best elite that has not had all its trials yet; False when there is none near the best.

        A few trials at a time, so that new kernels are looked at in between: once the map is drawn.
        """
        best = self.state.archive.best()
        if best is None or self.clock.progress(self.state.spent) < _BREADTH:
            return False
        for elite in sorted(self.state.archive, key=lambda elite: elite.rank, reverse=True):
            candidate = self.state.candidates[elite.candidate]
            left = self.trials - len(self.state.tried(candidate.id)) + 1
            size = candidate.space.product_size()
            near = elite.objective > best.objective - _CLOSE
            if near and left > 0 and len(self.state.tried(candidate.id)) < size and candidate.id not in self._exhausted:
                ticket = self.state.tickets[candidate.id]
                rows: list[Evaluation] = []
                proposal = Proposal(candidate, operator=candidate.operator, emitter=candidate.operator)
                self._tune(ticket, proposal, min(left, _TUNE_SLICE), rows)
                if not rows:
                    self._exhausted.add(candidate.id)
                self._confirm(ticket, candidate, rows)
                return True
        return False

    def _confirm(self, ticket: int, candidate: Candidate, rows: list[Evaluation]) -> None:
        """Confirms the candidate's best trial of every cell that it could enter."""
        champions: dict[Cell, Evaluation] = {}
        for row in rows:
            if row.status is not Status.CORRECT or row.cell is None or (row.objective or 0.0) < _WORTHLESS:
                continue
            held = champions.get(row.cell)
            if held is None or _height(row) > _height(held):
                champions[row.cell] = row
        for cell, row in sorted(champions.items()):
            incumbent, best = self.state.archive.get(cell), self.state.archive.best()
            # Where the best kernels are, a challenger gets the benefit of the doubt and both are measured
            # until they can be told apart; elsewhere it must look better, and one confirmation decides, as
            # it does between one kernel's own parameters.
            close = best is None or _height(row) > best.objective - _CLOSE
            if incumbent is None or _height(row) > (incumbent.lower if close else incumbent.objective):
                self._phase("confirming")
                rivals = close and (incumbent is None or incumbent.candidate != row.candidate)
                self._duel(ticket, cell, row, rows, _MAX_CONFIRMATIONS if rivals else 1)

    def _doubt(self) -> None:
        """Measures the best elite again, some other time: a storm may have struck its baseline all along."""
        best = self.state.archive.best()
        if best is not None and not self.clock.stop_reason(self.state.spent):
            at = point(best.candidate, best.params)
            if at not in self._just_confirmed and len(self.state.confirmations[at]) < _MAX_CONFIRMATIONS:
                self._phase("confirming the best")
                self._confirm_once(self.state.tickets[best.candidate], at, [])
        self._just_confirmed.clear()

    def _duel(self, ticket: int, cell: Cell, row: Evaluation, rows: list[Evaluation], most: int) -> None:
        """Measures the challenger, and both again while their intervals overlap, at most `most` times each."""
        challenger = point(row.candidate, row.params)
        self._confirm_once(ticket, challenger, rows)
        for _ in range(most - 1):
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
                self._confirm_once(ticket, at, rows)

    def _confirm_once(self, ticket: int, at: Point, rows: list[Evaluation]) -> None:
        """One confirmation and what it does to the archive, in one transaction."""
        candidate, trial, best = self.state.candidates[at[0]], self.state.trials.get(at), self.state.archive.best()
        far = best is not None and trial is not None and (trial.objective or 0.0) < best.objective - _CLOSE
        evaluation = self.measurer.confirm(candidate, dict(at[1]), blocks=1 if far else 2)
        if evaluation.cell is None and trial is not None and evaluation.status is Status.CORRECT:
            evaluation = replace(evaluation, cell=trial.cell)
        before = {elite.cell: elite for elite in self.state.archive}
        self.state.note(evaluation)
        self._just_confirmed.add(at)
        self.clock.recorded_s += sum(evaluation.seconds.values())
        changes = self.state.settle()
        placements = [
            Placement(str(status), cell, elite.candidate, elite.params, elite.objective, elite.lower)
            for cell, (status, elite) in changes.items()
        ]
        lost = [elite for cell, elite in before.items() if cell not in self.state.archive]
        placements += [
            Placement("DEMOTED", e.cell, e.candidate, e.params, e.objective, e.lower, reason=evaluation.reason)
            for e in lost
        ]
        self.store.record_outcome(self.campaign, ticket, None, [evaluation], placements)
        rows.append(evaluation)
        for cell, (status, elite) in changes.items():
            if elite.candidate == at[0]:
                self._placed[cell] = status
            self.narrator.tell("placement", cell=cell, status=str(status), objective=elite.objective)
        self._best()
        self._progress("confirming")

    def replay(self, ticket: int, proposal: Proposal, rows: Sequence[Evaluation]) -> None:
        """Learns a stored ticket's outcome as if it had just happened (resume)."""
        before = self.state.archive.qd_score
        placed: dict[Cell, AddStatus] = {}
        self.state.propose(ticket, proposal)
        for row in rows:
            self.state.note(row)
            self.clock.recorded_s += sum(row.seconds.values())
            for cell, (status, elite) in self.state.settle().items():
                if elite.candidate == proposal.candidate.id:
                    placed[cell] = status
        gain = self.state.archive.qd_score - before
        self._learn(self.state.outcome(proposal, ticket, rows, gain, placed))

    def finish(self) -> None:
        """Measures the best elite once more beside eager and compiled, for the report; the next best if it fails."""
        while (best := self.state.archive.best()) is not None:
            self._phase("reporting")
            evaluation = self.measurer.confirm(self.state.candidates[best.candidate], best.params, both=True)
            failed = evaluation.status in DISQUALIFYING
            lost = Placement(
                "DEMOTED", best.cell, best.candidate, best.params, best.objective, best.lower, evaluation.reason
            )
            self.store.record_outcome(self.campaign, None, None, [evaluation], [lost] if failed else [])
            if not failed:
                self.report = evaluation
                return
            self.state.note(evaluation)
            self.state.settle()

    def _best(self) -> None:
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

    def _phase(self, text: str) -> None:
        self.narrator.tell("phase", text=text)

    def _progress(self, phase: str) -> None:
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
            phase=phase,
        )


def _height(row: Evaluation) -> float:
    return row.objective if row.objective is not None else -5.0
