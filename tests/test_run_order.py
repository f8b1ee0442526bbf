"""Distribution of the tests among the workers of pytest-xdist."""

from pathlib import Path

from tests.support import run_order, tree


def test_listed_files_and_folders_exist() -> None:
    listed = {*run_order.FOLDERS, *run_order.ALONE, *run_order.SPLIT, *run_order.SLOWEST}

    assert [path for path in sorted(listed) if not (tree.ROOT / path).exists()] == []


def test_a_file_is_a_unit_unless_it_is_split_or_part_of_a_folder() -> None:
    assert run_order.unit_of("tests/test_docs.py::test_links[a::b]") == "tests/test_docs.py"
    assert run_order.unit_of("tests/forensics/jobs/test_skew.py::test_a") == "tests/forensics/"
    assert run_order.unit_of("tests/interop/test_link.py::test_a") == "tests/interop/"
    assert run_order.unit_of("tests/interop/acceptance/test_07_topics.py::test_a") == "tests/interop/acceptance/"
    secured = "tests/interop/test_secure_cluster.py"
    assert run_order.unit_of(f"{secured}::test_a[2.6]") == secured
    script = "tests/sim/test_corpus.py::test_script_passes[SCN-01-memory]"
    assert run_order.unit_of(script) == script


def test_slow_units_are_first_and_large_ones_next() -> None:
    order = run_order.slowest_first(
        [
            "tests/small.py::a",
            "tests/large.py::a",
            "tests/large.py::b",
            "tests/test_walkthrough.py::a",
            "tests/interop/test_link.py::a",
            "tests/interop/test_secure_cluster.py::a",
            "tests/interop/acceptance/test_07_topics.py::a",
        ]
    )

    assert list(order) == [
        "tests/interop/acceptance/", "tests/interop/", "tests/interop/test_secure_cluster.py",
        "tests/test_walkthrough.py", "tests/large.py", "tests/small.py",
    ]  # fmt: skip
    assert list(order.values()) == [0, 1, 2, 3, 4, 5]


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
