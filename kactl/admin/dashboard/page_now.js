// Now: is something wrong, what happened, and does it recover.

import { bars } from "./bars.js";
import { cluster, subscribe } from "./cluster.js";
import { h, show, state, table } from "./dom.js";
import { age, count, micros, millis, withName, number, time } from "./format.js";

const EVENTS = 30;
const STRIP_S = 120;
const LEVELS = { pass: "good", warn: "warn", fail: "bad", skip: "none" };

export function now(element, { signal }) {
  const figures = h("section", { class: "figures", "aria-label": "Partitions and brokers" });
  const chart = h("section", { class: "chart", "aria-label": "Event queue, last minutes" });
  const checks = h("section");
  const cards = h("section", { class: "cards", "aria-label": "Brokers" });
  const latest = h("section");
  const events = h("section");
  show(element, figures, h("div", { class: "columns" }, checks, chart), cards, latest, events);
  const plot = queueChart(chart);
  const since = new Map();

  const draw = (what) => {
    if (what === "events") return show(events, lastEvents());
    if (what === "elections") return show(latest, lastElection());
    if (!cluster.info) return;
    show(figures, bigNumbers(since));
    show(checks, checkList());
    show(cards, cluster.brokers.map(card));
    plot.draw();
  };
  ["snapshot", "elections", "events"].forEach(draw);
  const end = subscribe((what) => what !== "connection" && draw(what));
  signal.addEventListener("abort", () => (end(), plot.close()), { once: true });
}

function bigNumbers(since) {
  const { info } = cluster;
  const figure = (name, value, level, query) => {
    if (!value) since.delete(name);
    else if (!since.has(name)) since.set(name, Date.now());
    const shown = value ? level : "good";
    const link = query ? h("a", { href: query }, name) : name;
    return h(
      "div",
      { class: `figure ${shown}` },
      h("p", { class: "value" }, state(shown, number(value))),
      h("p", {}, link),
      h("p", { class: "hint" }, value ? `seen for ${age(Date.now() - since.get(name))}` : "none"),
    );
  };
  return [
    figure("without a leader", info.offline_partitions, "bad", "#/partitions?offline=true"),
    figure("under min.insync.replicas", info.under_min_isr_partitions, "bad", "#/partitions?under_min_isr=true"),
    figure("under-replicated", info.under_replicated_partitions, "warn", "#/partitions?urp=true"),
    figure("dead brokers", info.brokers_dead, "bad", "#/brokers"),
    info.shards ? figure("shards without an owner", info.shards_without_owner, "bad", "#/shards?shard=unowned") : [],
    info.shards ? figure("failing shards", info.shards_failing, "bad", "#/shards?shard=failing") : [],
  ];
}

function checkList() {
  const { checks, status } = cluster.info;
  const worst = { healthy: "good", degraded: "warn", unhealthy: "bad" }[status] ?? "warn";
  return [
    h("h2", {}, "Health: ", state(worst, status)),
    h(
      "ul",
      { class: "checks" },
      checks
        .filter((check) => check.result !== "skip")
        .map((check) =>
          h(
            "li",
            {},
            state(LEVELS[check.result], check.name),
            check.result === "pass" ? null : h("p", { class: "hint" }, [check.detail, check.remedy].filter(Boolean).join(": ")),
          ),
        ),
    ),
  ];
}

function card(broker) {
  const level = broker.state === "live" ? "good" : broker.state === "dead" ? "bad" : "warn";
  return h(
    "a",
    { class: `card ${level}`, href: `#/broker/${broker.id}` },
    h("strong", {}, `Broker ${withName(broker.id, broker.name)}`),
    state(level, broker.state),
    h("span", {}, `${count(broker.leaders, "leader")} (${signed(broker.leader_skew)})`),
    h("span", {}, `${count(broker.replicas, "replica")} (${signed(broker.replica_skew)})`),
    cluster.info.shards ? h("span", {}, count(broker.shards, "shard")) : null,
    broker.queue_size ? state("warn", `${broker.queue_size} requests wait, ${millis(broker.queue_oldest_ms)}`) : null,
  );
}

const signed = (skew) => `${skew > 0 ? "+" : ""}${skew} %`;

function lastElection() {
  const newest = [...cluster.elections.values()].at(-1);
  if (!newest) return h("p", {}, "No election yet.");
  return [
    h("h2", {}, h("a", { href: `#/elections/${newest.because.event}` }, "Last election")),
    h("p", {}, `${time(newest.detected_ms)} ${newest.because.trigger}: ${count(newest.moved, "leader")} moved in ${micros(newest.last_ack_us ?? newest.handled_us)}`),
    bars(newest),
  ];
}

function lastEvents() {
  const rows = cluster.events.slice(0, EVENTS).map((event) => [time(event.time_ms), event.kind, told(event)]);
  if (!rows.length) return h("p", {}, "No event among the latest ones.");
  return table("Last events", [{ title: "time" }, { title: "kind" }, { title: "event" }], rows);
}

/** Returns an event in words. */
export function told(event) {
  switch (event.kind) {
    case "controller":
      return `controller ${event.controller_id} ${event.what}${event.cause ? `: ${event.cause}` : ""}`;
    case "broker":
      return `broker ${event.broker} ${event.what}${event.detail ? `: ${event.detail}` : ""}`;
    case "topic":
      return `topic ${event.topic} ${event.what}${event.cause ? `: ${event.cause}` : ""}`;
    case "request":
      return [`${event.principal || "a client"}: ${event.action} ${event.target}, ${event.outcome}`, event.detail, event.reason]
        .filter(Boolean)
        .join("; ");
    case "election":
      return `${event.because.trigger}: ${count(event.moved, "leader")} moved`;
    case "handler":
      return `handler of ${event.topic}-${event.partition} on ${event.broker} is ${event.status}`;
    default:
      return event.kind;
  }
}

/** Returns a range from 0 to the largest value, at least to `limit`. */
const least = (limit) => (_, __, most) => [0, Math.max(limit, most ?? 0)];

/** Returns the colour of a custom property as a canvas understands it. */
function colour(name) {
  const probe = h("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Draws the depth and the oldest age of the event queue. */
function queueChart(element) {
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 } };
  const summary = h("p", { class: "hint" });
  const holder = h("div", { "aria-hidden": "true" });
  show(element, h("h2", {}, "Event queue"), summary, holder);
  const plot = new uPlot(
    {
      width: Math.max(200, element.clientWidth || 400),
      height: 160,
      legend: { show: false },
      scales: { x: { range: () => [Date.now() / 1000 - STRIP_S, Date.now() / 1000] }, y: { range: least(10) }, ms: { range: least(10) } },
      axes: [axis, { ...axis, size: 40 }, { ...axis, side: 1, scale: "ms", size: 50, grid: { show: false } }],
      series: [
        {},
        { label: "events", stroke: colour("--accent"), width: 2 },
        { label: "oldest, ms", scale: "ms", stroke: colour("--warn"), dash: [4, 4] },
      ],
    },
    [[], [], []],
    holder,
  );
  const resized = new ResizeObserver(() => plot.setSize({ width: Math.max(200, element.clientWidth), height: 160 }));
  resized.observe(element);
  return {
    draw() {
      const columns = [0, 1, 2].map((column) => cluster.samples.map((sample) => sample[column]));
      plot.setData(columns);
      const { queue } = cluster;
      if (queue) show(summary, `${count(queue.depth, "event")} waiting, the oldest for ${millis(queue.oldest_ms)}; dashed: its age in ms`);
    },
    close() {
      resized.disconnect();
      plot.destroy();
    },
  };
}
