"""Log configuration of Kafka 3.9 and 4 as released: files, layouts and levels."""

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
# Logger -> level, appender, and whether it also writes to the root's file.
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
# The harness waits for lines on stdout.
_ROOT: Final = """\
log4j.rootLogger=INFO, stdout, server
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def java_options(logs: Path, *, state_change: str = "INFO", zone: str = "UTC") -> list[str]:
    """Return Java options that make a broker log to `logs`, which is created with the configuration beside it.

    Args:
        state_change: the level of state-change.log: INFO, the default, or TRACE, the default up to 2.5.
        zone: the time zone of the broker.
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


# Kafka 4 uses log4j 2. Appender -> file; the loggers have their own files and do not write to the root's.
_FILES_4: Final = {"server": "server.log", "stateChange": "state-change.log", "controller": "controller.log"}
_LOGGERS_4: Final = {
    "org.apache.kafka.controller": "controller",
    "state.change.logger": "stateChange",
}
_APPENDER_4: Final = """\
appender.{name}.type=RollingFile
appender.{name}.name={name}
appender.{name}.fileName=${{sys:kafka.logs.dir}}/{file}
appender.{name}.filePattern=${{sys:kafka.logs.dir}}/{file}.%d{{yyyy-MM-dd-HH}}
appender.{name}.layout.type=PatternLayout
appender.{name}.layout.pattern=[%d] %p %m (%c)%n
appender.{name}.policies.type=TimeBasedTriggeringPolicy
"""
_ROOT_4: Final = """\
rootLogger.level=INFO
rootLogger.appenderRef.stdout.ref=stdout
rootLogger.appenderRef.server.ref=server
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=[%d] %p %m (%c)%n
"""


def java_options_4(logs: Path, *, state_change: str = "INFO", zone: str = "UTC") -> list[str]:
    """Return the options for Kafka 4; see `java_options`."""
    logs.mkdir(parents=True, exist_ok=True)
    lines = [_ROOT_4, *(_APPENDER_4.format(name=name, file=file) for name, file in _FILES_4.items())]
    for logger, appender in _LOGGERS_4.items():
        key = f"logger.{appender}"
        level = state_change if appender == "stateChange" else "INFO"
        lines.append(f"{key}.name={logger}\n{key}.level={level}\n{key}.additivity=false\n")
        lines.append(f"{key}.appenderRef.{appender}.ref={appender}\n")
    config = logs.parent.parent / f"{logs.name}-log4j2.properties"
    config.write_text("".join(lines))
    return [f"-Dlog4j2.configurationFile={config.as_uri()}", f"-Dkafka.logs.dir={logs}", f"-Duser.timezone={zone}"]
