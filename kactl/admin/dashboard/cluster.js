// The state that the pages show: one snapshot, and what the event stream adds to it.

import { get } from "./api.js";
import { follow } from "./stream.js";

const KINDS = ["controller", "broker", "topic", "request", "election", "handler"];
const EVENTS_MAX = 300;
const ELECTIONS_MAX = 100;
// Of so many of the newest events, those of the kinds above are shown at the beginning.
const RECENT = 5_000;
const SAMPLES_MAX = 240;
// Events arrive in bursts: the snapshot is read again once after each burst, and at this interval without events.
const SETTLE_MS = 150;
const POLL_MS = 2_000;

export const cluster = {
  info: null, // /v1/cluster
  brokers: [], // /v1/brokers
  queue: null, // /v1/controller/queue
  events: [], // newest first, without partitions and replicas
  elections: new Map(), // by event id, in the order of their detection
  delays: new Map(), // by event id: ms from the last acknowledgement to its picture, by the clocks of both machines
  samples: [], // [time in s, depth of the queue, age of its oldest event in ms]
  live: false,
  error: null,
};

const listeners = new Set();
let running = null;
let liveSince = Infinity;

/** Calls a function after every change; returns a function that ends this. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Calls the subscribers. */
function changed(what) {
  for (const listener of listeners) listener(what);
}

/** Reads the snapshot and follows the stream, until `stop`. */
export async function start() {
  stop();
  const running_ = (running = new AbortController());
  await refresh();
  if (running_.signal.aborted) return;
  const recent = await get("v1/elections/recent?limit=100");
  for (const each of recent.items.reverse()) keep(each);
  const before = await get(`v1/events?after=${Math.max(0, recent.as_of.seq - RECENT)}&limit=${RECENT}&kinds=${KINDS.join(",")}`);
  cluster.events = before.items.filter((each) => each.kind !== "reset").reverse().slice(0, EVENTS_MAX);
  changed("elections");
  changed("events");
  poll(running_.signal);
  follow({
    kinds: KINDS,
    after: recent.as_of.seq,
    signal: running_.signal,
    on: ({ event, lost, live }) => {
      if (live !== undefined) {
        if (live && !cluster.live) liveSince = Date.now();
        cluster.live = live;
        changed("connection");
      }
      if (lost) soon();
      if (event) heard(event);
    },
  });
}

/** Ends the stream and the polls. */
export function stop() {
  running?.abort();
  running = null;
}

function heard(event) {
  if (event.kind === "election") {
    keep(event);
    changed("elections");
    if (event.complete && event.last_ack_us != null) measure(event);
  }
  if (event.seq) {
    cluster.events.unshift(event);
    cluster.events.length = Math.min(cluster.events.length, EVENTS_MAX);
    changed("events");
    soon();
  }
}

function keep(election) {
  cluster.elections.set(election.because.event, election);
  while (cluster.elections.size > ELECTIONS_MAX) {
    const oldest = cluster.elections.keys().next().value;
    cluster.elections.delete(oldest);
    cluster.delays.delete(oldest);
  }
}

/** Measures when the picture of a complete election is on the screen, unless its end came while there was no stream. */
function measure({ because, detected_ms, last_ack_us }) {
  const acknowledged = detected_ms + last_ack_us / 1000;
  if (acknowledged < liveSince) return;
  // The frame that contains the picture begins now, and is complete when the next task runs.
  requestAnimationFrame(() =>
    setTimeout(() => {
      cluster.delays.set(because.event, Math.max(0, Math.round(Date.now() - acknowledged)));
      changed("elections");
    }),
  );
}

let due = null;

/** Reads the snapshot again, once the present burst of events is over. */
export function soon() {
  due ??= setTimeout(() => {
    due = null;
    refresh();
  }, SETTLE_MS);
}

async function refresh() {
  try {
    const [info, brokers, queue] = await Promise.all([
      get("v1/cluster"),
      get("v1/brokers").catch(() => ({ items: [] })),
      get("v1/controller/queue?limit=10"),
    ]);
    Object.assign(cluster, { info, brokers: brokers.items, queue, error: null });
    cluster.samples.push([Date.now() / 1000, queue.depth, queue.oldest_ms]);
    cluster.samples.splice(0, cluster.samples.length - SAMPLES_MAX);
  } catch (error) {
    cluster.error = error;
  }
  changed("snapshot");
}

async function poll(signal) {
  while (!signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!signal.aborted && !document.hidden) await refresh();
  }
}
