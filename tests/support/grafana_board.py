"""Generator of the dashboard for Grafana.

`python -m tests.support.grafana_board` writes the file; a test fails while the file differs.
"""

import json
from typing import Any, Final

from .tree import ROOT

FILE: Final = ROOT / "kactl" / "telemetry" / "monitoring" / "grafana.json"
_WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# Without a cluster_name the label is missing, which equals the empty value of a variable without choices.
_SELECTED: Final = '{job="$job", kactl_cluster="$cluster"}'
_RED_ABOVE_ZERO: Final = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
_ORANGE_ABOVE_ZERO: Final = [{"color": "green", "value": None}, {"color": "orange", "value": 1}]
_EXACTLY_ONE: Final = [
    {"color": "red", "value": None}, {"color": "green", "value": 1}, {"color": "red", "value": 2},
]  # fmt: skip

# Title, expression, thresholds, meaning.
_STATS: Final = (
    ("Controllers", "sum(kafka_controller_active_count$)", _EXACTLY_ONE, "must be 1"),
    ("Offline partitions", "sum(kafka_partition_offline$)", _RED_ABOVE_ZERO, "without a leader"),
    ("Under min ISR", "sum(kafka_controller_partition_under_min_isr$)", _RED_ABOVE_ZERO, "writes with acks=all fail"),
    ("Under-replicated", "sum(kafka_partition_underreplicated$)", _ORANGE_ABOVE_ZERO, "a replica is not in sync"),
    ("At min ISR", "sum(kafka_controller_partition_at_min_isr$)", None, "one more failure makes them reject writes"),
    ("Brokers", "sum(kafka_controller_broker_active$)", None, "registered"),
    ("Partitions", "sum(kafka_controller_partition_count$)", None, "with leadership"),
    ("Version", "count by (version) (kactl_build_info$)", None, "instances by version"),
)
# Title, unit, (expression, legend) pairs, meaning.
_ROWS: Final = {
    "Availability": (
        (
            "Partitions that need attention", "short",
            (
                ("sum(kafka_partition_offline$)", "offline"),
                ("sum(kafka_controller_partition_under_min_isr$)", "under min ISR"),
                ("sum(kafka_partition_underreplicated$)", "under-replicated"),
                ("sum(kafka_controller_partition_preferred_imbalance$)", "not preferred"),
                ("sum(kafka_controller_partition_reassigning$)", "reassigning"),
            ), "counts of the active controller",
        ),
        (
            "Time without a leader", "s",
            (
                ("max(kactl_partition_unavailable_oldest_seconds$)", "longest at present"),
                (
                    "histogram_quantile(0.99, sum by (le, kactl_election_planned) "
                    "(rate(kactl_partition_unavailable_duration_seconds_bucket$[$__rate_interval])))",
                    "p99, planned {{kactl_election_planned}}",
                ),
            ), "until the new leader has acknowledged",
        ),
    ),
    "Elections": (
        (
            "Stages of elections, p99", "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, stage) "
                    "(rate(kactl_election_duration_seconds_bucket$[$__rate_interval])))", "{{stage}}",
                ),
            ), "of events that moved leadership",
        ),
        (
            "Events handled", "ops",
            (
                (
                    "sum by (kafka_controller_state) "
                    "(rate(kafka_controller_event_process_duration_seconds_count$[$__rate_interval]))",
                    "{{kafka_controller_state}}",
                ),
                ("sum(increase(kafka_leaderelection_unclean_count_total$[$__rate_interval]))", "unclean elections"),
            ), "by Kafka's state of the controller",
        ),
    ),
    "Controller": (
        (
            "Event queue", "short",
            (
                ("sum(kafka_controller_event_queue_size$)", "waiting events"),
                ("sum by (kactl_actor) (kactl_actor_mailbox_size$)", "inbox of {{kactl_actor}}"),
            ), "",
        ),
        (
            "Waiting and handling, p99", "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(kafka_controller_event_queue_duration_seconds_bucket$[$__rate_interval])))", "wait",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(kafka_controller_event_process_duration_seconds_bucket$[$__rate_interval])))", "handling",
                ),
                ("max(kactl_controller_event_queue_oldest_seconds$)", "oldest waiting event"),
            ), "",
        ),
        (
            "Event loop lag, p99", "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, instance) "
                    "(rate(kactl_loop_lag_seconds_bucket$[$__rate_interval])))", "{{instance}}",
                ),
            ), "by how much timers are late",
        ),
        (
            "Controllership", "short",
            (
                ("kafka_controller_active_count$", "active {{instance}}"),
                ("max by (instance) (kactl_controller_epoch$)", "epoch {{instance}}"),
            ), "",
        ),
    ),
    "Refused": (
        (
            "Transitions that were refused", "short",
            (
                (
                    "sum by (machine, from, to) (increase(kactl_transitions_refused_total$[$__rate_interval]))",
                    "{{machine}}: {{from}} to {{to}}",
                ),
            ), "the reasons are in the events and in the log",
        ),
        (
            "Proposals that were rejected, notifications without a change", "short",
            (
                (
                    "sum by (error) (increase(kactl_isr_proposal_rejected_total$[$__rate_interval]))", "{{error}}",
                ),
                (
                    "sum by (kactl_event_kind) (increase(kactl_event_unchanged_total$[$__rate_interval]))",
                    "no change by {{kactl_event_kind}}",
                ),
            ), "ISRs that leaders have proposed; notifications of the store",
        ),
    ),
    "Brokers": (
        (
            "Requests that wait for a broker", "short",
            (("max by (kafka_broker_id) (kafka_controller_broker_queue_size$)", "broker {{kafka_broker_id}}"),), "",
        ),
        (
            "Requests to brokers, p99", "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, rpc_method) "
                    "(rate(kactl_controller_request_duration_seconds_bucket$[$__rate_interval])))", "{{rpc_method}}",
                ),
            ), "from sending a request to its answer",
        ),
        (
            "Leaders by broker", "short",
            (("max by (kafka_broker_id) (kafka_leader_count$)", "broker {{kafka_broker_id}}"),), "",
        ),
        (
            "Replicas by broker", "short",
            (("max by (kafka_broker_id) (kafka_partition_count$)", "broker {{kafka_broker_id}}"),), "",
        ),
    ),
    "Store": (
        (
            "Requests to the store, p99", "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, op) "
                    "(rate(kactl_store_request_duration_seconds_bucket$[$__rate_interval])))", "{{op}}",
                ),
            ), "",
        ),
        (
            "Session with the store", "short",
            (
                (
                    'kactl_store_session_state{job="$job", kactl_cluster="$cluster", state="connected"}',
                    "connected {{instance}}",
                ),
                (
                    "sum by (state) (increase(kactl_store_session_transition_count_total$[$__rate_interval]))",
                    "{{state}}",
                ),
                ("sum(kactl_store_in_flight$)", "requests in flight"),
            ), "1 while an instance is connected",
        ),
    ),
}  # fmt: skip


def board() -> str:
    """Returns the text of the file."""
    panels: list[dict[str, Any]] = []
    width = _WIDTH // len(_STATS)
    for index, (title, expression, steps, meaning) in enumerate(_STATS):
        place = {"x": index * width, "y": 0, "w": width, "h": 4}
        panels.append(_stat(len(panels) + 1, title, expression, steps, meaning, place))
    y = 4
    for row, charts in _ROWS.items():
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}
        )
        y += 1
        for index, (title, unit, targets, meaning) in enumerate(charts):
            place = {"x": index % 2 * 12, "y": y + index // 2 * 8, "w": 12, "h": 8}
            panels.append(_chart(len(panels) + 1, title, unit, targets, meaning, place))
        y += (len(charts) + 1) // 2 * 8
    document = {
        "title": "kactl",
        "uid": "kactl",
        "description": "Controller, elections, brokers and store of a cluster that kactl controls.",
        "tags": ["kactl", "kafka"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                _variable_source(),
                _variable("job", "Job", "label_values(kactl_build_info, job)"),
                _variable("cluster", "Cluster", 'label_values(kactl_build_info{job="$job"}, kactl_cluster)'),
            ]
        },
        "panels": panels,
    }
    return json.dumps(document, indent=2) + "\n"


def _variable_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "label": label, "type": "query", "datasource": _SOURCE, "refresh": 2, "query": query,
        "definition": query,
    }  # fmt: skip


def _panel(number: int, kind: str, title: str, meaning: str, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "title": title,
        "description": meaning,
        "datasource": _SOURCE,
        "gridPos": place,
    }


def _stat(number: int, title: str, expression: str, steps: Any, meaning: str, place: dict[str, int]) -> dict[str, Any]:
    plain = [{"color": "text", "value": None}]
    defaults: dict[str, Any] = {"thresholds": {"mode": "absolute", "steps": steps or plain}}
    legend = "{{version}}" if "version" in expression else ""
    return {
        **_panel(number, "stat", title, meaning, place),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"colorMode": "value", "textMode": "value_and_name" if legend else "value"},
        "targets": [_target("A", expression, legend)],
    }


def _chart(number: int, title: str, unit: str, targets: Any, meaning: str, place: dict[str, int]) -> dict[str, Any]:
    return {
        **_panel(number, "timeseries", title, meaning, place),
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [_target(chr(ord("A") + index), *target) for index, target in enumerate(targets)],
    }


def _target(letter: str, expression: str, legend: str) -> dict[str, Any]:
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": expression.replace("$[", f"{_SELECTED}[").replace("$)", f"{_SELECTED})").removesuffix("$")
        + (_SELECTED if expression.endswith("$") else ""),
        "legendFormat": legend,
    }


if __name__ == "__main__":
    FILE.write_text(board(), encoding="utf-8")
    print(f"wrote {FILE}")
