"""The archive, the rule that fills it, and the numbers that describe it."""

from evoforge.archives.archive import Archive
from evoforge.archives.descriptor import Descriptor
from evoforge.archives.folding import (
    CONFIDENCE,
    DISQUALIFYING,
    MIRRORED,
    fold_confirmations,
    lower_bound,
    process_ratios,
    speedup_interval,
)
from evoforge.archives.racing import raced, racers
from evoforge.archives.stats import QD_OFFSET, coverage, qd_auc, qd_score

__all__ = [
    "CONFIDENCE",
    "DISQUALIFYING",
    "MIRRORED",
    "QD_OFFSET",
    "Archive",
    "Descriptor",
    "coverage",
    "fold_confirmations",
    "lower_bound",
    "process_ratios",
    "qd_auc",
    "qd_score",
    "raced",
    "racers",
    "speedup_interval",
]
