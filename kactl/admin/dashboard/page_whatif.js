// What-if: the losses of failures before they occur, and the order of a rolling restart.

import { post } from "./api.js";
import { cluster } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { count, number } from "./format.js";

export function whatif(element, { query, signal }) {
  const result = h("section", { "aria-live": "polite" });
  const chosen = new Set((query.get("kill") ?? "").split(",").filter(Boolean).map(Number));
  const racks = [...new Set(cluster.brokers.map((each) => each.rack).filter(Boolean))].sort();
  const box = (value, label, set) =>
    h("label", { class: "flag" }, h("input", { type: "checkbox", checked: set.has(value), change: (event) => (event.target.checked ? set.add(value) : set.delete(value)) }), label);
  const chosenRacks = new Set();
  const together = h("input", { type: "number", id: "together", min: "1", max: "1000", value: "1" });
  const run = async (body, draw) => {
    show(result, h("p", {}, "Simulating"));
    try {
      show(result, draw(await post("v1/whatif", body, { signal })));
    } catch (error) {
      if (error.name !== "AbortError") show(result, failure(error));
    }
  };
  const kill = () => {
    if (!chosen.size && !chosenRacks.size) return show(result, h("p", { role: "alert" }, "Choose brokers or racks first."));
    return run({ kill: [{ brokers: [...chosen], racks: [...chosenRacks] }] }, killed);
  };
  show(
    element,
    h("p", {}, "The controller simulates its cluster as it is now. Nothing is changed."),
    h("fieldset", {}, h("legend", {}, "Fail these at once"), cluster.brokers.map((each) => box(each.id, `Broker ${each.id}${each.rack ? ` (${each.rack})` : ""}`, chosen)), racks.map((rack) => box(rack, `Rack ${rack}`, chosenRacks)), h("button", { type: "button", click: kill }, "Simulate")),
    h("p", {}, h("button", { type: "button", click: () => run({}, swept) }, "Every broker and every pair")),
    h(
      "p",
      {},
      h("label", { for: "together" }, "Brokers at a time "),
      together,
      " ",
      h("button", { type: "button", click: () => run({ restart: Number(together.value) || 1 }, planned) }, "Plan a rolling restart"),
    ),
    result,
  );
  if (chosen.size) kill();
}

const killed = ({ analysis, shards }) => [analysis.killed.map((outcome) => [h("h2", {}, "Outcome"), h("p", {}, outcome.explained), outcomes("Partitions", [outcome]), notes(analysis)]), ofShards(shards)];

const ofShards = (shards) => (shards.length ? [h("h2", {}, "Shards"), shards.map((each) => h("p", {}, each.explained))] : []);

function swept({ analysis, shards }) {
  return [
    analysis.sweeps.map((sweep) => [
      h("h2", {}, `${{ brokers: "Any one broker", pairs: "Any two brokers", racks: "Any one rack" }[sweep.kind] ?? sweep.kind}`),
      h("p", {}, sweep.harmless === sweep.scenarios ? state("good", "nothing loses its leader") : state("bad", `${number(sweep.scenarios - sweep.harmless)} of ${count(sweep.scenarios, "case")} take partitions offline`)),
      outcomes("The worst cases", sweep.worst),
    ]),
    ofShards(shards),
    notes(analysis),
  ];
}

function outcomes(caption, items) {
  return table(
    caption,
    [{ title: "fails" }, ...["offline", "recoverable", "lossy", "under min ISR", "one left in sync", "moved"].map((title) => ({ title, number: true })), { title: "topics" }],
    items.map((each) => [
      each.scenario.brokers.join(", ") || "none",
      ...[each.offline, each.recoverable, each.lossy, each.under_min, each.lone, each.moved].map(number),
      each.worst_topics.map((topic) => `${topic.topic} (${number(topic.partitions)})`).join(", ") || "–",
    ]),
  );
}

function planned({ restart, analysis }) {
  return [
    h("h2", {}, "Rolling restart"),
    h(
      "p",
      {},
      restart.harmful ? state("bad", `${count(restart.harmful, "step")} cannot be made harmless by any order`) : state("good", "no step takes a partition offline or rejects writes"),
      ` Ordered ${restart.order}; ${count(restart.moves, "change")} of leaders.`,
    ),
    table(
      "Steps: each is back in all ISRs before the next one begins",
      [{ title: "step", number: true }, { title: "brokers" }, { title: "racks" }, ...["offline", "lossy", "under min ISR", "moved"].map((title) => ({ title, number: true }))],
      restart.steps.map((step, index) => [number(index + 1), step.brokers.join(", "), step.racks.join(", ") || "–", ...[step.offline_more, step.lossy, step.under_min_more, step.moved].map(number)]),
    ),
    notes(analysis),
  ];
}

const notes = (analysis) => analysis.notes.map((note) => h("p", { class: "hint" }, note));
