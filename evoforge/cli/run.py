"""`evoforge run` and `evoforge resume`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evoforge.cli._options import DEFAULT_STORE, Inputs, Json, Sets, StoreUrl, next_command
from evoforge.errors import ConfigError, StoreError, TaskError, UnsupportedError, UsageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evoforge.campaign import Campaign
    from evoforge.config import CampaignConfig

__all__ = ["resume", "run"]


def run(
    subject: Annotated[str, typer.Argument(metavar="EXPERIMENT.yaml|TASK.py|pkg.mod:Class")],
    target: Annotated[
        str | None, typer.Option(metavar="SPEC", help="cpu, cpu:threads=1, cpu:isa=x86-64-v3 … [default: cpu]")
    ] = None,
    language: Annotated[str | None, typer.Option(help="[default: cpp]")] = None,
    set_: Sets = None,
    input_: Inputs = None,
    from_: Annotated[
        list[str] | None, typer.Option("--from", metavar="KERNEL_FILE", help="A kernel of yours as a seed; repeatable.")
    ] = None,
    evals: Annotated[
        int | None, typer.Option(help="Stop after so many evaluations; 0 prepares for `evoforge ask`.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes. [default: 3; none where --evals alone is given]")
    ] = None,
    usd: Annotated[
        float | None, typer.Option(help="Spend at most so many dollars on models. [default: 0, paid ones are refused]")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Let models take at most so many tokens.")] = None,
    calls: Annotated[int | None, typer.Option(help="Send models at most so many requests.")] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 0]")] = None,
    workers: Annotated[int | None, typer.Option(help="Proposals in flight. [default: 4]")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A model to ask, openai/… anthropic/… …; repeatable, replaces the file's."),
    ] = None,
    api_base: Annotated[
        str | None, typer.Option(metavar="URL", help="The server of the models, http://127.0.0.1:8000/v1 …")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The campaign's name. [default: <stem>-<n>]")] = None,
    store: StoreUrl = DEFAULT_STORE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the campaign, run nothing.")
    ] = False,
    replay: Annotated[
        str | None, typer.Option(metavar="STORE", help="Take evaluations from this store instead of measuring.")
    ] = None,
    replay_extend: Annotated[
        bool, typer.Option("--replay-extend", help="With --replay: measure what is missing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Search for faster kernels.

    The subject is a campaign file, a task file or a class of yours. Options override the file.
    Ctrl-C stops; `evoforge resume NAME` goes on without loss.
    """
    if replay_extend and replay is None:
        raise UsageError("--replay-extend needs --replay STORE, got no --replay; name the store to read from")
    changes = {
        "target": target,
        "language": language,
        "set": _overrides(set_),
        "inputs": tuple(input_) if input_ else None,
        "from": tuple(from_) if from_ else None,
        "seed": seed,
        "workers": workers,
        "name": name,
    }
    limits = {"evals": evals, "minutes": minutes, "usd": usd, "tokens": tokens, "calls": calls}
    configs = [
        _merge(config, {**changes, "models": _models(config, model, api_base)}, limits)
        for config in _configs(subject, target, language)
    ]
    if name and len(configs) > 1:
        raise UsageError(
            f"--name fits one campaign, {subject} describes {len(configs)}; set 'name' in the file instead"
        )
    if replay is not None:
        _check_replay(replay)
    if dry_run:
        return _print_plan(configs, store, as_json)

    from evoforge.campaign import Campaign, check

    _check_folder(store)
    if len(configs) > 1:  # a mistake in the last one is told before the first one runs
        for config in configs:
            check(config, asks=replay is None or replay_extend)
        _check_names([config.name for config in configs if config.name], store)
    makers = [
        lambda config=config: Campaign.create(config, store, replay=replay, replay_extend=replay_extend)
        for config in configs
    ]
    return _search(makers, store, as_json)


def resume(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    evals: Annotated[int | None, typer.Option(help="Stop after so many evaluations in all.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes in all.")] = None,
    usd: Annotated[float | None, typer.Option(help="Spend at most so many dollars in all on models.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Let models take at most so many tokens in all.")] = None,
    calls: Annotated[int | None, typer.Option(help="Send models at most so many requests in all.")] = None,
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    """Go on with a campaign where it stopped.

    Limits that are given replace its own. They are the whole campaign's: what was spent before counts.
    """
    from evoforge.campaign import Campaign

    limits = {"evals": evals, "minutes": minutes, "usd": usd, "tokens": tokens, "calls": calls}

    def resumed() -> Campaign:
        campaign = Campaign.resume(name, store)
        if any(value is not None for value in limits.values()):
            campaign.extend(_merge(campaign.config, {}, limits).budget)
        return campaign

    return _search([resumed], store, as_json)


def _configs(subject: str, target: str | None, language: str | None) -> list[CampaignConfig]:
    """A campaign file's grid, whose axes --target and --language replace; or one campaign on a bare task."""
    from evoforge.config import CampaignConfig, load_config

    if Path(subject).suffix not in (".yaml", ".yml"):
        return [CampaignConfig(task=subject)]
    return load_config(subject, target=target, language=language)


def _overrides(words: Sequence[str] | None) -> dict[str, Any] | None:
    if not words:
        return None
    from evoforge.evaluation.tasks import parse_set

    return dict(parse_set(word) for word in words)


def _models(
    config: CampaignConfig, names: Sequence[str] | None, api_base: str | None
) -> tuple[dict[str, Any], ...] | None:
    """The models of the command line; one that the file names too keeps what the file says of it."""
    if names is None and api_base is None:
        return None
    known = {model.model: model.model_dump() for model in config.models}
    chosen = list(dict.fromkeys(names or known))
    if not chosen:
        raise UsageError("--api-base needs a model, got none; add --model openai/NAME")
    own = {} if api_base is None else {"api_base": api_base}
    return tuple({**known.get(name, {"model": name}), **own} for name in chosen)


def _merge(config: CampaignConfig, changes: dict[str, Any], limits: dict[str, Any]) -> CampaignConfig:
    """`config` with the command line's options laid over it, validated again."""
    from pydantic import ValidationError

    data = config.model_dump(by_alias=True)
    for key, value in changes.items():
        if value is not None:
            data[key] = {**data["set"], **value} if key == "set" else value
    given = {key: value for key, value in limits.items() if value is not None}
    data["budget"] = {**data["budget"], **given}
    if "evals" in given and "minutes" not in given and "budget" not in config.model_fields_set:
        data["budget"]["minutes"] = None  # a bare task with --evals alone is meant to reach them
    try:
        return type(config).model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][-1]).replace("_", "-")
        said = first["msg"].removeprefix("Value error, ").lower()
        raise ConfigError(f"option --{where}: {said}, got {first.get('input')!r}") from error


def _check_folder(store: str) -> None:
    """Makes the default store's folder, so that a read-only place is named before anything is spent."""
    prefix = "sqlite:///"
    if not store.startswith(prefix) or ":memory:" in store:
        return
    folder = Path(store.removeprefix(prefix).split("?")[0]).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"expected a folder for the store that can be written, {folder.resolve()} cannot be made "
            f"({error.strerror}); run in another folder or give --store sqlite:///PATH"
        ) from error


def _check_replay(url: str) -> None:
    """A replay store that is not there is told before a campaign takes its name."""
    from evoforge.errors import NotFoundError
    from evoforge.storage import open_store, shown_url

    try:
        open_store(url, create=False).close()
    except NotFoundError as error:
        raise NotFoundError(f"expected a store to replay at {shown_url(url)}, found none; check --replay") from error


def _check_names(names: Sequence[str], store: str) -> None:
    from evoforge.errors import NotFoundError
    from evoforge.storage import open_store

    try:
        with open_store(store, create=False) as found:
            taken = {row.name for row in found.campaigns()}
    except NotFoundError:  # no store yet
        return
    if known := [name for name in names if name in taken]:
        raise UsageError(
            f"campaigns named {', '.join(known)} exist; `evoforge resume NAME` goes on with one, or choose another name"
        )


def _print_plan(configs: list[CampaignConfig], store: str, as_json: bool) -> int:
    """Checks what a run would check, but for models' keys; measures and stores nothing."""
    from evoforge.campaign import check, told_before
    from evoforge.cli._output import emit
    from evoforge.storage import probe_store, shown_url

    plans: list[dict[str, Any]] = []
    for config in configs:
        checked = check(config, asks=False)
        plan = config.model_dump(by_alias=True, mode="json")
        plan |= {"workloads": [workload.name for workload in checked.task.workloads], "store": shown_url(store)}
        if told := told_before(config, checked.task, checked.target):
            plan["told"] = told
        plans.append(plan)
    probe_store(store)
    _check_names([config.name for config in configs if config.name], store)
    if as_json:
        emit({"campaigns": plans})
        return 0
    import yaml

    print("# nothing was run; without --dry-run this would start:")
    texts = [plan.pop("told") for plan in plans if "told" in plan]
    print(yaml.safe_dump_all(plans, sort_keys=False, allow_unicode=True).rstrip())
    for told in texts:
        print(f"\n# {told['notice']}\n# the first text to a model, as far as it is known now:\n")
        print(told["system"].rstrip() + "\n\n" + told["user"].rstrip())
        print(f"\n# {told['later']}")
    return 0


def _search(makers: Sequence[Callable[[], Campaign]], store: str, as_json: bool) -> int:
    """Runs the campaigns one after the other; prints each result as it ends.

    Of several, one that cannot be searched is told and left out; the status is that of the worst.
    """
    from evoforge.cli._output import EXIT_MISUSE, emit, error_object, with_finished
    from evoforge.cli._progress import Progress
    from evoforge.cli._summary import print_result

    objects: list[dict[str, Any]] = []
    status = 0
    for make in makers:
        progress = Progress()
        try:
            with progress:
                campaign = make()
                budget = campaign.config.budget
                progress.begin(campaign.name, minutes=budget.minutes, evals=budget.evals)
                result = campaign.run(progress)
        except (TaskError, UnsupportedError, WorkerError) as error:  # this one's own fault
            if len(makers) == 1:
                raise
            print(f"evoforge: {progress.name}: {error}", file=sys.stderr)
            objects.append({"campaign": progress.name, **error_object(type(error).__name__, str(error))})
            status = EXIT_MISUSE
            continue
        except BaseException as error:  # ends the others, too
            if isinstance(error, KeyboardInterrupt):
                name = progress.name
                mend = f"go on with: {next_command('resume', name, store=store)}" if name else "nothing was stored yet"
                error.args = (mend,)
            elif progress.name and (type(error) is StoreError or isinstance(error, OSError)):
                error.add_note(f"go on with: {next_command('resume', progress.name, store=store)}")
            if len(makers) > 1:
                with_finished(error, {"campaigns": objects})
            raise
        objects.append(result.to_json())
        status = max(status, result.exit_code)
        if not as_json:
            print_result(result, store)
    if as_json:
        emit(objects[0] if len(objects) == 1 else {"campaigns": objects})
    return status
