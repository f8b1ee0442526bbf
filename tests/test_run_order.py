"""Distribution of the tests among the workers of pytest-xdist."""

from pathlib import Path

from tests.support import run_order, tree


def test_listed_files_and_folders_exist() -> None:
    listed = {*run_order.FOLDERS, *run_order.SPLIT, *run_order.SLOWEST}

    assert [path for path in sorted(listed) if not (tree.ROOT / path).exists()] == []


def test_a_file_is_a_unit_unless_it_is_split_or_part_of_a_folder() -> None:
    assert run_order.unit_of("tests/test_docs.py::test_links[a::b]") == "tests/test_docs.py"
    assert run_order.unit_of("tests/interop/acceptance/test_07_topics.py::test_a") == "tests/interop/"
    storm = "tests/actors/test_storms_whole.py::test_storm[10]"
    assert run_order.unit_of(storm) == storm


def test_slow_units_are_first_and_large_ones_next() -> None:
    order = run_order.slowest_first(
        [
            "tests/small.py::a",
            "tests/large.py::a",
            "tests/large.py::b",
            "tests/test_walkthrough.py::a",
            "tests/interop/test_link.py::a",
        ]
    )

    assert list(order) == ["tests/interop/", "tests/test_walkthrough.py", "tests/large.py", "tests/small.py"]
    assert list(order.values()) == [0, 1, 2, 3]


def test_order_of_units_does_not_depend_on_the_order_of_collection() -> None:
    tests = ["tests/b.py::a", "tests/a.py::a", "tests/cli/test_watch.py::a", "tests/c.py::a", "tests/c.py::b"]

    order = list(run_order.slowest_first(tests))

    assert order == ["tests/cli/test_watch.py", "tests/c.py", "tests/a.py", "tests/b.py"]
    assert list(run_order.slowest_first(reversed(tests))) == order


def test_workers_collect_the_same_tests_from_different_beginnings() -> None:
    orders = [run_order.collection_order(tree.ROOT / "tests", worker, 3) for worker in range(3)]

    assert len({order[0] for order in orders}) == 3
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2]) == orders[0]
    collected = [Path(path) for path in orders[0]]
    for file in (tree.ROOT / "tests").rglob("test_*.py"):
        assert any(file.is_relative_to(path) for path in collected), file
