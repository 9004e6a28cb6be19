import math
from pathlib import Path

import pytest

from evoforge.config import load_config
from evoforge.errors import ConfigError
from evoforge.yaml_text import read_yaml


def write(folder: Path, text: str) -> Path:
    path = folder / "campaign.yaml"
    path.write_text(text)
    return path


def test_a_whole_file_becomes_one_campaign_per_combination(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: q\ntasks: [a.py, 'pkg.mod:Thing']\ntargets: [cpu, 'cpu:threads=1']\nlanguages: [cpp]\nbaseline: best\n"
        "budget: {minutes: 3, evals: 400, usd: 0}\nfrom: [k.cpp]\nemitters: [generator]\nmodels: []\n"
        "meta_prompts: {pool: default, evolve_every: 20}\narchive: {axes: [tiling, memory, fusion]}\n"
        "tuning: {trials: 16}\njudge: {sandbox: basic}\nseed: 7\n",
    )
    configs = load_config(path)
    assert len(configs) == 4
    assert configs[0].task == str(tmp_path / "a.py")
    assert configs[2].task == "pkg.mod:Thing"
    assert configs[0].from_ == (str(tmp_path / "k.cpp"),)
    assert configs[0].budget.evals == 400
    assert len({config.name for config in configs}) == 4
    assert all(config.seed == 7 for config in configs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tasks: [a.py]\nbudjet: {}", "unknown key 'budjet'; did you mean 'budget'"),
        ("tasks: [a.py]\nbudget: {minuts: 3}", "unknown key 'budget.minuts'; did you mean 'minutes'"),
        ("tasks: [a.py]\ntuning: {trials: many}", "key 'tuning.trials'"),
        ("tasks: []", "key 'tasks': expected at least one entry"),
        ("tasks: a.py", r"key 'tasks': expected a list like \[a, b\], got 'a.py'"),
        ("task: [a.py]", "unknown key 'task'; did you mean 'tasks'"),
        ("budget: {evals: 1}", "key 'tasks' is missing"),
        ("tasks: [a.py]\njudge: strict", "key 'judge': expected a mapping like {key: value}, got 'strict'"),
        ("tasks: [a.py]\nset: 3", "key 'set': expected a mapping like {key: value}, got 3"),
        ("tasks: [a.py]\nname: ''", "key 'name': a name has printable characters"),
        ("", "got an empty file"),
        ("tasks: [a.py]\narchive: {axes: [fusion, memory, tiling]}", "key 'archive.axes.0': input should be 'tiling'"),
        ("name: x\ntasks: [a/norm.py, b/norm.py]", "one name per campaign, 'x-norm' stands for several"),
        ("just text", "must be a mapping"),
        ("tasks: [a.py", "is not YAML"),
        ("tasks: [a.py]\ntasks: [b.py]", "the key 'tasks' stands twice"),
        ("tasks: [a.py]\nname: 2024-99-99", "is not YAML: month must be"),
        ("tasks: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
    ],
)
def test_a_mistake_is_named_with_the_way_on(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="check the path"):
        load_config(tmp_path / "none.yaml")


def test_models_bring_their_emitters(tmp_path: Path) -> None:
    text = "tasks: [a.py]\nbudget: {usd: 2, tokens: 1000}\nmodels: [{model: x, api_base: http://127.0.0.1:1/v1}]"
    (config,) = load_config(write(tmp_path, text))
    assert config.models[0].model == "x"
    assert config.with_generator
    assert config.asking == ("invent", "improve", "aim", "cross", "repair", "parametrise")
    (config,) = load_config(write(tmp_path, f"{text}\nemitters: [generator, repair]"))
    assert config.with_generator
    assert config.asking == ("repair",)
    (config,) = load_config(write(tmp_path, f"{text}\nsend: {{kernels: false}}"))
    assert config.asking == ("invent",), "nobody is asked to change what must not be shown"
    with pytest.raises(ConfigError, match="did you mean 'api_base'"):
        load_config(write(tmp_path, "tasks: [a.py]\nmodels: [{model: x, apibase: y}]"))


def test_numbers_are_those_of_yaml_1_2() -> None:
    text = "{a: 1e-5, b: 012, c: 1:30, d: 0x1F, e: 1_000, f: -3, g: .5, h: -.inf, i: 0o17, j: 1.2.3, k: '7'}"
    assert read_yaml(text) == {
        "a": 1e-5, "b": 12, "c": "1:30", "d": 31, "e": 1000, "f": -3, "g": 0.5, "h": -math.inf, "i": 15,
        "j": "1.2.3", "k": "7",
    }  # fmt: skip
