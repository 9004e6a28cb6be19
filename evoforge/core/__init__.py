"""Frozen records that every other package speaks in. Standard library only."""

from evoforge.core.candidate import Candidate
from evoforge.core.evaluation import (
    AXES,
    LEAST_OBJECTIVE,
    PROTOCOL_VERSION,
    SIDES,
    Block,
    Cell,
    Evaluation,
    Kind,
    Status,
    WorkloadTiming,
)
from evoforge.core.llm_call import Call, Outcome
from evoforge.core.meta_prompt import MetaPrompt, Strategy
from evoforge.core.parameters import Parameter, ParameterSpace, Params, Point, point
from evoforge.core.placement import AddStatus, Elite
from evoforge.core.redact import redact, without_keys
from evoforge.core.target import Target
from evoforge.core.task import DTYPES, Signature, Task, TensorSpec, Tolerance, Workload
from evoforge.core.text import cut, printable, secrets_of, storable

__all__ = [
    "AXES",
    "DTYPES",
    "LEAST_OBJECTIVE",
    "PROTOCOL_VERSION",
    "SIDES",
    "AddStatus",
    "Block",
    "Call",
    "Candidate",
    "Cell",
    "Elite",
    "Evaluation",
    "Kind",
    "MetaPrompt",
    "Outcome",
    "Parameter",
    "ParameterSpace",
    "Params",
    "Point",
    "Signature",
    "Status",
    "Strategy",
    "Target",
    "Task",
    "TensorSpec",
    "Tolerance",
    "Workload",
    "WorkloadTiming",
    "cut",
    "point",
    "printable",
    "redact",
    "secrets_of",
    "storable",
    "without_keys",
]
