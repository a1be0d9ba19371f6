// One model's card. It is made once and then changed in place, so that the focus stays where it is.

import { ask } from "./asking.js";
import { el, say } from "./dom.js";
import { accuracyPlot, stalenessPlot, updatesPlot } from "./plots.js";
import * as words from "./words.js";

const MOST_ROWS = 20;
const SOON = 10; // seconds to the deadline that are shown as few
const TWO_PLOTS = 460; // pixels from which two plots stand side by side
const GAP = 18;

export class ModelCard {
  #name; #line; #changed; #standing = null; #received = 0; #drawn = ""; #parts = {};

  /** `line`: to the server; `changed`: to be called when the operator has changed something. */
  constructor(name, line, changed) {
    this.#name = name;
    this.#line = line;
    this.#changed = changed;
    this.element = this.#made();
    new ResizeObserver(() => this.#standing !== null && this.#showPast()).observe(this.#parts.plots);
  }

  /** How the model stands now. */
  show(standing) {
    this.#standing = standing;
    this.#received = performance.now();
    this.#showRound();
    this.#showNumbers();
    this.#showBudget();
    this.#showRefused();
    this.#showPast();
    this.tick();
  }

  /** The time that is left. */
  tick() {
    const { state, deadline, now } = this.#standing;
    const runs = state === "open" && deadline !== null;
    const left = runs ? deadline - now - (performance.now() - this.#received) / 1000 : 0;
    say(this.#parts.left, runs ? words.lasting(left) : "");
    say(this.#parts.leftWords, runs ? "to the deadline" : state === "open" ? "no deadline" : "no round is open");
    this.#parts.left.classList.toggle("soon", runs && left < SOON);
  }

  /** In one sentence, for those who hear the page. */
  summary() {
    const s = this.#standing;
    return `${this.#name}: ${words.STATES[s.state] ?? s.state}, version ${s.version}, ${this.#sentence()}`;
  }

  // -- made once ----------------------------------------------------------------------------

  #made() {
    const title = `model-${this.#name}`;
    const made = (key, tag, attributes = {}) => (this.#parts[key] = el(tag, attributes));
    const stop = made("stop", "button", { type: "button" });
    const back = made("back", "button", { type: "button" });
    say(back, "Roll back…");
    back.setAttribute("aria-label", `Roll back ${this.#name}…`);
    stop.addEventListener("click", () => this.#askStop());
    back.addEventListener("click", () => this.#askBack());
    return el("article", { class: "model panel", "aria-labelledby": title, "data-model": this.#name },
      el("header", {},
        el("div", {}, el("h3", { id: title }, this.#name), made("rule", "p", { class: "note" })),
        made("state", "p", { class: "state" })),
      el("div", { class: "round" },
        el("p", {}, made("round", "strong", { class: "big number" }), made("sentence", "span", { class: "sentence" })),
        el("p", { class: "left", role: "timer", "aria-live": "off" },
          made("left", "strong", { class: "big number" }), made("leftWords", "span"))),
      this.#bar("updates"),
      made("numbers", "dl", { class: "numbers" }),
      made("budget", "section", { class: "budget", "aria-label": `Privacy budget of ${this.#name}` }),
      made("refused", "div"),
      made("plots", "div", { class: "past" }),
      made("table", "details"),
      el("p", { class: "buttons" }, stop, back));
  }

  #bar(key) {
    const fill = el("span", { class: "fill" });
    const bar = el("div", { class: "meter", role: "progressbar", "aria-valuemin": 0 }, fill);
    this.#parts[key] = { bar, fill };
    return bar;
  }

  #fill(key, value, most, label, text) {
    const { bar, fill } = this.#parts[key];
    const share = most > 0 ? Math.min(1, value / most) : 0;
    bar.setAttribute("aria-label", label);
    bar.setAttribute("aria-valuemax", most);
    bar.setAttribute("aria-valuenow", Math.min(value, most));
    bar.setAttribute("aria-valuetext", text);
    bar.classList.toggle("full", share >= 1);
    fill.style.setProperty("width", `${100 * share}%`);
  }

  // -- shown again and again ------------------------------------------------------------------

  #showRound() {
    const s = this.#standing;
    const parts = this.#parts;
    say(parts.rule, `${s.rule} · version ${s.version} · ${words.count(s.weights)} weights`);
    say(parts.state, words.STATES[s.state] ?? s.state);
    parts.state.dataset.state = s.state;
    say(parts.round, s.state === "over" ? `${s.rounds} rounds` : `Round ${s.round + 1} of ${s.rounds}`);
    say(parts.sentence, this.#sentence());
    const goal = this.#goal();
    this.#fill("updates", s.waiting_updates, goal, `Updates of ${this.#name} in this round`, this.#sentence());
    const stopped = s.state === "stopped";
    say(parts.stop, stopped ? "Go on" : "Stop…");
    parts.stop.setAttribute("aria-label", `${stopped ? "Go on with" : "Stop"} ${this.#name}${stopped ? "" : "…"}`);
    parts.stop.hidden = s.state === "over";
    parts.back.hidden = s.version === 0;
  }

  /** How many updates the bar is full at. */
  #goal() {
    const s = this.#standing;
    return s.cohort ? s.asked ?? 0 : s.least || s.waiting_updates + s.tickets_out;
  }

  #sentence() {
    const s = this.#standing;
    const here = words.plural(s.waiting_updates, "update");
    if (s.state === "over") return "all rounds are over";
    if (s.cohort && s.asked === null) return "waiting for devices to ask";
    if (s.cohort) return `${here} of ${words.plural(s.asked, "device")} asked`;
    if (s.least) return `${here}; a step needs ${words.count(s.least)}`;
    return `${here}; a step at the deadline, whoever came`;
  }

  #showNumbers() {
    const s = this.#standing;
    const tried = s.reports.at(-1);
    const refused = Object.values(s.refused).reduce((sum, n) => sum + n, 0);
    const stale = s.history.filter((row) => row.how === "published").at(-1);
    facts(this.#parts.numbers, {
      "Devices registered": words.count(s.devices),
      "At work now": words.count(s.tickets_out),
      "Took part so far": words.count(s.devices_that_took_part),
      "Updates counted": words.count(s.accepted),
      "Updates refused": words.count(refused),
      "Staleness, last step": stale ? `${stale.staleness.toFixed(1)} versions` : "–",
      Accuracy: tried ? `${words.percent(tried.right / tried.tried)} (version ${tried.version})` : "–",
      "Rolled back": s.rolled_back ? `${words.count(s.rolled_back)} times` : "never",
    });
  }

  #showBudget() {
    const p = this.#standing.privacy;
    const box = this.#parts.budget;
    if (p === null) {
      box.replaceChildren(el("h4", {}, "Privacy budget"),
        el("p", { class: "quiet" }, "None: this model is trained without differential privacy."));
      return;
    }
    if (!box.querySelector(".meter")) {
      box.replaceChildren(
        el("h4", {}, "Privacy budget ", (this.#parts.basis = el("span"))),
        (this.#parts.spent = el("p")), this.#bar("epsilon"),
        (this.#parts.terms = el("dl", { class: "numbers" })), (this.#parts.why = el("p", { class: "note" })));
    }
    this.#showSpent(p);
  }

  #showSpent(p) {
    const parts = this.#parts;
    const [spent, most] = [words.epsilon(p.spent_at_most), words.epsilon(p.epsilon)];
    say(parts.basis, p.basis);
    parts.basis.className = `badge ${p.basis === "proved" ? "proved" : "withheld"}`;
    const text = `ε ≤ ${spent} spent so far, of at most ${most}`;
    parts.spent.replaceChildren("ε ≤ ", el("strong", { class: "big number" }, spent), ` spent so far, of at most ${most}`);
    this.#fill("epsilon", p.spent_at_most, p.epsilon, `Spent epsilon of ${this.#name}`, text);
    facts(parts.terms, {
      δ: p.delta.toExponential(),
      Unit: p.unit,
      "Told apart": words.neighbours(p.neighbours, p.unit),
      ...spentByDevice(p),
    });
    say(parts.why, why(p));
  }

  #showRefused() {
    const reasons = Object.entries(this.#standing.refused).sort((a, b) => b[1] - a[1]);
    const said = reasons.map(([name, n]) => `${n} ${name}`).join();
    if (said === this.#parts.refused.dataset.said) return;
    this.#parts.refused.dataset.said = said;
    if (!reasons.length) return this.#parts.refused.replaceChildren();
    const lines = reasons.map(([name, n]) =>
      el("li", {}, el("b", { class: "number" }, words.count(n)), ` ${reasonOf(name)}`));
    this.#parts.refused.replaceChildren(el("h4", {}, "Refused, by reason"), el("ul", { class: "reasons" }, ...lines));
  }

  #showPast() {
    const { history, reports, privacy } = this.#standing;
    const room = this.#parts.plots.clientWidth;
    const drawn = JSON.stringify([history.at(-1)?.round, history.length, reports, room]);
    if (drawn === this.#drawn || room === 0) return;
    this.#drawn = drawn;
    const two = room >= TWO_PLOTS;
    const width = two ? (room - GAP) / 2 : room;
    const tried = reports.filter((row) => row.tried > 0);
    this.#parts.plots.classList.toggle("two", two);
    this.#parts.plots.replaceChildren(
      history.length ? updatesPlot(history, width) : empty("No round is over yet."),
      tried.length ? accuracyPlot(tried, width) : empty(privacy === null
        ? "No device has reported an accuracy yet."
        : "Accuracy is not reported: what devices say of their records would not be accounted."),
      ...(history.some((row) => row.staleness > 0) ? [stalenessPlot(history, width)] : []));
    this.#parts.table.hidden = !history.length;
    const open = this.#parts.table.open;
    this.#parts.table.replaceChildren(el("summary", {}, "The last rounds, in numbers"), roundsTable(this.#name, history, this.#standing.epoch));
    this.#parts.table.open = open;
  }

  // -- what the operator may do ---------------------------------------------------------------

  #askStop() {
    const stopped = this.#standing.state === "stopped";
    ask({
      title: stopped ? `Go on with ${this.#name}?` : `Stop ${this.#name}?`,
      text: stopped
        ? "Phones are given work again. The round begins to last anew; what counts already stays."
        : "Phones are given no more work, and updates on their way are refused. What counts already stays, and so does what was spent.",
      yes: stopped ? "Go on" : "Stop training",
      act: () => this.#do(stopped ? "resume" : "stop"),
    });
  }

  #askBack() {
    const { version, history, privacy } = this.#standing;
    const known = new Map(history.filter((row) => row.version < version).map((row) => [row.version, row]));
    if (!known.has(0)) known.set(0, null);
    const versions = [...known].sort((a, b) => b[0] - a[0]).map(([value, row]) => ({
      value, words: row ? `${value}, of round ${row.round}` : `${value}, the first one`,
    }));
    const spent = privacy === null ? "" : " What was spent stays spent.";
    ask({
      title: `Roll ${this.#name} back?`,
      text: `The chosen version is published again as version ${version + 1}, and training goes on from it. Updates of versions in between are refused.${spent}`,
      yes: "Roll back",
      versions,
      act: (to) => this.#do("rollback", { to }),
    });
  }

  async #do(what, message) {
    await this.#line.post(`models/${encodeURIComponent(this.#name)}/${what}`, message);
    this.#changed();
  }
}

function why(p) {
  if (p.basis !== "proved") return "The seed of the noise is known, so nothing is proved: only for trials.";
  const whole = p.participation === "server-sampled"
    ? "Every device spends alike, asked or not."
    : `A device takes part at most ${words.plural(p.times, "time")}.`;
  return `${whole} What single devices have spent is for you alone, and no bound to publish.`;
}

function spentByDevice(p) {
  if (p.spent_by_device === null) return {};
  const { median, most } = p.spent_by_device;
  return { "By device, so far": `median ε ${words.epsilon(median)}, most ε ${words.epsilon(most)}` };
}

function reasonOf(name) {
  const known = [...document.getElementById("reasons").content.children];
  return known.find((element) => element.value === name)?.textContent ?? name;
}

function empty(text) {
  return el("p", { class: "quiet empty" }, text);
}

/** A list of names and values; elements that are there are kept. */
function facts(list, values) {
  const names = Object.keys(values);
  const there = [...list.querySelectorAll("dt")].map((dt) => dt.textContent);
  if (there.join("\n") !== names.join("\n")) {
    list.replaceChildren(...names.map((name) => el("div", {}, el("dt", {}, name), el("dd", { class: "number" }))));
  }
  [...list.querySelectorAll("dd")].forEach((dd, i) => say(dd, values[names[i]]));
}

function roundsTable(name, history, epoch) {
  const cell = (text) => el("td", { class: "number" }, text);
  const rows = history.slice(-MOST_ROWS).reverse().map((row) => el("tr", {},
    cell(row.round), cell(words.clock(epoch + row.at)), cell(row.updates), cell(row.how), cell(row.version),
    cell(row.staleness.toFixed(1))));
  const heads = ["Round", "Over at", "Updates", "How", "Version", "Staleness"];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `The last rounds of ${name}, in numbers` },
    el("table", { class: "rows" },
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows)));
}
