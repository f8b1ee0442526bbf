"""Generator of docs/metrics.md from the tables of metrics.

`python -m tests.support.metrics_page` writes the page; a test fails while the page differs from the tables.
"""

from collections.abc import Iterable
from typing import Final

from tests.support.metrics_catalog import Metric, metrics

from .tree import ROOT

PAGE: Final = ROOT / "docs" / "metrics.md"
_HEADER: Final = "| Prometheus | kind | meaning |\n| --- | --- | --- |"

# Metric, label, values.
_LABELS: Final = (
    (
        "`kafka_controller_event_process_duration_seconds`",
        "`kafka_controller_state`",
        "name of Kafka's controller state, such as `BrokerChange`",
    ),
    (
        "`kafka_controller_broker_queue_*`, `kafka_leader_count`, `kafka_partition_count`",
        "`kafka_broker_id`",
        "id of a broker",
    ),
    (
        "`kactl_election_duration_seconds`",
        "`stage`",
        "`queue`, `plan`, `commit`, `apply`, `encode`; since the detection: `handled`, `first_ack`, `last_ack`",
    ),
    ("`kactl_election_duration_seconds`", "`election_type`", "the strategy, such as `offline` or `preferred`"),
    (
        "`kactl_partition_unavailable_duration_seconds`",
        "`kactl_election_planned`",
        "`true` for leadership that was moved on purpose",
    ),
    ("`kactl_controller_request_duration_seconds`", "`rpc_method`", "the request, such as `LeaderAndIsr`"),
    (
        "`kactl_store_request_duration_seconds`",
        "`op`",
        "the operation, such as `commit`; failed ones also have `error_type`",
    ),
    (
        "`kactl_store_session_state`, `kactl_store_session_transition_count_total`",
        "`state`",
        "`connected`, `suspended`, `expired`",
    ),
    (
        "`kafka_isr_operation_count_total`",
        "`operation`",
        "`shrink`, `expand`; `failed` for rejected proposals, without the failed writes of brokers to ZooKeeper",
    ),
    (
        "`kactl_event_started_total`, `kactl_event_unchanged_total`",
        "`kactl_event_kind`",
        "kind of event, as in `kactl controller queue`",
    ),
    ("`kactl_isr_proposal_rejected_total`", "`error`", "Kafka's name of the error, such as `FENCED_LEADER_EPOCH`"),
    (
        "`kactl_transitions_refused_total`",
        "`machine`, `from`, `to`",
        "`partition` or `replica`; names of states, as in `kactl watch`",
    ),
    (
        "`kactl_actor_mailbox_size`, `kactl_actor_mailbox_refused_count_total`, "
        "`kactl_actor_busy_duration_seconds_total`",
        "`kactl_actor`",
        "name of an actor",
    ),
    ("`kactl_build_info`", "`version`, `python`", "versions"),
    (
        "`http_server_request_duration_seconds`",
        "`http_request_method`, `http_route`, `http_response_status_code`, `url_scheme`",
        "as in OpenTelemetry's conventions: the route is the path with names of parameters, and is absent for other "
        "paths; `error_type` is the status from 500 on, or `cancelled` if the client has gone",
    ),
)
# MBean, reason.
_ABSENT: Final = (
    ("`ControllerChannelManager,name=TotalQueueSize`", "`sum(kafka_controller_broker_queue_size)`"),
    (
        "`KafkaController,name=ZkMigrationState`, `LastApplied*`, `LastCommitted*`, `ZkWrite*`",
        "they belong to the metadata log of KRaft",
    ),
    ("`ReplicaManager,name=OfflineReplicaCount`", "`kactl get partitions --urp` lists the partitions"),
)


def metrics_page() -> str:
    """Returns the text of the page."""
    every = list(metrics())
    equal = [metric for metric in every if metric.jmx]
    own = [metric for metric in every if not metric.jmx]
    return f"""# Metrics in Prometheus and JMX

`python -m tests.support.metrics_page` generates this page. `GET /metrics` of the admin API serves these metrics to
Prometheus; it needs a token of the role viewer. A program that embeds kactl passes its own `meter_provider` to
`kactl.Controller`, and finds them under the names of OpenTelemetry, which have dots and no suffix of the unit. `kactl
monitoring export` writes a dashboard for Grafana and alert rules, which the [runbook](runbook.md) explains.

Several controllers of a process may share a provider. A program that controls several clusters gives each controller a
`cluster_name`, the attribute `kactl.cluster` (label `kactl_cluster`) of all its metrics. Series with equal attributes
are merged: numbers of things are added up, and of times, flags and states the largest is taken.

A histogram has the suffixes `_bucket`, `_sum` and `_count`. Gauges of the cluster are 0 on standby instances. No label
contains the name of a topic or a partition: those are in events. Names of `kafka.*` follow OpenTelemetry's rules for
Kafka where it has one.

## Metrics with an equivalent in Kafka's JMX

Kafka's timers are percentiles of a decaying sample in milliseconds; these histograms count in buckets, in seconds. A
board cannot mix the two. The MBeans of `kafka.server:type=ReplicaManager` are sums over the brokers there, and the view
of the controller here.

| Prometheus | kind | meaning | MBean |
| --- | --- | --- | --- |
{_lines(equal, jmx=True)}

## Metrics of kactl

{_HEADER}
{_lines(own, jmx=False)}

## Labels

| metric | label | values |
| --- | --- | --- |
{_table(_LABELS)}

## Metrics of Kafka that kactl does not have

| MBean | reason |
| --- | --- |
{_table(_ABSENT)}
"""


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _lines(every: list[Metric], *, jmx: bool) -> str:
    return "\n".join(_line(metric, jmx=jmx) for metric in every)


def _line(metric: Metric, *, jmx: bool) -> str:
    cells = [f"`{metric.prometheus}`", metric.kind, metric.meaning]
    if jmx:
        cells.append(", ".join(f"`{mbean.strip()}`" for mbean in metric.jmx.split(", ")))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
    print(f"wrote {PAGE}")
