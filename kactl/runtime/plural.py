"""Numbers of things as text."""


def count(number: int, noun: str = "partition") -> str:
    """Returns text such as '1 partition', '1,204 partitions', '2 processes'."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"
