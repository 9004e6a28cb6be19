"""Where candidates come from: generator emitters, the bandit above them, the gate behind them."""

from evoforge.emitters._base import AXES, Emitter, Outcome, Proposal, SearchView, Space
from evoforge.emitters.aim import AimEmitter
from evoforge.emitters.bandit import Arm, Bandit, arms_of
from evoforge.emitters.cross import CrossEmitter
from evoforge.emitters.mutate import MutateEmitter
from evoforge.emitters.novelty import NoveltyGate, Twin, normalised_hash
from evoforge.emitters.ranking import Ranker
from evoforge.emitters.sample import SampleEmitter
from evoforge.emitters.selection import Selection

__all__ = [
    "AXES",
    "AimEmitter",
    "Arm",
    "Bandit",
    "CrossEmitter",
    "Emitter",
    "MutateEmitter",
    "NoveltyGate",
    "Outcome",
    "Proposal",
    "Ranker",
    "SampleEmitter",
    "SearchView",
    "Selection",
    "Space",
    "Twin",
    "arms_of",
    "generator_emitters",
    "normalised_hash",
]


def generator_emitters(selection: Selection | None = None) -> tuple[Emitter, ...]:
    """The emitters that need no model, sharing one `Selection`."""
    shared = selection or Selection()
    return (SampleEmitter(), MutateEmitter(shared), CrossEmitter(shared), AimEmitter(shared))
