"""A line in each form of `forms` and with each key of `json_lines`, all of one event.

To support another form, add a line with TS, MESSAGE and LOGGER, or parts of them in another spelling, below its name.
The forms of text are those that `Cutter` must find; lines in JSON have the form of the text in them.
"""

import json
from typing import Any, Final

TS: Final = "2018-09-22 15:50:12,985"
ISO: Final = "2018-09-22T15:50:12.985Z"
LOGGER: Final = "state.change.logger"
MESSAGE: Final = "[Broker id=2] Handling LeaderAndIsr request correlationId 77 from controller 1 for 12 partitions"
STANDARD: Final = f"[{TS}] INFO {MESSAGE} ({LOGGER})"
EPOCH_MS: Final = 1537631412985
_LATER: Final = "2018-09-22T15:50:13.001234567Z"

LINES: Final = {
    "standard": STANDARD,
    "standard, with a line number": f"[{TS}] INFO {MESSAGE} ({LOGGER}:66)",
    "standard, level filled up": f"[{TS}] INFO  {MESSAGE} ({LOGGER})",
    "standard, with a zone": f"[{ISO}] INFO {MESSAGE} ({LOGGER})",
    "standard, with an offset": f"[2018-09-22 17:50:12,985+0200] INFO {MESSAGE} ({LOGGER})",
    "standard, with a named zone": f"[2018-09-22 17:50:12,985 CEST] INFO {MESSAGE} ({LOGGER})",
    "standard, to the nanosecond": f"[2018-09-22 15:50:12.985123456] INFO {MESSAGE} ({LOGGER})",
    "standard, with slashes": f"[2018/09/22 15:50:12.985] INFO {MESSAGE} ({LOGGER})",
    "standard, with colours": f"[{TS}] \x1b[32mINFO\x1b[0m {MESSAGE} ({LOGGER})\x1b[m",
    "thread": f"[{TS}] [INFO ] [ControllerEventThread [x]] [{LOGGER}] - {MESSAGE}",
    "class-first": f"[{TS}] ({LOGGER}:66) INFO {MESSAGE}",
    "bare": f"2018-09-22T15:50:12.985 INFO {MESSAGE} ({LOGGER})",
    "bare-thread": f"{TS} INFO {MESSAGE} ({LOGGER}) [controller-event-thread]",
    "level-first": f"INFO [{TS}] {MESSAGE} ({LOGGER})",
    "level-bracket": f"[{TS}] [INFO] {MESSAGE} ({LOGGER})",
    "spring": f"2018-09-22 15:50:12.985  INFO 1 --- [           main] {LOGGER}                      : {MESSAGE}",
    "spring, 3.4": f"{ISO}  INFO 1 --- [kafka] [           main] {LOGGER}                      : {MESSAGE}",
    "confluent": f"[INFO] {TS} [main] {LOGGER} handle - {MESSAGE}",
    "confluent, with a context": f"[INFO] {TS} [main] {LOGGER} info - app=kafka, clusterId=c, server=2 - {MESSAGE}",
    "thread-first": f"{TS} [controller-event-thread] INFO  {LOGGER} - {MESSAGE}",
    "thread-first-colon": f"{TS} [main] INFO  {LOGGER}: {MESSAGE}",
    "dashed-thread": f"{TS} INFO  [controller-event-thread] {LOGGER}:66 - {MESSAGE}",
    "dashed-thread, of Strimzi 4": f"2018-09-22 15:50:12,985+0000 INFO  [main] {LOGGER}:66 - {MESSAGE}",
    "dashed": f"{TS} INFO  {LOGGER}:66 - {MESSAGE}",
    "thread-colon": f"{TS} INFO  [main] {LOGGER}: {MESSAGE}",
    "piped": f"{TS} | INFO  | [main] | {MESSAGE} | {LOGGER} (Logging.scala:68)",
    "bracket-dashed": f"[{TS}] INFO  [main] {LOGGER} - {MESSAGE}",
    "bracket-all": f"[{TS}] [INFO] [{LOGGER}] {MESSAGE}",
    "bracket-logger": f"[{TS}] [INFO ] {LOGGER} - {MESSAGE}",
    "bracket-thread-first": f"[{TS}] [main] INFO {LOGGER} - {MESSAGE}",
    "bracket-three": f"[{TS}][INFO][{LOGGER}] {MESSAGE}",
    "colon": f"{TS} INFO {LOGGER}: {MESSAGE}",
    "hadoop": f"18/09/22 15:50:12.985 INFO logger: {MESSAGE}",
    "container/standard": f"kafka-2    | {STANDARD}",
    "container/standard, compose 1": f"\x1b[36mkafka2_1     |\x1b[0m {STANDARD}",
    "container/standard, swarm": f"kafka_kafka.1.x7w@node-1    | {STANDARD}",
    "container/standard, received": f"kafka-2-1  | {_LATER} {STANDARD}",
    "cri/standard": f"{_LATER} stdout F {STANDARD}",
    "rfc5424/standard": f"<134>1 {_LATER} host-2 kafka 812 - - {STANDARD}",
    "syslog/standard": f"Sep 22 15:50:12 host-2 kafka[812]: {STANDARD}",
    "syslog/standard, priority": f"<134>Sep 22 15:50:12 host-2 kafka: {STANDARD}",
    "syslog/standard, short-precise": f"Sep 22 15:50:12.985000 host-2 kafka[812]: {STANDARD}",
    "syslog/standard, short-iso": f"2018-09-22T17:50:12+0200 host-2 kafka[812]: {STANDARD}",
    "syslog/standard, short-iso-precise": f"2018-09-22T17:50:12.985000+02:00 host-2 kafka[812]: {STANDARD}",
    "syslog/standard, short-full": f"Sat 2018-09-22 17:50:12 CEST host-2 kafka[812]: {STANDARD}",
    "syslog/standard, short-monotonic": f"[12345.678901] host-2 kafka[812]: {STANDARD}",
    "syslog/standard, short-unix": f"1537631412.985000 host-2 kafka[812]: {STANDARD}",
    "journal/standard": f"    MESSAGE={STANDARD}",
    "gh/standard": f"test\tRun tests\t{_LATER} {STANDARD}",
    "received/standard": f"{_LATER} {STANDARD}",
    "pod/standard": f"[pod/kafka-0/kafka] {STANDARD}",
    "pod/standard, received": f"[pod/kafka-0/kafka] 2018-09-22T17:50:13.001234567+02:00 {STANDARD}",
    "pod/standard, kubetail": f"[kafka-0 kafka] {STANDARD}",
    "kail/standard": f"kafka/kafka-0[kafka]: {STANDARD}",
    "host/standard": f"kafka-2: {STANDARD}",
    "stern/standard": f"kafka-0 kafka {STANDARD}",
    "stern/standard, received": f"kafka-0 kafka {_LATER} {STANDARD}",
    "podman/standard": f"kafka2 {STANDARD}",
    "grep/standard": f"kafka-2/logs/state-change.log:{STANDARD}",
    "grep/standard, numbered": f"/var/log/kafka/state-change.log:1234:{STANDARD}",
    "grep/standard, context": f"state-change.log-1234-{STANDARD}",
    "paste/standard": f"> > {STANDARD}",
    "paste/standard, indented": f"    {STANDARD}",
    "paste/standard, numbered": f"  12  {STANDARD}",
    "fluentd/standard": f"2018-09-22 15:50:13.000000000 +0000 kafka.two: {{\"message\":\"{STANDARD}\"}}",
    "received/container/standard": f"{_LATER} kafka-2  | {STANDARD}",
}  # fmt: skip


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


# Lines in JSON, of loggers.
LOGGERS: Final = {
    "log4j2 JsonLayout": _json(
        {
            "instant": {"epochSecond": 1537631412, "nanoOfSecond": 985000000},
            "thread": "main",
            "level": "INFO",
            "loggerName": LOGGER,
            "message": MESSAGE,
            "endOfBatch": False,
        }
    ),
    "log4j2 JsonLayout, milliseconds": _json(
        {"timeMillis": EPOCH_MS, "thread": "main", "level": "INFO", "loggerName": LOGGER, "message": MESSAGE}
    ),
    "log4j2 JsonTemplateLayout": _json({"timestamp": ISO, "level": "info", "logger": LOGGER, "msg": MESSAGE}),
    "ECS": _json({"@timestamp": ISO, "log.level": "INFO", "message": MESSAGE, "log.logger": LOGGER}),
    "ECS, nested": _json({"@timestamp": ISO, "log": {"level": "INFO", "logger": LOGGER}, "message": MESSAGE}),
    "logstash": _json(
        {
            "@timestamp": "2018-09-22T17:50:12.985+02:00",
            "@version": "1",
            "message": MESSAGE,
            "logger_name": LOGGER,
            "thread_name": "main",
            "level": "INFO",
            "level_value": 20000,
        }
    ),
    "GELF": _json(
        {
            "version": "1.1",
            "host": "kafka-2",
            "short_message": MESSAGE,
            "timestamp": 1537631412.985,
            "level": 6,
            "_logger": LOGGER,
        }
    ),
}
_ECS: Final = LOGGERS["ECS"]
_DOCKER: Final = _json({"log": f"{STANDARD}\n", "stream": "stdout", "time": _LATER})
# Lines in JSON, of collectors, around lines of text.
COLLECTORS: Final = {
    "Docker": _DOCKER,
    "Filebeat": _json(
        {"@timestamp": _LATER, "host": {"name": "kafka-2"}, "message": STANDARD, "log": {"offset": 7, "file": {}}}
    ),
    "Filebeat around Docker": _json({"@timestamp": _LATER, "message": _DOCKER}),
    "Fluent Bit": _json({"time": _LATER, "_p": "F", "log": STANDARD, "kubernetes": {"pod_name": "kafka-2"}}),
    "Fluentd": f"kafka.two\t2018-09-22T15:50:13+00:00\t{_json({'log': STANDARD})}",
    "CloudWatch": _json({"logStreamName": "kafka-2", "timestamp": EPOCH_MS, "message": STANDARD}),
    "Loki": _json({"labels": {"pod": "kafka-2"}, "line": STANDARD, "timestamp": _LATER}),
    "GCP": _json(
        {
            "textPayload": STANDARD,
            "severity": "INFO",
            "timestamp": _LATER,
            "resource": {"labels": {"pod_name": "kafka-2"}},
        }
    ),
    "GCP, structured": _json({"jsonPayload": {"message": STANDARD}, "timestamp": _LATER}),
    "Splunk": _json({"preview": False, "offset": 0, "result": {"_raw": STANDARD, "host": "kafka-2"}}),
    "Datadog": _json({"id": "a", "attributes": {"message": STANDARD, "status": "info", "host": "kafka-2"}}),
    "Kibana": _json({"_index": "kafka", "_source": {"@timestamp": _LATER, "message": STANDARD}}),
    "journald": _json({"__REALTIME_TIMESTAMP": f"{EPOCH_MS}000", "_HOSTNAME": "kafka-2", "MESSAGE": STANDARD}),
    "journald, bytes": _json({"_HOSTNAME": "kafka-2", "MESSAGE": list(STANDARD.encode())}),
    "json-sse": f"data: {_json({'_HOSTNAME': 'kafka-2', 'MESSAGE': STANDARD})}",
    "json-seq": f"\x1e{_json({'_HOSTNAME': 'kafka-2', 'MESSAGE': STANDARD})}",
    "compose": f"kafka-2  | {_ECS}",
    "an element of an array": f"  {_json({'message': STANDARD})},",
}
