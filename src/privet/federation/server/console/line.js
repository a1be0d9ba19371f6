// The line to the server. The key goes into a header, which a stream of EventSource could not have.

const SECONDS_TO_ANSWER = 15;
const SECONDS_OF_SILENCE = 40; // the server gives a sign of life every 15

/** What the server says no to: its status, and a line for people. */
export class Refused extends Error {
  constructor(status, what) {
    super(what);
    this.status = status;
  }
}

export class Line {
  constructor(key) {
    this.key = key;
    this.over = new AbortController();
  }

  /** Nothing is asked any more. */
  hangUp() {
    this.over.abort();
  }

  get(path) {
    return this.#asked("GET", path);
  }

  post(path, message = {}) {
    return this.#asked("POST", path, message);
  }

  /** Hear what happens after a number; `began` once the stream is there. Ends when the stream does. */
  async watch(after, heard, began) {
    const silence = new AbortController();
    const signal = AbortSignal.any([this.over.signal, silence.signal]);
    let timer = setTimeout(() => silence.abort(), 1000 * SECONDS_TO_ANSWER);
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), 1000 * SECONDS_OF_SILENCE);
    };
    try {
      const response = await this.#sent("GET", `events?after=${after}`, undefined, signal);
      alive();
      began();
      await eventsOf(response.body, heard, alive);
    } finally {
      clearTimeout(timer);
    }
  }

  async #asked(method, path, message) {
    const signal = AbortSignal.any([this.over.signal, AbortSignal.timeout(1000 * SECONDS_TO_ANSWER)]);
    return (await this.#sent(method, path, message, signal)).json();
  }

  async #sent(method, path, message, signal) {
    const headers = { Authorization: `Bearer ${this.key}` };
    if (message !== undefined) headers["Content-Type"] = "application/json";
    const body = message === undefined ? undefined : JSON.stringify(message);
    const response = await fetch(`/v1/admin/${path}`, {
      method, headers, body, signal, cache: "no-store", credentials: "omit", redirect: "error",
    });
    if (response.ok) return response;
    throw new Refused(response.status, await lineOf(response));
  }
}

async function lineOf(response) {
  try {
    const said = await response.json();
    return [said.what, said.expected && `expected ${said.expected}`, said.fix].filter(Boolean).join("; ");
  } catch {
    return `the server answers ${response.status}`;
  }
}

async function eventsOf(body, heard, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:"));
      if (data.length) heard(JSON.parse(data.map((line) => line.slice(5)).join("\n")));
    }
  }
}
