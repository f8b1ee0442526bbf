"""Logs as Kafka 3.9 writes them where nobody has changed anything: which file, which layout, which level."""

from pathlib import Path
from typing import Final

# Appender -> file.
_FILES: Final = {
    "server": "server.log",
    "stateChange": "state-change.log",
    "controller": "controller.log",
    "request": "kafka-request.log",
    "cleaner": "log-cleaner.log",
}
# Logger -> level, where to, and whether to the root's file as well.
_LOGGERS: Final = {
    "kafka": ("INFO", "", True),
    "org.apache.kafka": ("INFO", "", True),
    "kafka.network.RequestChannel$": ("WARN", "request", False),
    "kafka.request.logger": ("WARN", "request", False),
    "org.apache.kafka.controller": ("INFO", "controller", False),
    "kafka.controller": ("TRACE", "controller", False),
    "kafka.log.LogCleaner": ("INFO", "cleaner", False),
    "state.change.logger": ("INFO", "stateChange", False),
}
_APPENDER: Final = """\
log4j.appender.{name}=org.apache.log4j.DailyRollingFileAppender
log4j.appender.{name}.DatePattern='.'yyyy-MM-dd-HH
log4j.appender.{name}.File=${{kafka.logs.dir}}/{file}
log4j.appender.{name}.layout=org.apache.log4j.PatternLayout
log4j.appender.{name}.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
# The bench waits for lines on stdout.
_ROOT: Final = """\
log4j.rootLogger=INFO, stdout, server
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def java_options(logs: Path, *, state_change: str = "INFO", zone: str = "UTC") -> list[str]:
    """What makes a broker log into `logs`, which is made; beside it lies the configuration.

    Args:
        state_change: the level of state-change.log: INFO, as it comes, or TRACE, as up to 2.5.
        zone: the time zone of the machine, as far as the broker knows.
    """
    logs.mkdir(parents=True, exist_ok=True)
    levels = _LOGGERS | {"state.change.logger": (state_change, "stateChange", False)}
    lines = [_ROOT, *(_APPENDER.format(name=name, file=file) for name, file in _FILES.items())]
    for logger, (level, appender, also_root) in levels.items():
        lines.append(f"log4j.logger.{logger}={level}{', ' + appender if appender else ''}\n")
        lines.append(f"log4j.additivity.{logger}={'true' if also_root else 'false'}\n")
    config = logs.parent.parent / f"{logs.name}-log4j.properties"
    config.write_text("".join(lines))
    return [f"-Dlog4j.configuration={config.as_uri()}", f"-Dkafka.logs.dir={logs}", f"-Duser.timezone={zone}"]
