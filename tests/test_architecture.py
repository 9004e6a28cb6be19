"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import evoforge
from evoforge.core import Candidate
from evoforge.evaluation.tasks import load_task
from evoforge.paths import data_dir

ROOT = Path(evoforge.__file__).resolve().parent.parent
MODULES = sorted((ROOT / "evoforge").rglob("*.py"))
TEXTS = [
    path
    for top in sorted(ROOT.iterdir())
    if top.name not in (".venv", ".git", "build", "dist") and not top.name.endswith("_cache")  # linters write there
    for path in (top.rglob("*") if top.is_dir() else [top])
    if path.suffix in (".py", ".h", ".c", ".md", ".yaml", ".toml", ".j2") or path.name in ("Makefile", "run")
    if path.is_file()
]
HEAVY = {
    "torch", "triton", "optuna", "sqlalchemy", "alembic", "matplotlib", "litellm", "tree_sitter", "scipy", "sklearn",
}  # fmt: skip


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_layers_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_all_is_exact(path: Path) -> None:
    """Every module says what it offers, every name exists, and nothing public is left unsaid."""
    if "migrations" in path.parts:
        pytest.skip("alembic loads these by path; they define what alembic asks for")
    if path.parent.name == "tasks":
        pytest.skip("a task file defines what the task format asks for")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    listed: list[str] | None = None
    bound: set[str] = set()
    imported: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
            if "__all__" in names:
                assert node.value is not None
                listed = ast.literal_eval(node.value)
            bound |= names
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.asname or alias.name for alias in node.names}
    if len(tree.body) == 1 and path.name == "__init__.py":
        return  # a folder of modules with nothing but its docstring
    assert listed is not None, "no __all__"
    assert len(listed) == len(set(listed)), "a name twice"
    lazy = {"__getattr__"} & bound
    assert lazy or set(listed) <= bound | imported, f"not defined: {set(listed) - bound - imported}"


def test_the_offered_names_import() -> None:
    for package in ("", ".core", ".campaign", ".archives", ".storage", ".emitters",
                    ".tuning", ".prompts", ".llm", ".plots", ".export", ".cli", ".mcp", ".config", ".errors",
                    ".paths"):  # fmt: skip
        module = importlib.import_module(f"evoforge{package}")
        for name in module.__all__:
            assert getattr(module, name) is not None


def test_the_command_line_imports_nothing_heavy() -> None:
    program = "import sys, evoforge.cli._app; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert not loaded & (HEAVY | {"numpy", "pydantic", "jinja2", "yaml"})


def test_no_module_prints_or_seeds_globally() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if path.name == "worker_model.py":  # runs the task's code in a process of its own, which may draw globally
            continue
        assert not re.search(r"\b(np|numpy)\.random\.seed\(|\brandom\.seed\(", text), path
        if "cli" not in path.parts and "worker" not in path.name:
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            assert not any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls), path


def test_no_text_names_the_machine_it_was_written_on() -> None:
    pattern = re.compile("/" + "work/|/" + "root/|/" + "home/[a-z]|/tmp/" + "w/")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found


def test_seed_meta_prompts_parse() -> None:
    from evoforge.prompts import PromptPool

    prompts = PromptPool.default("cpp").active()
    assert len(prompts) >= 3
    assert len({prompt.ref for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize("path", sorted((data_dir("experiments") / "tasks").glob("*.py")), ids=lambda path: path.stem)
def test_task_files_are_tasks(path: Path) -> None:
    task = load_task(str(path), {}, ())
    assert task.name == path.stem
    assert task.workloads


@pytest.mark.parametrize("path", sorted(data_dir("experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_experiments_are_campaigns(path: Path) -> None:
    from evoforge.config import load_config

    for config in load_config(path):
        load_task(config.task, config.set, config.inputs)
        for kernel in config.from_:
            assert Candidate("cpp", Path(kernel).read_text(encoding="utf-8")).space.parameters is not None


def test_front_matter_and_yaml_have_no_unknown_ends() -> None:
    for path in sorted(data_dir("meta_prompts").glob("*.md")):
        head = path.read_text(encoding="utf-8").split("---")[1]
        assert isinstance(yaml.safe_load(head), dict), path


def test_templates_compile_as_jinja() -> None:
    from jinja2 import Environment

    for path in sorted(data_dir("templates").rglob("*.j2")):
        Environment(autoescape=False).parse(path.read_text(encoding="utf-8"))


def test_every_package_has_its_tests() -> None:
    for folder in sorted((ROOT / "evoforge").iterdir()):
        if folder.name != "testing" and (folder / "__init__.py").exists():
            assert list((ROOT / "tests" / folder.name).glob("**/test_*.py")), f"tests/{folder.name} is empty"
