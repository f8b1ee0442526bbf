"""Conversion patterns of log4j and logback, such as `[%d] %-5p %m (%c)%n`, as regular expressions for their lines.

The groups are `ts`, `zone`, `level`, `thread`, `prefix`, `msg` and `logger`. A pattern without one of them gets an
empty group. A date in another form than 2024-05-01 10:00:00 has the groups of `DATE` instead of `ts`.
"""

import re
from typing import Final

from kactl.model.errors import BadRequest

# Names of zones that mean one offset everywhere. IST, CST and BST, for example, do not.
ZONES: Final = {
    "Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "MSK": 180,
    "SGT": 480, "HKT": 480, "JST": 540, "KST": 540, "AEST": 600, "AEDT": 660, "NZST": 720, "NZDT": 780,
    "EST": -300, "EDT": -240, "CDT": -300, "MDT": -360, "PST": -480, "PDT": -420, "AKST": -540, "AKDT": -480,
}  # fmt: skip
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ZONE: Final = rf"(?P<zone>[+-]\d\d:?\d\d|(?:{'|'.join(sorted(ZONES, key=len, reverse=True))})\b)"
# No message or thread begins with a date: that is the layout's, after the time at which a line was received.
MESSAGE: Final = r"(?!\[?\d{4}-\d\d-\d\d[T ])(?:\[(?P<prefix>[^\]]*)\][:,]? )?(?P<msg>.*)"
LOGGER: Final = r"(?P<logger>[\w.$-]+)(?::\d+)?"
DATE: Final = ("year", "month", "day", "hour", "minute", "second", "fraction", "epoch")
# Matches at no position, so that an optional group of it is always empty.
NOTHING: Final = r"(?!)"
_TIME: Final = (
    r"(?P<ts>(?:\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d)[ T]\d\d:\d\d:\d\d(?:[,.]\d{1,9})?|"
    rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d(?:[,.]\d{{3}})?)(?: ?{ZONE})?"
)
_LEVEL: Final = r"(?P<level>[A-Z]{4,5})"
# Between the level and a colon, a logger has its full name: a message may also begin with a word and a colon.
_FULL: Final = re.compile(r"(\(\?P<level>[^)]*\)(?: \*)?) (" + re.escape(LOGGER) + r"):")
# After the last part of a logger's name, so that it may be before a colon.
_SHORT: Final = "(?:)"
_LETTERS: Final = {
    "yyyy": r"(?P<year>\d{4})", "yy": r"(?P<year>\d\d)", "MM": r"(?P<month>\d\d)", "MMM": r"(?P<month>[A-Z][a-z]{2})",
    "dd": r"(?P<day>\d\d)", "d": r"(?P<day>\d{1,2})", "HH": r"(?P<hour>\d\d)", "H": r"(?P<hour>\d{1,2})",
    "mm": r"(?P<minute>\d\d)", "ss": r"(?P<second>\d\d)", "E": r"\w+", "EEE": r"\w+",
}  # fmt: skip
# Names of formats in log4j; all others that begin so print the date and the time in the usual order.
_NAMED: Final = ("ISO8601", "DEFAULT", "RFC3339", "yyyy-MM-dd", "yyyy/MM/dd", "yy/MM/dd")
_OTHERS: Final = {"DATE": "dd MMM yyyy HH:mm:ss,SSS"}
# Conversion words -> what they print.
_WORDS: Final = {
    **dict.fromkeys(("p", "le", "level"), _LEVEL),
    **dict.fromkeys(("c", "lo", "logger"), LOGGER),
    **dict.fromkeys(("m", "msg", "message"), MESSAGE),
    **dict.fromkeys(("t", "tn", "thread", "threadName"), r"(?P<thread>(?!\d{4}-\d\d-).*?)"),
    **dict.fromkeys(("C", "class", "F", "file", "M", "method", "l", "location"), r"[\w.$<>?()\-:]+"),
    **dict.fromkeys(("L", "line"), r"[\d?]+"),
    **dict.fromkeys(("r", "relative", "pid", "processId", "sn", "tid", "T", "threadId", "tp", "N", "nano"), r"\d+"),
    **dict.fromkeys(("X", "mdc", "MDC"), r"(?:\{[^}]*\}|[\w.-]+=[^,\]\s]*(?:, ?[\w.-]+=[^,\]\s]*)*)?"),
    **dict.fromkeys(("x", "NDC", "K", "map", "marker", "cn", "contextName", "property", "u", "uuid", "h"), r".*?"),
    **dict.fromkeys(("n", "ex", "exception", "throwable", "xEx", "xThrowable", "rEx", "wEx", "nopex"), ""),
}
# Words around a part of a pattern, which change its colour or its text.
_AROUND: Final = ("highlight", "style", "clr", "replace", "black", "red", "green", "yellow", "blue", "magenta", "cyan",
                  "white", "gray", "boldRed", "boldGreen", "boldYellow", "boldBlue", "boldMagenta", "boldCyan",
                  "boldWhite", "maxLen", "enc", "encode", "notEmpty", "variablesNotEmpty")  # fmt: skip
_TOKEN: Final = re.compile(r"%(?P<pad>-?\d*)(?:\.-?\d+)?(?P<word>[A-Za-z]*)|\$\$?\{[^}]*\}")


class UnknownPattern(BadRequest):
    """A conversion pattern cannot be read."""


def expression(pattern: str) -> str:
    """Return the regular expression of the lines that a conversion pattern prints.

    Raises:
        UnknownPattern: the message names the conversion and its position.
    """
    whole = _part(pattern, pattern, 0)
    for group, word in (("msg", "%m"), ("ts", "%d")):
        if f"(?P<{group}>" not in whole and (group != "ts" or not re.search(r"\(\?P<(?:year|epoch)>", whole)):
            raise UnknownPattern("--layout", f"{pattern!r} has no {word}, without which lines cannot be read")
    if "(?P<logger>" not in whole:
        whole += "(?P<logger>)"
    groups = ("ts", "zone", "level", "thread", "prefix", "msg", *DATE)
    missing = "".join(f"(?P<{name}>{NOTHING})?" for name in groups if f"(?P<{name}>" not in whole)
    whole = _FULL.sub(lambda match: rf"{match[1]} (?P<logger>[\w$-]+(?:\.[\w$-]+)+):", whole)
    return f"{missing}{whole}\\s*"


def _part(text: str, pattern: str, offset: int) -> str:
    """Return the expression of a part of a pattern that begins at an offset."""
    result, at = "", 0
    while match := _TOKEN.search(text, at):
        result += _literal(text[at : match.start()])
        at = match.end()
        if match[0].startswith("$"):
            result += r".*?"
            continue
        if not match["word"] and text[at : at + 1] == "%":
            result, at = result + "%", at + 1
            continue
        word = match["word"]
        if not word and text[at : at + 1] == "(":
            word = "style"
        known = next((word[:length] for length in range(len(word), 0, -1) if _is_word(word[:length])), None)
        if known is None:
            raise UnknownPattern(
                "--layout",
                f"{pattern!r}: the conversion %{word} at character {offset + match.start() + 1} is not known",
            )
        at -= len(match["word"]) - len(known) if match["word"] else 0
        if known in _AROUND:
            inner, at = _enclosed(text, at)
            found = _part(inner, pattern, offset + at - len(inner) - 1)
            found = f"(?:{found})?" if known.endswith("otEmpty") else found
            _, at = _options(text, at)
        else:
            options, at = _options(text, at)
            found = _date(options, pattern) if known in ("d", "date") else _WORDS[known]
            if found == LOGGER and options[:1] == ["1"]:
                found += _SHORT
        padding = " *" if match["pad"] else ""
        result += found + padding if match["pad"].startswith("-") else padding + found
    return _without_repeated_groups(result + _literal(text[at:]))


def _is_word(word: str) -> bool:
    return word in _WORDS or word in _AROUND or word in ("d", "date")


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\ ", " ").replace("\\\n", "")


def _enclosed(text: str, at: int) -> tuple[str, int]:
    """Return the part in brackets that begins at a position, and the position after it."""
    pairs = {"(": ")", "{": "}"}
    opening = text[at : at + 1]
    closing, depth = pairs.get(opening, ""), 0
    for index in range(at, len(text)):
        depth += (text[index] == opening) - (text[index] == closing)
        if closing and not depth:
            return text[at + 1 : index], index + 1
    return "", at


def _options(text: str, at: int) -> tuple[list[str], int]:
    """Return the options in braces that begin at a position, and the position after them."""
    found = []
    while text[at : at + 1] == "{":
        option, after = _enclosed(text, at)
        if after == at:
            break
        found.append(option)
        at = after
    return found, at


def _date(options: list[str], pattern: str) -> str:
    form = options[0].strip("\"'") if options else "ISO8601"
    if form.startswith("UNIX"):
        return r"(?P<epoch>\d{10,13})"
    if form.startswith(_NAMED):
        return _TIME
    if form.startswith("ABSOLUTE") or "d" not in _OTHERS.get(form, form):
        raise UnknownPattern("--layout", f"{pattern!r} prints times without a day, which cannot be ordered")
    result = ""
    for match in re.finditer(r"'([^']*)'|([A-Za-z])\2*|.", _OTHERS.get(form, form), re.DOTALL):
        letters = match[0]
        if letters[0] in "Sn":
            result += r"(?P<fraction>\d{1,9})"
        elif letters[0] in "XxZzV":
            result += ZONE
        elif match[2]:
            if letters not in _LETTERS:
                raise UnknownPattern("--layout", f"{pattern!r}: {letters} in the date {form!r} is not known")
            result += _LETTERS[letters]
        else:
            result += _literal(match[1] if match[1] is not None else letters).replace(",", "[,.]")
    return result


def _without_repeated_groups(text: str) -> str:
    """Keep each group once; a pattern may print a value twice."""
    seen: set[str] = set()

    def kept(match: "re.Match[str]") -> str:
        is_new = match[1] not in seen
        seen.add(match[1])
        return match[0] if is_new else "(?:"

    return re.sub(r"\(\?P<(\w+)>", kept, text)
