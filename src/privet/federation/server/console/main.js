// The door: the operator's key, kept by this tab alone.

import { close, prepareAsking } from "./asking.js";
import { Board } from "./board.js";
import { at, say } from "./dom.js";
import { Line, Refused } from "./line.js";

const KEPT = "privet-operator-key";
const KEY = /^[A-Za-z0-9_-]{16,128}$/;
const NO_ACCESS = 401;
const AGAIN_SECONDS = 3;
const WRONG = "This is not the operator's key of this server.";

let board = null;

async function enter(key) {
  only("loading");
  say(at("loading"), "Asking the server…");
  const line = new Line(key);
  try {
    const status = await line.get("status");
    sessionStorage.setItem(KEPT, key);
    only(null);
    at("leave").hidden = false;
    board = new Board(line, () => leave("The server does not take this key any more."));
    board.begin(status);
  } catch (error) {
    if (error instanceof Refused && error.status === NO_ACCESS) {
      sessionStorage.removeItem(KEPT);
      askForKey(WRONG);
    } else {
      say(at("loading"), `No answer (${error.message}), trying again…`);
      setTimeout(() => enter(key), 1000 * AGAIN_SECONDS);
    }
  }
}

function leave(why = "") {
  sessionStorage.removeItem(KEPT);
  board?.end();
  board = null;
  close();
  at("leave").hidden = true;
  say(at("server"), "Sign in");
  askForKey(why);
}

function askForKey(why) {
  only("entry");
  const field = at("key");
  say(at("key-wrong"), why);
  field.setAttribute("aria-invalid", String(why === WRONG));
  field.value = "";
  field.focus();
}

function only(id) {
  for (const name of ["entry", "loading"]) at(name).hidden = name !== id;
}

at("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = at("key").value.trim();
  if (KEY.test(key)) enter(key);
  else askForKey(WRONG);
});
at("leave").addEventListener("click", () => leave());
prepareAsking();
const kept = sessionStorage.getItem(KEPT);
if (kept === null) askForKey("");
else enter(kept);
