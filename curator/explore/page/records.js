// Records as a list of texts or a gallery, a page at a time, and which of them is open.

import { $, ask, h, plural, share, short } from "./dom.js";
import { showRecord } from "./record.js";
import { asked, set, state } from "./state.js";
import { fate, media, name, open, why } from "./tile.js";

const PAGE = 48;
const AHEAD = 900; // pixels from the end at which the next page is asked for

let list = null; // {rows, next, element, run, busy, key}
let latest = 0;

export function close() {
  if (state.open) set({ open: null });
}

export async function showRecords(main, run) {
  const number = ++latest;
  const columns = Object.keys(run.columns).filter((column) => ["number", "text", "bool"].includes(run.columns[column]) && !column.startsWith("_"));
  const sort = h("select", { "aria-label": "Order by", onchange: () => set({ sort: sort.value }) }, h("option", { value: "" }, "id"),
    columns.filter((column) => column !== "id").map((column) => h("option", { value: column, selected: column === state.sort }, column)));
  const way = h("button", { onclick: () => set({ descending: !state.descending }) }, state.descending ? "largest first" : "smallest first");
  const total = h("span", { class: "muted small", id: "total" });
  const gallery = Object.values(run.media).length > 0 || run.archives;
  const element = h("div", { class: gallery ? "gallery" : "list", id: "list" });
  const end = h("div", { class: "end" });
  main.replaceChildren(h("div", { class: "tools" }, h("label", {}, "Order by ", sort), way, total), element, end);
  list = { run, rows: [], next: null, element, end, busy: false, number, gallery, key: { filter: asked(), sort: state.sort, descending: state.descending } };
  await more(list, true);
  try {
    const { rows } = await ask("counts", { by: "_place", filter: asked() });
    if (number === latest) total.textContent = plural(rows.reduce((sum, row) => sum + row.all, 0), "record");
  } catch { /* the list says what is wrong */ }
}

async function more(into, first = false) {
  if (into.busy || !(first || into.next)) return;
  into.busy = true;
  into.end.replaceChildren(h("p", { class: "muted" }, "Loading"));
  try {
    const found = await ask("page", { ...into.key, after: into.next, limit: PAGE });
    if (into.number !== latest) return;
    into.rows.push(...found.rows);
    into.next = found.next;
    into.element.append(...found.rows.map((row) => tile(into, row)));
    into.end.replaceChildren(found.next ? h("button", { id: "more", onclick: () => more(into) }, "More")
      : h("p", { class: "muted small" }, into.rows.length ? "" : "No record. Take something out of the filter."));
  } catch (error) {
    into.next = null;
    into.end.replaceChildren(h("p", { class: "error" }, error.message));
  } finally {
    into.busy = false;
  }
}

export function moreRecords() {
  if (state.tab === "records" && list?.next && scrollY + innerHeight > document.documentElement.scrollHeight - AHEAD) more(list);
}

function tile(into, row) {
  const { run, gallery } = into;
  const picture = gallery ? media(run, row) : null;
  const facts = [];
  if (into.key.sort && row[into.key.sort] !== undefined) facts.push(`${into.key.sort} ${typeof row[into.key.sort] === "number" ? short(row[into.key.sort]) : row[into.key.sort]}`);
  else if (row.reason) facts.push(...why(run, row));
  if (row.parent && row.start_s !== undefined) facts.push(`${clock(row.start_s)} to ${clock(row.end_s)}`);
  else if (row.duration !== undefined) facts.push(`${short(row.duration)} s`);
  if (row.similarity !== undefined) facts.push(`${share(row.similarity, 1)} alike`);
  const button = h("button", { class: "name break", onclick: () => open(row) }, name(row));
  return h("article", { class: "tile", onclick: (event) => { if (!event.target.closest("button, audio, video, a") && !getSelection().toString()) open(row); } },
    picture, h("div", { class: "words" }, button, h("p", { class: "facts small" }, fate(row), facts.length ? h("span", { class: "muted" }, facts.join(", ")) : null),
      gallery || !row._text ? null : h("p", { class: "excerpt break", dir: "auto" }, excerpt(row)),
      row.error ? h("p", { class: "failed small break" }, row.error.slice(0, 300)) : null,
      h("p", { class: "muted small where break", title: row.url ?? row.source ?? "" }, place(row))));
}

// The end of where it comes from, which tells records apart.
function place(row) {
  const parts = (row.source ?? "").split("/");
  if (parts.at(-1) === name(row)) parts.pop();
  return row.url ?? (parts.length > 2 ? `\u2026/${parts.slice(-2).join("/")}` : parts.join("/"));
}

function clock(seconds) {
  return `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(1).padStart(4, "0")}`;
}

// The text without what already stands above it.
function excerpt(row) {
  const text = row._text.trim(), above = name(row);
  return text.startsWith(above) ? text.slice(above.length).trim() : text;
}

// -- the one that is open -------------------------------------------------------------------------------------

export function move(way) {
  if (!list?.rows.length) return;
  const at = list.rows.findIndex((row) => state.open && row.id === state.open[0] && row._place === state.open[1] && row._stage === state.open[2]);
  const next = list.rows[Math.max(0, Math.min(list.rows.length - 1, at + way))];
  if (state.tab !== "records" && !state.open) return;
  if (at + way >= list.rows.length - 3) more(list);
  set({ open: [next.id, next._place, next._stage] }, { replace: Boolean(state.open) });
}

export async function openAgain(run) {
  const dialog = $("record");
  if (!state.open) {
    if (dialog.open) dialog.close();
    return;
  }
  const [id, place, stage] = state.open;
  if (!dialog.dataset.ready) {
    dialog.dataset.ready = "1";
    dialog.addEventListener("close", () => { dialog.replaceChildren(); close(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  if (!dialog.open) dialog.showModal();
  try {
    const found = await ask("record", { id, place, stage });
    if (state.open?.[0] === id && state.open[1] === place) showRecord(dialog, run, found, move);
  } catch (error) {
    dialog.replaceChildren(h("p", { class: "error" }, error.message), h("button", { onclick: () => dialog.close() }, "Close"));
  }
}
