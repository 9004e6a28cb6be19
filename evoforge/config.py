"""Campaign files: what a user may write, checked before anything is spent."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from evoforge.emitters import BLIND_EMITTERS, MODEL_EMITTERS
from evoforge.errors import ConfigError

__all__ = ["Budget", "CampaignConfig", "CampaignFile", "ModelConfig", "load_config"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_Model):
    """What may be spent; the first limit reached stops. None: no limit. `usd` 0 forbids paid calls.

    `evals` 0 prepares a campaign and searches nothing: for those who answer tickets themselves.
    `tokens` and `calls` bound what models take.
    """

    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    evals: int | None = Field(default=None, ge=0)
    usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    tokens: int | None = Field(default=None, gt=0)
    calls: int | None = Field(default=None, gt=0)


class _MetaPrompts(_Model):
    pool: str = "default"
    evolve_every: int = Field(default=20, ge=0)
    active: int = Field(default=8, ge=1)
    tokens: int = Field(default=24000, ge=2000)


class _Archive(_Model):
    axes: tuple[Literal["tiling"], Literal["memory"], Literal["fusion"]] = ("tiling", "memory", "fusion")


class _Tuning(_Model):
    trials: int = Field(default=16, ge=0)


class _Judge(_Model):
    sandbox: Literal["strict", "basic", "none"] = "basic"


class _Send(_Model):
    """What may leave the machine."""

    task: bool = True
    kernels: bool = True
    hardware: bool = True


class ModelConfig(_Model):
    """A model as `evoforge.llm.ModelSpec` takes it; the key itself is never written down."""

    model: str
    api_base: str | None = None
    api_key_env: str | None = None
    usd_per_mtok_in: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    usd_per_mtok_cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    usd_per_mtok_out: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_tokens: int = Field(default=8192, ge=1)
    timeout_s: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    temperature: float = Field(default=0.7, ge=0, le=2)


def _is_name(name: str | None) -> str | None:
    if name is not None and (not name.strip() or name.startswith("-") or not name.isprintable()):
        raise ValueError("a name has printable characters and does not begin with '-'")
    return name


_Name = Annotated[str | None, AfterValidator(_is_name)]


class _Common(_Model):
    baseline: Literal["best", "eager", "compiled"] = "best"
    budget: Budget = Budget(minutes=3)
    from_: tuple[str, ...] = Field(default=(), alias="from")
    emitters: tuple[str, ...] | None = None
    models: tuple[ModelConfig, ...] = ()
    send: _Send = _Send()
    meta_prompts: _MetaPrompts = _MetaPrompts()
    archive: _Archive = _Archive()
    tuning: _Tuning = _Tuning()
    judge: _Judge = _Judge()
    transfer: bool = True
    seed: int = Field(default=0, ge=0, lt=2**63)
    workers: int = Field(default=4, ge=1, le=64)

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def with_generator(self) -> bool:
        return self.emitters is None or "generator" in self.emitters

    @property
    def asking(self) -> tuple[str, ...]:
        """The emitters that ask models: those named; where there are models and none is named all that may be shown
        what they need.
        """
        if self.emitters is None:
            return () if not self.models else MODEL_EMITTERS if self.send.kernels else BLIND_EMITTERS
        return tuple(name for name in self.emitters if name != "generator")


class CampaignConfig(_Common):
    """One campaign: one task on one target in one language.

    `workers` bounds the proposals in flight; it belongs to the search (ticket t reads only outcomes
    of tickets at most t − workers), so it is part of what makes a campaign reproducible.
    """

    name: _Name = None
    task: str
    set: Mapping[str, Any] = {}
    inputs: tuple[str, ...] = ()
    target: str = "cpu"
    language: str = "cpp"


class CampaignFile(_Common):
    """A campaign file as written: a grid of tasks, targets and languages."""

    name: _Name = None
    tasks: tuple[str, ...] = Field(min_length=1)
    set: Mapping[str, Any] = {}
    inputs: tuple[str, ...] = ()
    targets: tuple[str, ...] = Field(default=("cpu",), min_length=1)
    languages: tuple[str, ...] = Field(default=("cpp",), min_length=1)


def load_config(path: str | Path, *, target: str | None = None, language: str | None = None) -> list[CampaignConfig]:
    """Reads a campaign file; one config per task × target × language.

    `target` and `language` stand in for the file's lists. Task and kernel paths are relative to the file. Where the
    file has more than one combination the names get the task's stem and, of several targets, the target appended.

    Raises:
        ConfigError: not YAML, an unknown key (with the nearest right one), a wrong value.
    """
    import yaml

    from evoforge.yaml_text import read_yaml

    path = Path(path)
    try:
        data = read_yaml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"expected a campaign file at {path}, got: {error.strerror}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        got = "an empty file" if data is None else type(data).__name__
        raise ConfigError(f"{path} must be a mapping with at least the key 'tasks', got {got}")
    try:
        file = CampaignFile.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_explain(error)}") from error
    targets, languages = (target,) if target else file.targets, (language,) if language else file.languages
    combinations = [(t, g, lang) for t in file.tasks for g in targets for lang in languages]
    grid = len(file.tasks) * len(file.targets) * len(file.languages) > 1
    grid_keys = {"name", "tasks", "targets", "languages", "from_"}
    common = file.model_dump(by_alias=True, exclude=grid_keys, exclude_unset=True)
    common["from"] = tuple(str(path.parent / kernel) for kernel in file.from_)
    configs = []
    for task, on, written_in in combinations:
        name = file.name
        if name and grid:
            part = task.rpartition(":")[2] if _is_entry(task) else Path(task).stem
            name = "-".join([name, part, *([on] if len(file.targets) > 1 else [])])
        where = task if _is_entry(task) else str(path.parent / task)
        configs.append(CampaignConfig(name=name, task=where, target=on, language=written_in, **common))
    names = [config.name for config in configs if config.name]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: expected one name per campaign, {twice!r} stands for several; leave out 'name'")
    return configs


def _is_entry(task: str) -> bool:
    return ":" in task and not task.endswith(".py")


_KEYS: dict[tuple[str, ...], type[BaseModel]] = {
    (): CampaignFile,
    ("budget",): Budget,
    ("meta_prompts",): _MetaPrompts,
    ("archive",): _Archive,
    ("tuning",): _Tuning,
    ("judge",): _Judge,
    ("send",): _Send,
    ("models",): ModelConfig,
}


_SHAPES = {
    "tuple_type": "expected a list like [a, b]",
    "too_short": "expected at least one entry",
    "model_type": "expected a mapping like {key: value}",
    "model_attributes_type": "expected a mapping like {key: value}",
    "dict_type": "expected a mapping like {key: value}",
    "mapping_type": "expected a mapping like {key: value}",
}
"""What pydantic says in its own terms, by the type of the error."""


def _explain(error: ValidationError) -> str:
    # An unknown key first: it may be the one that another is missing for.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"key '{where}' is missing"
    if first["type"] != "extra_forbidden":
        said = _SHAPES.get(first["type"], first["msg"].removeprefix("Value error, ").lower())
        return f"key '{where}': {said}, got {first.get('input')!r}"
    model = _KEYS[tuple(part for part in first["loc"][:-1] if isinstance(part, str))]
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key '{where}'; {hint}"
