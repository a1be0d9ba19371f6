// Numbers, moments and states in words.

const GROUPED = new Intl.NumberFormat("en");
const PERCENT = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const STATES = {
  open: "training",
  closed: "closing a round",
  stopped: "stopped by the operator",
  over: "training is over",
};

const NEIGHBOURS = {
  "add-remove": "adding or removing one",
  "replace-one": "replacing one",
  "zero-out": "blanking out one",
};

export const count = (n) => GROUPED.format(n);
export const percent = (part) => PERCENT.format(part);
export const clock = (seconds) => CLOCK.format(new Date(seconds * 1000));
export const date = (seconds) => DATE.format(new Date(seconds * 1000));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const neighbours = (name, unit) => `${NEIGHBOURS[name] ?? `${name}, one`} ${unit}`;

/** Two places, rounded up: an upper bound never looks smaller than it is. */
export function epsilon(value) {
  if (!Number.isFinite(value)) return "∞";
  const near = value.toFixed(2);
  return Number(near) >= value ? near : (Number(near) + 0.01).toFixed(2);
}

/** How long, as a clock shows it. */
export function lasting(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (parts[0] >= 48) return plural(Math.floor(parts[0] / 24), "day");
  const shown = parts[0] ? parts : parts.slice(1);
  return shown.map((part, i) => (i ? String(part).padStart(2, "0") : String(part))).join(":");
}
