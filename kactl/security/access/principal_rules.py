"""Rules that turn the name of a certificate into the name of a principal.

They are Kafka's `ssl.principal.mapping.rules`: the first rule whose pattern matches the whole name gives the result,
and a name that none matches is rejected. The patterns are Java's. Constructs that Java and Python read differently are
rejected when the rules are read, so that a rule never means something else than on the brokers.

Source: Kafka's SslPrincipalMapper; https://kafka.apache.org/documentation/#security_authz_ssl
"""

import re
from typing import Final, NamedTuple

# As in Kafka: DEFAULT; or pattern, replacement and L or U. Rules are separated by commas that are in neither part.
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE}.*?|.*?)\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")

# Line ends of Java's patterns.
_LINE_ENDS: Final = "\\n\\r\\x85\\u2028\\u2029"
_DOT: Final = f"[^{_LINE_ENDS}]"
_END: Final = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)"
_QUANTIFIER: Final = re.compile(r"[*+?]|\{[0-9]+(?:,[0-9]*)?\}")
_GROUP: Final = re.compile(r"\((?!\?)|\(\?[:=!]")
_SIMPLE_ESCAPE: Final = re.compile(r"\\(?:[dDwWsStnrf1-9]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[^A-Za-z0-9\s])")
# What these mean in a class differs, or will.
_CLASS_PAIRS: Final = ("&&", "||", "--", "~~")


class _Rule(NamedTuple):
    """A pattern, and what replaces each match: texts, and numbers of groups."""

    pattern: "re.Pattern[str]"
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        """Returns the name of the principal; None if the pattern does not match the whole name."""
        if self.pattern.fullmatch(name) is None:
            return None
        replaced = self._replaced(name)
        return replaced.lower() if self.case == "L" else replaced.upper() if self.case == "U" else replaced

    def _replaced(self, name: str) -> str:
        """Returns the name with every match replaced, as Java does: after an empty match it goes on with the next
        character, where Python looks for a longer match first."""
        parts: list[str] = []
        copied = begin = 0
        while begin <= len(name) and (match := self.pattern.search(name, begin)):
            parts.append(name[copied : match.start()])
            parts += [part if isinstance(part, str) else match[part] or "" for part in self.replacement]
            copied = match.end()
            begin = copied + (match.end() == match.start())
        return "".join(parts) + name[copied:]


class PrincipalRules:
    """A list of rules.

    Args:
        text: `DEFAULT`, or rules of the form `RULE:pattern/replacement/[LU]`, separated by commas.

    Raises:
        ValueError: a rule is malformed, or means something else in Python than in Java.
    """

    def __init__(self, text: str = "DEFAULT") -> None:
        # None stands for DEFAULT: the name as it is.
        self._rules: list[_Rule | None] = []
        if any(char < " " or char == "\x7f" for char in text):
            raise ValueError("the rules contain control characters")
        for found in _SPLITTER.finditer(text.strip()):
            rule = found[1]
            if not rule:
                continue
            parsed = _PARSER.fullmatch(rule)
            if parsed is None:
                raise ValueError(f"{rule!r} is no rule: write RULE:pattern/replacement/, or DEFAULT")
            self._rules.append(None if parsed[1] else _rule(parsed[2], parsed[3], parsed[4]))
        if not self._rules:
            raise ValueError("there is no rule: write DEFAULT to keep names as they are")

    def name_of(self, distinguished_name: str) -> str | None:
        """Returns the name of the principal, without `User:`; None if no rule matches."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(_translated(pattern), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {pattern!r} is malformed: {error}") from None
    return _Rule(compiled, _parts(_with_literal_references(replacement, compiled.groups), compiled.groups), case)


# -- patterns ----------------------------------------------------------------------------------------------------------


def _translated(pattern: str) -> str:
    """Returns a pattern of Java as a pattern of Python.

    Raises:
        ValueError: it has a construct that the two read differently.
    """
    parts: list[str] = []
    offset = 0
    if pattern.startswith("(?i)"):
        parts.append("(?i)")
        offset = 4
    may_repeat = False
    while offset < len(pattern):
        char = pattern[offset]
        if found := _QUANTIFIER.match(pattern, offset):
            # One more character makes it reluctant; another quantifier would make it possessive, or is an error.
            if not may_repeat:
                raise _differs(pattern, offset)
            part, may_repeat = found[0], False
            if pattern.startswith("?", found.end()):
                part += "?"
        elif char == "[":
            part, may_repeat = _class(pattern, offset), True
        elif char == "\\":
            part, may_repeat = _escape(pattern, offset), True
        elif char == "(":
            opened = _GROUP.match(pattern, offset)
            if opened is None:
                raise _differs(pattern, offset)
            part, may_repeat = opened[0], False
        elif char in "{}]":
            raise _differs(pattern, offset)
        else:
            part, may_repeat = char, char not in "^$|"
        offset += len(part)
        parts.append({".": _DOT, "$": _END}.get(part, part))
    return "".join(parts)


def _escape(pattern: str, offset: int) -> str:
    found = _SIMPLE_ESCAPE.match(pattern, offset)
    if found is None or (found[0][1:].isdecimal() and pattern[found.end() : found.end() + 1].isdecimal()):
        raise _differs(pattern, offset)
    return found[0]


def _class(pattern: str, offset: int) -> str:
    """Returns a character class, with its brackets."""
    begin = offset + 1 + pattern.startswith("^", offset + 1)
    at = begin
    while at < len(pattern):
        char = pattern[at]
        if char == "]" and at > begin:
            return pattern[offset : at + 1]
        if char in "[]^" or pattern.startswith(_CLASS_PAIRS, at):
            raise _differs(pattern, at)
        if char == "\\":
            escape = _escape(pattern, at)
            if escape[1].isdecimal():
                raise _differs(pattern, at)
            at += len(escape)
        else:
            at += 1
    raise ValueError(f"the pattern {pattern!r} has a class without an end")


def _differs(pattern: str, offset: int) -> ValueError:
    return ValueError(f"the pattern {pattern!r} has {pattern[offset : offset + 3]!r}, which is not supported")


# -- replacements ------------------------------------------------------------------------------------------------------


def _with_literal_references(replacement: str, groups: int) -> str:
    """Returns a replacement in which references to groups that do not exist are escaped, as Kafka does it: only if
    there is any group, and correctly only for the first of them."""
    if not groups:
        return replacement
    escaped = replacement
    for found in _REFERENCE.finditer(replacement):
        if not found[1].startswith("0") and int(found[1][0]) > groups:
            escaped = f"{escaped[: found.start()]}\\{escaped[found.start() :]}"
    return escaped


def _parts(replacement: str, groups: int) -> tuple[str | int, ...]:
    """Returns the texts and the numbers of groups of a replacement, by the rules of Java's `replaceAll`."""
    parts: list[str | int] = []
    offset = 0
    while offset < len(replacement):
        char = replacement[offset]
        following = replacement[offset + 1 : offset + 2]
        if char == "\\":  # never the last character: a rule has a backslash only before another character
            parts.append(following)
            offset += 2
        elif char == "$":
            if not (following.isascii() and following.isdecimal()) or int(following) > groups:
                raise ValueError(f"the replacement {replacement!r} has a reference to a group that does not exist")
            group, offset = int(following), offset + 2
            while replacement[offset : offset + 1].isascii() and replacement[offset : offset + 1].isdecimal():
                if group * 10 + int(replacement[offset]) > groups:
                    break
                group = group * 10 + int(replacement[offset])
                offset += 1
            parts.append(group)
        else:
            parts.append(char)
            offset += 1
    return tuple(parts)
