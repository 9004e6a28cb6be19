from __future__ import annotations

from evoforge.lowering.linear import Scope
from evoforge.lowering.printed import Access, Let, Loop, read_body
from evoforge.lowering.walked import Place, walk

BODY = """
    // Rows: out0.
    #pragma omp parallel for collapse(2) num_threads(call->threads) schedule(static)
    for (int64_t batch = 0; batch < batches; ++batch)
        for (int64_t row = steps - 1; row >= 0; --row) {
            float* buffer = buffers + evo::omp_get_thread_num() * cols;
            #pragma GCC unroll 8
            for (int64_t u = 0; u < UNROLL; ++u) {
                const int64_t at = u * evo::lanes, n = evo::part(cols - at, whole);  // what is left
                evo::prefetch(in0 + at + AHEAD);
                evo::store(out0 + row * cols + at, evo::load(in0 + (row + 1) * cols + at, n) * cst0[row], n);
            }
            buffer[in1[row]] = 0.0f;
        }
    out1[0] = 1.0f;
""".splitlines()


def only_loop(loop: Loop) -> Loop:
    (found,) = (item for item in loop.body if isinstance(item, Loop))
    return found


def test_loops_nest_as_the_text_is_indented() -> None:
    root = read_body(BODY)
    batch = only_loop(root)
    row = only_loop(batch)
    u = only_loop(row)
    assert [(loop.var, loop.start, loop.end, loop.step) for loop in (batch, row, u)] == [
        ("batch", "0", "batches", "1"), ("row", "0", "steps - 1 + 1", "1"), ("u", "0", "UNROLL", "1"),
    ]  # fmt: skip
    assert [loop.unrolled for loop in (batch, row, u)] == [False, False, True]
    assert [loop.collapsed for loop in (batch, row, u)] == [2, 1, 1]
    assert [loop.vector for loop in (batch, row, u)] == [False, True, True]
    assert root.body[-1] == Access("out1", "0", "store", False)


def test_accesses_come_in_the_order_of_the_run() -> None:
    row = only_loop(only_loop(read_body(BODY)))
    assert only_loop(row).body == [
        Let("at", "u * evo::lanes"),
        Let("n", "evo::part(cols - at, whole)"),
        Access("in0", "at + AHEAD", "prefetch", False),
        Access("in0", "(row + 1) * cols + at", "load", True),
        Access("cst0", "row", "load", False),
        Access("out0", "row * cols + at", "store", True),
    ]
    assert row.body[0] == Let("buffer", "buffers + evo::omp_get_thread_num() * cols", True)
    assert row.body[2:] == [
        Access("in1", "row", "load", False),
        Access("buffer", "in1[row]", "store", False),
    ]


def test_a_transposed_square_is_a_loop_over_its_rows() -> None:
    text = [
        "evo::transpose(panel + k * TILE + u, TILE, evo::part(n - k, false), n, [&](int64_t i, int64_t n) {",
        "    return evo::load(in1 + (at + i) * n + k, n);",
        "});",
    ]
    square = only_loop(read_body(text))
    assert (square.start, square.end, square.unrolled) == ("0", "evo::lanes", True)
    assert square.body == [
        Access("panel", "k * TILE + u + i * TILE", "store", True),
        Access("in1", "(at + i) * n + k", "load", True),
    ]


def test_packing_for_the_matrix_unit_stores_every_part_of_what_it_loads() -> None:
    text = [
        "evo::put_left(left + (k * 2 * 16 + r * evo::deep), 2, 16, steps - k, [&](int64_t i, int64_t n) {",
        "    return evo::load(in0 + (row + r) * steps + (k + i), n);",
        "});",
        "evo::put_right(panel, 2, 4, u, k, evo::load(in1 + k * cols + at, n));",
    ]
    root = read_body(text)
    packed = only_loop(root)
    assert (packed.end, packed.step, packed.called) == ("evo::deep", "evo::lanes", True)
    assert packed.body == [
        Access("left", "(k * 2 * 16 + r * evo::deep) + 0 * 16 * evo::deep + i * 1", "store", True),
        Access("left", "(k * 2 * 16 + r * evo::deep) + 1 * 16 * evo::deep + i * 1", "store", True),
        Access("in0", "(row + r) * steps + (k + i)", "load", True),
    ]
    loaded, stored = root.body[1:]
    assert loaded == Access("in1", "k * cols + at", "load", True)
    assert isinstance(stored, Access)
    assert (stored.pointer, stored.kind, stored.wide) == ("panel", "store", True)


def test_a_multiplication_of_tiles_loads_both_operands_parts() -> None:
    root = read_body(["evo::multiply(block, left + (k * 3 * 32), panel + (k * 1 * 64));"])
    assert root.body == [
        Access("left", "(k * 3 * 32)", "load", True, vectors=192),
        Access("panel", "(k * 1 * 64)", "load", True, vectors=64),
    ]
    assert root.pushes == 4


def test_sums_on_the_stack_are_memory() -> None:
    text = [
        "evo::vec sum_tile[TILE_ROWS][TILE_VECTORS] = {};",
        "for (int64_t r = 0; r < TILE_ROWS; ++r)",
        "    for (int64_t u = 0; u < TILE_VECTORS; ++u)",
        "        sum_tile[r][u] += sum_acc[r][u];",
    ]
    root = read_body(text)
    assert root.body[0] == Access("sum_tile", "r * TILE_VECTORS + u", "store", True)
    assert only_loop(only_loop(root)).body[0] == Access("sum_tile", "r * TILE_VECTORS + u", "load", True)


def test_reads_from_afar_say_how_far() -> None:
    body = read_body([
        "    const evo::ivec at = evo::load_i32(in1 + col, n);",
        "    const evo::vec x = evo::lookup(in0 + row * cols, at, n) + evo::gather(in2 + col * 3, 3, n);",
        "    evo::prefetch_to_write(out0 + col);",
    ]).body  # fmt: skip
    assert body == [
        Access("in1", "col", "load", True),
        Access("in0", "somewhere", "load", True, "somewhere"),
        Access("in2", "col * 3", "load", True, "3"),
        Access("out0", "col", "prefetch", False),
    ]


def test_what_is_near_is_not_gathered() -> None:
    place = Place("x", 4, 1 << 20, False)
    body = [f"    evo::gather(x + col, {step}, n);" for step in ("2", "4", "5", "somewhere")]
    touches = walk(body, Scope({}, {}, 16), {"x": place}, ["col = 0"]).touches
    assert [touch.gathers for touch in touches] == [False, False, True, True]
