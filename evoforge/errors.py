"""Every error that evoforge raises on purpose.

::

    EvoforgeError
    ├── UsageError (ValueError)          a wrong option, file or name: the caller mends it
    │   ├── TaskError                    a task file that cannot be a task
    │   ├── ConfigError                  a campaign file that cannot be read
    │   ├── ParameterError               a kernel's parameter header that cannot be read
    │   ├── ModelRejectedError           a model that no repetition makes answer: key, name, quota
    │   └── ReplyError                   a model's reply that holds no usable answer
    ├── UnsupportedError (NotImplementedError)   an operator or a feature that is not covered
    ├── MissingToolError (RuntimeError)  a compiler or program that is not installed
    ├── StoreError (RuntimeError)        the store cannot be read or written
    │   ├── StoreVersionError            its schema is older or newer than this evoforge
    │   ├── NotFoundError (KeyError)     no such campaign, candidate or ticket
    │   └── CampaignLockedError          another coordinator is writing this campaign
    ├── BudgetSpentError (RuntimeError)  the next call of a model could overspend a cap
    ├── EnvironmentChangedError (RuntimeError)   target, compiler or protocol moved under a campaign
    └── WorkerError (RuntimeError)       a helper process died or broke its protocol

A message says what was expected, what came, and the command or key that mends it. What goes wrong
with a *kernel* is never an exception: it is a `evoforge.core.Status`.
"""

from __future__ import annotations

__all__ = [
    "BudgetSpentError",
    "CampaignLockedError",
    "ConfigError",
    "EnvironmentChangedError",
    "EvoforgeError",
    "MissingToolError",
    "ModelRejectedError",
    "NotFoundError",
    "ParameterError",
    "ReplyError",
    "StoreError",
    "StoreVersionError",
    "TaskError",
    "UnsupportedError",
    "UsageError",
    "WorkerError",
]


class EvoforgeError(Exception):
    """Root of the tree. `str()` is a sentence for the person at the keyboard."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class UsageError(EvoforgeError, ValueError):
    """Misuse: exit status 2."""


class TaskError(UsageError):
    """A task file, or a `pkg.mod:Class`, that cannot be a task."""


class ConfigError(UsageError):
    """A campaign file with an unknown key or a value of the wrong kind."""


class ParameterError(UsageError):
    """A kernel's `// evoforge:` header that cannot be read."""


class ModelRejectedError(UsageError):
    """A provider that refuses the key, the model or the request: stops a campaign at once.

    `reply` is what `evoforge.llm` books for the attempts that led here.
    """

    def __init__(self, message: str, reply: object = None) -> None:
        super().__init__(message)
        self.reply = reply


class ReplyError(UsageError):
    """A model's reply that holds no usable answer; says why in one sentence."""


class UnsupportedError(EvoforgeError, NotImplementedError):
    """Something real that evoforge does not cover, named."""


class MissingToolError(EvoforgeError, RuntimeError):
    """A compiler or program that has to be installed first."""


class StoreError(EvoforgeError, RuntimeError):
    """The store cannot be read or written."""


class StoreVersionError(StoreError):
    """The store's schema is not the one that this version writes."""


class NotFoundError(StoreError, KeyError):
    """Nothing in the store has that name or id."""


class CampaignLockedError(StoreError):
    """Another live coordinator owns the campaign."""


class BudgetSpentError(EvoforgeError, RuntimeError):
    """What is left of a cap in dollars, tokens, calls or minutes is less than the next call may take."""


class EnvironmentChangedError(EvoforgeError, RuntimeError):
    """The target, the compiler or the protocol is not the one the campaign was measured with."""


class WorkerError(EvoforgeError, RuntimeError):
    """A reference, baseline or compiler process died or broke its protocol."""
