// Audit: attempts to change something, and requests that were denied, with their clients and reasons.

import { get, path } from "./api.js";
import { cluster, subscribe } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { count, date, time } from "./format.js";

const LEVELS = { done: "good", partly: "warn", unfinished: "warn", attempt: "none", denied: "bad", failed: "bad", unknown: "bad" };
const AT_ONCE = 1000;
const SHOWN = 500;
const POLL_MS = 5_000;

export async function audit(element, { query, signal }) {
  const only = query.get("result") ?? "";
  const records = [];
  let whole = true;
  const draw = () => show(element, whole ? filter(only) : h("p", { class: "hint" }, "Your role may not read the audit trail: these are the changes among the events."), listed(records, only));
  const read = async () => {
    try {
      await more(records, signal);
    } catch (error) {
      if (error.status !== 403) throw error;
      whole = false;
      const page = await get(path(["events"], { kinds: "request", limit: AT_ONCE }), { signal });
      records.splice(0, records.length, ...page.items.filter((each) => each.kind === "request").map((each) => ({ ...each, result: each.outcome, peer: "" })));
    }
    draw();
  };
  const again = () => read().catch((error) => error.name === "AbortError" || show(element, failure(error)));
  await read();
  const timer = setInterval(() => document.hidden || again(), POLL_MS);
  const end = subscribe((what) => what === "events" && cluster.events[0]?.kind === "request" && again());
  signal.addEventListener("abort", () => (end(), clearInterval(timer)), { once: true });
}

/** Adds the records after those that are known. The numbers begin again when the server is started. */
async function more(records, signal) {
  for (;;) {
    const after = records.at(-1)?.seq ?? 0;
    const { items } = await get(path(["audit"], { after, limit: AT_ONCE }), { signal });
    records.push(...items);
    if (items.length < AT_ONCE) return;
  }
}

function filter(only) {
  const option = (value, text) => h("option", { value, selected: value === only }, text);
  return h(
    "form",
    { class: "filters", submit: (event) => event.preventDefault() },
    h(
      "label",
      {},
      "Result",
      h(
        "select",
        { name: "result", change: (event) => (location.hash = `#/audit${event.target.value ? `?result=${event.target.value}` : ""}`) },
        option("", "all"),
        Object.keys(LEVELS).map((result) => option(result, result)),
      ),
    ),
  );
}

function listed(records, only) {
  const found = records.filter((each) => !only || each.result === only).reverse();
  if (!found.length) return h("p", {}, "No record among those that the server holds.");
  return table(
    found.length > SHOWN ? `The newest ${SHOWN} of ${count(found.length, "record")}` : count(found.length, "record"),
    [{ title: "time" }, { title: "client" }, { title: "action" }, { title: "target" }, { title: "result" }, { title: "reason" }],
    found.slice(0, SHOWN).map((each) => [
      `${date(each.time_ms)} ${time(each.time_ms)}`,
      [each.principal || "unknown", each.role, each.peer && `from ${each.peer}`].filter(Boolean).join(", "),
      each.action || each.operation,
      each.target || "–",
      h("span", {}, state(LEVELS[each.result] ?? "none", each.result), each.count > 1 ? ` ${each.count} times` : "", each.detail ? `: ${each.detail}` : ""),
      each.reason || "–",
    ]),
  );
}
