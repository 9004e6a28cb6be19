"""Where candidates come from: generator and model emitters, the bandit above them, the gate behind them."""

from collections.abc import Sequence

from evoforge.emitters._base import Emitter, Memory, Outcome, Proposal, Scores, SearchView, Space
from evoforge.emitters.aim import AimEmitter
from evoforge.emitters.assignment import Assignment, ModelEmitter, inherited_licence
from evoforge.emitters.bandit import Arm, Bandit, arms_of
from evoforge.emitters.cross import CrossEmitter
from evoforge.emitters.improve import ImproveEmitter
from evoforge.emitters.invent import InventEmitter
from evoforge.emitters.model_aim import ModelAimEmitter
from evoforge.emitters.model_cross import ModelCrossEmitter
from evoforge.emitters.mutate import MutateEmitter
from evoforge.emitters.novelty import NoveltyGate, Twin, normalised_hash
from evoforge.emitters.parametrise import ParametriseEmitter
from evoforge.emitters.ranking import Decisions, Effects, Ranker
from evoforge.emitters.repair import RepairEmitter
from evoforge.emitters.sample import SampleEmitter
from evoforge.emitters.selection import Selection

__all__ = [
    "BLIND_EMITTERS",
    "MODEL_EMITTERS",
    "AimEmitter",
    "Arm",
    "Assignment",
    "Bandit",
    "CrossEmitter",
    "Decisions",
    "Effects",
    "Emitter",
    "ImproveEmitter",
    "InventEmitter",
    "Memory",
    "ModelAimEmitter",
    "ModelCrossEmitter",
    "ModelEmitter",
    "MutateEmitter",
    "NoveltyGate",
    "Outcome",
    "ParametriseEmitter",
    "Proposal",
    "Ranker",
    "RepairEmitter",
    "SampleEmitter",
    "Scores",
    "SearchView",
    "Selection",
    "Space",
    "Twin",
    "arms_of",
    "generator_emitters",
    "inherited_licence",
    "model_emitters",
    "normalised_hash",
]

MODEL_EMITTERS = ("invent", "improve", "aim", "cross", "repair", "parametrise")
"""Emitters that a model answers, as campaign files name them; ``generator`` names all others."""

BLIND_EMITTERS = ("invent",)
"""Those of them that make sense where no kernel may be shown."""


def generator_emitters(selection: Selection | None = None) -> tuple[Emitter, ...]:
    """The emitters that need no model, sharing one `Selection`."""
    shared = selection or Selection()
    return (SampleEmitter(), MutateEmitter(shared), CrossEmitter(shared), AimEmitter(shared))


def model_emitters(
    names: Sequence[str] = MODEL_EMITTERS, selection: Selection | None = None
) -> tuple[ModelEmitter, ...]:
    """The emitters of these names that a model, an agent or a person answers."""
    known: dict[str, ModelEmitter] = {
        "invent": InventEmitter(),
        "improve": ImproveEmitter(),
        "aim": ModelAimEmitter(selection or Selection()),
        "cross": ModelCrossEmitter(),
        "repair": RepairEmitter(),
        "parametrise": ParametriseEmitter(),
    }
    return tuple(known[name] for name in names)
