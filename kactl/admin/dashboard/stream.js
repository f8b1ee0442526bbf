// The event stream. It is read with `fetch`, because EventSource cannot send the credential in a header.

import { request } from "./api.js";

// Without any byte for so long the connection is considered lost: the server sends a comment every 15 s.
const SILENCE_MS = 40_000;
const RETRY_MAX_MS = 10_000;

/**
 * Reads events until the signal aborts, and resumes after the last one when the connection is lost.
 *
 * @param kinds the kinds of events to receive.
 * @param after the number of the last event that the reader knows.
 * @param on called with { event, lost, live }: one event; events were lost, so a snapshot is needed; the connection state.
 */
export async function follow({ kinds, after, on, signal }) {
  let last = after;
  let delay = 500;
  while (!signal.aborted) {
    try {
      for await (const frame of frames(kinds, last, signal)) {
        if (frame.open) {
          delay = 500;
          on({ live: true });
          continue;
        }
        if (frame.id !== null) last = frame.id;
        if (frame.event === "reset") on({ lost: true });
        else if (frame.data) on({ event: JSON.parse(frame.data) });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) return;
    }
    if (signal.aborted) return;
    on({ live: false });
    await pause(delay, signal);
    delay = Math.min(delay * 2, RETRY_MAX_MS);
  }
}

async function* frames(kinds, after, signal) {
  const silent = new AbortController();
  let timer = null;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), SILENCE_MS);
  };
  const either = AbortSignal.any([signal, silent.signal]);
  alive();
  try {
    const response = await request("GET", `v1/events/stream?kinds=${kinds.join(",")}`, {
      headers: { Accept: "text/event-stream", "Last-Event-ID": String(after) },
      signal: either,
    });
    yield { open: true };
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) yield parsed(part);
    }
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}

function parsed(text) {
  const frame = { id: null, event: "", data: "" };
  for (const line of text.split("\n")) {
    if (line.startsWith("id: ")) frame.id = line.slice(4);
    else if (line.startsWith("event: ")) frame.event = line.slice(7);
    else if (line.startsWith("data: ")) frame.data += line.slice(6);
  }
  return frame;
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
