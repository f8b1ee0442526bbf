// Election path: where the time of each election goes.

import { get, path } from "./api.js";
import { bars, described, legend, lengthOf, STAGES } from "./bars.js";
import { cluster, subscribe } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { count, micros, number, percentile, time } from "./format.js";

const LANES = 30;

export async function elections(element, { parts, query, signal }) {
  if (parts.length) return one(element, parts[0], signal);
  const same = query.get("scale") === "same";
  const lanes = h("ol", { class: "lanes" });
  const figures = h("section");
  show(
    element,
    legend(),
    h("p", {}, h("a", { href: `#/elections${same ? "" : "?scale=same"}` }, same ? "Each on its own scale" : "All on one scale")),
    lanes,
    figures,
  );
  const drawn = new Map();
  const draw = () => {
    const shown = [...cluster.elections.values()].reverse().slice(0, LANES);
    const scale = same ? Math.max(1, ...shown.map(lengthOf)) : undefined;
    const items = shown.map((each) => {
      const id = each.because.event;
      const known = drawn.get(id);
      const delay = cluster.delays.get(id);
      if (!same && known?.election === each && known.delay === delay) return known.item;
      const item = lane(each, scale, delay);
      drawn.set(id, { election: each, delay, item });
      return item;
    });
    show(lanes, items.length ? items : h("li", {}, "No election yet. Kill a broker, or elect preferred leaders, to see one."));
    show(figures, summary());
  };
  draw();
  const end = subscribe((what) => what === "elections" && draw());
  signal.addEventListener("abort", end, { once: true });
}

function lane(election, scale, delay) {
  const { because, moved, rejected, failed, complete, brokers } = election;
  const acked = brokers.filter((each) => each.acked_us != null).length;
  const level = failed ? "bad" : rejected ? "warn" : complete ? "good" : "none";
  return h(
    "li",
    { class: "lane", "data-event": because.event },
    h(
      "p",
      {},
      h("a", { href: `#/elections/${because.event}` }, `${time(election.detected_ms)} ${because.trigger}`),
      because.strategy ? ` (${because.strategy})` : "",
      ` ${count(moved, "leader")} moved. `,
      state(level, failed ? "failed" : complete ? "complete" : "running"),
      ` ${acked} of ${count(brokers.length, "broker")} acknowledged; ${micros(lengthOf(election))} in all`,
      delay == null ? "" : h("span", { "data-delay-ms": delay }, `; shown ${number(delay)} ms after the last acknowledgement`),
    ),
    bars(election, scale),
  );
}

function summary() {
  const complete = [...cluster.elections.values()].filter((each) => each.complete);
  if (!complete.length) return [];
  const rows = [...STAGES.map((stage) => [stage, (each) => each.stages[stage]?.[2]]), ["first acknowledgement", (each) => each.first_ack_us], ["last acknowledgement", (each) => each.last_ack_us]];
  return table(
    `The last ${count(complete.length, "election")}`,
    [{ title: "stage" }, ...["p50", "p90", "p99", "max"].map((title) => ({ title, number: true }))],
    rows.map(([name, of]) => {
      const values = complete.map(of).filter((value) => value != null).sort((a, b) => a - b);
      return [name, ...[0.5, 0.9, 0.99, 1].map((share) => micros(percentile(values, share)))];
    }),
  );
}

async function one(element, id, signal) {
  const draw = async () => {
    const known = cluster.elections.get(Number(id));
    const election = known ?? (await get(path(["elections", id]), { signal }));
    const { because } = election;
    const facts = [
      ["trigger", because.trigger],
      ["strategy", because.strategy || "–"],
      ["requested by", because.caller || because.request || "–"],
      ["detected", time(election.detected_ms)],
      ["planned, committed, rejected", [election.planned, election.committed, election.rejected].map(number).join(", ")],
      ["leaders moved", number(election.moved)],
      ["without a leader", election.outage ? `${count(election.outage.partitions, "partition")}, at most ${micros(election.outage.max_us)}` : "–"],
    ];
    show(
      element,
      h("p", {}, described(election)),
      legend(),
      bars(election),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      table(
        "Stages",
        [{ title: "stage" }, ...["begins", "ends", "in use"].map((title) => ({ title, number: true }))],
        STAGES.filter((stage) => election.stages[stage]).map((stage) => [stage, ...election.stages[stage].map(micros)]),
      ),
      table(
        "Brokers",
        ["broker", "requests", "first sent", "last acknowledged"].map((title) => ({ title, number: true })),
        election.brokers.map((each) => [each.broker, each.requests, micros(each.sent_us), micros(each.acked_us)]),
      ),
    );
  };
  await draw();
  const end = subscribe((what) => what === "elections" && draw().catch((error) => show(element, failure(error))));
  signal.addEventListener("abort", end, { once: true });
}
