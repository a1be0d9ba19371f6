// One question at a time, before something is done that cannot be taken back easily.

import { at, el, say } from "./dom.js";

let does = async () => {};

/**
 * Ask; `act` is called with the chosen version (null: none was to be chosen) if the answer is yes.
 * What it fails with is shown, and the question stays.
 */
export function ask({ title, text, yes, versions = null, act }) {
  say(at("ask-title"), title);
  say(at("ask-text"), text);
  say(at("ask-yes"), yes);
  say(at("ask-wrong"), "");
  at("ask-choice").hidden = versions === null;
  const options = (versions ?? []).map((version) => el("option", { value: version.value }, version.words));
  at("ask-version").replaceChildren(...options);
  does = () => act(versions === null ? null : Number(at("ask-version").value));
  at("ask").showModal();
  (versions === null ? at("ask-no") : at("ask-version")).focus();
}

/** To be called once: the buttons. */
export function prepareAsking() {
  at("ask-no").addEventListener("click", close);
  at("ask-yes").addEventListener("click", async () => {
    const button = at("ask-yes");
    button.disabled = true;
    try {
      await does();
      close();
    } catch (error) {
      say(at("ask-wrong"), `It was not done: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  });
}

/** Forget the question. */
export function close() {
  if (at("ask").open) at("ask").close();
}
