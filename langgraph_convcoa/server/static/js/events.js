// A turn's events: read from the stream that starts it. After a lost connection, reading continues where it stopped.

import { RequestError, path, send } from "./api.js";

const TRIES = 9;
const LONGEST_WAIT = 8000;

/** The server-sent events of a response: {id, event, data}, with parsed data. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "",
    seen = 0,
    entry = { data: [] };
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let end,
        start = 0;
      while ((end = rest.indexOf("\n", Math.max(start, seen))) >= 0) {
        const text = rest.slice(start, end).replace(/\r$/, "");
        start = end + 1;
        if (text) {
          field(entry, text);
        } else {
          if (entry.event || entry.data.length)
            yield { id: entry.id, event: entry.event ?? "message", data: parsed(entry.data) };
          entry = { data: [] };
        }
      }
      rest = rest.slice(start);
      seen = rest.length;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function field(entry, text) {
  const colon = text.indexOf(":");
  if (colon === 0) return;
  const name = colon < 0 ? text : text.slice(0, colon);
  const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
  if (name === "data") entry.data.push(value);
  else if (name === "event" || name === "id") entry[name] = value;
}

function parsed(data) {
  if (!data.length) return null;
  try {
    return JSON.parse(data.join("\n"));
  } catch {
    return null;
  }
}

/**
 * Follow a run to its end. `start` is {body} for a new run, or {run} for a running one, which is replayed from its start.
 * `seen(event)` gets each event once; `connection(lost)` is called when the connection is lost and when it is back.
 */
export async function follow(thread, start, { seen, connection, signal }) {
  let run = start.run ?? null,
    last = "-1",
    lost = 0;
  for (;;) {
    try {
      const response = await (run ? joined(thread, run, last, signal) : started(thread, start.body, signal));
      if (lost) connection(false);
      lost = 0;
      for await (const event of events(response.body)) {
        if (event.id) last = event.id;
        if (event.event === "metadata") run = event.data?.run_id ?? run;
        seen(event);
        if (event.event === "end" || event.event === "error") return;
      }
    } catch (error) {
      if (signal.aborted || (error instanceof RequestError && error.status)) throw error;
      // Do not start a run again if it is unknown whether it started.
      if (!run) throw error;
    }
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    if (++lost > TRIES) throw new RequestError(0, "The connection is lost. Is “convcoa serve” still running?");
    connection(true);
    await pause(Math.min(250 * 2 ** lost, LONGEST_WAIT), signal);
  }
}

function started(thread, body, signal) {
  return send("POST", path`/threads/${thread}/runs/stream`, body, { accept: "text/event-stream", signal });
}

function joined(thread, run, last, signal) {
  const modes = "stream_mode=values&stream_mode=messages-tuple&stream_mode=custom";
  const headers = { "Last-Event-ID": last };
  return send("GET", `${path`/threads/${thread}/runs/${run}/stream`}?${modes}`, undefined, {
    accept: "text/event-stream",
    headers,
    signal,
  });
}

function pause(milliseconds, signal) {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), failed(new DOMException("stopped", "AbortError"))), {
      once: true,
    });
  });
}
