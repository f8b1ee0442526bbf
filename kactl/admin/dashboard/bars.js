// The course of an election as a picture: one row for each stage, and a tick for each broker's acknowledgement.

import { h, svg } from "./dom.js";
import { count, micros } from "./format.js";

export const STAGES = ["queue", "plan", "commit", "apply", "encode"];
const WIDTH = 1000;
// For the tick of the last acknowledgement, which is half on either side of its time.
const MARGIN = 3;
const ROW = 9;
const TICKS = 16;
export const HEIGHT = STAGES.length * ROW + TICKS;

/** The time of the last thing that is known of an election, in microseconds since it was detected. */
export function lengthOf(election) {
  const ends = Object.values(election.stages).map(([, end]) => end);
  const acks = election.brokers.map((each) => each.acked_us ?? each.sent_us ?? 0);
  return Math.max(1, election.handled_us ?? 0, election.last_ack_us ?? 0, ...ends, ...acks);
}

/** Returns the picture. `scale` is the time at its right edge, in microseconds. */
export function bars(election, scale = lengthOf(election)) {
  const x = (us) => (us / scale) * (WIDTH - MARGIN);
  const rows = STAGES.flatMap((stage, row) => {
    const found = election.stages[stage];
    if (!found) return [];
    const [begin, end, used] = found;
    const at = { y: row * ROW + 1, height: ROW - 2 };
    const title = svg("title", {}, `${stage}: ${micros(used)} in use, from ${micros(begin)} to ${micros(end)}`);
    return [
      svg("rect", { class: `span ${stage}`, x: x(begin), width: Math.max(2, x(end) - x(begin)), ...at }, title),
      svg("rect", { class: `used ${stage}`, x: x(begin), width: Math.max(2, x(used)), ...at }),
    ];
  });
  const top = STAGES.length * ROW;
  const ticks = election.brokers.flatMap(({ broker, sent_us: sent, acked_us: acked }) => [
    sent == null ? null : svg("line", { class: "sent", x1: x(sent), x2: x(sent), y1: top + 2, y2: top + 8 }),
    acked == null
      ? null
      : svg(
          "line",
          { class: "acked", x1: x(acked), x2: x(acked), y1: top + 4, y2: top + TICKS },
          svg("title", {}, `broker ${broker} acknowledged after ${micros(acked)}`),
        ),
  ]);
  return svg(
    "svg",
    {
      class: election.complete ? "bars" : "bars growing",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": described(election),
    },
    rows,
    ticks.filter(Boolean),
  );
}

/** Returns the same in words. */
export function described(election) {
  const stages = STAGES.filter((stage) => election.stages[stage]).map(
    (stage) => `${stage} ${micros(election.stages[stage][2])}`,
  );
  const acked = election.brokers.filter((each) => each.acked_us != null).length;
  return (
    `${election.because.trigger}: ${count(election.moved, "leader")} moved; ${stages.join(", ")}; ` +
    `${acked} of ${count(election.brokers.length, "broker")} acknowledged` +
    (election.last_ack_us == null ? "" : `, the last after ${micros(election.last_ack_us)}`)
  );
}

/** Returns the legend of the picture. */
export function legend() {
  return h(
    "p",
    { class: "legend" },
    STAGES.map((stage) => h("span", { class: `key ${stage}` }, stage)),
    h("span", { class: "key acked" }, "a broker's acknowledgement"),
  );
}
