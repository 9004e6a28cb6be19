"""The search loop: ask a round of proposals, judge each, keep what is confirmed, tell.

A round is `workers` tickets. Its proposals are made before any of them is judged, so ticket t has read
only outcomes of earlier rounds; what models are asked in one round is judged in the next, so they work
while kernels are measured. Every random choice derives from (seed, ticket): with recorded evaluations
and replies a campaign repeats itself exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from evoforge.campaign._contest import CLOSE
from evoforge.campaign._desk import Answered, Desk
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._journey import BREADTH, WINNERS, Journey
from evoforge.campaign._setup import NEAR_BOUND
from evoforge.campaign._state import State
from evoforge.core import Call, Candidate, Elite, Evaluation, Kind, MetaPrompt, point
from evoforge.emitters import (
    Arm,
    Assignment,
    Bandit,
    Effects,
    Emitter,
    ModelEmitter,
    NoveltyGate,
    Outcome,
    Proposal,
    SearchView,
    Space,
    Twin,
    arms_of,
)  # fmt: skip
from evoforge.errors import UsageError
from evoforge.prompts import Note, PromptPool, TaskBrief

__all__ = ["BY_ITS_BOUND", "EXHAUSTED", "NO_MONEY", "Loop"]

NO_MONEY = "model budget"
_NO_MODEL, _NO_NEWS = "no model left", "nothing new from models"
_NO_GENERATOR, _NO_SPACE = "no generator", "space exhausted"
BY_ITS_BOUND = "near the bound"
EXHAUSTED = (NO_MONEY, _NO_MODEL, _NO_NEWS, _NO_GENERATOR, _NO_SPACE, BY_ITS_BOUND)
"""Why a search stops of its own: there is nothing left to propose, or to gain."""

_HOPELESS = -2.0  # log2: what is expected below is not proposed
_ERRS = 1.5  # log2: by which such a guess errs; where all is slow, what is expected so near the best is proposed
_UNRANKED = 0.1  # share of the proposals that are taken as they come all the same
_STAGNANT = 64  # tickets without news of the archive, after which as many start from nothing
_ATTEMPTS = 64  # asks of a round that may find nothing before the space counts as exhausted
_FRUITLESS = 64  # questions to models in a row that led to nothing to judge, after which they are asked no more
_PRINTED = 64  # known kernels a round that are printed again to learn from them, up to 18 ms each


@dataclass
class Loop:
    """One run of a search over what is already in `state`.

    `emitters` write kernels themselves, `writers` what `desk` asks models; `told` is what these are told
    of the task.
    """

    journey: Journey
    space: Space | None
    emitters: Sequence[Emitter]
    bandit: Bandit
    pool: PromptPool
    evolution: Evolution
    seed: int
    workers: int
    told: TaskBrief | None = None
    writers: Sequence[ModelEmitter] = ()
    desk: Desk | None = None
    next_ticket: int = 0
    _fruitless: int = 0
    _alone: bool = False  # the generator goes on without the models
    _unfit: str = ""  # why the last round's questions were too long, where one was
    _noticed: set[str] = field(default_factory=set)
    _implied_of: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """Everything the search has learned."""
        return self.journey.state

    def run(self, seeds: Sequence[Proposal], answers: Sequence[Answered] = ()) -> str:
        """Judges seeds and `answers`, then searches until something says stop; returns that reason.

        `answers` were paid for by a process that ended before it judged them.
        """
        unknown: dict[str, Proposal] = {}
        for seed in seeds:
            if seed.candidate.id not in self.state.candidates:
                unknown.setdefault(seed.candidate.id, seed)
        fresh = list(unknown.values())
        for start in range(0, len(fresh), self.workers):
            if reason := self.journey.clock.stop_reason(self.state.spent):
                return reason
            self._round([(self._ticket(), seed) for seed in fresh[start : start + self.workers]])
        self._round(self._answers(answers))
        while not (reason := self.journey.clock.stop_reason(self.state.spent)):
            if self._near_bound():
                return BY_ITS_BOUND
            deeper = self.journey.deepen()
            # What was asked in the round before; models work while the round is judged.
            answered = self.desk.collect() if self.desk else []
            batch = self._ask(busy=deeper or bool(answered))
            idle = not batch and not deeper and not answered and not (self.desk and self.desk.waiting)
            if idle and not (self.desk and not self._alone and self.desk.wake()) and not self._tuned():
                return self._nothing_left()
            self._round(batch)
            kernels = self._answers(answered)
            self._round(kernels)
            self._fruitless = 0 if batch or deeper or kernels else self._fruitless + self._in_vain(answered)
            if self._fruitless >= _FRUITLESS and not self._goes_on_alone() and not self._tuned():
                return _NO_NEWS
            self.journey.doubt()
            self._evolve()
        return reason

    def _in_vain(self, answered: Sequence[Answered]) -> int:
        """How many answers cost without a kernel; where time limits the search, a server may be gone for a while."""
        patient = self.journey.clock.budget_s is not None
        return sum(bool(one.reason or one.proposal) and not (patient and one.silent) for one in answered)

    def _goes_on_alone(self) -> bool:
        """Whether there is a generator; if so it asks no models from now on."""
        self._alone = self.space is not None and bool(self.emitters)
        if self._alone:
            self._tell_once("models are asked no more", f"{_FRUITLESS} answers in a row led to nothing new")
        return self._alone

    def _tuned(self) -> bool:
        """Tunes what stands near the best, now that no more kernels come; whether there was anything.

        Where the models were refused (a wrong key) nothing is: that has to be told at once.
        """
        found = False
        refused = self.desk is not None and not self.desk.alive and not self.desk.spent
        while not refused and not self.journey.clock.stop_reason(self.state.spent) and self.journey.deepen(drawn=True):
            found = True
        return found

    def _near_bound(self) -> bool:
        """Whether the best kernel takes hardly longer than its bound, and the map is full or without news.

        By its own time: what the baseline took beside it may be another minute's than what the set-up found.
        """
        best = self.state.archive.best()
        timed = self.state.timed(best.candidate, best.params) if best is not None else None
        if timed is None or (timed.roofline_fraction or 0.0) < NEAR_BOUND:
            return False
        empty = self.state.archive.reachable - {elite.cell for elite in self.state.archive}
        return not empty or self._idle() >= _STAGNANT

    def _idle(self) -> int:
        """Tickets since the archive changed, by whatever was measured then: tuning an old kernel is news, too."""
        return self.next_ticket - self.state.changed if len(self.state.archive) else 0

    def _nothing_left(self) -> str:
        if self.desk and self.desk.spent:
            self.journey.narrator.tell("notice", text=self.desk.spent)
            return NO_MONEY
        if self.desk and not self.desk.alive:
            return _NO_MODEL
        if self._unfit and (self.space is None or not self.emitters):
            self.journey.narrator.tell("notice", text=f"models can be asked nothing more: {self._unfit}")
            return _NO_MODEL
        return _NO_GENERATOR if self.space is None and not self.desk else _NO_SPACE

    def _ticket(self) -> int:
        self.next_ticket += 1
        return self.next_ticket - 1

    def _ask(self, *, busy: bool) -> list[tuple[int, Proposal]]:
        """Up to `workers` proposals and questions to models, all from the same snapshot.

        Where nobody finds anything new, known kernels near the best may come again; where the round would be empty else
        (not `busy`), all are asked for the one and for the other in turns.
        """
        batch: list[tuple[int, Proposal]] = []
        pulled = asked = 0
        near = False  # whether kernels may come again, before there is any proposal
        others = NoveltyGate()  # the batch
        view = replace(
            self._view(self._grounds()),
            twin=lambda candidate: self.state.gate.copy(candidate) or others.copy(candidate),
        )
        attempts = dict(view.attempts)
        ranker = self.journey.ranker()
        hopeless = self._hopeless()
        settings = self.state.winners(WINNERS)
        barren: set[tuple[str, str | None]] = set()  # emitters, and for which model, that found nothing in this round
        self._unfit = ""
        while pulled < _ATTEMPTS and len(batch) + asked < self.workers:
            now = replace(
                view, proposed=others.ids, attempts=attempts, asked=self.desk.out if self.desk else frozenset()
            )
            if near or (batch and self.journey.clock.progress(self.state.spent) >= BREADTH):
                now = self._summit(now)
            arms = self._arms(now, barren, first=not batch)
            if barren.issuperset((arm.emitter, arm.model) for arm in arms):
                if not arms or batch or asked or (busy and near):
                    break
                near = not near
                # A lineage of its own may have no kernel yet that could come again.
                view = replace(view, elites=self._view(self.state.archive.elites()).elites)
                barren.clear()
                continue
            pulled += 1
            ticket = self._ticket()
            rng = np.random.default_rng([self.seed, ticket])
            if rng.random() >= _UNRANKED:
                now = replace(now, hopeless=hopeless)
                if ranker is not None:
                    now = replace(now, scores=ranker.scores, settings=settings)
            arm = self.bandit.choose(arms, ticket, rng)
            prompt = self.pool[arm.meta_prompt]
            if arm.model is not None and self.desk is not None:
                assignment = next(one for one in self.writers if one.name == arm.emitter).assign(now, prompt, rng)
                if assignment is None:
                    self.bandit.forget(ticket)
                    continue
                if self._submit(ticket, assignment, prompt, arm.model):
                    asked += 1
                else:
                    barren.add((arm.emitter, arm.model))
                continue
            proposal = self._proposal(next(one for one in self.emitters if one.name == arm.emitter), now, prompt, rng)
            if proposal is None or self._met(proposal, others):
                self.bandit.forget(ticket)
                barren.add((arm.emitter, None))
                continue
            batch.append((ticket, proposal))
            others.add(proposal.candidate)
            if proposal.target_cell is not None:
                attempts[proposal.target_cell] = attempts.get(proposal.target_cell, 0) + 1
        return batch

    def _met(self, proposal: Proposal, others: NoveltyGate) -> bool:
        """Whether it is another kernel's code, or that of one of the round's `others`, be it at other values."""
        twin = self.state.gate.twin(proposal.candidate)
        return (twin is not None and twin.level != "id") or others.twin(proposal.candidate) is not None

    def _submit(self, ticket: int, assignment: Assignment, prompt: MetaPrompt, model: str) -> bool:
        """Asks a model; False where what must be shown is too long for a prompt."""
        assert self.desk is not None
        try:
            self.desk.submit(ticket, assignment, prompt, model)
        except UsageError as error:
            self.bandit.forget(ticket)
            self._unfit = str(error)
            self._tell_once(f"{assignment.emitter} was left out", self._unfit)
            return False
        self.state.ask(assignment.brief.operator, (parent.id for parent in assignment.parents))
        return True

    def _tell_once(self, what: str, why: str) -> None:
        """The first reason will do: others differ in a number or in a name."""
        if what not in self._noticed:
            self._noticed.add(what)
            self.journey.narrator.tell("notice", text=f"{what}: {why}")

    def _proposal(
        self, emitter: Emitter, view: SearchView, prompt: MetaPrompt, rng: np.random.Generator
    ) -> Proposal | None:
        """What the emitter proposes; None where it found nothing, or broke.

        One schedule that cannot be printed, or whose cell cannot be told, must not end a search of weeks.
        """
        try:
            proposal = emitter.ask(view, prompt, rng)
            if proposal is not None and proposal.candidate.genome is not None:
                self._implied(proposal.candidate.genome)  # later rounds ask for it
            return proposal
        except Exception as error:  # the boundary to the generator; a notice says what broke, once
            what = f"{emitter.name} broke and its ticket was left out, please report it: {type(error).__name__}"
            self._tell_once(what, str(error))
            return None

    def _hopeless(self) -> Callable[[Mapping[str, Any]], bool]:
        """Whether a genome is expected to be worth nothing, by what was measured so far."""
        measured = [(candidate, self.state.height(row)) for candidate, row in self.state.measured()]
        effects = Effects.fit(self._levelled(measured), self.space.handicaps() if self.space is not None else ())
        least = min(_HOPELESS, max((height for _, height in measured), default=0.0) - _ERRS)
        return lambda genome: effects.expected(self._implied(genome)) < least

    def _implied(self, genome: Mapping[str, Any]) -> dict[str, Any]:
        """Decisions and the levels they imply: what is worth nothing mostly is so at a whole level of an axis."""
        cell = self.space.implied_cell(genome) if self.space is not None else ()
        return {**genome, **{f"axis {axis}": level for axis, level in enumerate(cell)}}

    def _levelled(self, measured: Sequence[tuple[Candidate, float]]) -> list[tuple[dict[str, Any], float]]:
        """What was measured, by decisions and the levels they imply.

        These are remembered: to find out takes as long as to print the kernel. A search that was resumed finds out
        about so many a round, the latest first, and leaves out the others until then.
        """
        unknown = {one.id: one for one, _ in reversed(measured) if one.id not in self._implied_of}
        for candidate in list(unknown.values())[:_PRINTED]:
            self._implied_of[candidate.id] = self._levels_of(candidate)
        return [(self._implied_of[one.id], height) for one, height in measured if one.id in self._implied_of]

    def _levels_of(self, candidate: Candidate) -> dict[str, Any]:
        """As `_implied`; decisions alone of a kernel that can be printed no more: an older version wrote it."""
        genome = candidate.genome or {}
        try:
            return self._implied(genome)
        except Exception as error:  # the boundary to the generator, as in `_proposal`
            what = f"a known schedule can be printed no more, please report it: {type(error).__name__}"
            self._tell_once(what, str(error))
            return dict(genome)

    def _summit(self, view: SearchView) -> SearchView:
        """The view of an emitter that may only build on what is near the best (late, all but the first of a round).

        There most decisions were tried beside most others: kernels may come again, at other values.
        """
        if not view.elites:
            return view
        whole = {cell: elite.objective for cell, (elite, _) in view.elites.items()}
        # The generator cannot build on a kernel without a genome, however far that leads: its own best count, too.
        own = {cell: whole[cell] for cell, (_, kernel) in view.elites.items() if kernel.genome is not None}
        near = {cell for some in (whole, own) for cell in some if some[cell] > max(some.values()) - CLOSE / 2}
        elites = {cell: pair for cell, pair in view.elites.items() if cell in near}
        return replace(view, elites=elites, reachable=frozenset(), again=True)

    def _arms(self, view: SearchView, barren: AbstractSet[tuple[str, str | None]], *, first: bool) -> list[Arm]:
        """What may be pulled. While the map is drawn, all but the first of a round aim at empty cells.

        Who was `barren` is not asked again while others are left.
        """
        emitters = self.emitters if self.space is not None else ()
        models = (self.desk.models if emitters else self.desk.alive) if self.desk and not self._alone else ()
        arms = arms_of([*emitters, *self.writers], self.pool.active(), view, models)
        arms = [arm for arm in arms if (arm.emitter, arm.model) not in barren] or arms
        empty = view.reachable - view.elites.keys()
        if first or not empty or self.journey.clock.progress(self.state.spent) >= BREADTH:
            return arms
        return [arm for arm in arms if arm.emitter == "aim" or arm.model is not None] or arms

    def _answers(self, answered: Sequence[Answered]) -> list[tuple[int, Proposal]]:
        """What is to be judged of a round's answers; of two that say the same the first."""
        found: list[tuple[int, Proposal]] = []
        others = NoveltyGate()
        for one in answered:
            pair = self._answer(one, others)
            if pair is not None:
                others.add(pair[1].candidate)
                found.append(pair)
        return found

    def _answer(self, answered: Answered, others: NoveltyGate) -> tuple[int, Proposal] | None:
        """A model's proposal; a useless reply, or a text that is known, costs and teaches all the same."""
        arm = Arm(answered.emitter, answered.meta_prompt, answered.model)
        reason = answered.reason
        if answered.proposal is None and not reason:
            self.bandit.forget(answered.ticket)
            return None
        if answered.proposal is not None:
            candidate = answered.proposal.candidate
            twin = self.state.gate.twin(candidate) or others.twin(candidate)
            if twin is None:
                return answered.ticket, answered.proposal
            reason = f"the same text as candidate {twin.candidate[:12]}"
        self._waste(answered.ticket, arm, answered.usd, reason)
        self.journey.narrator.tell("useless", text=reason, model=answered.model, operator=arm.emitter, usd=answered.usd)
        return None

    def assign(self, ticket: int, model: str, emitter: str | None) -> tuple[Assignment, MetaPrompt]:
        """What somebody outside is asked under `ticket`, who answers as `model`.

        Raises:
            UsageError: the emitter cannot ask for anything now; names those that can.
        """
        rng = np.random.default_rng([self.seed, ticket])
        view = self._view(self.state.archive.elites())
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
        """Judges an answer from outside; None, or the candidate that already has this text.

        An answer that is stored under this very ticket was being judged when its process ended: it is
        confirmed, unless that was done too. A text that the judge failed on, and not the other way round, is judged.
        """
        candidate = proposal.candidate
        twin = self.state.gate.twin(candidate)
        if twin is None or self.state.unjudged(twin.candidate):
            self._learn(self.journey.travel(ticket, proposal))
            self._evolve()
        elif self.state.tickets.get(candidate.id) == ticket:
            rows = self.state.tried(candidate.id)
            if not any(self.state.confirmations.get(point(row.candidate, row.params)) for row in rows):
                self.journey.confirm(ticket, candidate, rows)
            return None
        return twin

    def take_up(self, ticket: int, rows: Sequence[Evaluation]) -> None:
        """Confirms the trials of one candidate after which a process ended (resume)."""
        self.journey.confirm(ticket, self.state.candidates[rows[-1].candidate], list(rows))

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
        children, displaced = self.evolution.due(self.pool, None if self._alone else self.desk)
        for prompt in children:
            gone = displaced if prompt is children[-1] else ()
            self.journey.store.add_meta_prompt(self.journey.campaign, prompt, displaced=gone)
            self.journey.narrator.tell("meta_prompt", ref=prompt.ref, parents=prompt.parents)

    def _grounds(self) -> Sequence[Elite]:
        """What a round builds on. Where the archive stagnates, in turns with it, only what was proposed since.

        A lineage that starts from nothing need not beat the elites at once: it has `_STAGNANT` tickets to grow in.
        """
        idle = self._idle()
        restarted = idle // _STAGNANT % 2 == 1
        return self.state.lineage(self.next_ticket - idle % _STAGNANT) if restarted else self.state.archive.elites()

    def _view(self, elites: Sequence[Elite]) -> SearchView:
        """What emitters see, with `elites` to build on."""
        return SearchView(
            space=cast("Space", self.space),  # without one no generator is asked
            elites={elite.cell: (elite, self.state.candidates[elite.candidate]) for elite in elites},
            reachable=self.state.archive.reachable,
            tried=self.state.gate.ids,
            twin=self.state.gate.copy,
            attempts=dict(self.state.attempts),
            task=self.told,
            memory=self.state,
        )

    def _round(self, batch: Sequence[tuple[int, Proposal]]) -> None:
        """Builds all in parallel, then measures one after the other: builds and kernels share the CPU."""
        self.journey.phase("building")
        jobs = [(p.candidate, start) for _, p in batch if (start := self.journey.start(p)) is not None]
        self.journey.measurer.build_ahead(jobs)
        for ticket, proposal in batch:
            if self.journey.clock.stop_reason(self.state.spent):
                return
            self._learn(self.journey.travel(ticket, proposal))
            self.journey.progress("searching")

    def _learn(self, outcome: Outcome) -> None:
        self.bandit.tell(outcome)
        proposal = outcome.proposal
        status = outcome.evaluation.status if outcome.evaluation else (*outcome.statuses, "unjudged")[0]
        # Where a trial was right the latest one may be of another point, and says nothing of what was gained.
        last = None if outcome.evaluation else self.state.last_trial(proposal.candidate.id)
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

    def replay(self, ticket: int, proposal: Proposal, rows: Sequence[Evaluation]) -> None:
        """Learns a stored ticket's outcome as if it had just happened (resume)."""
        before = {elite.cell: elite for elite in self.state.archive}
        self.state.propose(ticket, proposal)
        for row in rows:
            self.state.note(row)
            self.journey.clock.note(row)
            self.state.settle()
        self._learn(self.state.outcome(proposal, ticket, rows, before))

    def recall(self, rows: Sequence[Evaluation]) -> None:
        """Notes stored rows that came of no proposal: later tuning, doubts, benches (resume)."""
        for row in rows:
            self.state.note(row)
            if row.kind in (Kind.TRIAL, Kind.CONFIRM):  # the last measurements are no part of the search
                self.journey.clock.note(row)
            self.state.settle()
