// Begins: asks what the run is, shows the tab that the address names, and listens to keys.

import { $, PLACES, ask, count, h, share } from "./dom.js";
import { begin, changed, set, state } from "./state.js";
import { showBar } from "./filters.js";
import { showGroups } from "./groups.js";
import { move, openAgain, showRecords, moreRecords } from "./records.js";
import { copy, logarithmic, renew, save, showChanges, showScores, showThresholds } from "./thresholds.js";

const TABS = { thresholds: ["Thresholds", showThresholds], scores: ["Scores", showScores], groups: ["Groups", showGroups],
  records: ["Records", showRecords] };
const KEYS = [["1 2 3 4", "the tabs"], ["/", "search"], ["w", "condition in SQL"], ["j k", "next record, the one before"], ["Enter", "open the record"],
  ["Esc", "close, or leave a field"], ["\u2190 \u2192", "move the threshold that has the focus, with Shift ten times as far"], ["l", "logarithm of counts"],
  ["s", "save the changed rules"], ["c", "copy them as --set arguments"], ["0", "no filter"], ["?", "this"]];

let run;

function head() {
  document.title = `${run.name} · Curator`;
  const totals = [["data", run.places.data], ["dropped", run.places.dropped], ["duplicate", run.places.duplicate], ["failed", run.places.failed]].filter(([, n]) => n);
  $("head").replaceChildren(
    h("div", { class: "title" }, h("h1", { class: "break" }, run.name, " ", h("span", { class: `badge ${run.status}` }, run.status)),
      h("div", { class: "totals" }, totals.map(([place, n]) => h("button", { title: `show the records that are ${PLACES[place]}`,
        onclick: () => set({ tab: "records", filter: { ...state.filter, is: { ...state.filter.is, _place: [place] } } }) },
        h("b", { class: place === "data" ? "written" : place }, count(n)), ` ${PLACES[place]} `, h("span", { class: "muted" }, share(n, run.total)))))),
    h("div", { class: "stack", role: "img", "aria-label": totals.map(([place, n]) => `${count(n)} ${PLACES[place]}`).join(", ") },
      totals.map(([place, n]) => h("i", { class: place, style: { width: `${(100 * n) / run.total}%` } }))),
    run.notes.length ? h("ul", { class: "notes small" }, run.notes.map((note) => h("li", {}, note))) : "",
    h("nav", { "aria-label": "Views" }, Object.entries(TABS).map(([tab, [title]]) => h("a", { href: `#${tab}`, id: `tab-${tab}`,
      onclick: (event) => { event.preventDefault(); set({ tab }); } }, title))));
}

function tab() {
  const name = state.tab in TABS ? state.tab : "thresholds";
  for (const one of Object.keys(TABS)) $(`tab-${one}`).toggleAttribute("aria-current", one === name);
  TABS[name][1]($("main"), run);
}

function update(now, before) {
  const same = (part) => JSON.stringify(now[part]) === JSON.stringify(before[part]);
  if (!same("filter")) showBar(run);
  if (!same("tab")) {
    tab();
    scrollTo(0, 0);
  } else if (now.tab === "records" && !(same("filter") && same("sort") && same("descending"))) tab();
  else if (now.tab === "groups" && !(same("filter") && same("by") && same("order"))) tab();
  else if (!same("filter") || !same("changes")) renew(before);
  if (!same("changes")) showChanges(run);
  if (!same("open")) openAgain(run);
}

function help() {
  $("help").replaceChildren(h("h2", {}, "Keys"), h("dl", {}, KEYS.map(([keys, does]) => [h("dt", {}, keys.split(" ").map((one) => [h("kbd", {}, one), " "])),
    h("dd", {}, does)])), h("form", { method: "dialog" }, h("button", { autofocus: true, onclick: (event) => { event.preventDefault(); $("help").close(); } }, "Close")));
  $("help").showModal();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const field = event.target.matches?.("input:not([type=checkbox]), select, textarea");
  if (event.key === "Escape" && field) return event.target.blur();
  if (field || $("help").open) return undefined;
  const does = {
    "?": help, "/": () => document.querySelector("input.search").focus(), w: () => document.querySelector("input.where").focus(),
    j: () => move(1), k: () => move(-1), l: () => logarithmic(), s: save, c: copy,
    0: () => set({ filter: { is: {}, between: {}, where: "", search: "" } }),
  }[event.key];
  const number = ["1", "2", "3", "4"].indexOf(event.key);
  if (does) does();
  else if (number >= 0) set({ tab: Object.keys(TABS)[number], open: null });
  else return undefined;
  return event.preventDefault();
}

async function start() {
  begin();
  try {
    run = await ask("run");
  } catch (error) {
    $("main").replaceChildren(h("p", { class: "error" }, error.message));
    return;
  }
  head();
  showBar(run);
  tab();
  showChanges(run);
  openAgain(run);
  changed(update);
  addEventListener("keydown", press);
  addEventListener("scroll", moreRecords, { passive: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => renewColours());
  $("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
  $("skip").href = "#" + state.tab;
  document.documentElement.dataset.ready = "1";
}

function renewColours() {
  dispatchEvent(new Event("resize"));
  logarithmic(localStorage.getItem("log") === "1");
}

start();
