"""Optuna over one candidate's declared parameters."""

from evoforge.tuning.pruning import wilcoxon_prunes
from evoforge.tuning.tuner import Tuner

__all__ = ["Tuner", "wilcoxon_prunes"]
