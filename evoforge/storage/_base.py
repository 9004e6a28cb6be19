"""The store's contract: what every store promises, and the records it hands out.

`evoforge.testing.store_suite` is the contract as tests; a store is done when it passes.
Scientific rows are append-only: nothing here changes or deletes one, except `delete_campaign`, and
`replace_call` once a call that was stored as it was made is over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from evoforge.core import Candidate, Cell, Evaluation, Kind, MetaPrompt, Params, Status, Target, Task
from evoforge.storage._calls import CallStore
from evoforge.storage._owner import Owner

__all__ = ["CampaignRow", "Edge", "EvaluationRow", "MetaPromptRow", "Placement", "PlacementRow", "ProposalRow", "Store"]

Action = Literal["NEW", "IMPROVED", "REJECTED", "DEMOTED"]
ACTIONS: tuple[Action, ...] = ("NEW", "IMPROVED", "REJECTED", "DEMOTED")


@dataclass(frozen=True)
class CampaignRow:
    """A campaign as it was created, with its bookkeeping (state, stop_reason, wall_s, setup).

    `setup` holds what the campaign found out before it searched: signatures, baselines, bounds.
    `reachable` is None where every cell counts. Times are UTC, ISO 8601.
    """

    name: str
    language: str
    seed: int
    task: Task
    target: Target
    config: Mapping[str, Any]
    descriptor: Mapping[str, Any]
    reachable: tuple[Cell, ...] | None
    setup: Mapping[str, Any]
    protocol: int
    state: str
    stop_reason: str | None
    wall_s: float
    created: str
    updated: str


@dataclass(frozen=True)
class ProposalRow:
    """Ticket → candidate, with how *this* campaign came by it (the text may be known from before)."""

    campaign: str
    ticket: int
    candidate: str
    operator: str
    parents: tuple[str, ...]
    emitter: str
    meta_prompt: str | None
    model: str | None
    target_cell: Cell | None
    created: str


@dataclass(frozen=True)
class EvaluationRow:
    """An evaluation and where it is stored; `id` grows in stored order."""

    id: int
    campaign: str
    ticket: int | None
    evaluation: Evaluation
    created: str


@dataclass(frozen=True)
class Placement:
    """What an outcome did to a cell: an `AddStatus`, or DEMOTED when an elite lost its claim.

    `evaluation` is the row it rests on; None: the last evaluation of the same (candidate,
    parameter values), in this outcome or stored before it in the same campaign.
    """

    action: str
    cell: Cell
    candidate: str
    params: Params
    objective: float
    lower: float
    reason: str = ""
    evaluation: int | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"a placement's action must be one of {', '.join(ACTIONS)}, got {self.action!r}")


@dataclass(frozen=True)
class PlacementRow:
    """A stored placement; its `evaluation` is always set."""

    id: int
    campaign: str
    ticket: int | None
    placement: Placement
    created: str


@dataclass(frozen=True)
class MetaPromptRow:
    """A stored version of a meta-prompt; `displaced` are the refs that retired when it came."""

    campaign: str
    meta_prompt: MetaPrompt
    created: str
    displaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """`child` was made from `parent`; `position` is the parent's place in the child's list."""

    child: str
    parent: str
    position: int


@dataclass(frozen=True)
class CampaignSetup:
    """The arguments of `Store.create_campaign`, so that stores share their handling."""

    name: str
    task: Task
    target: Target
    language: str
    seed: int
    config: Mapping[str, Any] = field(default_factory=dict)
    descriptor: Mapping[str, Any] = field(default_factory=dict)
    reachable: Sequence[Cell] | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)


class Store(CallStore):
    """Campaigns and everything they found. Safe to use from several threads.

    Every method may raise `StoreError` (the disk, the server, a read-only store).
    """

    url: str

    # Campaigns

    @abstractmethod
    def create_campaign(
        self,
        name: str | None,
        *,
        task: Task,
        target: Target,
        language: str,
        seed: int,
        config: Mapping[str, Any],
        descriptor: Mapping[str, Any],
        reachable: Sequence[Cell] | None = None,
        setup: Mapping[str, Any] | None = None,
    ) -> CampaignRow:
        """Stores a new campaign in state ``created``.

        Without a name it is ``<task's name>-<n>``, n one above the highest in use, from 1; whoever creates campaigns
        beside gets another one.

        The target's ceilings and the task's name and paths are kept per campaign, since neither is
        part of the id.

        Raises:
            UsageError: the name is empty or taken; the message names the next free one.
        """

    @abstractmethod
    def campaign(self, name: str) -> CampaignRow:
        """Raises NotFoundError, naming the closest campaigns."""

    @abstractmethod
    def campaigns(self) -> list[CampaignRow]:
        """In the order of creation."""

    @abstractmethod
    def update_campaign(
        self,
        name: str,
        *,
        state: str | None = None,
        stop_reason: str | None = None,
        wall_s: float | None = None,
        setup: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Changes bookkeeping; None leaves a value as it is, ``stop_reason=""`` clears it.

        `setup` and `config` replace the whole mapping.

        Raises:
            NotFoundError: no such campaign.
        """

    @abstractmethod
    def delete_campaign(self, name: str) -> None:
        """Deletes a campaign with its rows, and candidates, tasks and targets nothing else uses.

        Raises:
            NotFoundError: no such campaign.
            CampaignLockedError: a live coordinator is writing it.
        """

    @abstractmethod
    def lock_campaign(self, name: str, owner: Owner | None = None) -> AbstractContextManager[Owner]:
        """Makes `owner` (default: this process) the campaign's only coordinator while entered.

        A lock whose process is dead is taken over.

        Raises:
            NotFoundError: no such campaign.
            CampaignLockedError: another coordinator lives, be it in this very process.
        """

    @abstractmethod
    def is_held(self, name: str) -> bool:
        """Whether a coordinator holds the campaign, as far as can be told from here.

        A server knows. Of a file, only processes of this machine can be asked: one that writes it from another
        machine, or from another container, counts as gone here, as it does for `lock_campaign`.

        Raises:
            NotFoundError: no such campaign.
        """

    # Outcomes

    @abstractmethod
    def record_outcome(
        self,
        campaign: str,
        ticket: int | None,
        candidate: Candidate | None,
        evaluations: Sequence[Evaluation] = (),
        placements: Sequence[Placement] = (),
        *,
        emitter: str = "",
        target_cell: Cell | None = None,
    ) -> list[int]:
        """Commits an outcome, or a part of one, in one transaction.

        `candidate` stores the text (once, whoever proposed it) and the ticket's proposal; its
        parents must be stored. A ticket has one proposal: later calls for it pass the same
        candidate, or None. A ticket of None is for measurements that no proposal asked for (bench).

        Returns:
            The evaluations' row ids, in order.

        Raises:
            NotFoundError: no such campaign.
            StoreError: a candidate, parent, task or target that is not stored; a ticket that
                already proposed another candidate; a placement without an evaluation. Nothing is
                stored then.
        """

    @abstractmethod
    def evaluations(
        self,
        *,
        campaign: str | None = None,
        candidate: str | None = None,
        kind: Kind | None = None,
        status: Status | None = None,
        task: str | None = None,
        target: str | None = None,
    ) -> list[EvaluationRow]:
        """Rows that meet every given condition, in stored order. Ids are whole, not prefixes."""

    @abstractmethod
    def claims(self, campaign: str) -> tuple[list[EvaluationRow], list[Candidate]]:
        """All that an archive rests on: every evaluation, in stored order, of candidates that were confirmed, and those
        candidates, in no order. Of a long campaign that is a small part.
        """

    @abstractmethod
    def last_trials(self, campaign: str) -> list[EvaluationRow]:
        """The latest trial of every status, in stored order."""

    @abstractmethod
    def find_recorded(
        self, candidate: str, params: Params, task: str, target: str, protocol: int, kind: Kind
    ) -> list[EvaluationRow]:
        """Every evaluation of exactly this, from any campaign, in stored order (for replay)."""

    @abstractmethod
    def counts(self, campaign: str, kind: Kind | None = None) -> dict[Status, int]:
        """How many evaluations ended in each status; absent statuses are 0 and left out."""

    @abstractmethod
    def seconds(self, campaign: str) -> dict[str, float]:
        """What all its evaluations took, summed by stage (`Evaluation.seconds`)."""

    @abstractmethod
    def placements(self, campaign: str) -> list[PlacementRow]:
        """In stored order, demotions included."""

    # Candidates

    @abstractmethod
    def candidate(self, prefix: str) -> Candidate:
        """The candidate whose id starts with `prefix`.

        Raises:
            NotFoundError: none does.
            UsageError: several do, or it is not a hexadecimal prefix.
        """

    @abstractmethod
    def candidates(self, campaign: str) -> list[Candidate]:
        """What the campaign proposed, each once, in order of first ticket."""

    @abstractmethod
    def proposals(self, campaign: str) -> list[ProposalRow]:
        """In ticket order."""

    @abstractmethod
    def last_ticket(self, campaign: str) -> int | None:
        """The highest ticket that was issued, proposed or evaluated; None before the first."""

    @abstractmethod
    def lineage(self, candidate: str) -> list[Edge]:
        """Edges from `candidate` (a whole id) to all ancestors, breadth first; empty for a root."""

    # Tasks, targets, meta-prompts

    @abstractmethod
    def tasks(self) -> list[Task]:
        """Every stored task, in the order of first use."""

    @abstractmethod
    def targets(self) -> list[Target]:
        """Every stored target, in the order of first use, without ceilings (campaigns have them)."""

    @abstractmethod
    def add_meta_prompt(self, campaign: str, meta_prompt: MetaPrompt, *, displaced: Sequence[str] = ()) -> None:
        """Stores a version once, with the refs that it `displaced`; the same again changes nothing.

        Raises:
            StoreError: that name and version is stored with another content.
        """

    @abstractmethod
    def meta_prompts(self, campaign: str) -> list[MetaPromptRow]:
        """In stored order."""

    # The store itself

    @abstractmethod
    def check(self) -> list[str]:
        """Verifies the store's invariants; a sentence per problem, none when it is sound."""

    @abstractmethod
    def close(self) -> None:
        """Releases connections; calling it twice is fine."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
