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
@pytest.mark.skipif(COMPILER is None, reason="no g++")
def test_cpp_snippets_compile(isa: str, tmp_path: Path) -> None:
    """Each in a namespace of its own; what is wrong is said by the card's name."""
    cards = [card for card in CARDS if "cpp" in card.languages]
    parts = (f'namespace n{at} {{\n#line 1 "{card.name}"\n{snippet(card)}}}\n' for at, card in enumerate(cards))
    path = tmp_path / "snippets.cpp"
    path.write_text('#include "evoforge.h"\n' + "".join(parts))
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


def test_who_asks_again_is_told_other_cards() -> None:
    turns = [names("cpp", None, None, "bandwidth", 3, features=set(), turn=turn) for turn in range(9)]
    assert turns[0] == names("cpp", None, None, "bandwidth", 3, features=set())
    told = {name for turn in turns for name in turn}
    alone = {card.name for card in CARDS if "cpp" in card.languages and card.bottlenecks == ("bandwidth",)}
    assert alone and alone <= told and set(turns[0]) & alone, "what is about this alone comes first"
    assert len(told) > 3


def test_cards_for_missing_hardware_are_left_out() -> None:
    every = names("cpp", None, None, "compute", 50)
    assert {"amx-tiles", "dot-product-units"} <= set(every)
    plain = names("cpp", None, None, "compute", 50, features={"avx2", "fma"})
    assert set(every) - set(plain) == {"amx-tiles", "dot-product-units", "bf16-storage"}
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


CHECKS = """
#include <cmath>
#include <cstdio>
#include <vector>
#define EXPECT(what) do { if (!(what)) { std::puts(#what); return 1; } } while (0)

int main() {
    std::vector<float> x(4096 + 64), y(4096 + 64), z(4096 + 64);
    for (int i = 0; i < 4096; ++i) x[i] = std::sin(0.37f * i), y[i] = std::cos(0.11f * i);
    for (float t = -87.f; t <= 0.f; t += 0.0137f) {
        const double want = std::exp((double)t);
        EXPECT(std::fabs(exp_nonpositive(evo::broadcast(t))[0] - want) <= 4e-7 * want);
    }
    for (int n : {1, 15, 31, 32, 100, 1000}) {
        double dot = 0, sum = 0;
        float top = x[0];
        for (int i = 0; i < n; ++i) dot += (double)x[i] * y[i], sum += x[i], top = std::fmax(top, x[i]);
        EXPECT(std::fabs(dot_ahead(x.data(), y.data(), n) - dot) < 1e-3);
        EXPECT(std::fabs(sum8(x.data(), n) - sum) < 1e-3);
        EXPECT(row_max(x.data(), n) == top);
    }
    transpose_tile(x.data(), 40, z.data(), 50, 50, 37);
    for (int i = 0; i < 50; ++i)
        for (int j = 0; j < 37; ++j) EXPECT(z[j * 50 + i] == x[i * 40 + j]);
    column_max(x.data(), 9, 70, 100, z.data());
    for (int j = 0; j < 70; ++j) {
        float top = x[j];
        for (int i = 1; i < 9; ++i) top = std::fmax(top, x[i * 100 + j]);
        EXPECT(z[j] == top);
    }
    const auto m = merge(of_block(x.data(), 128), of_block(x.data() + 128, 256));
    double mean = 0, m2 = 0;
    for (int i = 0; i < 384; ++i) mean += x[i] / 384.0;
    for (int i = 0; i < 384; ++i) m2 += (x[i] - mean) * (x[i] - mean);
    EXPECT(m.n == 384 && std::fabs(m.mean - mean) < 1e-5 && std::fabs(m.m2 - m2) < 1e-2);
    scaled_copy(x.data(), z.data(), 4000, 3.f, 2);
    for (int i = 0; i < 4000; ++i) EXPECT(z[i] == 3.f * x[i]);
    over_pieces(x.data(), z.data(), 3, 1000, 2);
    for (int i = 0; i < 3000; ++i) EXPECT(z[i] == std::fabs(x[i]));
    for (float& v : z) v = 1.f;
    block_4x2(x.data(), 50, y.data(), z.data(), 64, 20);
    for (int r = 0; r < 4; ++r)
        for (int j = 0; j < 2 * evo::lanes; ++j) {
            double want = 1;
            for (int k = 0; k < 20; ++k) want += (double)x[r * 50 + k] * y[k * 2 * evo::lanes + j];
            EXPECT(std::fabs(z[r * 64 + j] - want) < 1e-4);
        }
    evo::vec top = evo::broadcast(-1e30f), s{};
    for (int i = 0; i < 320; i += 2 * evo::lanes) push_block(top, s, x.data() + i);
    state all{-EVO_INF, 0.f};
    for (int i = 0; i < evo::lanes; ++i) all = merge(all, state{top[i], s[i]});
    double want = 0;
    for (int i = 0; i < 320; ++i) want += std::exp((double)x[i] - all.m);
    EXPECT(std::fabs(all.s - want) < 1e-4 * want);
    return 0;
}
"""


@pytest.mark.skipif(COMPILER is None, reason="no g++")
def test_cpp_snippets_compute_what_they_say(tmp_path: Path) -> None:
    skipped = ("amx-tiles", "dot-product-units", "row-buffer")
    shown = [snippet(card) for card in CARDS if "cpp" in card.languages and card.name not in skipped]
    (tmp_path / "all.cpp").write_text("\n".join(['#include "evoforge.h"', *shown, CHECKS]))
    # The flags of a kernel's build: reassociation must not break what relies on rounding.
    flags = ["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"]
    build = [str(COMPILER), "-std=gnu++17", *flags, "-fassociative-math", "-Wno-unused-function", f"-I{include_dir()}"]
    done = subprocess.run([*build, "all.cpp", "-o", "all"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([str(tmp_path / "all")], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout
