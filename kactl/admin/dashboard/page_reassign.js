// Reassign: plan moves of replicas, look at them, start them, and follow or cancel them.

import { get, path, post, request } from "./api.js";
import { soon, subscribe } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { count, nameOf, number, time } from "./format.js";

const ROWS = 200;
// Per request, as the API limits it.
const AT_ONCE = 10_000;
const POLL_MS = 1_000;

export async function reassign(element, { signal }) {
  const running = h("section", { "aria-live": "polite" });
  const result = h("section", { "aria-live": "polite" });
  const attempt = async (place, work) => {
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") show(place, failure(error));
    }
  };
  const refresh = () => attempt(running, async () => show(running, progress(await get("v1/reassignments", { signal }), cancel)));
  const cancel = (each) => () =>
    attempt(running, async () => {
      await request("DELETE", path(["reassignments", each.topic, String(each.partition)]), { signal });
      await refresh();
      soon();
    });
  show(element, running, h("h2", {}, "Plan"), planForm(result, attempt, refresh, signal), result);
  await refresh();
  const timer = setInterval(refresh, POLL_MS);
  const end = subscribe((what) => what === "events" && refresh());
  signal.addEventListener("abort", () => (clearInterval(timer), end()), { once: true });
}

function progress(list, cancel) {
  const done = list.last_completed[0];
  return [
    h("h2", {}, "In progress"),
    list.items.length
      ? table(
          count(list.items.length, "reassignment"),
          [{ title: "partition" }, { title: "replicas" }, { title: "adding" }, { title: "removing" }, { title: "in sync" }, { title: "waits for" }, { title: "" }],
          list.items.slice(0, ROWS).map((each) => [
            nameOf(each),
            each.replicas.join(", "),
            each.adding.join(", ") || "–",
            each.removing.join(", ") || "–",
            each.isr.join(", "),
            each.waits_for || "–",
            h("button", { type: "button", "aria-label": `Cancel the reassignment of ${nameOf(each)}`, click: cancel(each) }, "Cancel"),
          ]),
        )
      : h("p", {}, "No reassignment is in progress."),
    h("p", { class: "hint" }, `${number(list.completed)} completed under this controller`, done ? `, the last one ${nameOf(done)} at ${time(done.completed_ms)}` : "", "."),
  ];
}

function planForm(result, attempt, refresh, signal) {
  const topics = h("input", { id: "topics", size: "40", placeholder: "all topics" });
  const without = h("input", { id: "without", size: "20", placeholder: "none" });
  const factor = h("input", { id: "factor", type: "number", min: "1", max: "1000" });
  const balance = h("input", { id: "balance", type: "checkbox" });
  const reason = h("input", { id: "reason", size: "40", maxlength: "1000" });
  const words = (input) => input.value.split(/[\s,]+/).filter(Boolean);
  const plan = (event) => {
    event.preventDefault();
    return attempt(result, async () => {
      const answer = await post(
        "v1/reassignment-plans",
        {
          topics: words(topics).length ? words(topics) : null,
          without: words(without).map(Number),
          replication_factor: factor.value ? Number(factor.value) : null,
          balance: balance.checked,
        },
        { signal },
      );
      const start = answer.items.length
        ? h("button", { type: "button", class: "act", click: () => apply(answer) }, `Start ${count(answer.items.length, "reassignment")}`)
        : null;
      show(result, preview(answer), start);
      start?.focus();
    });
  };
  const apply = (answer) =>
    attempt(result, async () => {
      const results = [];
      for (let begin = 0; begin < answer.items.length; begin += AT_ONCE) {
        const partitions = answer.items.slice(begin, begin + AT_ONCE).map(({ topic, partition, replicas }) => ({ topic, partition, replicas }));
        results.push(...(await post("v1/reassignments", { partitions, reason: reason.value }, { signal })).results);
      }
      const failed = results.filter((each) => each.outcome === "failed");
      show(
        result,
        h("p", {}, state(failed.length ? "bad" : "good", `${number(results.length - failed.length)} started, ${number(failed.length)} rejected`)),
        failed.length ? table("Rejected", [{ title: "partition" }, { title: "reason" }], failed.slice(0, ROWS).map((each) => [nameOf(each), each.message])) : null,
      );
      await refresh();
      soon();
    });
  return h(
    "form",
    { class: "stack", submit: plan },
    h("label", { for: "topics" }, "Topics"),
    topics,
    h("label", { for: "without" }, "Without these brokers, such as ones to be decommissioned"),
    without,
    h("label", { for: "factor" }, "Replicas per partition, if it changes"),
    factor,
    h("label", { class: "flag" }, balance, "Balance replicas and preferred leaders"),
    h("label", { for: "reason" }, "Reason, for the audit trail"),
    reason,
    h("button", {}, "Preview"),
  );
}

function preview(answer) {
  if (!answer.items.length) return h("p", {}, "Nothing has to move.");
  return [
    h("p", {}, `${count(answer.items.length, "partition")} would change, ${count(answer.moved, "replica")} would be copied, ${number(answer.unchanged)} stay. Nothing was changed.`),
    table(
      "Brokers",
      [{ title: "broker", number: true }, ...["replicas", "planned", "preferred leaders", "planned"].map((title) => ({ title, number: true }))],
      answer.loads.map((each) => [each.broker, each.replicas, each.replicas_planned, each.preferred, each.preferred_planned].map(number)),
    ),
    table(
      answer.items.length > ROWS ? `The first ${ROWS} moves` : "Moves",
      [{ title: "partition" }, { title: "from" }, { title: "to" }],
      answer.items.slice(0, ROWS).map((each) => [nameOf(each), each.current.join(", "), each.replicas.join(", ")]),
    ),
  ];
}
