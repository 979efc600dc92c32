// One record: what became of it and why, what it is, what belongs to it, and all its columns.

import { blob, bytes, count, h, named, share, short, toast } from "./dom.js";
import { marked } from "./marks.js";
import { player } from "./player.js";
import { set } from "./state.js";
import { fate, media as picture, name, open } from "./tile.js";

const LONG = 20000; // characters of a text that are shown at first
const AS_TEXT = 200000; // bytes of something that is no picture, sound or film
const ASIDE = new Set(["id", "_place", "_stage", "_file", "reason", "error", "traceback", "title", "url", "duplicate_of"]);

// `move`: goes to the record that many places on in the list.
export function showRecord(dialog, run, { row, blobs, related, hint }, move) {
  const rule = run.rules.find((one) => one.stage === row._stage && one.reason === row.reason);
  const text = run.text && row[run.text] !== undefined ? row[run.text] : null;
  dialog.replaceChildren(
    h("header", { class: "top" }, h("div", {}, h("h2", { class: "break" }, name({ ...row, _text: text })), h("p", { class: "facts" }, fate(row))),
      h("div", { class: "buttons" }, h("button", { title: "the one before (k)", "aria-label": "the one before", onclick: () => move(-1) }, "\u2191"),
        h("button", { title: "the next (j)", "aria-label": "the next", onclick: () => move(1) }, "\u2193"),
        h("button", { title: "copy the link to this view", onclick: () => navigator.clipboard.writeText(location.href).then(() => toast("Copied the link")) }, "Link"),
        h("button", { id: "close", "aria-label": "close", autofocus: true, onclick: () => dialog.close() }, "\u00d7"))),
    h("div", { class: "inside" },
      h("p", { class: "muted small break" }, [row.url, row.id, row.source].filter((x, i, all) => x && all.indexOf(x) === i).map((x, i) => [i ? h("br") : null, x])),
      reason(row, rule), trouble(row),
      hint ? h("p", { class: "muted small" }, hint) : null,
      media(row, blobs),
      related.map((one) => belongs(run, one)),
      text === null ? null : textOf(run, row, text),
      columns(run, row, text, blobs)));
  dialog.scrollTop = 0;
  dialog.querySelector(".inside").scrollTop = 0;
}

function reason(row, rule) {
  if (!rule) return null;
  return h("div", { class: "why" }, h("p", { class: "mono break" }, rule.when),
    h("p", {}, rule.columns.filter((column) => row[column] !== undefined).map((column) => h("span", { class: "fact" }, `${column} `, h("b", {}, value(row[column]))))),
    rule.source ? h("p", { class: "muted small break" }, rule.source) : null);
}

function trouble(row) {
  if (!row.error) return null;
  return h("div", { class: "why bad" }, h("p", { class: "break" }, row.error),
    row.traceback ? h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, row.traceback)) : null);
}

function media(row, blobs) {
  const parts = Object.entries(blobs).map(([column, { size, type }]) => {
    const what = /^\d+:/.test(column) ? { member: column.split(":")[0] } : { column };
    const label = /^\d+:/.test(column) ? column.replace(/^\d+:/, "") : column;
    const caption = h("figcaption", { class: "muted small break" }, `${label}, ${bytes(size)}`);
    const part = column === "path" && row.start_s !== undefined ? `#t=${row.start_s},${row.end_s}` : "";
    const source = blob(row, what) + part;
    if (type.startsWith("image/")) return [0, h("figure", {}, h("img", { src: source, alt: label }), caption)];
    if (type.startsWith("audio/")) return [1, h("figure", { class: "sound" }, player(source, size), caption)];
    if (type.startsWith("video/")) return [2, h("figure", { class: "film" }, h("video", { src: source, controls: true, loop: true, preload: "metadata" }), caption)];
    return [3, other(source, size, caption)];
  });
  parts.sort(([a], [b]) => (a === 3) - (b === 3) || b - a);
  return parts.length ? h("div", { class: "figures" }, parts.map(([, part]) => part)) : null;
}

// What is no picture, sound or film, such as HTML or SVG, is shown as the text that it is, and only if asked for.
function other(source, size, caption) {
  const figure = h("figure", { class: "other" }, caption);
  if (size > 0 && size <= AS_TEXT) {
    caption.append(" ", h("button", { class: "plain", onclick: async (event) => {
      event.target.remove();
      const content = await (await fetch(source)).arrayBuffer();
      figure.append(h("pre", {}, new TextDecoder().decode(content)));
    } }, "show as text"));
  }
  return figure;
}

function belongs(run, { title, column, value: of, rows }) {
  const show = Object.keys(run.media).length > 0 || run.archives;
  return h("div", { class: "belongs" }, h("h3", {}, title[0].toUpperCase() + title.slice(1)), h("div", { class: show ? "gallery small-tiles" : "list" },
    rows.map((row) => h("article", { class: "tile", onclick: (event) => { if (!event.target.closest("audio, video")) open(row); } }, show ? picture(run, row) : null,
      h("div", { class: "words" }, h("button", { class: "name break" }, name(row)), h("p", { class: "facts small" }, fate(row),
        row.similarity !== undefined ? h("span", { class: "muted" }, `${share(row.similarity, 1)} alike`) : null),
      show || !row._text ? null : h("p", { class: "excerpt break", dir: "auto" }, row._text))))),
  rows.length > 11 ? h("button", { class: "plain small", onclick: () => set({ tab: "records", open: null,
    filter: { is: { [column]: [of] }, between: {}, where: "", search: "" } }) }, "all of them") : null);
}

function textOf(run, row, text) {
  const whole = typeof text === "string" ? text : JSON.stringify(text, null, 1);
  const body = h("div", { class: "text", dir: "auto" });
  const show = (much) => {
    const { nodes, legend } = marked(run, row, whole.slice(0, much));
    body.replaceChildren(...nodes);
    key.replaceChildren(...legend);
  };
  const key = h("div", { class: "marks small" });
  show(LONG);
  return h("section", {}, key, body, whole.length > LONG ? h("button", { onclick: (event) => { show(whole.length); event.target.remove(); } },
    `All ${count(whole.length)} characters`) : null);
}

function columns(run, row, text, blobs) {
  const names = Object.keys(row).filter((column) => !(column === run.text && text !== null) && !["traceback"].includes(column));
  const ruled = new Set(run.rules.flatMap((rule) => rule.columns));
  names.sort((a, b) => ruled.has(b) - ruled.has(a) || ASIDE.has(b) - ASIDE.has(a));
  const body = h("table", {}, names.map((column) => h("tr", {}, h("td", { class: "muted name" }, named(column)), h("td", { class: "break" }, value(row[column])))));
  const field = h("input", { placeholder: "Find a column", "aria-label": "Find a column", oninput: () => {
    for (const line of body.rows) line.hidden = !line.cells[0].textContent.toLowerCase().includes(field.value.toLowerCase());
  } });
  const missing = Object.keys(run.columns).length - names.length - Object.keys(blobs).length - (text === null ? 0 : 1);
  return h("details", { class: "all", open: text === null }, h("summary", {}, `${names.length} columns${missing > 0 ? `, ${missing} without a value` : ""}`),
    names.length > 12 ? field : null, h("div", { class: "wide" }, body));
}

function value(x) {
  if (typeof x === "number") return short(x);
  if (typeof x === "object") return JSON.stringify(x).slice(0, 4000);
  return String(x).slice(0, 20000);
}
