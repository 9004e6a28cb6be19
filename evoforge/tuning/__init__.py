"""Optuna over one candidate's declared parameters."""

from evoforge.tuning.tuner import Tuner

__all__ = ["Tuner"]
