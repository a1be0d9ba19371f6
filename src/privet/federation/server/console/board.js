// The whole page but the door: keeps what is shown up to date, and says so when it cannot.

import { at, el, say } from "./dom.js";
import { forget, tell } from "./happenings.js";
import { Refused } from "./line.js";
import { ModelCard } from "./model.js";
import { clock, count, date } from "./words.js";

const POLL_SECONDS = 5;
const GATHER_SECONDS = 0.2; // so that a hundred updates at once are one question
const REST_SECONDS = 1; // between an answer and the next question, however much happens
const LONGEST_WAIT = 15;
const TOLD_SECONDS = 10; // those who hear the page are not told every update
const NO_ACCESS = 401;

export class Board {
  #line; #refused; #cards = new Map(); #after = 0; #started = null; #streams = null;
  #answered = null; #asking = false; #again = false; #due = null; #timers = []; #told = "";

  /** `refused` is called if the key is not, or no more, the operator's. */
  constructor(line, refused) {
    this.#line = line;
    this.#refused = refused;
  }

  /** Show this, and then whatever comes. */
  begin(status) {
    this.#show(status);
    at("board").hidden = false;
    this.#timers = [
      setInterval(() => this.refresh(), 1000 * POLL_SECONDS),
      setInterval(() => this.#cards.forEach((card) => card.tick()), 500),
      setInterval(() => this.#announce(), 1000 * TOLD_SECONDS),
    ];
    this.#watch();
  }

  /** Nothing is shown any more. */
  end() {
    this.#line.hangUp();
    this.#timers.forEach(clearInterval);
    clearTimeout(this.#due);
    forget();
    at("models").replaceChildren();
    say(at("told"), "");
    at("board").hidden = at("link").hidden = true;
  }

  /** Ask how everything stands; at most one question at a time. */
  async refresh() {
    if (this.#asking) {
      this.#again = true;
      return;
    }
    this.#asking = true;
    try {
      this.#show(await this.#line.get("status"));
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#asking = false;
    }
    if (this.#again) {
      this.#again = false;
      this.#soon();
    }
  }

  // -- the stream ---------------------------------------------------------------------------

  async #watch() {
    for (let wait = 1; !this.#line.over.signal.aborted; wait = Math.min(LONGEST_WAIT, 2 * wait)) {
      try {
        if (this.#streams !== null) await this.refresh(); // a new process counts from the beginning
        await this.#line.watch(this.#after, (event) => this.#heard(event), () => {
          this.#streams = true;
          wait = 1;
          this.#linked("live");
        });
      } catch (error) {
        if (error instanceof Refused) this.#failed(error);
      }
      this.#streams = false;
      if (this.#line.over.signal.aborted) return;
      this.refresh();
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
    }
  }

  #heard(event) {
    if (event.number <= this.#after) return;
    this.#after = event.number;
    tell(event);
    this.#soon();
  }

  #soon() {
    if (this.#due !== null) return;
    const rest = REST_SECONDS - (Date.now() / 1000 - this.#answered);
    this.#due = setTimeout(() => {
      this.#due = null;
      this.refresh();
    }, 1000 * Math.max(GATHER_SECONDS, rest));
  }

  // -- what is shown ------------------------------------------------------------------------

  #show(status) {
    if (this.#line.over.signal.aborted) return;
    if (this.#started !== status.started) {
      this.#after = 0;
      this.#started = status.started;
    }
    this.#answered = Date.now() / 1000;
    say(at("server"), status.server);
    document.title = `${status.server}: Privet console`;
    this.#showTotals(status);
    this.#showModels(status.models);
    this.#showApps(status.apps);
    this.#showAway(status.turned_away);
    if (this.#streams !== null) this.#linked(this.#streams ? "live" : "polling");
  }

  #failed(error) {
    if (this.#line.over.signal.aborted) return;
    if (error instanceof Refused && error.status === NO_ACCESS) this.#refused();
    else this.#linked("lost", error instanceof Refused ? error.message : null);
  }

  #linked(how, why = null) {
    const shown = `as of ${clock(this.#answered)}`;
    const text = {
      live: "live",
      polling: `every ${POLL_SECONDS} seconds, ${shown}`,
      lost: `${why === null ? "connection lost" : `no answer (${why})`}, trying again; ${shown}`,
    }[how];
    at("link").hidden = false;
    at("link").dataset.how = how;
    say(at("link").querySelector(".said"), text);
    at("board").classList.toggle("old", how === "lost");
  }

  #showTotals(status) {
    const models = Object.values(status.models);
    const sum = (of) => models.reduce((total, model) => total + of(model), 0);
    const totals = {
      Models: models.length,
      "At work now": sum((m) => m.tickets_out),
      "Updates counted": sum((m) => m.accepted),
      "Updates refused": sum((m) => Object.values(m.refused).reduce((a, b) => a + b, 0)),
    };
    const list = at("totals");
    if (!list.children.length) {
      const names = [...Object.keys(totals), "Running since"];
      list.append(...names.map((name) => el("div", {}, el("dt", {}, name), el("dd", { class: "number" }))));
    }
    const said = [...Object.values(totals).map(count), date(status.started)];
    [...list.querySelectorAll("dd")].forEach((dd, i) => say(dd, said[i]));
  }

  #showModels(models) {
    for (const [name, card] of this.#cards) {
      if (!Object.hasOwn(models, name)) {
        card.element.remove();
        this.#cards.delete(name);
      }
    }
    for (const [name, standing] of Object.entries(models)) {
      if (!this.#cards.has(name)) {
        const card = new ModelCard(name, this.#line, () => this.refresh());
        this.#cards.set(name, card);
        at("models").append(card.element);
      }
      this.#cards.get(name).show(standing);
    }
    at("no-models").hidden = this.#cards.size > 0;
  }

  #showApps(apps) {
    at("no-apps").hidden = apps.length > 0;
    at("apps-table").hidden = !apps.length;
    const rows = apps.map((app) => el("tr", {},
      el("th", { scope: "row" }, app.name), el("td", {}, app.models.join(", ") || "none"),
      el("td", { class: "number" }, date(app.since))));
    if (rows.map((row) => row.textContent).join() !== [...at("apps").children].map((row) => row.textContent).join()) {
      at("apps").replaceChildren(...rows);
    }
  }

  #showAway(refusals) {
    const lines = Object.entries(refusals).sort((a, b) => b[1] - a[1]).map(([error, n]) =>
      el("li", {}, el("b", { class: "number" }, count(n)), ` ${error}`));
    at("none-away").hidden = lines.length > 0;
    at("away").replaceChildren(...lines);
  }

  #announce() {
    const said = [...this.#cards.values()].map((card) => card.summary()).join(". ");
    if (said !== this.#told) say(at("told"), (this.#told = said));
  }
}
