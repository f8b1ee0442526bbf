// Numbers and times as text.

/** 1204 -> "1,204". */
export const number = (value) => value.toLocaleString("en");

/** "1 partition", "1,204 partitions". */
export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Microseconds as "340 µs", "4.2 ms", "1.50 s". */
export function micros(value) {
  if (value == null) return "–";
  if (value < 1000) return `${Math.round(value)} µs`;
  if (value < 1e6) return `${(value / 1000).toFixed(value < 1e4 ? 2 : 1)} ms`;
  return `${(value / 1e6).toFixed(2)} s`;
}

/** Milliseconds as text. */
export const millis = (value) => (value == null ? "–" : micros(value * 1000));

/** A duration in milliseconds as "12 s", "3 min", "2 h 5 min", "4 d". */
export function age(value) {
  const seconds = Math.max(0, Math.round(value / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

/** The time of day of a wall clock in milliseconds, as "13:29:27.757". */
export function time(value) {
  const at = new Date(value);
  const two = (part) => String(part).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** The day of a wall clock in milliseconds, as "2026-11-23". */
export function date(value) {
  const at = new Date(value);
  return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, "0")}-${String(at.getDate()).padStart(2, "0")}`;
}

/** A time in RFC 3339 as a field for local times shows it. */
export function local(text) {
  if (!text || Number.isNaN(Date.parse(text))) return "";
  const at = new Date(text);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The time of such a field in RFC 3339. */
export const moment = (text) => (text ? new Date(text).toISOString() : "");

/** The smallest of the sorted values that at least this share of them does not exceed. */
export function percentile(sorted, share) {
  return sorted.length ? sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] : null;
}

/** Returns an id with the name of a participant that has not chosen it. */
export const withName = (id, name) => (name ? `${id} (${name})` : String(id));

/** "orders-7" for an object with topic and partition. */
export const nameOf = (each) => `${each.topic}-${each.partition}`;

/** Returns by whom a broker is drained, or an instance held, since and until when, and why. */
export function orderText({ by, since_ms, until_ms, until_restart, reason }) {
  const parts = [by && `by ${by}`, `since ${moment(since_ms)}`, until_ms != null && `until ${moment(until_ms)}`, until_restart && "until it registers anew"];
  return parts.filter(Boolean).join(", ") + (reason ? `: ${reason}` : "");
}
