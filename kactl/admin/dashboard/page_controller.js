// Controller: its event queue by kind of event, and the terms of all controllers.

import { get } from "./api.js";
import { cluster, subscribe } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { age, count, millis, number, orderText, time } from "./format.js";

export async function controller(element, { signal }) {
  const queue = h("section");
  const held = h("section");
  const terms = h("section");
  show(element, queue, held, terms);
  const draw = () => {
    if (cluster.queue) show(queue, queueOf(cluster.queue));
  };
  const drawTerms = async () => {
    try {
      const [{ items }, { holds }] = await Promise.all([
        get("v1/controller/history", { signal }),
        get("v1/controller", { signal }),
      ]);
      show(held, heldInstances(holds ?? []));
      show(terms, termTable(items));
    } catch (error) {
      if (error.name !== "AbortError") show(terms, failure(error));
    }
  };
  draw();
  await drawTerms();
  const end = subscribe((what) => {
    if (what === "snapshot") draw();
    if (what === "events" && cluster.events[0]?.kind === "controller") drawTerms();
  });
  signal.addEventListener("abort", end, { once: true });
}

function queueOf(queue) {
  const { current } = queue;
  return [
    h("p", {}, `${count(queue.depth, "event")} waiting, the oldest for ${millis(queue.oldest_ms)}. `, current ? `Now: ${current.label}, for ${millis(current.for_ms)}.` : "Now: idle."),
    table(
      "Events by kind",
      [{ title: "kind" }, ...["handled", "failed", "wait p50", "wait p99", "handling p50", "handling p99", "longest"].map((title) => ({ title, number: true }))],
      queue.kinds.map((each) => [
        each.label,
        number(each.handled),
        number(each.failed),
        millis(each.wait.p50_ms),
        millis(each.wait.p99_ms),
        millis(each.process.p50_ms),
        millis(each.process.p99_ms),
        millis(each.process.max_ms),
      ]),
    ),
  ];
}

/** Returns the instances that leave the controllership to others, or nothing. */
function heldInstances(holds) {
  return holds.map((each) =>
    h("p", {}, state("warn", `Instance ${each.controller_id} is held`), ` ${orderText(each)}. It leaves the controllership to others, if there are any. To end that: `, h("code", {}, `kactl controller release ${each.controller_id}`)),
  );
}

function termTable(items) {
  const lately = items.filter((each) => each.began_ms > Date.now() - 86_400_000).length;
  return table(
    `Controllers, the newest first; ${count(lately, "change")} in 24 hours`,
    [{ title: "epoch", number: true }, { title: "controller", number: true }, { title: "since" }, { title: "until" }, { title: "ended by" }],
    [...items].reverse().map((each) => [
      number(each.epoch),
      number(each.controller_id),
      `${new Date(each.began_ms).toLocaleDateString()} ${time(each.began_ms)}`,
      each.ended_ms == null ? `now, for ${age(Date.now() - each.began_ms)}` : time(each.ended_ms),
      each.cause || "–",
    ]),
  );
}
