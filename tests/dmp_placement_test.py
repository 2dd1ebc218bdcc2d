# Not on GPUs: ordinary variables, for which the fake GPU has few of TensorFlow's kernels
"""Where the tables of distributed embeddings are: properties, the rules of the contract, and the command."""

import itertools
import json
import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_operation_kit.dist_model_parallel import cli
from sparse_operation_kit.dist_model_parallel.placement import STRATEGIES, Options, Table, place, slice_counts

TABLES = st.lists(
    st.builds(
        Table,
        rows=st.one_of(st.integers(1, 40), st.integers(1, 2**63)),
        columns=st.integers(1, 20),
        combiner=st.sampled_from([None, "sum", "mean"]),
        hotness=st.one_of(st.none(), st.floats(0, 100)),
    ),
    min_size=1,
    max_size=8,
)
THRESHOLD = st.one_of(st.none(), st.integers(1, 300), st.integers(1, 2**66))
OPTIONS = st.builds(Options, st.sampled_from(STRATEGIES), THRESHOLD, THRESHOLD, THRESHOLD)


def placed_or_refused(tables, ranks, options):
    try:
        return place(tables, ranks, options)
    except ValueError as error:
        assert "tables can be cut by columns into" in str(error)
        return None


def widths(placement, table):
    """The widths of a table's pieces, by rank."""
    pieces = [piece for piece in placement.pieces if piece.table == table]
    return {piece.rank: piece.columns[1] - piece.columns[0] for piece in pieces}


@settings(deadline=None, max_examples=300)
@given(TABLES, st.integers(1, 9), OPTIONS)
def test_every_element_is_in_one_place(tables, ranks, options):
    placement = placed_or_refused(tables, ranks, options)
    if placement is None:
        return
    for number, table in enumerate(tables):
        pieces = [piece for piece in placement.pieces if piece.table == number]
        whole = (0, table.rows), (0, table.columns)
        if number in placement.replicated:
            assert [piece.rank for piece in pieces] == list(range(ranks))
            assert {(piece.rows, piece.columns) for piece in pieces} == {whole}
            continue
        # Cut along one side, in the order of ranks, without a gap.
        axis, other = ("rows", "columns") if number in placement.row_sliced else ("columns", "rows")
        ends = [getattr(piece, axis) for piece in pieces]
        assert ends[0][0] == 0 and ends[-1][1] == getattr(table, axis)
        assert all(before[1] == after[0] for before, after in zip(ends, ends[1:]))
        assert all(begin < end for begin, end in ends)
        assert {getattr(piece, other) for piece in pieces} == {(0, getattr(table, other))}
        assert len({piece.rank for piece in pieces}) == len(pieces)


@settings(deadline=None, max_examples=300)
@given(TABLES, st.integers(1, 9), OPTIONS)
def test_tables_are_cut_as_the_thresholds_say(tables, ranks, options):
    placement = placed_or_refused(tables, ranks, options)
    if placement is None:
        return
    for number, table in enumerate(tables):
        replicated = (
            options.data_parallel_threshold is not None and table.elements <= options.data_parallel_threshold
        )
        cut = options.row_slice_threshold is not None and table.elements >= options.row_slice_threshold
        assert (number in placement.replicated) == replicated
        assert (number in placement.row_sliced) == (cut and not replicated)
        if number in placement.row_sliced:
            rows = [piece.rows[1] - piece.rows[0] for piece in placement.pieces if piece.table == number]
            assert max(rows) - min(rows) <= 1 and rows == sorted(rows, reverse=True)
            assert len(rows) == min(ranks, table.rows)


@settings(deadline=None, max_examples=300)
@given(TABLES, st.integers(1, 9), OPTIONS)
def test_pieces_of_a_group_have_one_width_and_combiner(tables, ranks, options):
    placement = placed_or_refused(tables, ranks, options)
    if placement is None:
        return
    alone = {*placement.replicated, *placement.row_sliced}

    def kind(piece):
        width = piece.columns[1] - piece.columns[0]
        return ("alone", piece.table) if piece.table in alone else (width, tables[piece.table].combiner)

    for rank in range(ranks):
        kinds = []
        for group, members in itertools.groupby(placement.on_rank(rank), lambda piece: piece.group):
            members = list(members)
            assert group == len(kinds)
            rows = [piece.rows[1] - piece.rows[0] for piece in members]
            assert [piece.offset for piece in members] == [sum(rows[:n]) for n in range(len(rows))]
            assert {kind(piece) for piece in members} == {kind(members[0])}
            kinds.append(kind(members[0]))
        assert len(set(kinds)) == len(kinds), "two groups could be one"


@settings(deadline=None, max_examples=300)
@given(TABLES, st.integers(1, 9), st.sampled_from(STRATEGIES))
def test_every_rank_has_a_table_if_no_threshold_is_given(tables, ranks, strategy):
    placement = placed_or_refused(tables, ranks, Options(strategy))
    if placement is None:
        assert sum(min(ranks, table.columns) for table in tables) < ranks
    else:
        assert {piece.rank for piece in placement.pieces} == set(range(ranks))


@settings(deadline=None, max_examples=300)
@given(TABLES, st.integers(1, 9), st.integers(1, 300))
def test_slices_are_the_fewest_that_the_threshold_allows(tables, ranks, threshold):
    # A rank for each slice: none meet, so pieces are slices.
    slices = place(tables, ranks, Options("basic", column_slice_threshold=threshold))
    for number, table in enumerate(tables):
        powers = [2**power for power in range(8) if table.rows * -(-table.columns // 2**power) <= threshold]
        most = min(ranks, table.columns)
        expected = min([*powers, most])
        alone = place([table], ranks, Options("basic", column_slice_threshold=threshold))
        found = widths(alone, 0)
        assert len(found) == expected
        assert max(found.values()) - min(found.values()) <= 1
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert sum(widths(slices, number).values()) == table.columns


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 9))
def test_balance(sizes, ranks):
    tables = [Table(rows=size, columns=1) for size in sizes]
    if len(sizes) < ranks:
        return
    counts = {}
    for strategy in STRATEGIES:
        placement = place(tables, ranks, Options(strategy))
        counts[strategy] = [len(placement.on_rank(rank)) for rank in range(ranks)]
    assert max(counts["basic"]) - min(counts["basic"]) <= 1
    assert max(counts["memory_balanced"]) - min(counts["memory_balanced"]) <= 1
    # The largest first to the least loaded: no rank has more than another by more than one table.
    loads = [placement.bytes_on(rank) / 4 for rank in range(ranks)]
    assert max(loads) - min(loads) <= max(sizes)
    assert max(loads) <= sum(sizes) / ranks + max(sizes) * (1 - 1 / ranks) + 1e-6


def ranks_of(placement):
    """The rank of each table that is on one."""
    return [piece.rank for piece in sorted(placement.pieces, key=lambda piece: piece.table)]


def of_sizes(*sizes, hotness=None):
    return [Table(size, 1, hotness=None if hotness is None else hotness[n]) for n, size in enumerate(sizes)]


def test_strategies_on_five_tables():
    tables = of_sizes(10, 50, 20, 40, 30)
    assert ranks_of(place(tables, 2, Options("basic"))) == [0, 1, 0, 1, 0]
    # 50 40 30 20 10 in zigzag: 0 1 1 0 0.
    assert ranks_of(place(tables, 2, Options("memory_balanced"))) == [0, 0, 0, 1, 1]
    # 50, 40, 30 beside 40, 20 beside 50, and then 10 where 70 meet 70: the lower rank.
    assert ranks_of(place(tables, 2, Options("memory_optimized"))) == [0, 0, 0, 1, 1]


def test_equal_sizes_tie_in_the_order_of_tables():
    for strategy in STRATEGIES:
        assert ranks_of(place(of_sizes(7, 7, 7), 3, Options(strategy))) == [0, 1, 2]


def test_lookups_count_where_they_are_known():
    # By memory the first is alone. With lookups, the small table that is read most is.
    sizes, hotness = (100, 60, 10), (1, 1, 98)
    assert ranks_of(place(of_sizes(*sizes), 2, Options("memory_optimized"))) == [0, 1, 1]
    known = place(of_sizes(*sizes, hotness=hotness), 2, Options("memory_optimized"))
    assert ranks_of(known) == [1, 1, 0]
    assert (known.lookups_on(0), known.lookups_on(1)) == (98, 2)


def test_reads_of_tables_on_all_ranks_are_shared():
    tables = [Table(6, 4, hotness=3.0), Table(1, 2, hotness=1.0)]
    placement = place(tables, 3, Options(row_slice_threshold=24, data_parallel_threshold=2))
    assert [placement.lookups_on(rank) for rank in range(3)] == pytest.approx([4 + 2 / 3] * 3)
    assert place([Table(6, 4)], 2).lookups_on(0) is None


def test_the_largest_are_halved_until_each_rank_has_one():
    # One table over four ranks; then one large beside one small.
    assert widths(place([Table(1000, 10)], 4), 0) == {0: 3, 1: 3, 2: 2, 3: 2}
    for ranks, slices in ((2, [1, 1]), (3, [2, 1]), (4, [4, 1])):
        placement = place([Table(1000, 8), Table(10, 8)], ranks)
        assert [len(widths(placement, table)) for table in (0, 1)] == slices


@pytest.mark.parametrize(
    ("tables", "ranks", "slices"),
    [
        # Pieces of 800 and 720 elements become 400, 400 and 720, and the threshold 799.
        ([(100, 8), (90, 8)], 3, [2, 1]),
        ([(100, 8), (90, 8)], 4, [2, 2]),
        ([(100, 8), (90, 8), (10, 8)], 6, [4, 2, 1]),
        # Equal tables are cut alike, although one slice more would be enough.
        ([(100, 8), (100, 8)], 3, [2, 2]),
        # The larger table has one column. So the other is cut.
        ([(68, 2), (183, 1)], 3, [2, 1]),
        ([(2**60, 1), (4, 4)], 5, [1, 4]),
    ],
)
def test_the_threshold_is_just_below_the_largest_piece(tables, ranks, slices):
    tables = [Table(*sizes) for sizes in tables]
    assert list(slice_counts(tables, range(len(tables)), ranks, None).values()) == slices


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (0, "The number of ranks must be an integer of at least 1, not 0"),
        (9, "2 tables can be cut by columns into 8 slices, fewer than 9 ranks"),
    ],
)
def test_bad_numbers_of_ranks_are_named(ranks, message):
    with pytest.raises(ValueError, match=message):
        place([Table(5, 4), Table(5, 4)], ranks, Options())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (Table(0, 4, name="users"), r"Table 1 \('users'\): the number of rows .* not 0"),
        (Table(5, -1), "Table 1: the number of columns .* not -1"),
        (Table(5, 1, hotness=float("nan")), "Table 1: hotness must be a number of at least 0, not nan"),
    ],
)
def test_bad_tables_are_named(table, message):
    with pytest.raises(ValueError, match=message):
        place([Table(1, 1), table], 1)


# ---- The command. ----

LISTED = [
    {"input_dim": 1000, "output_dim": 8, "name": "users", "combiner": "mean", "hotness": 1},
    {"input_dim": 100, "output_dim": 8, "name": "items", "combiner": "mean", "hotness": 30},
    {"input_dim": 2, "output_dim": 4},
]


def run(tmp_path, content, *flags):
    path = tmp_path / "tables.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return cli.main(["plan", str(path), *flags])


def test_the_command_lists_pieces_and_draws_bars(tmp_path, capsys):
    assert run(tmp_path, LISTED, "--ranks", "2", "--row_slice_threshold", "8000") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rank", "table", "rows", "columns", "kind", "group", "offset", "size"]
    assert lines[1].split() == ["0", "users", "0:500", "0:8", "rows", "0", "0", "15.6", "KiB"]
    assert "items" in lines[2] and "users" in lines[3] and "table 2" in lines[4]
    bars = [line.split() for line in lines if line.startswith("rank ") and "KiB" in line]
    assert [bar[2] for bar in bars] == ["18.8", "15.7"]
    assert [len(bar[-1]) for bar in bars] == [60, round(60 * 16032 / 19200)]
    assert set(bars[0][-1]) == {"#", "="} and lines[-1] == "# users  = items  + table 2"


def test_the_command_gives_json(tmp_path, capsys):
    assert run(tmp_path, LISTED[:2], "--ranks", "2", "--json") == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert [(rank["bytes"], rank["lookups"]) for rank in ranks] == [(32000, 8), (3200, 240)]
    assert ranks[1]["pieces"] == [
        {"table": 1, "name": "items", "rows": [0, 100], "columns": [0, 8], "group": 0, "offset": 0}
    ]


def test_the_example_of_the_documents(tmp_path, capsys):
    tables = [
        {"input_dim": 1000000, "output_dim": 64, "name": "users", "combiner": "mean", "hotness": 1},
        {"input_dim": 200000, "output_dim": 64, "name": "items", "combiner": "mean", "hotness": 30},
        {"input_dim": 5000, "output_dim": 16, "name": "shops", "hotness": 1},
        {"input_dim": 30, "output_dim": 16, "name": "days", "hotness": 1},
    ]
    api = pathlib.Path(__file__).absolute().parents[1] / "docs" / "api.md"
    _, command, shown = api.read_text(encoding="utf-8").partition(
        "    $ python -m sparse_operation_kit.dist_model"
    )
    flags = shown.splitlines()[0].split("tables.json ")[1].split()
    shown = [line[4:] for line in shown.partition("`tables.json` is a list")[0].splitlines()[1:] if line]
    assert command and len(shown) == 13 and "..." in shown
    assert run(tmp_path, tables, *flags) == 0
    assert set(shown) - {"..."} <= set(capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        pytest.param("[" * 100_000, "is not JSON: maximum recursion depth", id="deep"),
        ({}, "has no list of tables, but dict"),
        ([3], "table 0 is no object, but 3"),
        ([{"input_dim": 3}], "table 0 has no 'output_dim'"),
        ([{"input_dim": 3, "output_dim": 2, "rows": 1}], "table 0 has 'rows'; known are input_dim"),
        ([{"input_dim": 3, "output_dim": 2, "combiner": "max"}], "combiner must be .* not 'max'"),
        ([{"input_dim": 3, "output_dim": 2, "hotness": "2"}], "hotness must be a number, not '2'"),
        ([{"input_dim": 3, "output_dim": 2, "name": 2}], "name must be a text, not 2"),
        ([{"input_dim": "3", "output_dim": 2}], "Table 0: the number of rows must be an integer .* not '3'"),
    ],
)
def test_files_that_are_no_tables(tmp_path, capsys, content, message):
    assert run(tmp_path, content, "--ranks", "1") == 1
    assert re.search(message, capsys.readouterr().err)


def test_a_missing_file(capsys):
    assert cli.main(["plan", "/nowhere/tables.json", "--ranks", "1"]) == 1
    assert "/nowhere/tables.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**70, "1048576.0 PiB")]
)
def test_sizes(number, text):
    assert cli.size(number) == text
