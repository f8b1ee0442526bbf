// Elect: elections of preferred or unclean leaders, with a preview first.

import { post } from "./api.js";
import { soon } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { count, nameOf, number } from "./format.js";

const ROWS = 200;

/** "orders-0, audit-log-12" as names of partitions, split at the last dash. Throws a SyntaxError for other text. */
export function parsed(text) {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((word) => {
      const found = /^(.+)-(\d+)$/.exec(word);
      if (!found) throw new SyntaxError(`"${word}" is not a partition: write topic-number, such as orders-0`);
      return { topic: found[1], partition: Number(found[2]) };
    });
}

export function elect(element, { query, signal }) {
  const type = h("select", { id: "type" }, h("option", { value: "preferred" }, "preferred"), h("option", { value: "unclean" }, "unclean: may lose records"));
  const names = h("input", { id: "names", size: "50", value: query.get("partitions") ?? "", placeholder: "all that need one" });
  const reason = h("input", { id: "reason", size: "50", maxlength: "1000" });
  const result = h("section", { "aria-live": "polite" });
  const send = async (dryRun) => {
    const chosen = parsed(names.value);
    const scope = chosen.length ? { partitions: chosen } : { all: true };
    return post("v1/elections", { type: type.value, ...scope, dry_run: dryRun, reason: reason.value }, { signal });
  };
  const attempt = async (work) => {
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") show(result, failure(error));
    }
  };
  const apply = () =>
    attempt(async () => {
      show(result, outcome(await send(false)));
      soon();
    });
  const preview = (event) => {
    event.preventDefault();
    return attempt(async () => {
      const answer = await send(true);
      const moves = answer.results.filter((each) => each.outcome === "ok").length;
      const confirm = moves ? h("button", { type: "button", class: "act", click: apply }, `Elect ${count(moves, "leader")}`) : null;
      show(result, outcome(answer), confirm);
      confirm?.focus();
    });
  };
  show(
    element,
    h(
      "form",
      { class: "stack", submit: preview },
      h("label", { for: "type" }, "Leaders"),
      type,
      h("label", { for: "names" }, "Partitions, such as orders-0, orders-7"),
      names,
      h("label", { for: "reason" }, "Reason, for the audit trail"),
      reason,
      h("button", {}, "Preview"),
    ),
    result,
  );
}

function outcome({ results, dry_run: dryRun }) {
  const of = (kind) => results.filter((each) => each.outcome === kind).length;
  const levels = { ok: "good", not_needed: "none", failed: "bad" };
  const words = { ok: dryRun ? "would move" : "moved", not_needed: "not needed", failed: "cannot" };
  if (!results.length) return h("p", {}, "No partition needs an election.");
  return [
    h("p", {}, `${number(of("ok"))} ${words.ok}, ${number(of("failed"))} cannot, ${number(of("not_needed"))} need none.${dryRun ? " Nothing was changed." : ""}`),
    table(
      results.length > ROWS ? `The first ${ROWS} of ${count(results.length, "partition")}` : "Results",
      [{ title: "partition" }, { title: "from", number: true }, { title: "to", number: true }, { title: "result" }],
      results.slice(0, ROWS).map((each) => [
        nameOf(each),
        each.previous < 0 ? "none" : String(each.previous),
        each.leader < 0 ? "none" : String(each.leader),
        h("span", {}, state(levels[each.outcome], words[each.outcome]), each.message ? `: ${each.message}` : ""),
      ]),
    ),
  ];
}
