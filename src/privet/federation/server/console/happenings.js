// What happens on the server, newest first: refusals in one list, the rest in another.

import { at, el } from "./dom.js";
import { clock } from "./words.js";

const MOST_LINES = 12;
const REFUSALS = new Set(["refused", "denied", "turned-away"]);
const SAID = {
  accepted: (e) => `${e.model}: an update of ${e.device} counts`,
  ready: (e) => `${e.model}: ${e.device} is at work in round ${e.round}`,
  denied: (e) => `${e.model}: ${e.device} may not train now: ${e.reason}`,
  refused: (e) => `${e.model}: an update of ${e.device} is refused: ${e.reason}`,
  "turned-away": (e) => `a request is turned away: ${e.error} (${e.status})`,
  published: (e) => `${e.model}: version ${e.version} is published`,
  registered: (e) => `${e.device} is registered: ${e.phone}, ${e.system}`,
  "rolled-back": (e) => `${e.model}: version ${e.to} is published again, as ${e.version}`,
  stopped: (e) => `${e.model}: stopped`,
  resumed: (e) => `${e.model}: trained again`,
  blocked: (e) => `${e.device} is blocked`,
  admitted: (e) => `${e.device} is let in again`,
  plan: (e) => (e.new ? `${e.model}: a new model` : `${e.model}: the plan is revised`),
  app: (e) => `app ${e.name}: ${(e.models ?? []).join(", ") || "no model"}`,
  started: (e) => `server ${e.server} is started`,
};
const EVERYDAY = new Set(["ready", "accepted"]);

/** One more; the oldest ones go. The everyday ones are in the counts, and are not told one by one. */
export function tell(event) {
  if (EVERYDAY.has(event.kind)) return;
  const refused = REFUSALS.has(event.kind);
  const list = at(refused ? "refusals" : "happenings");
  at(refused ? "no-refusals" : "no-happenings").hidden = true;
  if (event.kind === "published") forgetOlderOf(event.model, list);
  list.prepend(line(event));
  while (list.children.length > MOST_LINES) list.lastElementChild.remove();
}

/** Nothing is known any more. */
export function forget() {
  for (const name of ["refusals", "happenings"]) {
    at(name).replaceChildren();
    at(`no-${name}`).hidden = false;
  }
}

/** Of each model the newest version is enough: the plots show the others. */
function forgetOlderOf(model, list) {
  [...list.children].find((line) => line.dataset.published === model)?.remove();
}

function line(event) {
  const known = Object.hasOwn(SAID, event.kind);
  const words = known ? SAID[event.kind](event) : `${event.kind} ${JSON.stringify(event)}`;
  const moment = new Date(1000 * event.at).toISOString();
  const published = event.kind === "published" ? event.model : null;
  return el("li", { "data-published": published }, el("time", { datetime: moment }, clock(event.at)), el("span", {}, words));
}
