"""Distribution of the tests among the workers of pytest-xdist."""

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
