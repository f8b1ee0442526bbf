// One partition: why it has its leader, what happened to it, and how it was at an earlier time.

import { get, path } from "./api.js";
import { cluster, subscribe } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { age, count, date, local, moment, withName, nameOf, number, time } from "./format.js";
import { condition, member, standbys } from "./page_partitions.js";
import { timeline } from "./timeline.js";

const EVENTS = 200;
const SPANS_MS = { "1m": 60_000, "10m": 600_000, "1h": 3_600_000, "1d": 86_400_000 };
const KINDS = { leader: "one", owner: "one", "in sync": "good", standby: "good", "not used": "none", online: "good", new: "none", offline: "bad", absent: "none" };

export async function partition(element, { parts: [topic, index], query, signal }) {
  const place = ["topics", topic, "partitions", index];
  const present = h("section");
  const past = h("section", { "aria-live": "polite" });
  const course = h("section");
  show(element, present, controls(place, query), past, course);
  const draw = async () => {
    const [info, why, history] = await Promise.all([
      get(path(place), { signal }),
      get(path([...place, "explanation"]), { signal }),
      get(path([...place, "history"], { limit: 1000 }), { signal }),
    ]);
    show(present, about(info, why));
    show(course, picture(info, history, query), events(history));
  };
  const attempt = async (target, work) => {
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") show(target, failure(error));
    }
  };
  await attempt(present, draw);
  if (query.get("at")) await attempt(past, async () => show(past, await earlier(topic, index, query.get("at"), signal)));
  const end = subscribe((what) => what === "snapshot" && cluster.live && attempt(present, draw));
  signal.addEventListener("abort", end, { once: true });
}

function about(info, why) {
  if (info.shard) return aboutShard(info, why);
  const facts = [
    ["leader epoch", number(info.leader_epoch)],
    ["partition epoch", number(info.partition_epoch)],
    ["in sync", info.isr.join(", ") || "none"],
    ["min.insync.replicas", info.min_insync_replicas ?? "unknown"],
    ["reassignment", info.adding.length || info.removing.length ? `adding ${info.adding.join(", ") || "none"}; removing ${info.removing.join(", ") || "none"}` : "none"],
  ];
  return [
    h("h2", {}, nameOf(info), " ", condition(info)),
    h("p", {}, why.verdict),
    why.remedies.map((remedy) => h("p", { class: "hint" }, remedy)),
    h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
    table(
      "Replicas, the preferred one first",
      [{ title: "broker" }, { title: "replica" }, { title: "broker is" }, { title: "verdict" }],
      why.candidates.map((each) => [
        h("a", { href: `#/broker/${each.broker}` }, String(each.broker)),
        info.replica_states[each.broker] ?? "–",
        state(each.broker_state === "live" ? "good" : "warn", each.broker_state),
        each.verdict,
      ]),
    ),
  ];
}

function aboutShard(info, why) {
  const facts = [
    ["owner", info.leader < 0 ? "none" : h("a", { href: `#/broker/${info.leader}` }, `participant ${member(info, info.leader)}`)],
    ["since", why.since_ms == null ? "unknown" : `${date(why.since_ms)} ${time(why.since_ms)}${why.trigger ? `, because of ${why.trigger}` : ""}`],
    ...(info.shard.former == null ? [] : [["former owner", member(info, info.shard.former)]]),
    ["standbys", standbys(info).map((id) => member(info, id)).join(", ") || "none"],
    ["leader epoch", number(info.leader_epoch)],
  ];
  const role = (broker) => (broker === info.leader ? "owner" : info.isr.includes(broker) ? "standby" : "–");
  return [
    h("h2", {}, nameOf(info), " ", condition(info)),
    h("p", {}, why.verdict),
    why.remedies.map((remedy) => h("p", { class: "hint" }, remedy)),
    h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    table(
      "Participants, the owner first",
      [{ title: "participant" }, { title: "role" }, { title: "is" }, { title: "verdict" }],
      why.candidates.map((each) => [
        h("a", { href: `#/broker/${each.broker}` }, withName(each.broker, each.name)),
        role(each.broker),
        state(each.broker_state === "live" ? "good" : "warn", each.broker_state),
        each.verdict,
      ]),
    ),
  ];
}

/** The stretch of time and the earlier moment are in the address. */
function controls(place, query) {
  const change = (name, value) => {
    const next = new URLSearchParams(query);
    if (value) next.set(name, value);
    else next.delete(name);
    location.hash = `#/partition/${encodeURIComponent(place[1])}/${place[3]}${next.size ? `?${next}` : ""}`;
  };
  const chosen = query.get("span") ?? "";
  const option = (value, text) => h("option", { value, selected: value === chosen }, text);
  return [
    h("h2", {}, "History"),
    h(
      "form",
      { class: "filters", submit: (event) => event.preventDefault() },
      h(
        "label",
        {},
        "Show",
        h(
          "select",
          { name: "span", change: (event) => change("span", event.target.value) },
          option("", "all that is kept"),
          option("1m", "the last minute"),
          option("10m", "the last 10 minutes"),
          option("1h", "the last hour"),
          option("1d", "the last day"),
        ),
      ),
      h("label", {}, "As it was at", h("input", { name: "at", type: "datetime-local", step: "1", value: local(query.get("at")), change: (event) => change("at", moment(event.target.value)) })),
    ),
  ];
}

async function earlier(topic, index, at, signal) {
  // Partitions are in order of their numbers, of which none is missing unless it could not be read.
  const page = await get(path(["partitions"], { topic, at, offset: index, limit: 1 }), { signal });
  const found = page.items.find((each) => String(each.partition) === index);
  if (!found) return h("p", {}, `At ${date(page.at_ms)} ${time(page.at_ms)} this partition did not exist.`);
  return h(
    "p",
    {},
    `At ${date(page.at_ms)} ${time(page.at_ms)}: ${found.state}, `,
    found.leader < 0 ? "no leader" : `led by broker ${found.leader}`,
    `, leader epoch ${number(found.leader_epoch)}; replicas ${found.replicas.join(", ")}; in sync ${found.isr.join(", ") || "none"}.`,
  );
}

/** The lanes of a partition: its state, and what each replica was. */
export function lanesOf(info, items, now) {
  const lanes = new Map([["state", []], ...info.replicas.map((broker) => [`broker ${broker}`, []])]);
  const put = (name, at, what, title) => {
    const spans = lanes.get(name) ?? lanes.set(name, []).get(name);
    const last = spans.at(-1);
    if (last?.text === what) return;
    if (last) last.end = at;
    spans.push({ begin: at, end: now, kind: KINDS[what] ?? "warn", text: what, title });
  };
  const replicas = new Map();
  let led = null;
  const role = (broker, at, why) => {
    if (!led || led.leader_epoch < 0 || (replicas.get(broker) ?? "online") !== "online") return;
    const [leads, follows, neither] = info.shard ? ["owner", "standby", "not used"] : ["leader", "in sync", "out of sync"];
    const what = broker === led.leader ? leads : led.isr.includes(broker) ? follows : neither;
    put(`broker ${broker}`, at, what, `broker ${broker} ${what}, epoch ${led.leader_epoch}, ${why}`);
  };
  for (const each of items) {
    const why = `${date(each.time_ms)} ${time(each.time_ms)}: ${cause(each)}`;
    if (each.kind === "replica") {
      replicas.set(each.broker, each.to_state);
      if (each.to_state !== "online") put(`broker ${each.broker}`, each.time_ms, each.to_state.replace("_", " "), `broker ${each.broker} ${each.to_state}, ${why}`);
      role(each.broker, each.time_ms, why);
    }
    if (each.kind !== "partition" || each.refused) continue;
    put("state", each.time_ms, each.to_state, `${each.to_state}, ${why}`);
    led = each;
    for (const broker of each.replicas ?? []) role(broker, each.time_ms, why);
  }
  return [...lanes].map(([name, spans]) => ({ name, spans }));
}

function picture(info, history, query) {
  const { items } = history;
  if (!items.length) return h("p", {}, "The controller holds no event of this partition: nothing has happened to it lately.");
  const now = Date.now();
  const span = SPANS_MS[query.get("span")];
  const begin = span ? now - span : items[0].time_ms;
  const lanes = lanesOf(info, items, now).map((lane) => ({ ...lane, spans: lane.spans.filter((each) => each.end >= begin) }));
  const label = `${nameOf(info)} over ${age(now - begin)}: ${lanes[0].spans.map((each) => each.text).join(", then ") || "no change"}`;
  const middle = (begin + now) / 2;
  const marks = query.get("at") ? [{ at: Date.parse(query.get("at")), title: "as it was at" }] : [];
  lanes[0].marks = marks.filter(({ at }) => at >= begin);
  return [
    timeline({ label, begin, end: now, lanes, ticks: [begin, middle, now].map((at, index) => ({ at, text: index === 2 ? "now" : tick(at, now - begin) })) }),
    h(
      "p",
      { class: "legend" },
      [["one", "leads"], ["good", "online, in sync"], ["warn", "out of sync, or being deleted"], ["bad", "offline"], ["none", "new, or absent"]].map(([kind, text]) => h("span", { class: `bar ${kind}` }, text)),
    ),
    history.since_ms == null ? h("p", { class: "hint" }, "These are the newest events; there are more.") : null,
  ];
}

const tick = (at, length) => (length > 86_400_000 ? `${date(at)} ` : "") + time(at).slice(0, length < 60_000 ? 12 : 8);

/** Returns the cause of an event in words. */
function cause({ because }) {
  if (!because) return "cause unknown";
  const by = because.caller || because.request;
  return `${because.trigger}${because.strategy ? ` (${because.strategy})` : ""}${by ? `, requested by ${by}` : ""}`;
}

function told(each) {
  if (each.kind === "replica") return `replica on ${each.broker}: ${each.from_state} → ${each.to_state}`;
  if (each.kind === "handler") return `handler on ${each.broker} is ${each.status}${each.detail ? `: ${each.detail}` : ""}`;
  const moved = each.from_state === each.to_state ? each.to_state : `${each.from_state} → ${each.to_state}`;
  if (!each.refused && each.leader < 0 && each.leader_epoch < 0) return `${moved}; it never had a leader`;
  const leader = each.leader < 0 ? "no leader" : `leader ${each.leader}`;
  return each.refused ? `stays ${each.from_state}: ${each.refused}` : `${moved}; ${leader}, epoch ${each.leader_epoch}, in sync ${each.isr.join(", ") || "none"}`;
}

function events({ items }) {
  if (!items.length) return null;
  const shown = items.slice(-EVENTS).reverse();
  return table(
    items.length > EVENTS ? `The newest ${EVENTS} events` : count(items.length, "event"),
    [{ title: "time" }, { title: "event" }, { title: "cause" }],
    shown.map((each) => [
      `${date(each.time_ms)} ${time(each.time_ms)}`,
      told(each),
      each.because && cluster.elections.has(each.because.event) ? h("a", { href: `#/elections/${each.because.event}` }, cause(each)) : cause(each),
    ]),
  );
}
