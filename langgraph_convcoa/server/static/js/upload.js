// Uploads, by the button or by dropping files on the page: sending, the progress of the job, and the skipped files.

import { RequestError, failure, json, path } from "./api.js";
import { at, fill, h, icon, line } from "./dom.js";
import { failed, say } from "./notices.js";

const POLL = 1000;
const JOB = "convcoa-job";
const MEGABYTE = 1_000_000;
const NOT_READ = "files of this type are not read";

/** Uploads files to the collection that `target()` names. `done` is called when they are indexed. */
export class Upload {
  constructor({ info, target, done }) {
    Object.assign(this, { info, target, done, skipped: [] });
    at("add-files").addEventListener("click", () => at("files").click());
    const types = info.upload?.extensions;
    if (types?.length) at("files").setAttribute("accept", types.join(","));
    at("files").addEventListener("change", (event) => {
      this.send([...event.target.files]);
      event.target.value = "";
    });
    this.takeDrops();
    const job = sessionStorage.getItem(JOB);
    if (job) this.watch(job);
  }

  takeDrops() {
    let depth = 0;
    const carries = (event) => event.dataTransfer?.types.includes("Files");
    const over = (change) => {
      depth = change ? depth + change : 0;
      at("drop").hidden = depth <= 0;
    };
    document.addEventListener("dragenter", (event) => carries(event) && (event.preventDefault(), over(1)));
    document.addEventListener("dragleave", (event) => carries(event) && over(-1));
    document.addEventListener("dragover", (event) => carries(event) && event.preventDefault());
    document.addEventListener("drop", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      over(0);
      this.send([...event.dataTransfer.files]);
    });
  }

  /** The reason why a file is not sent; "" if it is sent. */
  refused(file) {
    const { max_mb: most, extensions: types } = this.info.upload ?? {};
    if (most && file.size > most * MEGABYTE)
      return `${Math.ceil(file.size / MEGABYTE).toLocaleString("en")} MB; at most ${most} MB are taken`;
    const name = file.name.toLowerCase();
    if (types?.length && !types.some((type) => name.endsWith(type))) return NOT_READ;
    return file.size ? "" : "the file is empty";
  }

  async send(files) {
    if (!files.length) return;
    this.skipped = files.map((file) => ({ name: file.name, reason: this.refused(file) })).filter((entry) => entry.reason);
    const good = files.filter((file) => !this.refused(file));
    if (!good.length) return this.show({ status: "done", done: 0, total: 0 });
    try {
      const collection = await this.target();
      if (!collection) return;
      const { job } = await this.post(collection, good);
      sessionStorage.setItem(JOB, job);
      await this.watch(job);
    } catch (error) {
      this.hide();
      failed(error, error.status === 0 ? { "Try again": () => this.send(files) } : {});
    }
  }

  /** Send files in one request. Only XMLHttpRequest reports the progress of sending. */
  post(collection, files) {
    const form = new FormData();
    for (const file of files) form.append("files", file, file.name);
    const request = new XMLHttpRequest();
    return new Promise((resolve, reject) => {
      request.upload.addEventListener("progress", (event) =>
        this.show({ status: "sending", done: event.loaded, total: event.total, stop: () => request.abort() }),
      );
      request.addEventListener("error", () =>
        reject(new RequestError(0, "The files could not be sent: the server does not answer.")),
      );
      request.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
      request.addEventListener("load", async () => {
        const response = new Response(request.response, { status: Math.max(request.status, 200) });
        if (response.ok) resolve(response.json());
        else reject(await failure(response));
      });
      request.open("POST", path`/convcoa/collections/${collection}/files`);
      request.responseType = "blob";
      request.send(form);
    });
  }

  /** Follow a job on the server to its end. */
  async watch(job) {
    for (;;) {
      let state;
      try {
        state = await json("GET", path`/convcoa/jobs/${job}`);
      } catch (error) {
        if (error.status !== 0) sessionStorage.removeItem(JOB);
        if (error.status === 404) return this.hide();
        if (error.status !== 0) throw error;
      }
      if (state) {
        const over = state.status === "done" || state.status === "failed";
        this.show({ ...state, skipped: [...this.skipped, ...(state.skipped ?? [])] });
        if (over) {
          sessionStorage.removeItem(JOB);
          say(state.status === "failed" ? `Adding files failed: ${state.message}` : "The files are in");
          return this.done();
        }
      }
      await new Promise((again) => setTimeout(again, POLL));
    }
  }

  hide() {
    at("job").hidden = true;
  }

  /** Show the progress. `done` and `total` are bytes; `files_done` and `files_total` are numbers of files. */
  show({
    status,
    done,
    total,
    files_done: past = 0,
    files_total: all = 0,
    eta_seconds: eta,
    message,
    skipped = this.skipped,
    stop,
  }) {
    const over = status === "done" || status === "failed";
    const added = Math.max(0, past - (skipped.length - this.skipped.length));
    const left = !over && eta ? `, about ${eta < 90 ? `${Math.ceil(eta)} s` : `${Math.round(eta / 60)} min`} left` : "";
    const told =
      {
        sending: `Sending: ${Math.floor((100 * done) / (total || 1))}%`,
        waiting: "Waiting for another upload",
        done: added ? `${added} file${added === 1 ? "" : "s"} indexed` : "No file was added",
        failed: "Adding the files failed",
      }[status] ?? `Indexing file ${Math.min(past + 1, all)} of ${all}${left}`;
    const end =
      over || stop
        ? h(
            "button.icon-button",
            {
              type: "button",
              "aria-label": over ? "Dismiss" : "Stop sending",
              on: { click: () => (over ? this.hide() : stop()) },
            },
            icon("close"),
          )
        : null;
    fill(
      at("job"),
      h("div.row", {}, h("p.grow", {}, told), end),
      over ? null : h("progress", { "aria-label": "Progress", max: total || null, value: total ? done : null }),
      message ? h("p.hint", {}, line(message, 400)) : null,
      skipped.length
        ? h(
            "details.skipped",
            { open: true },
            h("summary", {}, `${skipped.length} left out`),
            h(
              "ul",
              {},
              skipped
                .slice(0, 200)
                .map((entry) =>
                  h("li", {}, h("bdi.skipped-name", {}, line(entry.name, 120)), h("span.hint", {}, line(entry.reason, 300))),
                ),
            ),
            skipped.some((entry) => entry.reason === NOT_READ)
              ? h("p.hint", {}, `Files that are read: ${this.info.upload.extensions.join(" ")}`)
              : null,
          )
        : null,
    );
    at("job").hidden = false;
  }
}
