// Partitions, and shards (those of ownership topics): a list of any length, of which only the visible rows are read.

import { get, path } from "./api.js";
import { subscribe } from "./cluster.js";
import { failure, h, show, state } from "./dom.js";
import { count, date, local, moment, withName, nameOf, time } from "./format.js";

const ROW_PX = 30;
const WINDOW = 200;
// Windows that are kept, so that a long scroll does not fill the memory, and that are read at the same time.
const KEPT_MAX = 20;
const READING_MAX = 2;
const FLAGS = [
  ["offline", "without a leader"],
  ["under_min_isr", "under min ISR"],
  ["at_min_isr", "at min ISR"],
  ["urp", "under-replicated"],
  ["not_preferred", "not led by the preferred replica"],
];

const SHARD_STATES = { unowned: "no owner", handover: "hand-over", waiting: "waiting", preparing: "preparing", failing: "failing", owned: "owned" };

const PARTITIONS = {
  place: "partitions",
  noun: "partition",
  fixed: { kind: "replicated" },
  columns: ["partition", "state", "leader", "replicas", "in sync", "min ISR"],
  cells: (each) => [
    condition(each),
    each.leader < 0 ? "none" : String(each.leader),
    each.replicas.join(", "),
    each.isr.join(", ") || "none",
    each.min_insync_replicas == null ? "unknown" : String(each.min_insync_replicas),
  ],
};
const SHARDS = {
  place: "shards",
  noun: "shard",
  fixed: { kind: "ownership" },
  columns: ["shard", "state", "owner", "standbys", "former owner", "leader epoch"],
  cells: (each) => [
    condition(each),
    each.leader < 0 ? "none" : member(each, each.leader),
    standbys(each).map((id) => member(each, id)).join(", ") || "none",
    each.shard?.former == null ? "–" : member(each, each.shard.former),
    String(each.leader_epoch),
  ],
};

/** Returns a participant of a shard. */
export const member = (each, id) => withName(id, each.shard?.names[id]);
/** Returns the participants that follow a shard. */
export const standbys = (each) => each.isr.filter((broker) => broker !== each.leader);

export const partitions = (element, page) => listed(element, page, PARTITIONS);
export const shards = (element, page) => listed(element, page, SHARDS);

function listed(element, { query, signal }, kind) {
  const total = h("p", { role: "status" });
  const body = h("div", { class: "rows" });
  const view = h("div", { class: "virtual", tabindex: "0", role: "region", "aria-label": kind === SHARDS ? "Shards" : "Partitions" }, header(kind), body);
  show(element, filters(query, kind), total, view);
  const list = new Rows({ view, body, total, query, signal, kind });
  list.draw();
  const end = subscribe((what) => what === "events" && !query.get("at") && list.stale());
  signal.addEventListener("abort", end, { once: true });
}

/** The filters are in the address, so that a list can be linked to. */
function filters(query, kind) {
  const change = (name, value) => {
    const next = new URLSearchParams(query);
    if (value) next.set(name, value);
    else next.delete(name);
    location.hash = `#/${kind.place}${next.size ? `?${next}` : ""}`;
  };
  const field = (name, label, type) =>
    h(
      "label",
      {},
      label,
      h("input", { name, type, value: query.get(name) ?? "", min: name === "leader" ? "-1" : "0", change: (event) => change(name, event.target.value.trim()) }),
    );
  return h(
    "form",
    { class: "filters", submit: (event) => event.preventDefault() },
    field("topic", "Topic (* and ? are wildcards)", "search"),
    field("leader", kind === SHARDS ? "Owner" : "Leader", "number"),
    field("replica", kind === SHARDS ? "Owner or standby" : "Replica on", "number"),
    kind === SHARDS ? stateFilter(query, change) : null,
    kind === SHARDS ? null : h("label", {}, "As they were at", h("input", { name: "at", type: "datetime-local", step: "1", value: local(query.get("at")), change: (event) => change("at", moment(event.target.value)) })),
    (kind === SHARDS ? [] : FLAGS).map(([name, label]) =>
      h(
        "label",
        { class: "flag" },
        h("input", { name, type: "checkbox", checked: query.get(name) === "true", change: (event) => change(name, event.target.checked ? "true" : "") }),
        label,
      ),
    ),
  );
}

function stateFilter(query, change) {
  const option = (value, text) => h("option", { value, selected: value === (query.get("shard") ?? "") }, text);
  const options = [option("", "any"), ...Object.entries(SHARD_STATES).map(([value, text]) => option(value, text))];
  return h("label", {}, "State", h("select", { name: "shard", change: (event) => change("shard", event.target.value) }, options));
}

const header = (kind) => h("div", { class: "row head", "aria-hidden": "true" }, kind.columns.map((title) => h("span", {}, title)));

/** The rows of the list. Windows of rows are read when they become visible, and again when the cluster changes. */
class Rows {
  constructor({ view, body, total, query, signal, kind }) {
    Object.assign(this, { view, body, total, query, signal, kind });
    this.windows = new Map(); // by number, those that were read last at the end
    this.fresh = new Set(); // of these, read since the cluster has last changed
    this.reading = new Set();
    this.failed = false;
    this.matched = 0;
    view.addEventListener("scroll", () => this.draw(), { signal, passive: true });
    this.again = null;
    signal.addEventListener("abort", () => clearTimeout(this.again), { once: true });
  }

  stale() {
    this.again ??= setTimeout(() => {
      this.again = null;
      this.failed = false;
      this.fresh.clear();
      this.draw();
    }, 500);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW_PX) - 10);
    const last = Math.ceil((this.view.scrollTop + this.view.clientHeight) / ROW_PX) + 10;
    for (let number = Math.floor(first / WINDOW); number <= Math.floor(last / WINDOW); number++) {
      if (number === 0 || number * WINDOW < this.matched) this.read(number);
    }
    const items = [];
    for (let index = first; index < Math.min(last, this.matched); index++) {
      const found = this.windows.get(Math.floor(index / WINDOW))?.[index % WINDOW];
      items.push(found ? row(found, this.kind) : h("div", { class: "row" }, h("span", {}, "…")));
    }
    this.body.style.height = `${this.matched * ROW_PX}px`;
    const shown = h("div", { class: "shown" }, items);
    shown.style.transform = `translateY(${first * ROW_PX}px)`;
    show(this.body, shown);
  }

  /** Reads a window, unless it is known. Those that the user has scrolled past by then are not read. */
  async read(number) {
    if (this.fresh.has(number) || this.reading.has(number) || this.reading.size >= READING_MAX || this.failed) return;
    this.reading.add(number);
    try {
      const query = Object.fromEntries(this.query);
      const page = await get(path(["partitions"], { ...query, ...this.kind.fixed, offset: number * WINDOW, limit: WINDOW }), { signal: this.signal });
      this.keep(number, page.items);
      this.matched = page.matched;
      show(this.total, this.matched ? count(this.matched, this.kind.noun) : `No ${this.kind.noun} matches.`, page.at_ms ? ` As of ${date(page.at_ms)} ${time(page.at_ms)}.` : "");
    } catch (error) {
      if (error.name === "AbortError") return;
      this.failed = true;
      show(this.total, failure(error));
      return;
    } finally {
      this.reading.delete(number);
    }
    this.draw();
  }

  keep(number, items) {
    this.windows.delete(number);
    this.windows.set(number, items);
    this.fresh.add(number);
    for (const oldest of this.windows.keys()) {
      if (this.windows.size <= KEPT_MAX) break;
      this.windows.delete(oldest);
      this.fresh.delete(oldest);
    }
    this.view.dataset.kept = String(this.windows.size);
  }
}

function row(each, kind) {
  return h(
    "div",
    { class: "row" },
    h("a", { href: `#/partition/${encodeURIComponent(each.topic)}/${each.partition}` }, nameOf(each)),
    kind.cells(each).map((cell) => h("span", {}, cell)),
  );
}

/** Returns the state of a partition, as a mark and a word. */
export function condition(each) {
  if (each.shard) {
    const level = { unowned: "bad", failing: "bad", owned: "good" }[each.shard.state] ?? "warn";
    return state(level, SHARD_STATES[each.shard.state]);
  }
  if (each.offline) return state("bad", each.state);
  if (each.under_min_isr) return state("bad", "under min ISR");
  if (each.under_replicated) return state("warn", "under-replicated");
  return state("good", each.state);
}
