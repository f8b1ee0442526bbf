// Brokers: load, queue, and draining with a preview.

import { get, path, post } from "./api.js";
import { cluster, soon, subscribe } from "./cluster.js";
import { failure, h, show, state, table } from "./dom.js";
import { age, count, micros, millis, withName, nameOf, number, orderText, percentile } from "./format.js";

const LEVELS = { live: "good", fenced: "warn", drained: "warn", shutting_down: "warn", dead: "bad" };

export function brokers(element, { signal }) {
  const draw = () => {
    const most = Math.max(1, ...cluster.brokers.map((each) => each.replicas));
    show(
      element,
      table(
        `${count(cluster.brokers.length, "broker")}`,
        [
          { title: "broker" },
          { title: "state" },
          { title: "rack" },
          { title: "leaders and replicas" },
          ...["leader skew", "replica skew", "out of sync", "shards", "requests waiting", "oldest", "answers p50", "answers p99"].map((title) => ({ title, number: true })),
          { title: "last error" },
        ],
        cluster.brokers.map((each) => [
          h("a", { href: `#/broker/${each.id}` }, `Broker ${withName(each.id, each.name)}`),
          state(LEVELS[each.state], each.state),
          each.rack ?? "–",
          load(each, most),
          skew(each.leader_skew),
          skew(each.replica_skew),
          number(each.out_of_sync),
          number(each.shards),
          number(each.queue_size),
          millis(each.queue_oldest_ms),
          ...latency(each.id),
          each.last_error || "–",
        ]),
      ),
      h("p", { class: "hint" }, "Answers: from sending the first request of an election to the last acknowledgement, over the last 100 elections."),
    );
  };
  draw();
  const end = subscribe((what) => (what === "snapshot" || what === "elections") && draw());
  signal.addEventListener("abort", end, { once: true });
}

/** Returns how long a broker took to acknowledge the elections that it received. */
function latency(id) {
  const times = [...cluster.elections.values()]
    .flatMap((each) => each.brokers)
    .filter((each) => each.broker === id && each.acked_us != null)
    .map((each) => each.acked_us - each.sent_us)
    .sort((a, b) => a - b);
  return [0.5, 0.99].map((share) => micros(percentile(times, share)));
}

const skew = (value) => `${value > 0 ? "+" : ""}${value} %`;

function load(each, most) {
  const meter = h("meter", { min: "0", max: String(most), value: String(each.leaders), "aria-label": "leaders" });
  return h("span", { class: "load" }, meter, ` ${number(each.leaders)} of ${number(each.replicas)}`);
}

/** One broker: whether it can stop, and draining. */
export async function broker(element, { parts: [id], signal }) {
  const about = h("section");
  const stop = h("section", { "aria-live": "polite" });
  const drain = h("section");
  show(element, about, stop, drain);
  const draw = async () => {
    const info = await get(path(["brokers", id]), { signal });
    const facts = [
      ["state", state(LEVELS[info.state], info.state)],
      ...(info.drain ? [["drained", orderText(info.drain)]] : []),
      ["epoch", info.epoch == null ? "–" : number(info.epoch)],
      ["leads", h("a", { href: `#/partitions?leader=${id}` }, count(info.leaders, "partition"))],
      ["replicas", h("a", { href: `#/partitions?replica=${id}` }, number(info.replicas))],
      ["out of sync", number(info.out_of_sync)],
      ...(info.shards || info.standby_shards ? [["owns", h("a", { href: `#/shards?replica=${id}` }, `${count(info.shards, "shard")}, standby of ${number(info.standby_shards)}`)]] : []),
      ...(info.groups ? [["offers", info.groups.join(", ") || "no ownership topic"]] : []),
      ["requests waiting", `${number(info.queue_size)}, the oldest for ${millis(info.queue_oldest_ms)}`],
      ["link", info.linked == null ? "–" : `${info.linked ? "open" : "lost"} for ${age(Date.now() - info.linked_since_ms)}`],
      ["last error", info.last_error || "–"],
    ];
    show(about, h("h2", {}, `Broker ${id}`), h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
    const answer = await get(path(["brokers", id, "stoppable"]), { signal });
    show(stop, h("h2", {}, "Can it stop now?"), verdict(answer));
  };
  await draw();
  show(drain, h("h2", {}, "Drain"), drainForm(id));
  const end = subscribe((what) => what === "snapshot" && draw().catch((error) => error.name === "AbortError" || show(about, failure(error))));
  signal.addEventListener("abort", end, { once: true });
}

function verdict(answer) {
  const blockers = [
    [answer.offline, "would have no leader"],
    [answer.lossy, "would lose records"],
    [answer.under_min_isr, "would reject writes with acks=all"],
    [answer.unowned, "would have no owner", "shard"],
  ].filter(([some]) => some.count);
  return [
    h("p", {}, state(answer.stoppable ? "good" : "bad", answer.stoppable ? "yes" : "no"), ` ${answer.explained}`),
    h("ul", {}, blockers.map(([some, what, noun]) => h("li", {}, `${count(some.count, noun ?? "partition")} ${what}: ${named(some)}`))),
  ];
}

const named = (some) => {
  const shown = some.first.slice(0, 5).map(nameOf).join(", ");
  return some.count > 5 ? `${shown} and ${number(some.count - 5)} more` : shown;
};

/** Draining: first the preview of its effect, then the action. */
function drainForm(id) {
  const result = h("div", { role: "status" });
  const reason = h("input", { id: "reason", maxlength: "1000" });
  const send = async (body) => {
    try {
      return await post(path(["brokers", id, "drain"]), { ...body, reason: reason.value });
    } catch (error) {
      show(result, failure(error));
      return null;
    }
  };
  const act = (undo) => async () => {
    const preview = await send({ undo, dry_run: true });
    if (!preview) return;
    const confirm = h(
      "button",
      {
        class: "act",
        type: "button",
        click: async () => {
          const done = await send({ undo });
          if (done) show(result, h("p", {}, state("good", undo ? "It may lead and follow again." : "Drained.")), effectOf(done, false));
          soon();
        },
      },
      undo ? "Undo the drain" : `Drain broker ${id}`,
    );
    show(result, effectOf(preview, true), confirm);
    confirm.focus();
  };
  return [
    h("p", {}, "A drained broker leads nothing and leaves every ISR: each ISR shrinks by one, until the drain is undone. It outlives controllers and restarts of the broker."),
    h("label", { for: "reason" }, "Reason, for the audit trail"),
    reason,
    h("p", {}, h("button", { type: "button", click: act(false) }, "Preview a drain"), " ", h("button", { type: "button", click: act(true) }, "Preview its undoing")),
    result,
  ];
}

function effectOf({ effect, remaining }, preview) {
  if (!effect) return h("p", {}, preview ? "It could lead and follow again." : "");
  const stuck = remaining.length - effect.shards_kept.count;
  const lines = [
    [effect.moved, preview ? "would move to other leaders" : "moved to other leaders"],
    [effect.left_isr, preview ? "would have an ISR smaller by one" : "have an ISR smaller by one"],
    [effect.alone, "have their only replica here and stay"],
    [effect.under_min_isr, "would reject writes with acks=all"],
    [effect.last_in_sync, "would have one replica in sync: the next failure takes them offline"],
    [effect.shards_moved, `${preview ? "would be" : "are"} handed over to other participants, once these are prepared`, "shard"],
    [effect.shards_kept, "stay, as no other participant can own them", "shard"],
  ].filter(([some]) => some.count);
  return h(
    "ul",
    {},
    lines.length || remaining.length ? null : h("li", {}, "no partition is affected"),
    lines.map(([some, what, noun]) => h("li", {}, `${count(some.count, noun ?? "partition")} ${what}: ${named(some)}`)),
    stuck > 0 ? h("li", {}, `${count(stuck, "partition")} cannot move, as no other replica is in sync`) : null,
  );
}
