"""A campaign: one task, one target, one language, a budget and a store."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from evoforge.archives.descriptor import Descriptor
from evoforge.campaign._budget import Clock
from evoforge.campaign._checks import check, check_unchanged, stored_config
from evoforge.campaign._events import Narrator, Observer
from evoforge.campaign._evolution import Evolution
from evoforge.campaign._journey import BREADTH, Journey
from evoforge.campaign._loop import BY_ITS_BOUND, NO_MONEY, Loop
from evoforge.campaign._measure import Live, Measurer, Recorded
from evoforge.campaign._models import check_models, desk_of, leaves
from evoforge.campaign._prepare import Ground, prepare
from evoforge.campaign._queries import charged
from evoforge.campaign._replayed import as_recorded, recorded_campaign
from evoforge.campaign._restore import restore
from evoforge.campaign._result import Result, summarise
from evoforge.campaign._setup import Setup, Trace
from evoforge.campaign._state import State
from evoforge.campaign._told import told_of
from evoforge.campaign._transfer import proposed, with_traces
from evoforge.config import Budget, CampaignConfig
from evoforge.core import Candidate, Kind, Target
from evoforge.emitters import (
    BLIND_EMITTERS,
    MODEL_EMITTERS,
    Bandit,
    Proposal,
    Selection,
    generator_emitters,
    model_emitters,
)
from evoforge.errors import MissingToolError, NotFoundError, StoreError, UnsupportedError, UsageError
from evoforge.llm import Totals, close_connections
from evoforge.prompts import PromptPool
from evoforge.storage import CampaignRow, Store, open_store

if TYPE_CHECKING:
    from evoforge.evaluation.judge import Judge

__all__ = ["Campaign"]

_USD_PER_S = 1e-4  # what a second of this machine is worth where the budget does not say
_RESERVE_S = 12.0  # kept for the last confirmation, the sanitizers and the report, at most a tenth of the budget


class Campaign:
    """Created or resumed by name; `run` does the work and may be interrupted at any moment."""

    def __init__(
        self, row: CampaignRow, store: Store, *, replay: str | None, replay_extend: bool, new: bool = False
    ) -> None:
        self._new = new
        self.row = row
        self.store = store
        self.config = stored_config(row)
        self._replay = replay
        self._extend = replay_extend

    @property
    def name(self) -> str:
        return self.row.name

    @classmethod
    def create(
        cls, config: CampaignConfig, store_url: str, *, replay: str | None = None, replay_extend: bool = False
    ) -> Self:
        """Checks everything that can be checked without running anything, and stores the campaign.

        Raises:
            UsageError: a task, target, kernel or name that cannot be used.
            ConfigError: emitters, models and budget that do not go together.
            UnsupportedError: a language or target that this version does not cover.
            StoreError: the store cannot be opened.
        """
        checked = check(config, asks=replay is None or replay_extend)
        descriptor = Descriptor(config.archive.axes)
        with open_store(store_url) as store:  # a closed one connects again when it is asked
            row = store.create_campaign(
                config.name,
                task=checked.task,
                target=checked.target,
                language=config.language,
                seed=config.seed,
                config=config.model_dump(mode="json", by_alias=True),
                descriptor=descriptor.to_json(),
                setup={"seeds": [seed.source for seed in checked.seeds]},
            )
        return cls(row, store, replay=replay, replay_extend=replay_extend, new=True)

    @classmethod
    def resume(cls, name: str, store_url: str) -> Self:
        """Opens a stored campaign to go on with it.

        Raises:
            NotFoundError: no campaign has that name.
            EnvironmentChangedError: its numbers could not be compared with new ones; says what changed.
        """
        with open_store(store_url, create=False) as store:
            row = store.campaign(name)
        check_unchanged(row)
        return cls(row, store, replay=None, replay_extend=False)

    def extend(self, budget: Budget) -> None:
        """Gives it other limits, of the whole campaign: what was spent before counts.

        Raises:
            CampaignLockedError: it is running.
            ConfigError: a budget that its models need more of.
            UsageError: it would stop at once by a limit that stays as it was.
        """
        if self.config.budget.evals == budget.evals == 0 and budget.minutes is not None:
            budget = budget.model_copy(update={"evals": None})  # only prepared so far: now it shall search
        config = self.config.model_copy(update={"budget": budget})
        check_models(config)
        with self.store.lock_campaign(self.name):
            self._refuse_spent(budget)
            # One that ended by what its models may take has something to do again; one near its bound may have.
            before, ended = self.config.budget, self.row.stop_reason
            more = ended == NO_MONEY and _for_models(budget) != _for_models(before)
            again = more or (ended == BY_ITS_BOUND and budget != before)
            self.store.update_campaign(
                self.name, config=config.model_dump(mode="json", by_alias=True), stop_reason="" if again else None
            )
            self.row = self.store.campaign(self.name)
        self.config = config

    def _refuse_spent(self, budget: Budget) -> None:
        evaluations = charged(self.store.counts(self.name, Kind.TRIAL))
        limit = self._clock(budget).stop_reason(evaluations)
        before = self.config.budget
        if limit and budget.evals != 0 and budget != before and getattr(budget, limit) == getattr(before, limit):
            raise UsageError(
                f"campaign {self.name} {self._had(limit, before, evaluations)}: "
                f"the other limits alone let it do nothing; give --{limit}, too"
            )

    def run(self, observer: Observer | None = None) -> Result:
        """Searches until the budget ends; resumable after anything that stops it.

        A new campaign that cannot even start, by its task or a missing tool, leaves nothing behind:
        once that is mended its name is free. One that is finished measures nothing: its result is what the store holds,
        and a notice says what would let it go on.
        """
        with self.store:
            return self._run_or_tell(Narrator(observer))

    def _run_or_tell(self, narrator: Narrator) -> Result:
        self.row = self.store.campaign(self.name)  # as it stands now: this very object may have run before
        if self.row.state == "finished" and (why := self._nothing_left()):
            narrator.tell("notice", text=f"campaign {self.name} is finished, nothing was measured: {why}")
            return summarise(self, self.row.stop_reason or "", notices=tuple(self.row.setup.get("notices", ())))
        try:
            return self._run_locked(narrator)
        except (UsageError, UnsupportedError, MissingToolError, NotFoundError):
            paid = Totals.of(row.call for row in self.store.calls(self.name, texts=False)).most_usd
            if self._new and not paid and not self.store.proposals(self.name):
                self.store.delete_campaign(self.name)
            raise

    def _nothing_left(self) -> str:
        """Why a finished campaign would end at once, and what mends that; empty where there is something to do."""
        budget = self.config.budget
        if self.row.stop_reason == "at_bound":
            return "no kernel can be much faster on this machine"
        if self.row.stop_reason == BY_ITS_BOUND:
            return "its best kernel can hardly be faster here; give --minutes M or --evals N (in all) to look again"
        if self.row.stop_reason == NO_MONEY:
            spent = Totals.of(row.call for row in self.store.calls(self.name, texts=False))
            return (
                f"its models have had ${spent.most_usd:.4f}, {spent.most_tokens:,} tokens, {spent.requests:,} calls: "
                f"too little is left for another one; give {_binding(budget, spent)} (in all) to go on"
            )
        if budget.evals == 0:
            return "it is prepared for answers to `evoforge ask`; give --minutes M or --evals N to search"
        evaluations = charged(self.store.counts(self.name, Kind.TRIAL))
        limit = self._clock().stop_reason(evaluations)
        if not limit:
            return ""
        return f"it {self._had(limit, budget, evaluations)}; give --{limit} N (in all) to go on"

    def _had(self, limit: str, budget: Budget, evaluations: int) -> str:
        spent = {"evals": f"{evaluations} evaluations", "minutes": f"{self.row.wall_s / 60:.1f} minutes"}[limit]
        most = getattr(budget, limit)
        if most is None:  # a replay, which ends where its recording does
            return f"has had all {spent} that its recording holds"
        return f"may take {most:g} {limit} in all and has had {spent}"

    def _run_locked(self, narrator: Narrator) -> Result:
        with ExitStack() as stack:
            stack.enter_context(self.store.lock_campaign(self.name))
            self.store.update_campaign(self.name, state="running", stop_reason="")
            self.row = self.store.campaign(self.name)
            try:
                result = self._run(narrator, stack)
            except BaseException as error:
                reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
                with suppress(StoreError):  # what went wrong inside matters more than that it cannot be written
                    self._book(narrator, "interrupted", reason)
                raise
            self._book(narrator, "finished", result.stop_reason)
            return result

    def _book(self, narrator: Narrator, state: str, reason: str) -> None:
        self.store.update_campaign(self.name, state=state, stop_reason=reason, wall_s=self._wall_s(narrator))

    def _wall_s(self, narrator: Narrator) -> float:
        """Earlier runs' seconds and this one's: what a killed process took counts, too."""
        return self.row.wall_s + narrator.elapsed_s

    def _run(self, narrator: Narrator, stack: ExitStack) -> Result:
        clock = self._clock()
        if self.config.budget.minutes is None and self.config.budget.evals is None:
            narrator.tell("notice", text="no limit of minutes or evaluations: it ends where ideas do, or by Ctrl-C")
        target, judge, setup = self._setup(narrator, stack)
        ground = Ground.of(setup, target, self.row.task.tolerance, self.row.setup.get("reachable"))
        cells = None if ground.reachable is None else sorted(ground.reachable)
        # A replay begins with what its campaign began with.
        if self.config.transfer and self.config.with_generator and ground.space is not None and self._replay is None:
            setup = with_traces(setup, self.store, self.row, ground.space, narrator)
        self._keep(setup, reachable=cells)
        loop = self._loop(judge, target, setup, ground, narrator, clock, stack)
        left = restore(loop, self.store, self.name)
        loop.journey.show("searching")
        loop.journey.book = lambda: self.store.update_campaign(self.name, wall_s=self._wall_s(narrator))
        if self.config.budget.evals == 0:
            reason = "prepared"
        elif setup.at_bound:
            reason = "at_bound"
            self._note(setup.nothing_to_gain)
        else:
            for ticket, rows in left.unconfirmed:
                loop.take_up(ticket, rows)
            reason = loop.run(self._seeds(ground, setup.traces or ()), left.answers)
            loop.journey.finish()
        if loop.desk is not None:
            loop.desk.close()  # the result counts what is still in flight
        for workload, families in (judge.dropped_families if judge else {}).items():
            text = (
                f"{workload}: not judged on inputs on which the task itself fails, "
                f"or only rounding or the order of equal values decides ({', '.join(families)})"
            )
            narrator.tell("notice", text=text)
            self._note(text)
        busy_s = judge.busy_seconds if judge else None
        notices = tuple(self.store.campaign(self.name).setup["notices"])
        return summarise(self, reason, notices=notices, run_s=narrator.elapsed_s, busy_s=busy_s)

    def _loop(
        self, judge: Judge | None, target: Target, setup: Setup, ground: Ground, narrator: Narrator, clock: Clock,
        stack: ExitStack,
    ) -> Loop:  # fmt: skip
        """The search as it stood when nothing was proposed yet."""
        config, budget = self.config, self.config.budget
        pool = self.pool()
        stored = {row.meta_prompt.ref for row in self.store.meta_prompts(self.name)}
        for prompt in pool:
            if prompt.ref not in stored:  # who only reads writes nothing
                self.store.add_meta_prompt(self.name, prompt)
        # What a dollar and a second are worth: a budget of both is spent on both.
        usd_per_s = budget.usd / (60 * budget.minutes) if budget.usd and budget.minutes else _USD_PER_S

        def keep(text: str) -> None:
            self._note(text)
            narrator.tell("notice", text=text)

        if config.asking:
            replay = (self._replay, recorded_campaign(self._replay, self.row).name) if self._replay else None
            desk = desk_of(
                self.name, config, self.store, replay, self._extend, clock.until, notice=keep,
                phase=lambda text: narrator.tell("phase", text=text),
            )  # fmt: skip
        else:
            desk = None
        if desk is not None:
            stack.callback(close_connections)
            stack.callback(desk.close)
            if notice := leaves(config):
                narrator.tell("notice", text=notice)
        selection = Selection()
        journey = Journey(
            campaign=self.name,
            store=self.store,
            state=State(ground.reachable),
            measurer=self._measurer(judge, target, stack),
            narrator=narrator,
            clock=clock,
            seed=config.seed,
            trials=config.tuning.trials,
            lead=setup.lead,
            # Where nothing says how long it will go on, there is no later for tuning.
            breadth=0.0 if budget.evals is None and budget.minutes is None else BREADTH,
            notice=keep,
        )
        return Loop(
            journey=journey,
            space=ground.space,
            emitters=generator_emitters(selection) if config.with_generator else (),
            bandit=Bandit(pool.ancestors, usd_per_s=usd_per_s),
            pool=pool,
            evolution=Evolution(config.meta_prompts.evolve_every, config.seed, usd_per_s, config.meta_prompts.active),
            seed=config.seed,
            workers=config.workers,
            told=told_of(self.row.task, target, config.language, setup),
            writers=model_emitters(config.asking, selection),
            desk=desk,
        )

    def pool(self) -> PromptPool:
        """The meta-prompts that this campaign began with; their children come with what led to them (`restore`)."""
        stored = [row.meta_prompt for row in self.store.meta_prompts(self.name) if not row.meta_prompt.parents]
        config = self.config
        return PromptPool(stored) if stored else PromptPool.named(config.meta_prompts.pool, config.language)

    def _clock(self, budget: Budget | None = None) -> Clock:
        budget = budget or self.config.budget
        budget_s = budget.minutes * 60 if budget.minutes else None
        if self._replay is None:
            return Clock(budget.evals, budget_s, self.row.wall_s, min(_RESERVE_S, budget_s / 10) if budget_s else 0.0)
        clock = Clock(budget.evals, budget_s, replay=True)
        return clock if self._extend else as_recorded(clock, self._replay, self.row)

    def _setup(self, narrator: Narrator, stack: ExitStack) -> tuple[Target, Judge | None, Setup]:
        """From the replayed store, or from the judge; kept with the campaign once it is complete."""
        if self._replay is not None and not self._extend:
            source = recorded_campaign(self._replay, self.row)
            setup = Setup.from_json(source.setup)
            self._keep(setup)
            return source.target, None, setup
        known = Setup.from_json(self.row.setup) if "signatures" in self.row.setup else None
        if known is None and self._replay is not None:
            known = Setup.from_json(recorded_campaign(self._replay, self.row).setup)
        target, judge, setup = prepare(self.row, self.config, known, narrator, stack)
        self._keep(setup)
        return target, judge, setup

    def _keep(self, setup: Setup, **more: Any) -> None:
        seeds = self.row.setup.get("seeds", [])
        self.store.update_campaign(self.name, setup={**setup.to_json(), "seeds": seeds, **more})

    def _note(self, text: str) -> None:
        """Keeps a sentence for the result, whatever ends this process before there is one."""
        known = self.store.campaign(self.name).setup
        notices = known.get("notices", [])
        if text not in notices:
            self.store.update_campaign(self.name, setup={**known, "notices": [*notices, text]})

    def restored(self, judge: Judge | None, target: Target, setup: Setup, narrator: Narrator) -> Loop:
        """The search as the store tells it, for who answers tickets; without a judge it can only be read.

        Raises:
            UsageError: the campaign was never set up.
        """
        ground = Ground.of(setup, target, self.row.task.tolerance, self.row.setup.get("reachable"))
        askers = MODEL_EMITTERS if self.config.send.kernels else BLIND_EMITTERS
        self.config = self.config.model_copy(update={"models": (), "emitters": askers})
        with ExitStack() as stack:
            loop = self._loop(judge, target, setup, ground, narrator, Clock(None, None), stack)
        # An answer's parameters are tuned at once, and by all trials: there may be no later.
        loop.journey.breadth, loop.journey.in_a_row = 0.0, loop.journey.trials
        restore(loop, self.store, self.name)
        return loop

    def known_setup(self) -> Setup:
        """What the campaign found out before it searched.

        Raises:
            UsageError: it has not got so far.
        """
        if not self.row.setup.get("baseline"):
            raise UsageError(
                f"expected campaign {self.name} to be set up, and it was interrupted before; "
                f"run: evoforge resume {shlex.quote(self.name)}"
            )
        return Setup.from_json(self.row.setup)

    def _measurer(self, judge: Judge | None, target: Target, stack: ExitStack) -> Measurer:
        if judge is None and self._replay is None:
            return Recorded(self.store, self.row.task, self.row.target)
        live = None
        if judge is not None:
            live = Live(judge, Descriptor.from_json(self.row.descriptor), build_jobs=max(target.threads, 1))
        if self._replay is None:
            assert live is not None
            return live
        twin = recorded_campaign(self._replay, self.row)
        store = stack.enter_context(open_store(self._replay, create=False))
        return Recorded(store, self.row.task, self.row.target, live, first=twin.name)

    def _seeds(self, ground: Ground, traces: Sequence[Trace]) -> list[Proposal]:
        """The user's own kernels, a plain schedule (something that works), what won elsewhere, other textbook ones."""
        own = [Candidate(self.config.language, source) for source in self.row.setup.get("seeds", [])]
        textbook: list[Candidate] = []
        won: list[Proposal] = []
        if ground.space is not None and self.config.with_generator:
            textbook = ground.first_kernels()
            won = [proposed(trace, ground.space) for trace in traces]
        imported = [Proposal(seed, operator=seed.operator, emitter=seed.operator) for seed in own]
        # No emitter's merit: the first kernels of a map gain more than any that are proposed later.
        printed = [Proposal(kernel, operator=kernel.operator, emitter="textbook") for kernel in textbook]
        return [*imported, *printed[:1], *won, *printed[1:]]


def _binding(budget: Budget, spent: Totals) -> str:
    """The options that raise what models have used up; where none is used up whole, what is nearest to it."""
    had = {"usd": spent.most_usd, "tokens": spent.most_tokens, "calls": spent.requests}
    shares = {name: most / limit for name, most in had.items() if (limit := getattr(budget, name))}
    nearest = max(shares, key=shares.__getitem__, default="usd")
    used_up = [name for name, share in shares.items() if share >= 1] or [nearest]
    return " and ".join(f"--{name} {'D' if name == 'usd' else 'N'}" for name in used_up)


def _for_models(budget: Budget) -> tuple[float | int | None, ...]:
    return budget.usd, budget.tokens, budget.calls
