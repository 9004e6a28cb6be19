from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from evoforge.errors import UsageError
from evoforge.paths import include_dir
from evoforge.prompts import BOTTLENECKS, Card, estimate_tokens, load_cards, parse_card, pick_cards

CARDS = load_cards()
COMPILER = shutil.which("g++")


def snippet(card: Card) -> str:
    (found,) = re.findall(r"(?ms)^```\w+\n(.*?)^```$", card.text)
    return found


def test_there_are_cards_for_every_language_and_bottleneck() -> None:
    count = {language: sum(language in card.languages for card in CARDS) for language in ("cpp", "triton", "cuda")}
    assert count["cpp"] >= 14 and count["triton"] >= 3 and count["cuda"] >= 3
    assert {one for card in CARDS for one in card.bottlenecks} == set(BOTTLENECKS)
    for axis, levels in (("tiling", {0, 1, 2, 3}), ("memory", {1, 2, 3}), ("fusion", {2, 3})):
        assert {level for card in CARDS if "cpp" in card.languages for level in card.axes.get(axis, ())} == levels


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_a_card_is_short_and_shows_no_whole_kernel(card: Card) -> None:
    assert estimate_tokens(card.text) < 1200
    assert not any(word in card.text.lower() for word in ("softmax", "rmsnorm", "rms_norm", "evo_run"))
    assert card.text.startswith("## ") and "# " not in re.sub(r"(?ms)^```.*?^```$", "", card.text).replace("## ", "")


@pytest.mark.parametrize("isa", ["sapphirerapids", "haswell"])
@pytest.mark.parametrize("card", [card for card in CARDS if "cpp" in card.languages], ids=lambda card: card.name)
@pytest.mark.skipif(COMPILER is None, reason="no g++")
def test_a_cpp_snippet_compiles(card: Card, isa: str, tmp_path: Path) -> None:
    path = tmp_path / "snippet.cpp"
    path.write_text(f'#include "evoforge.h"\n{snippet(card)}')
    flags = ["-std=gnu++17", "-O1", f"-march={isa}", "-fopenmp", "-fsyntax-only", "-Wall", "-Wno-unused-function"]
    command = [str(COMPILER), *flags, "-DEVO_SIZE_in0_1=64", f"-I{include_dir()}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "warning" not in done.stderr.replace("unknown-pragmas", ""), done.stderr


@pytest.mark.parametrize("card", [card for card in CARDS if "triton" in card.languages], ids=lambda card: card.name)
def test_a_triton_snippet_is_a_module(card: Card) -> None:
    compile(snippet(card), card.name, "exec")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("card", [card for card in CARDS if "cuda" in card.languages], ids=lambda card: card.name)
def test_a_cuda_snippet_compiles(card: Card, tmp_path: Path) -> None:
    path = tmp_path / "snippet.cu"
    path.write_text(f"#include <cstdint>\n{snippet(card)}")
    command = ["nvcc", "-std=c++17", "-arch=sm_80", "-ptx", str(path), "-o", str(tmp_path / "snippet.ptx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def names(*args: object, **options: object) -> list[str]:
    return [card.name for card in pick_cards(CARDS, *args, **options)]  # type: ignore[arg-type]


def test_cards_are_picked_by_what_has_to_change() -> None:
    assert names("cpp", (1, 1, 3), (1, 3, 3), "bandwidth", 1) == ["streaming-stores"]
    assert "row-buffer" in names("cpp", (1, 1, 1), (1, 2, 3), None, 3)
    assert names("cpp", None, None, "parallel", 5) == ["nested-loops-collapse", "static-threads"]
    assert names("cpp", (1, 1, 1), None, None, 5) == []
    assert all(name.startswith("cuda") for name in names("cuda", (0, 0, 0), (2, 3, 3), None, 9))
    assert names("cpp", (0, 0, 0), (3, 2, 3), "compute", 3) == names("cpp", (0, 0, 0), (3, 2, 3), "compute", 3)


def test_cards_for_missing_hardware_are_left_out() -> None:
    every = names("cpp", None, None, "compute", 50)
    assert {"amx-tiles", "dot-product-units"} <= set(every)
    plain = names("cpp", None, None, "compute", 50, features={"avx2", "fma"})
    assert set(every) - set(plain) == {"amx-tiles", "dot-product-units"}
    assert "amx-tiles" in names("cpp", None, None, "compute", 50, features={"amx_bf16"})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("---\nlanguage", "language", "front matter between"),
        ("[cpp]", "[c]", "front matter of a technique card"),
        ("[bandwidth]", "[speed]", "got 'speed'"),
        ("bottlenecks", "bottleneck", "bottleneck"),
        ("# Title", "Title", "a line '# Title'"),
        ("{memory: [3]}", "[", "front matter of a technique card"),
    ],
)
def test_errors_name_the_card_and_the_mend(old: str, new: str, words: str) -> None:
    good = "---\nlanguage: [cpp]\naxes: {memory: [3]}\nbottlenecks: [bandwidth]\n---\n# Title\n\ntext\n"
    assert parse_card(good, "one").axes == {"memory": (3,)}
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        parse_card(good.replace(old, new, 1), "one")
    assert str(caught.value).startswith("one.md: ") and "\n" not in str(caught.value)
