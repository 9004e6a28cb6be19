"""What can be said of a campaign before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evoforge.campaign._models import check_models
from evoforge.config import CampaignConfig
from evoforge.core import PROTOCOL_VERSION, Candidate, Target, Task
from evoforge.errors import EnvironmentChangedError, ParameterError, UnsupportedError, UsageError
from evoforge.evaluation.imported import file_digest, imported_text
from evoforge.evaluation.targets import find_compiler, resolve_target
from evoforge.evaluation.tasks import load_task
from evoforge.lowering.schedule import CHOICES
from evoforge.prompts import PromptPool
from evoforge.prompts.files import near
from evoforge.storage import CampaignRow

__all__ = ["Checked", "check", "check_unchanged", "read_kernel", "stored_config"]


@dataclass(frozen=True)
class Checked:
    """What a configuration names: its task, its target and the user's own kernels."""

    task: Task
    target: Target
    seeds: tuple[Candidate, ...]


def check(config: CampaignConfig, *, asks: bool = True) -> Checked:
    """Everything that can be checked of a campaign without running anything; models' keys only where somebody `asks`.

    Raises:
        UsageError: a task, target, kernel or meta-prompt that cannot be used.
        ConfigError: emitters, models and budget that do not go together.
        UnsupportedError: a language or target that this version does not cover.
    """
    task = load_task(config.task, config.set, config.inputs)
    target = resolve_target(config.target)
    if config.language != "cpp":
        raise UnsupportedError(f"expected language cpp, got {config.language!r}; other languages come later")
    check_models(config, asks=asks)
    _check_priors(PromptPool.named(config.meta_prompts.pool, config.language))
    return Checked(task, target, tuple(read_kernel(path) for path in config.from_))


def _check_priors(pool: PromptPool) -> None:
    """Decisions that a meta-prompt weighs are some of the schedule space; parameters, in capitals, are a kernel's."""
    for prompt in pool:
        for prior in prompt.strategy.priors:
            gene, _, value = prior.partition("=")
            where = f"meta-prompt {prompt.ref}, strategy.priors: unknown"
            if gene[0].isupper():
                continue
            if gene not in CHOICES:
                raise UsageError(f"{where} decision {gene[:60]!r}{near(gene, CHOICES)}")
            if value not in CHOICES[gene]:
                raise UsageError(f"{where} value {value[:60]!r} of {gene}{near(value, CHOICES[gene])}")


def read_kernel(path: str) -> Candidate:
    """A kernel file of the user's own.

    Raises:
        UsageError: it cannot be read, or its parameter header cannot.
    """
    try:
        source = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = error.strerror if isinstance(error, OSError) else f"a byte that is no UTF-8 at {error.start}"
        raise UsageError(f"expected a kernel file at {path}, got: {got}; check the path") from error
    candidate = Candidate("cpp", source)
    try:
        _ = candidate.space  # a header that cannot be read is the user's to mend, now
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from error
    return candidate


def stored_config(row: CampaignRow) -> CampaignConfig:
    """What a campaign was asked for.

    Raises:
        EnvironmentChangedError: it was made by another version of evoforge, which says it in other words.
    """
    try:
        return CampaignConfig.model_validate(dict(row.config))
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise EnvironmentChangedError(
            f"campaign {row.name} was made by another version of evoforge, whose configuration this one cannot read "
            f"({keys}); go on with that version, or start a new campaign (evoforge run)"
        ) from error


def check_unchanged(row: CampaignRow) -> None:
    """Refuses to mix numbers of two machines, compilers, protocols or texts of imported code in one campaign."""
    task = row.task
    if task.entry is not None and imported_text(task.entry, task.root) not in (None, task.imported_source):
        raise EnvironmentChangedError(
            f"campaign {row.name} searched for what {task.entry} was, and its source is another now; take the change "
            "back, or start a new campaign (evoforge run)"
        )
    for path, digest in (row.setup.get("imports") or {}).items():
        if file_digest(path) not in (None, digest):
            raise EnvironmentChangedError(
                f"campaign {row.name} searched for what the task computed, and {path}, which it imports, is another "
                "now; take the change back, or start a new campaign (evoforge run)"
            )
    now: Mapping[str, Any] = resolve_target(row.target.spec).fingerprint
    then = row.target.fingerprint
    changed = [
        f"{key} was {then.get(key)!r}, is {now.get(key)!r}"
        for key in sorted({*then, *now})
        if then.get(key) != now.get(key)
    ]
    if row.protocol != PROTOCOL_VERSION and not changed:
        changed = [f"protocol was {row.protocol}, is {PROTOCOL_VERSION}"]
    if changed:
        if now.get("compiler") == "none" != then.get("compiler"):
            find_compiler()  # says what is missing: nothing was changed
        raise EnvironmentChangedError(
            f"campaign {row.name} was measured elsewhere: {'; '.join(changed)}. Its numbers cannot be mixed with new "
            f"ones: start a new campaign here (evoforge run), or resume it where it began"
        )
