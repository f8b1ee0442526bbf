"""The monitoring pack is written as files, and uses the metrics that a live controller serves."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.certificates import Authority
from tests.support.metrics_catalog import metrics
from tests.support.processes import free_port
from tests.telemetry.test_monitoring import ALERTS, RULES, board_expressions, used

from .server import QUICK, Up, kactl

# Metrics that need a listener for brokers, participants in other processes, failing handlers, bad peers, ended leases,
# or refusals.
ABSENT = (
    *("kactl_listener_", "kactl_network_heartbeat_", "kactl_network_violations_", "kactl_participant_lease_"),
    "kactl_replica_",
    *("kactl_event_unchanged", "kactl_isr_proposal_rejected", "kactl_transitions_refused"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster with a state-change log, and a network with certificates."""
    folder = tmp_path_factory.mktemp("measured")
    authority = Authority(folder)
    identities = ("controller/0", *(f"participant/{number}" for number in (1, 2, 3)))
    signed = authority.sign("all", names=",".join(f"URI:kactl://kactl/{each}" for each in identities))
    env = {
        **QUICK,
        "KACTL_LOG__FOLDER": str(folder / "log"),
        "KACTL_NETWORK__LISTEN": f"127.0.0.1:{free_port()}",
        "KACTL_NETWORK__CA": str(authority.cert),
        "KACTL_NETWORK__CERT": str(signed.cert),
        "KACTL_NETWORK__KEY": str(signed.key),
    }
    server = Up(folder, env=env)
    yield server
    server.close()


def families(server: Up) -> dict[str, tuple[str, set[str]]]:
    """Returns the kind and the labels of each family of metrics, after leadership has moved."""
    token = (server.data_dir / "security" / "local.token").read_text().strip()
    request = urllib.request.Request(f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = family.type, {label for sample in family.samples for label in sample.labels}
    return found


@pytest.mark.slow  # starts a server
def test_live_metrics_are_those_of_the_catalog(server: Up) -> None:
    def created() -> bool:
        return server("topic", "create", "measured", "--partitions", "6", "--replication-factor", "3").code == 0

    server.until(created, "all brokers can be leaders")
    assert (
        server("broker", "kill", "1", "--yes").code == 0
    )  # the time without a leader is measured from the first one on
    expected = {metric.prometheus: metric.kind for metric in metrics()}

    def complete() -> bool:
        return not missing(expected, families(server))

    server.until(complete, f"there are {missing(expected, families(server))}")
    found = families(server)
    assert {name: kind for name, (kind, _) in found.items() if name != "target_info"} == {
        name: kind for name, kind in expected.items() if name in found
    }
    labels = {label for _, each in found.values() for label in each} | {"job", "instance"}
    labels |= {"machine", "from", "to", "error", "kind"}  # of refusals
    for name in [name for rule in RULES for name in used(rule["expr"])]:
        assert name.removesuffix("_bucket").removesuffix("_count") in found or name in found
    for expression in board_expressions():
        by = [part.partition(")")[0] for part in expression.split(" by (")[1:]]
        assert {label.strip() for each in by for label in each.split(",")} <= labels, expression
    assert "version" in found["kactl_build_info"][1]


def missing(expected: Mapping[str, str], found: dict[str, tuple[str, set[str]]]) -> list[str]:
    """Returns the metrics that a server of this kind must have, and does not."""
    return sorted(name for name in expected if name not in found and not name.startswith(ABSENT))


def test_pack_is_exported_with_another_address_of_the_runbook(tmp_path: Path) -> None:
    done = kactl("monitoring", "export", tmp_path / "pack", "--runbook", "https://wiki.example/kactl")
    again = kactl("monitoring", "export", tmp_path / "pack")
    replaced = kactl("monitoring", "export", tmp_path / "pack", "--force")

    assert (done.code, again.code, replaced.code) == (0, 2, 0), done.err
    assert "alerts.yml: exists: name another folder, or replace it with --force" in again.err
    (group,) = yaml.safe_load((tmp_path / "pack" / "alerts.yml").read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == ALERTS
    assert group["rules"][0]["annotations"]["runbook_url"] == "docs/runbook.md#kactldown"
    assert json.loads((tmp_path / "pack" / "grafana.json").read_text())["title"] == "kactl"


def test_address_of_the_runbook_is_in_every_alert(tmp_path: Path) -> None:
    kactl("monitoring", "export", tmp_path, "--runbook", "https://wiki.example/kactl")

    (group,) = yaml.safe_load((tmp_path / "alerts.yml").read_text())["groups"]
    assert {rule["annotations"]["runbook_url"] for rule in group["rules"]} == {
        f"https://wiki.example/kactl#{alert.lower()}" for alert in ALERTS
    }
