// Controller: its event queue by kind of event, and the terms of all controllers.

import { get } from "./api.js";
import { cluster, subscribe } from "./cluster.js";
import { failure, h, show, table } from "./dom.js";
import { age, count, millis, number, time } from "./format.js";

export async function controller(element, { signal }) {
  const queue = h("section");
  const terms = h("section");
  show(element, queue, terms);
  const draw = () => {
    if (cluster.queue) show(queue, queueOf(cluster.queue));
  };
  const drawTerms = async () => {
    try {
      const { items } = await get("v1/controller/history", { signal });
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
