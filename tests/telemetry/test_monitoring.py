"""The alert rules, the dashboard and the runbook agree with each other and with the metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kactl.cli.monitoring import content
from tests.support import grafana_board, metrics_page
from tests.support.metrics_catalog import metrics
from tests.support.promtool import promtool
from tests.support.tree import ROOT

RUNBOOK = ROOT / "docs" / "runbook.md"
RULES: list[dict[str, Any]] = yaml.safe_load(content("alerts.yml"))["groups"][0]["rules"]
ALERTS = [rule["alert"] for rule in RULES]
# For each alert: series by which it fires in the end, and series by which it does not.
SERIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "KactlDown": ({'up{job="kactl"}': "0x60"}, {'up{job="kactl"}': "1x60", 'up{job="other"}': "0x60"}),
    "KactlNoController": (
        {'kafka_controller_active_count{instance="a"}': "0x60"},
        {'kafka_controller_active_count{instance="a"}': "0x60", 'kafka_controller_active_count{instance="b"}': "1x60"},
    ),
    "KactlSeveralControllers": (
        {'kafka_controller_active_count{instance="a"}': "1x60", 'kafka_controller_active_count{instance="b"}': "1x60"},
        {'kafka_controller_active_count{instance="a"}': "1x60", 'kafka_controller_active_count{instance="b"}': "0x60"},
    ),
    "KactlControllerChanges": (
        {"kactl_controller_change_count_total": "0+1x60"},
        {"kactl_controller_change_count_total": "0x58 1 2"},
    ),
    "KactlPartitionsOffline": ({"kafka_partition_offline": "3x60"}, {"kafka_partition_offline": "0x60"}),
    "KactlShardsWithoutOwner": (
        {'kactl_shard_state_count{kactl_shard_state="unowned"}': "3x60"},
        {'kactl_shard_state_count{kactl_shard_state="owned"}': "3x60"},
    ),
    "KactlPartitionsUnderMinIsr": (
        {"kafka_controller_partition_under_min_isr": "3x60"}, {"kafka_controller_partition_under_min_isr": "0x60"},
    ),
    "KactlPartitionsUnderReplicated": (
        {"kafka_partition_underreplicated": "3x60"}, {"kafka_partition_underreplicated": "0x55 3 3 3 3 3"},
    ),
    "KactlUncleanElection": (
        {"kafka_leaderelection_unclean_count_total": "0x58 1 1"}, {"kafka_leaderelection_unclean_count_total": "7x60"},
    ),
    "KactlPreferredImbalance": (
        {"kafka_controller_partition_preferred_imbalance": "21x60", "kafka_controller_partition_count": "100x60"},
        {"kafka_controller_partition_preferred_imbalance": "0x60", "kafka_controller_partition_count": "0x60"},
    ),
    "KactlReassignmentLong": (
        {"kafka_controller_partition_reassigning": "5x100"}, {"kafka_controller_partition_reassigning": "5x50 0 5x49"},
    ),
    "KactlDeletionBlocked": (
        {"kafka_controller_topic_deletion_ineligible": "1x60"}, {"kafka_controller_topic_deletion_ineligible": "0x60"},
    ),
    "KactlNoBrokers": (
        {"kafka_controller_broker_active": "0x60", "kafka_controller_active_count": "1x60"},
        {"kafka_controller_broker_active": "0x60", "kafka_controller_active_count": "0x60"},
    ),
    "KactlBrokerFenced": ({"kafka_controller_broker_fenced": "1x60"}, {"kafka_controller_broker_fenced": "0x60"}),
    "KactlBrokerUnreachable": (
        {"kactl_controller_broker_queue_oldest_seconds": "0+60x60"},
        {"kactl_controller_broker_queue_oldest_seconds": "1x60"},
    ),
    "KactlEventQueueStuck": (
        {"kactl_controller_event_queue_oldest_seconds": "0+60x60"},
        {"kactl_controller_event_queue_oldest_seconds": "0x60"},
    ),
    "KactlInboxFull": (
        {"kactl_actor_mailbox_refused_count_total": "0+1x60"}, {"kactl_actor_mailbox_refused_count_total": "5x60"},
    ),
    "KactlLoopLag": (
        {'kactl_loop_lag_seconds_bucket{le="0.5"}': "0x60", 'kactl_loop_lag_seconds_bucket{le="+Inf"}': "0+1x60",
         'kactl_loop_lag_seconds_bucket{le="10.0"}': "0+1x60"},
        {'kactl_loop_lag_seconds_bucket{le="0.5"}': "0+1x60", 'kactl_loop_lag_seconds_bucket{le="+Inf"}': "0+1x60"},
    ),
    "KactlStoreSession": (
        {'kactl_store_session_state{state="connected"}': "0x60"},
        {'kactl_store_session_state{state="connected"}': "1x60", 'kactl_store_session_state{state="expired"}': "0x60"},
    ),
    "KactlStoreSlow": (
        {'kactl_store_request_duration_seconds_bucket{op="commit",le="1.0"}': "0x60",
         'kactl_store_request_duration_seconds_bucket{op="commit",le="5.0"}': "0+1x60",
         'kactl_store_request_duration_seconds_bucket{op="commit",le="+Inf"}': "0+1x60"},
        {'kactl_store_request_duration_seconds_bucket{op="contest",le="1.0"}': "0x60",
         'kactl_store_request_duration_seconds_bucket{op="contest",le="+Inf"}': "0+1x60"},
    ),
    "KactlStoreErrors": (
        {'kactl_store_request_duration_seconds_count{op="commit",error_type="StoreUnavailable"}': "0+1x60"},
        {'kactl_store_request_duration_seconds_count{op="commit"}': "0+1x60"},
    ),
    "KactlEventLogLag": ({"kactl_event_log_lag": "20000x60"}, {"kactl_event_log_lag": "5000x60"}),
    "KactlSecurityReloadFailed": (
        {"kactl_security_reload_failed": "1x60"}, {"kactl_security_reload_failed": "0x60"},
    ),
    "KactlInsecureInterface": (
        {'kactl_security_insecure{interface="api"}': "1x60"}, {'kactl_security_insecure{interface="api"}': "0x60"},
    ),
    "KactlCertificateExpires": (
        {'kactl_certificate_expiry_seconds{interface="api"}': "1209000x60"},
        {'kactl_certificate_expiry_seconds{interface="api"}': "1220000x60"},
    ),
}  # fmt: skip


def board_expressions() -> Iterator[str]:
    """Yield the expressions of the dashboard, with values for its variables."""
    for panel in json.loads(content("grafana.json"))["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$job", "kactl").replace("$cluster", "")


def series_names() -> set[str]:
    """Returns the names of all series that the metrics have."""
    names = set[str]()
    for metric in metrics():
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names.update(metric.prometheus + suffix for suffix in suffixes)
    return names


def used(expression: str) -> set[str]:
    """Returns the names of the metrics of an expression."""
    return set(re.findall(r"(?<![\w$])(?:kafka|kactl)_\w+(?=[\s{\[)]|$)", expression))


def test_metrics_page_is_current() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.metrics_page(), "python -m tests.support.metrics_page"


def test_dashboard_is_current() -> None:
    assert grafana_board.FILE.read_text() == grafana_board.board(), "python -m tests.support.grafana_board"


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_alert_uses_existing_metrics(rule: dict[str, Any]) -> None:
    names = used(rule["expr"])

    assert names <= series_names()
    assert names or rule["alert"] == "KactlDown"


def test_dashboard_uses_existing_metrics() -> None:
    expressions = list(board_expressions())

    assert len(expressions) > 30
    for expression in expressions:
        names = used(expression) - {
            "kactl_election_planned",
            "kafka_controller_state",
            "kactl_actor",
            "kafka_broker_id",
            "kactl_cluster",
            "kactl_event_kind",
        }
        assert names, expression
        assert names <= series_names(), expression


def test_dashboard_shows_one_cluster_at_a_time() -> None:
    board = json.loads(content("grafana.json"))

    selected = [
        re.findall(r"\{([^{}]*)\}", target["expr"]) for panel in board["panels"] for target in panel.get("targets", ())
    ]
    queries = {variable["name"]: variable["query"] for variable in board["templating"]["list"]}

    assert all(labels and 'job="$job", kactl_cluster="$cluster"' in labels[0] for labels in selected)
    assert queries["cluster"] == 'label_values(kactl_build_info{job="$job"}, kactl_cluster)'


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_alert_has_severity_summary_and_runbook_entry(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")

    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]
    assert page == "docs/runbook.md"
    assert anchor == rule["alert"].lower()
    assert f"\n## {rule['alert']}\n" in RUNBOOK.read_text()


def test_runbook_explains_alerts_only_and_each_completely() -> None:
    _, *entries = re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)

    assert [entry.splitlines()[0] for entry in entries] == ALERTS
    for entry in entries:
        assert re.findall(r"^\*\*(.*?)\.\*\*", entry, re.MULTILINE) == ["Means", "Check", "Do"], entry


def test_rules_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yml"
    file.write_text(content("alerts.yml"))

    assert f"{len(RULES)} rules found" in promtool("check", "rules", file)


def test_expressions_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    recorded = [{"record": f"board:{index}", "expr": each} for index, each in enumerate(board_expressions())]
    for rule in recorded:
        rule["record"] = rule["record"].replace(":", ":n")
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": recorded}]}))

    promtool("check", "rules", file)


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_not_otherwise(tmp_path: Path) -> None:
    assert list(SERIES) == ALERTS
    (tmp_path / "alerts.yml").write_text(content("alerts.yml"))
    cases = [
        case(alert, each, fires=each is fires) for alert, (fires, quiet) in SERIES.items() for each in (fires, quiet)
    ]
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))

    promtool("test", "rules", tmp_path / "test.yml")


def case(alert: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    """Returns a test of promtool: whether an alert fires at the end of its series."""
    minutes, end = (4, 400) if alert == "KactlReassignmentLong" else (1, 60)
    query = {
        "expr": f'count by (alertname) (ALERTS{{alertname="{alert}", alertstate="firing"}})',
        "eval_time": f"{end}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else [],
    }
    return {
        "name": f"{alert}, {'fires' if fires else 'quiet'}",
        "interval": f"{minutes}m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [query],
    }
