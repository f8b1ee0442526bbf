"""Less work for calls of Spark from Python, which dominate the time of a report about a few events.

PySpark looks up the class and the method again for each column expression, in two requests to Java before the call
itself. A report builds some ten thousand expressions, many of which are the name of a column or a literal that was used
before. A list of columns is sent with a request for each of them. Some classes are looked up by their simple name, and
Java then searches all jars for each package that the name could be in.

Spark names each stage after the source line that submitted it, from a stack trace for each operator. Only its web
interface, which is disabled, and its logs show these names.
"""

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass, JavaMember

if TYPE_CHECKING:
    from py4j.java_gateway import GatewayClient, JVMView
    from pyspark.sql import SparkSession

# Names by which PySpark refers to classes with static methods only, and the classes.
_CLASSES: Final = {
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.expressions.Window": "org.apache.spark.sql.expressions.Window",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
# Functions of one argument that return an immutable expression without effects.
_EXPRESSIONS: Final = frozenset({"col", "lit"})
# Functions of one list.
_OF_LISTS: Final = frozenset({"toSeq", "toList"})
# `java.util.List.of` has up to ten arguments.
_LISTED_AT_ONCE: Final = 10
# Column names and literals of all jobs together; others may be those of a user.
_REMEMBERED: Final = 4096
_CALL_SITE: Final = ("callSite.short", "callSite.long")


class _JavaMethods(JavaClass):  # type: ignore[misc]  # py4j has no types
    """Java class with static methods that are looked up once. A method has no state, so threads can share it."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            found = _remembering(found) if name in _EXPRESSIONS else found
            found = _of_list(found, self._gateway_client) if name in _OF_LISTS else found
            setattr(self, name, found)
        return found


def _remembering(function: Callable[[object], object]) -> Callable[[object], object]:
    """Returns the function with its results for names and plain literals remembered; 1 and True are different."""

    @functools.lru_cache(_REMEMBERED, typed=True)
    def remembered(argument: object) -> object:
        return function(argument)

    def call(argument: object) -> object:
        return (remembered if isinstance(argument, str | int | None) else function)(argument)

    return call


def _of_list(function: Callable[[object], object], client: "GatewayClient") -> Callable[[Iterable[object]], object]:
    """Returns the function of a Java list for Python lists, which are sent in one request for ten elements."""
    lists, array_lists = _JavaMethods("java.util.List", client), JavaClass("java.util.ArrayList", client)

    def call(elements: Iterable[object]) -> object:
        rest = list(elements)
        if 0 < len(rest) <= _LISTED_AT_ONCE:
            return function(lists.of(*rest))
        whole = array_lists()
        while rest:
            whole.addAll(lists.of(*rest[:_LISTED_AT_ONCE]))
            del rest[:_LISTED_AT_ONCE]
        return function(whole)

    return call


def look_up_once(jvm: "JVMView") -> None:
    """Remember the methods of frequently used classes. A class that this Spark does not have is left out."""
    for name, full_name in _CLASSES.items():
        found = getattr(jvm, full_name)
        if isinstance(found, JavaClass):
            setattr(jvm, name, _JavaMethods(full_name, found._gateway_client))


def name_call_site(spark: "SparkSession", name: str) -> None:
    """Name the stages that this thread submits, instead of after source lines."""
    for key in _CALL_SITE:
        spark.sparkContext.setLocalProperty(key, name)
