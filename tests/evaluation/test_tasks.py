"""Reading task files: what fits, what does not, and what the message says."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from evoforge.core import Tolerance
from evoforge.errors import TaskError, UsageError
from evoforge.evaluation.tasks import apply_overrides, effective_overrides, load_task, parse_set

Run = Callable[[str], dict[str, object]]

GOOD = """\
import torch
from torch import nn

M = 8
N: int = 2 * M
DTYPE = torch.float32
MODE = "float32"
TABLE = [
    1,
    2,
]
WORKLOADS = [{"name": "small", "M": 4}, {"name": "half", "DTYPE": torch.float16}]
TOLERANCE = {"precision": "split", "factor": 64}

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()

    def forward(self, x):
        return x

def get_inputs():
    return [torch.randn(M, N, dtype=DTYPE)]

def get_init_inputs():
    return [N]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "task.py"
    path.write_text(text)
    return str(path)


def test_a_task_file_is_read_without_being_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    path = write(tmp_path, GOOD + f"\nopen({str(marker)!r}, 'w').close()\n")
    task = load_task(path)
    assert not marker.exists()
    assert task.name == "task" and task.path == path and task.root == str(tmp_path)
    assert [(w.name, dict(w.overrides)) for w in task.workloads] == [
        ("small", {"M": 4}),
        ("half", {"DTYPE": "float16"}),
    ]
    assert task.tolerance == Tolerance("split", "unspecified", 64)


def test_without_workloads_there_is_one_default(tmp_path: Path) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith("WORKLOADS"))
    assert [w.name for w in load_task(write(tmp_path, text)).workloads] == ["default"]


def test_set_wins_over_workloads_and_merges_those_that_become_equal(tmp_path: Path) -> None:
    text = GOOD.replace('{"name": "half", "DTYPE": torch.float16}', '{"name": "large", "M": 64}')
    task = load_task(write(tmp_path, text), {"M": 16})
    assert [w.name for w in task.workloads] == ["small"]
    assert effective_overrides(task, task.workloads[0]) == {"M": 16}
    assert task.id != load_task(write(tmp_path, text)).id


def test_an_unknown_constant_names_the_nearest_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\(MODE, DTYPE, M, N, TABLE\), got 'MODES'"):
        load_task(write(tmp_path, GOOD), {"MODES": 1})
    with pytest.raises(UsageError, match="expected the name of a top-level constant"):
        load_task(write(tmp_path, GOOD), {"WORKLOADS": []})


def test_a_name_assigned_together_with_others_says_how_to_mend(tmp_path: Path) -> None:
    for text in ('MODE, K = "ab"', 'MODE, *K = "a", 9'):
        path = write(tmp_path, GOOD.replace('MODE = "float32"', text))
        with pytest.raises(UsageError, match=r"task\.py:7: expected K to be assigned alone .*MODE"):
            load_task(path, {"K": 1})


def test_a_constant_that_is_changed_in_place_cannot_be_replaced(tmp_path: Path) -> None:
    changed = GOOD.replace("M = 8", "M = 8; M *= 2")
    path = write(tmp_path, changed.replace('"M": 4', '"N": 4'))
    with pytest.raises(UsageError, match=r"task\.py:4: expected M to be assigned alone .*--set can.*'M \*= 2'"):
        load_task(path, {"M": 1})
    assert load_task(path, {"N": 1}).overrides == {"N": 1}
    with pytest.raises(TaskError, match=r"task\.py:4: expected M to be assigned alone .*workload 'small' can.*'M \*="):
        load_task(write(tmp_path, changed))


@pytest.mark.parametrize("value", ["1e999", "{1, 2}", "b'1'", "2j", "[1, {'a': (2, -1e999)}]", "{0: 8}"])
def test_values_that_cannot_be_stored_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r"expected finite numbers, text, None, or lists, tuples and dicts.* as TABLE"):
        load_task(write(tmp_path, GOOD), {"TABLE": parse_set(f"TABLE={value}")[1]})
    with pytest.raises(TaskError, match=r"task\.py:12: workload 'small': expected finite numbers.* as TABLE"):
        load_task(write(tmp_path, GOOD.replace('"M": 4', f'"TABLE": {value}')))


def test_tuples_are_tuples_where_the_constant_holds_them(run: Run) -> None:
    source = GOOD.replace('MODE = "float32"', "SHAPE, PAIRS, SIZES, NONE = (3, 4), [(1, 2)], [5, 6], ()")
    values = {"SHAPE": [7, 8, 9], "PAIRS": [[3, 4], [5, 6]], "SIZES": [1], "NONE": [[2]]}
    names = run(apply_overrides(source, values))
    assert {name: names[name] for name in values} == {
        "SHAPE": (7, 8, 9), "PAIRS": [(3, 4), (5, 6)], "SIZES": [1], "NONE": ([2],),
    }  # fmt: skip


def lines_of(source: str) -> list[int]:
    return [node.lineno for node in ast.parse(source).body]


def test_constants_that_are_assigned_side_by_side_are_replaced_one_by_one(run: Run) -> None:
    source = GOOD.replace('MODE = "float32"', "H, (A, B), K = 8, (1, 2), (  # sizes\n    9, 10)\n[U, V] = [1, 2]")
    names = run(apply_overrides(source, {"K": 7, "H": 2 * 10**6, "V": 5}))
    assert [names[name] for name in ("H", "A", "B", "K", "U", "V", "M")] == [2000000, 1, 2, 7, 1, 5, 8]
    assert lines_of(apply_overrides(source, {"K": 7})) == lines_of(source)


def test_constants_that_share_a_value_are_replaced_one_by_one(tmp_path: Path, run: Run) -> None:
    source = GOOD.replace("M = 8", "M = K = (U, V) = (\n    1, 2)  # sizes\nH = W = 8; L = M")
    names = run(apply_overrides(source, {"M": 3, "U": 5, "W": 7}))
    wanted = {"M": 3, "K": (1, 2), "U": 5, "V": 2, "H": 8, "W": 7, "L": 3, "N": 6}
    assert {name: names[name] for name in wanted} == wanted
    assert load_task(write(tmp_path, source), {"H": 4}).overrides == {"H": 4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Model(", "class Modell(", r"task\.py:15: expected a top-level class Model.*did you mean.*'Modell'"),
        ("def get_inputs", "def get_input", r"task\.py:22: expected a top-level function get_inputs\(\).*'get_input'"),
        ("def get_init_inputs", "def other", r"task\.py:16: expected .*get_init_inputs\(\).*arguments \(size\)"),
        ("def get_inputs()", "def get_inputs(n)", r"task\.py:22: expected get_inputs\(\) to take no arguments.*'n'"),
        ("(nn.Module)", "", None),
        ("    return x", "    return x)", r"task\.py:20: expected Python, got a syntax error"),
        ('"M": 4', '"K": 4', r"task\.py:12: workload 'small': expected .*\(DTYPE, M.*got 'K'"),
        ('"name": "half"', '"name": "small"', r"task\.py:12: expected every workload to have a name of its own"),
        ("WORKLOADS = [", "WORKLOADS = [M, ", r"task\.py:12: expected WORKLOADS to be .*literal"),
        ('"factor": 64', f'"factor": {"+".join("1" * 600)}', r"task\.py:13: expected TOLERANCE to be .*very long"),
        ('"factor": 64', '"factor": 1024', r"task\.py:13: TOLERANCE\['factor'\] may only fall"),
        ('"factor"', '"factors"', r"task\.py:13: expected TOLERANCE to be a dict with keys of precision"),
    ],
)
def test_a_bad_file_is_refused_with_file_line_and_what_was_expected(
    tmp_path: Path, old: str, new: str, message: str | None
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    if message is None:
        assert load_task(path).name == "task"  # a plain class with forward is as good as a Module
        return
    with pytest.raises(TaskError, match=message):
        load_task(path)


def test_a_missing_file_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="found no file"):
        load_task(str(tmp_path / "nothing.py"))
    (tmp_path / "task.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="expected a readable Python file"):
        load_task(str(tmp_path / "task.py"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Computes the constants of GOOD: the part above the class, with a stand-in for torch."""
    fake = types.ModuleType("torch")
    vars(fake).update(float32="F32", float16="F16")
    monkeypatch.setitem(sys.modules, "torch", fake)

    def compute(source: str) -> dict[str, object]:
        names: dict[str, object] = {"torch": fake}
        exec("\n".join(source.split("class Model")[0].splitlines()[2:]), names)
        return names

    return compute


def test_where_there_is_no_constant_the_message_says_to_write_one(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(
        "import torch\n\n\ndef Model(x):\n    return x + 1\n\n\ndef get_inputs():\n    return [torch.rand(4)]\n"
    )
    with pytest.raises(UsageError, match=r"this module has none\), got 'N'; write one \(N = …\)"):
        load_task(str(path), {"N": 3})


def test_derived_constants_follow_an_override(run: Run) -> None:
    names = run(apply_overrides(GOOD, {"M": 100}))
    assert (names["M"], names["N"]) == (100, 200)
    names = run(apply_overrides(GOOD, {"N": 3, "TABLE": (7,)}))
    assert (names["M"], names["N"], names["TABLE"]) == (8, 3, (7,))


def test_a_dtype_name_becomes_a_dtype_unless_the_constant_holds_text(run: Run) -> None:
    names = run(apply_overrides(GOOD, {"DTYPE": "torch.float16", "MODE": "float16"}))
    assert (names["DTYPE"], names["MODE"]) == ("F16", "float16")


def test_line_numbers_survive_an_override_of_several_lines() -> None:
    changed = apply_overrides(GOOD, {"TABLE": 5, "M": 1})
    assert lines_of(changed) == lines_of(GOOD)
    assert changed.splitlines()[14:] == GOOD.splitlines()[14:]


def test_non_ascii_text_before_a_value_does_not_shift_it() -> None:
    assert apply_overrides('Ä = "ü"; M = 1\n', {"M": 2}) == 'Ä = "ü"; M = (2)\n'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("M=64", ("M", 64)),
        ("M=2**20 - 1", ("M", 2**20 - 1)),
        ("S=(1, 2)", ("S", (1, 2))),
        ("D=torch.float16", ("D", "float16")),
        ("D='a'", ("D", "a")),
    ],
)
def test_set_values_are_literals_or_dtypes(text: str, value: object) -> None:
    assert parse_set(text) == value


@pytest.mark.parametrize("text", ["M", "M=", "=3", "2M=3", "M=abc", "M=1//0", "M=9**9**9", "M=__import__('os')"])
def test_other_set_values_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse_set(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mypkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "layers.py").write_text(
        "from torch import nn\nraise RuntimeError('imported')\n\n"
        "class Gate(nn.Module):\n    def forward(self, x, y, scale=1.0):\n        return x * y\n\n"
        "class Sized(nn.Module):\n    def __init__(self, n):\n        pass\n\ndef double(x):\n    return x * 2\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_class_becomes_a_task_without_being_imported(package: Path) -> None:
    task = load_task("mypkg.layers:Gate", inputs=["y=i64[4]", "x=f32[8, 4]"])
    assert "from mypkg.layers import Gate as Model" in task.source
    assert task.source.index("torch.randn((8, 4))") < task.source.index("torch.randint(0, 2, (4,))")
    assert (task.name, task.entry, task.path, task.root) == ("Gate", "mypkg.layers:Gate", None, str(package))
    before = task.id
    (package / "mypkg" / "layers.py").write_text((package / "mypkg" / "layers.py").read_text() + "# changed\n")
    assert load_task("mypkg.layers:Gate", inputs=["y=i64[4]", "x=f32[8, 4]"]).id != before


def test_inputs_may_go_by_position_and_functions_count(package: Path) -> None:
    assert "torch.randn(()).to(torch.bfloat16)" in load_task("mypkg.layers:double", inputs=["bf16[]"]).source


def test_integers_are_drawn_below_a_bound(package: Path) -> None:
    source = load_task("mypkg.layers:double", inputs=["i64[8, 4]<50257"]).source
    assert "torch.randint(0, 50257, (8, 4)).to(torch.int64)" in source


@pytest.mark.parametrize(
    ("spec", "inputs", "message"),
    [
        ("mypkg.nowhere:Gate", ["f32[2]"], "found no mypkg.nowhere"),
        ("mypkg.layers:Gates", ["f32[2]"], "expected a top-level class or function Gates .*Gate, Sized, double"),
        ("mypkg.layers:Gate", [], "expected at least one --input"),
        ("mypkg.layers:Gate", ["x=f32[2]"], "expected an --input for y of mypkg.layers:Gate"),
        ("mypkg.layers:Gate", ["x=f32[2]", "z=f32[2]"], "expected one --input for each of x, y, scale"),
        ("mypkg.layers:Gate", ["x=f31[2]"], "expected an input like x=f32"),
        ("mypkg.layers:Gate", ["x=f32[2,,3]"], "expected sizes between commas"),
        ("mypkg.layers:Gate", ["x=f32[2]<9"], "a bound for integers"),
        ("mypkg.layers:Gate", ["x=i8[2]<129"], "a bound for integers"),
        ("mypkg.layers:Gate", ["x=i8[2]<0"], "a bound for integers"),
        ("mypkg.layers:Sized", ["x=f32[2]"], r"layers.py:9: expected Sized\(\) to need no arguments, got \(n\)"),
    ],
)
def test_a_class_that_does_not_fit_is_refused(package: Path, spec: str, inputs: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_task(spec, inputs=inputs)


def test_inputs_do_not_go_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only with pkg"):
        load_task(write(tmp_path, GOOD), inputs=["x=f32[2]"])


def test_the_shipped_tasks_are_tasks() -> None:
    files = sorted((Path(__file__).parents[2] / "experiments" / "tasks").glob("*.py"))
    assert len(files) >= 6
    for file in files:
        assert load_task(str(file)).workloads


@pytest.mark.parametrize("odd", ["\x0c", "\x0b", "\u2028"])
def test_an_override_finds_its_constant_behind_odd_line_ends(odd: str) -> None:
    source = f'"""head{odd}"""\nM = 4\nN = 5\n'
    assert apply_overrides(source, {"N": 7}).endswith("M = 4\nN = (7)\n")
