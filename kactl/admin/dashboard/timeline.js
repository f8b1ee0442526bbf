// A timeline: lanes of spans over one time axis. It has no width of its own, so that it is readable on any screen.
// Reports of `kactl forensics` have the same picture: kactl/forensics/report/overview_picture.py draws it.

import { svg } from "./dom.js";

const LANE = 36;
const AXIS = 22;
const LEAST = 0.4;
// Top and height of a span within its lane: a worse state is thicker, so that colour is not the only signal.
const SHAPES = { none: [25, 2], good: [22, 8], warn: [19, 14], bad: [17, 18], one: [17, 18], two: [17, 18] };

const percent = (value) => `${Math.round(value * 100) / 100}%`;

/**
 * Returns the picture.
 *
 * @param label the picture in words.
 * @param begin, end of the axis, in ms.
 * @param ticks [{ at, text }], in order.
 * @param lanes [{ name, spans: [{ begin, end, kind, text, title }], marks: [{ at, title }] }].
 */
export function timeline({ label, begin, end, ticks, lanes }) {
  const x = (at) => (Math.min(end, Math.max(begin, at)) - begin) / Math.max(1, end - begin) * 100;
  const bottom = lanes.length * LANE + 4;
  return svg(
    "svg",
    { class: "timeline", role: "img", "aria-label": label, width: "100%", height: bottom + AXIS },
    ticks.map(({ at }) => svg("line", { class: "grid", x1: percent(x(at)), x2: percent(x(at)), y1: 0, y2: bottom })),
    lanes.map((each, index) => lane(each, index * LANE, x)),
    ticks.map(({ at, text }, index) =>
      svg("text", { class: "tick", x: percent(x(at)), y: bottom + 15, "text-anchor": anchor(index, ticks.length) }, text),
    ),
  );
}

const anchor = (index, length) => (index === 0 ? "start" : index === length - 1 ? "end" : "middle");

function lane({ name, spans, marks = [] }, y, x) {
  return [
    svg("text", { class: "name", x: 0, y: y + 12 }, name),
    svg("line", { class: "base", x1: 0, x2: "100%", y1: y + 26, y2: y + 26 }),
    spans.map((each) => span(each, y, x)),
    marks.map(({ at, title }) =>
      svg("line", { class: "mark", x1: percent(x(at)), x2: percent(x(at)), y1: y + 15, y2: y + 36 }, svg("title", {}, title)),
    ),
  ];
}

function span({ begin, end, kind, text = "", title }, y, x) {
  const [top, height] = SHAPES[kind];
  const left = Math.min(x(begin), 100 - LEAST);
  const wide = Math.max(LEAST, x(end) - left);
  // Texts are shown where they fit on the smallest screen.
  const shown = height > 14 && wide > text.length * 2 + 2 ? text : "";
  return svg(
    "svg",
    { class: `span ${kind}`, x: percent(left), y: y + top, width: percent(wide), height },
    svg("title", {}, title),
    svg("rect", { width: "100%", height: "100%" }),
    shown ? svg("text", { x: 4, y: 13 }, shown) : null,
  );
}
