// Forensics: a report that `kactl forensics report` has written, opened from the disk. It is not sent anywhere.

import { failure, h, show, state, table } from "./dom.js";
import { count, date, millis, number, time } from "./format.js";
import { timeline } from "./timeline.js";

const BYTES_MAX = 50_000_000;
// What could load, run or send something; the frame's own policy forbids all of it, too.
const ACTIVE = "script, link, meta, base, iframe, frame, object, embed, form, img[src], video, audio";

export function forensics(element) {
  const content = h("section", { "aria-live": "polite" });
  const open = async (file) => {
    if (!file) return;
    try {
      if (file.size > BYTES_MAX) throw new Error(`${file.name} has ${number(file.size)} bytes: reports of up to ${number(BYTES_MAX)} can be shown`);
      const text = await file.text();
      if (isJson(text)) show(content, h("h2", {}, file.name), fromJson(text, file.name));
      else await framed(content, text, file.name);
    } catch (error) {
      show(content, failure(error));
    }
  };
  show(
    element,
    h("p", {}, "Open a report about logs of any Kafka cluster. It stays on this machine: this page sends it nowhere, and nothing in it is run or loaded."),
    h(
      "p",
      {},
      h("label", { for: "report" }, "Report, as HTML or JSON: "),
      h("input", { id: "report", type: "file", accept: ".html,.json,text/html,application/json", change: (event) => open(event.target.files[0]) }),
    ),
    h("p", { class: "hint" }, h("code", {}, "kactl forensics report LOGS --html report.html"), " writes one; ", h("code", {}, "-o json"), " prints the other."),
    content,
  );
}

const isJson = (text) => text.trimStart().startsWith("{");

/** Shows a page in a frame in which no script runs and from which nothing is loaded. */
async function framed(content, text, name) {
  const frame = h("iframe", { class: "report", title: `Report ${name}`, sandbox: "allow-same-origin", src: new URL("dashboard/frame.html", document.baseURI) });
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  show(content, h("h2", {}, name), frame);
  await loaded;
  // The frame's own parser: what it makes is subject to the frame's policy from the beginning.
  const parsed = new frame.contentWindow.DOMParser().parseFromString(text, "text/html");
  if (parsed.querySelector('meta[name="generator"][content^="kactl"]') === null) {
    throw new Error(`${name} is not a report of kactl: choose a file that "kactl forensics report" has written`);
  }
  for (const each of parsed.querySelectorAll(ACTIVE)) each.remove();
  // A browser may connect to the target of a link before it is followed.
  for (const each of parsed.querySelectorAll("[href]")) if (!each.getAttribute("href").startsWith("#")) each.removeAttribute("href");
  const inside = frame.contentDocument;
  inside.replaceChild(inside.adoptNode(parsed.documentElement), inside.documentElement);
}

function fromJson(text, name) {
  let report;
  try {
    report = JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} is not JSON: ${error.message}`);
  }
  const { facts, headline } = report;
  if (!facts?.incidents || !headline) throw new Error(`${name} is not a report of kactl: choose what "kactl forensics report -o json" has printed`);
  return [
    h("p", {}, state(report.coverage?.is_partial ? "warn" : "good", report.coverage?.stated ?? "")),
    h("p", {}, h("strong", {}, headline)),
    report.summary.map((each) => h("p", {}, each)),
    report.advice.length ? [h("h2", {}, "What to do"), h("ol", {}, report.advice.map((each) => h("li", {}, h("strong", {}, each.do), ` ${each.because}`)))] : null,
    facts.incidents.map((each) => incident(each, facts)),
    controllers(facts),
    report.limits.length ? [h("h2", {}, "What the logs cannot tell"), h("ul", {}, report.limits.map((each) => h("li", {}, each)))] : null,
  ];
}

const ms = (text) => Date.parse(text);
const stamp = (text) => `${date(ms(text))} ${time(ms(text))}`;

/** An incident: brokers that were away and partitions without a leader over time, and percentiles. */
function incident(each, facts) {
  const margin = Math.max(20, (ms(each.end) - ms(each.begin)) * 0.04);
  const [begin, end] = [ms(each.begin) - margin, ms(each.end) + margin];
  const away = facts.absences
    .map((absence) => ({ broker: absence.broker, begin: ms(absence.detected_at ?? absence.last_sign_at), end: absence.back_at ? ms(absence.back_at) : end }))
    .filter((absence) => absence.begin <= end && absence.end >= begin);
  const lanes = [
    ...[...new Set(away.map((absence) => absence.broker))].map((broker) => ({
      name: `broker ${broker} away`,
      spans: away.filter((absence) => absence.broker === broker).map((absence) => ({ ...absence, kind: "warn", title: `broker ${broker} away` })),
    })),
    ...each.partitions.map((partition) => ({
      name: `${partition.topic}-${partition.partition}`,
      spans: partition.bars.map((bar) => ({
        begin: ms(bar.begin),
        end: bar.end ? ms(bar.end) : end,
        kind: bar.begin_kind === "observed" && bar.end_kind === "observed" ? "bad" : "warn",
        title: `${stamp(bar.begin)}, ${millis(bar.duration_ms)}; ${bar.cause} (${bar.begin_kind}, ${bar.end_kind})`,
      })),
    })),
  ];
  return [
    h("h2", {}, `Incident ${each.number}`),
    h("p", {}, `${stamp(each.begin)} to ${stamp(each.end)}`, each.sums ? `: ${count(each.sums.partitions, "partition")} of ${count(each.sums.topics, "topic")} without a leader, ${millis(each.sums.total_ms)} in all.` : "."),
    lanes.length
      ? [
          timeline({ label: `Incident ${each.number}: brokers and partitions over time`, begin, end, lanes, ticks: [begin, (begin + end) / 2, end].map((at) => ({ at, text: time(at).slice(0, 12) })) }),
          h("p", { class: "legend" }, h("span", { class: "bar bad" }, "without a leader, observed"), h("span", { class: "bar warn" }, "inferred, bounded, or a broker away")),
        ]
      : null,
    each.sums ? percentiles(each.sums) : null,
  ];
}

const PARTS = ["duration", "detection", "queue", "waiting", "election", "send", "apply"];
const percentiles = (sums) =>
  table(
    "One outage, and its parts",
    [{ title: "part" }, ...["known", "p50", "p90", "p99", "max"].map((title) => ({ title, number: true }))],
    PARTS.map((part) => [part, number(sums[part].known), ...["p50", "p90", "p99", "max"].map((name) => millis(sums[part][name]))]),
  );

function controllers({ controllers: terms }) {
  if (!terms.length) return null;
  return table(
    "Controllers",
    [{ title: "controller" }, { title: "epoch", number: true }, { title: "elected" }, { title: "takeover", number: true }],
    terms.map((each) => [each.controller ?? "none", each.controller_epoch ?? "–", each.elected_at ? stamp(each.elected_at) : "–", millis(each.failover_ms)]),
  );
}
