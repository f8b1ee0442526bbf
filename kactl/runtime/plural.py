"""Numbers of things as text."""


def count(number: int, noun: str = "partition") -> str:
    """Returns text such as '1 partition', '1,204 partitions'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
