// Records counted by a column: which source, language or reason loses most.

import { ask, count, h, named, share, shown } from "./dom.js";
import { asked, only, set, state } from "./state.js";

const PARTS = ["data", "dropped", "duplicate", "failed"];

const COLUMNS = [
  { name: "value" },
  { name: "all", title: "records", of: (row) => row.all },
  { name: "data", title: "kept", of: (row) => row.data },
  { name: "lost", title: "lost", of: (row) => row.all - row.data, wide: true },
  { name: "share", title: "share lost", of: (row) => (row.all - row.data) / Math.max(1, row.all) },
  ...PARTS.slice(1).map((part) => ({ name: part, title: part, of: (row) => row[part], wide: true })),
];

let latest = 0;
let told = {}; // the last answer: another order asks for nothing

export async function showGroups(main, run) {
  const number = ++latest;
  const by = state.by || run.facets.find((column) => column === "source" || column === "_folder") || run.facets[0];
  const columns = [...new Set([...run.facets, ...Object.keys(run.columns).filter((c) => ["text", "bool"].includes(run.columns[c]))])];
  const select = h("select", { "aria-label": "Count by", onchange: () => set({ by: select.value }) },
    columns.map((column) => h("option", { value: column, selected: column === by }, named(column))));
  const body = h("div", { class: "sheet" }, h("p", { class: "muted" }, "Counting"));
  main.replaceChildren(h("div", { class: "tools" }, h("label", {}, "Count by ", select)), body);
  try {
    const question = { by, filter: asked() };
    if (JSON.stringify(question) !== told.question) told = { question: JSON.stringify(question), answer: await ask("counts", question) };
    if (number !== latest) return;
    const { rows, more } = told.answer;
    const most = Math.max(1, ...rows.map((row) => row.all));
    body.replaceChildren(...[h("div", { class: "wide" }, h("table", {}, h("tr", {}, COLUMNS.map((column) => head(column, by))),
      ordered(rows, by).map((row) => line(by, row, most)))), rows.length ? "" : h("p", { class: "muted" }, "No record."),
    more ? h("p", { class: "muted small" }, `Only the ${rows.length} most frequent are shown.`) : ""]);
  } catch (error) {
    if (number === latest) body.replaceChildren(h("p", { class: "error" }, error.message));
  }
}

// The most first, names from A to Z; with a minus the other way round.
function ordered(rows, by) {
  const least = state.order.startsWith("-"), column = COLUMNS.find((one) => one.name === state.order.replace("-", "")) ?? COLUMNS[3];
  const text = (row) => String(shown(by, row.value));
  const compare = column.of ? (a, b) => column.of(b) - column.of(a) : (a, b) => text(a).localeCompare(text(b));
  return rows.slice().sort((a, b) => (least ? -1 : 1) * compare(a, b) || b.all - a.all);
}

function head(column, by) {
  const own = column.name === (state.order.replace("-", "") || "lost"), least = state.order.startsWith("-");
  const up = !column.of !== least; // what stands first is the least
  return h("th", { class: column.of ? `number ${column.wide ? "hide-narrow" : ""}` : "", "aria-sort": own ? (up ? "ascending" : "descending") : null },
    h("button", { class: "plain", onclick: () => set({ order: own && !least ? `-${column.name}` : column.name }) },
      `${column.title ?? named(by)}${own ? (up ? " \u2191" : " \u2193") : ""}`));
}

function line(by, row, most) {
  const see = () => set({ tab: "records", filter: only(by, row.value) });
  const number = (n, kind, narrow) => h("td", { class: `number ${narrow ? "hide-narrow" : ""} ${n ? kind : "muted"}` }, count(n));
  return h("tr", { class: "link", onclick: see }, h("td", { class: "name" }, h("button", { class: "plain break", onclick: (event) => { event.stopPropagation(); see(); } }, shown(by, row.value)),
    h("div", { class: "stack", style: { width: `${Math.max(2, (100 * row.all) / most)}%` } }, PARTS.filter((part) => row[part]).map((part) => h("i", { class: part, style: { width: `${(100 * row[part]) / row.all}%` } })))),
  number(row.all, ""), number(row.data, ""), number(row.all - row.data, "", true), h("td", { class: "number" }, share(row.all - row.data, row.all)),
  number(row.dropped, "dropped", true), number(row.duplicate, "duplicate", true), number(row.failed, "failed", true));
}
