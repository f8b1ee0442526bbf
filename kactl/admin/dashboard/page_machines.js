// State machines: the diagrams that the code's tables define, with what is in each state now and how often it changes.

import { get, path } from "./api.js";
import { subscribe } from "./cluster.js";
import { failure, h, show, state, svg, table } from "./dom.js";
import { age, count, number } from "./format.js";

const BOX = { width: 116, height: 40 };
// Where the states are drawn; a state that is not named here would be missing, which a test excludes.
export const PLACES = {
  partition: { absent: [66, 40], new: [334, 40], online: [334, 190], offline: [66, 190] },
  replica: {
    absent: [66, 40],
    new: [334, 40],
    deletion_successful: [66, 170],
    online: [334, 170],
    offline: [185, 290],
    deletion_started: [66, 410],
    deletion_ineligible: [334, 410],
  },
};
const WINDOWS = { 60: "the last minute", 300: "the last 5 minutes", 3600: "the last hour", 86400: "the last day" };

export async function machines(element, { query, signal }) {
  const window_s = query.get("window") ?? "60";
  const chosen = h(
    "select",
    { id: "window", change: (event) => (location.hash = `#/machines?window=${event.target.value}`) },
    Object.entries(WINDOWS).map(([value, text]) => h("option", { value, selected: value === window_s }, text)),
  );
  const since = h("p", { class: "hint", role: "status" });
  const content = h("div", { class: "columns" });
  show(element, h("p", {}, h("label", { for: "window" }, "Transitions of "), chosen), since, content);
  const draw = async () => {
    const found = await get(path(["state-machines"], { window_s }), { signal });
    show(since, `Counted for ${age(Date.now() - found.since_ms)}. A transition that is not drawn is rejected, logged, and has no effect.`);
    show(content, part("Partitions", "partition", found.partition), part("Replicas", "replica", found.replica));
  };
  await draw();
  const end = subscribe((what) => what === "snapshot" && draw().catch((error) => error.name === "AbortError" || show(since, failure(error))));
  signal.addEventListener("abort", end, { once: true });
}

function part(title, kind, machine) {
  return h(
    "section",
    {},
    h("h2", {}, title),
    diagram(kind, machine),
    table(
      `${title}: states`,
      [{ title: "state" }, { title: "meaning" }, { title: "now", number: true }, { title: "illegal", number: true }, { title: "failed", number: true }],
      machine.states.map((each) => [
        spaced(each.name),
        each.meaning,
        each.count == null ? "–" : number(each.count),
        each.illegal ? state("bad", number(each.illegal)) : "0",
        each.refused ? state("warn", number(each.refused)) : "0",
      ]),
    ),
    table(
      `${title}: transitions`,
      [{ title: "from" }, { title: "to" }, { title: "needs" }, { title: "times", number: true }, { title: "per second", number: true }],
      machine.transitions.map((each) => [spaced(each.from_state), spaced(each.to_state), each.needs || "–", number(each.count), rate(each.per_second)]),
    ),
  );
}

const spaced = (name) => name.replace("_", " ");

const rate = (value) => (value === 0 ? "0" : value < 0.01 ? "< 0.01" : value.toLocaleString("en", { maximumFractionDigits: 2 }));

function diagram(kind, machine) {
  const places = PLACES[kind];
  const height = Math.max(...Object.values(places).map(([, y]) => y)) + 70;
  const made = machine.transitions.filter((each) => each.count).map((each) => `${each.from_state} to ${each.to_state} ${number(each.count)}`);
  const label = `States of ${kind}s: ${machine.states.filter((each) => each.count).map((each) => `${each.name} ${number(each.count)}`).join(", ") || "none"}. Transitions: ${made.join(", ") || "none"}.`;
  const head = (id, name) => svg("marker", { id: `${kind}-${id}`, class: name, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8Z" }));
  return svg(
    "svg",
    { class: "diagram", viewBox: `0 0 400 ${height}`, role: "img", "aria-label": label },
    svg("defs", {}, head("idle", "idle"), head("busy", "busy")),
    machine.transitions.map((each) => edge(kind, each, places, machine.transitions)),
    machine.states.map((each) => node(each, places[each.name])),
  );
}

function node({ name, count: held, meaning, illegal, refused }, [x, y]) {
  return svg(
    "g",
    { class: `node${illegal ? " illegal" : ""}`, "data-state": name },
    svg("title", {}, meaning),
    svg("rect", { x: x - BOX.width / 2, y: y - BOX.height / 2, width: BOX.width, height: BOX.height, rx: 6 }),
    svg("text", { x, y: y - 4, "text-anchor": "middle" }, spaced(name)),
    svg("text", { class: "held", x, y: y + 13, "text-anchor": "middle" }, held == null ? "" : number(held)),
    illegal ? svg("text", { class: "bad", x: x - BOX.width / 2, y: y + 33 }, `✕ ${number(illegal)} illegal`) : null,
    !illegal && refused ? svg("text", { class: "warn", x: x - BOX.width / 2, y: y + 33 }, `! ${number(refused)} failed`) : null,
  );
}

function edge(kind, { from_state: from, to_state: to, needs, count: made, per_second: each }, places, all) {
  const busy = made ? "busy" : "idle";
  const text = made ? `${number(made)} · ${rate(each)}/s` : "";
  const attributes = { class: `edge ${busy}`, "data-edge": `${from}-${to}`, "marker-end": `url(#${kind}-${busy})` };
  const title = svg("title", {}, `${from} to ${to}${needs ? `, by ${needs}` : ""}: ${count(made, "time")}`);
  const [x1, y1] = places[from];
  if (from === to) {
    const [left, bottom] = [x1 + 26, y1 + BOX.height / 2];
    return [
      svg("path", { ...attributes, d: `M${left} ${bottom}C${left} ${bottom + 26} ${left + 24} ${bottom + 26} ${left + 22} ${bottom + 2}` }, title),
      label(text, x1 + BOX.width / 2, bottom + 34, "end"),
    ];
  }
  const [x2, y2] = places[to];
  const length = Math.hypot(x2 - x1, y2 - y1);
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  // Two edges between the same states are drawn beside each other.
  const shift = all.some((other) => other.from_state === to && other.to_state === from) ? 9 : 0;
  const [begin, end] = [outside(-dy * shift, dx * shift, dx, dy), length - outside(dy * shift, -dx * shift, dx, dy)];
  const at = (distance) => [x1 + dx * distance - dy * shift, y1 + dy * distance + dx * shift];
  const [[ax, ay], [bx, by], [mx, my]] = [at(begin), at(end), at(length / 2)];
  return [
    svg("path", { ...attributes, d: `M${ax} ${ay}L${bx} ${by}` }, title),
    label(text, mx, my + (Math.abs(dy) < 0.2 ? (shift ? 14 * Math.sign(dx) + 3 : -6) : shift ? 10 * Math.sign(dx) + 4 : 4)),
  ];
}

/** The distance from a point near the middle of a box to its border in a direction. */
function outside(px, py, dx, dy) {
  const far = (half, at, by) => (Math.abs(by) < 1e-9 ? Infinity : (Math.sign(by) * half - at) / by);
  return Math.min(far(BOX.width / 2, px, dx), far(BOX.height / 2, py, dy)) + 1;
}

const label = (text, x, y, anchor = "middle") => (text ? svg("text", { class: "rate", x, y, "text-anchor": anchor }, text) : null);
