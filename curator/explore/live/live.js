// A run while it works: asks for its numbers once a second and draws them anew. Text is only ever set as text.

import { $, ask, bytes, count, h, plural } from "./dom.js";

const EVERY_MS = 1000;
const SVG = "http://www.w3.org/2000/svg";
const STATES = { starting: "begins", running: "running", silent: "silent", dead: "killed", ended: "ended" };
let open = new Set(); // errors whose traceback is shown
let failedBefore = new Map();

// -- words ------------------------------------------------------------------------------------------------------

function duration(s) {
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const rounded = (s) => Number(Math.max(1, s).toPrecision(2)); // more digits than two cannot be known

function rate(n) {
  return n >= 10 ? count(Math.round(n)) : n > 0 ? n.toPrecision(2) : "0";
}

const sum = (object) => Object.values(object ?? {}).reduce((a, b) => a + b, 0);

function bar(part, whole, name = "done") {
  return h("div", { class: "way" }, h("i", { class: name, style: { width: `${whole ? Math.min(100, (100 * part) / whole) : 0}%` } }));
}

// -- head -------------------------------------------------------------------------------------------------------

function head(now) {
  const live = now.live, ended = now.state === "ended";
  const badge = ended ? now.status : now.state;
  const done = ended && now.status === "finished" ? 1 : live.share ?? 0;
  const facts = [`${duration(live.seconds ?? now.seconds ?? 0)} so far`];
  if ((live.phases ?? 1) > 1) facts.unshift(`phase ${live.phase} of ${live.phases}`);
  if (ended && now.units) facts.push(`${count(now.units.done)} of ${count(now.units.total)} units`);
  else if (live.units_total) facts.push(`${count(live.units_done)} of ${count(live.units_total)} units`);
  if (live.bytes_total && !ended) facts.push(`${bytes(live.bytes_read)} of ${bytes(live.bytes_total)} read`);
  document.title = `${Math.round(100 * done)} % ${now.name ?? "Curator"}`;
  return [
    h("div", { class: "title" }, h("h1", {}, now.name ?? "Curator"),
      h("span", { class: `badge ${badge}` }, ended ? now.status : STATES[now.state]), h("span", { class: "muted small break" }, now.out ?? "")),
    h("div", { class: "big" }, h("span", { class: "percent" }, `${Math.floor(100 * done)} %`),
      !ended && live.seconds_left != null ? h("span", { class: "left" }, `about ${duration(rounded(live.seconds_left))} left`) : null,
      h("span", { class: "muted" }, facts.join(" · "))),
    h("div", { class: "way", role: "progressbar", "aria-valuenow": Math.round(100 * done), "aria-valuemin": 0, "aria-valuemax": 100 },
      h("i", { class: "read", style: { width: `${live.bytes_total ? (100 * live.bytes_read) / live.bytes_total : 0}%` } }),
      h("i", { class: "done", style: { width: `${100 * done}%` } })),
    live.limit ?? now.limit ? h("p", { class: "muted" }, "Limit: ", live.limit ?? now.limit) : null,
    now.message ? h("p", { class: "warn" }, now.message) : null,
  ];
}

function figures(now) {
  const live = now.live, ended = now.state === "ended", records = now.records ?? {};
  const n = (name) => (ended || live[name] === undefined ? records[name] ?? 0 : live[name]);
  const read = ended || live.records_in === undefined ? records.in ?? 0 : live.records_in;
  const tiles = [["read", read, ""], ["written", n("written"), "written"], ["dropped", n("dropped"), "dropped"],
    ["duplicate", n("duplicate"), "duplicate"], ["failed", n("failed"), "failed"]]
    .map(([name, value, style]) => h("div", { class: "figure" }, h("b", { class: value ? style : "" }, count(value)), h("span", {}, `records ${name}`)));
  if (!ended) {
    tiles.push(h("div", { class: "figure" }, h("b", {}, rate(live.rate ?? 0)), h("span", {}, "records/s")));
    tiles.push(h("div", { class: "figure" }, h("b", {}, `${bytes(Math.round(live.bytes_rate ?? 0))}/s`), h("span", {}, "read")));
  }
  return h("section", { class: "figures" }, tiles);
}

// -- the flow ---------------------------------------------------------------------------------------------------

// Stages that share workers stand in one frame, behind the queue from which these take their rows.
function flow(now) {
  const lines = new Map((now.live.stages ?? []).map((line) => [line.name, line]));
  const operators = now.live.engine?.operators ?? [];
  const busiest = Math.max(0, ...[...lines.values()].map((line) => line.busy));
  const hops = [];
  let last = null;
  for (const [at, stage] of (now.flow ?? []).entries()) {
    const line = lines.get(stage.name) ?? {};
    const shared = line.operator !== undefined && last?.operator === line.operator;
    if (!shared) {
      last = { operator: line.operator, line, stages: [], from: origin(stage, now.flow[at - 1]), first: !at, sink: stage.kind === "sink" };
      hops.push(last);
    }
    last.stages.push(box(stage, line, busiest, now));
  }
  return h("section", {}, h("div", { class: "group" }, h("h2", {}, "Flow")),
  h("div", { class: "flow" }, hops.map((hop) => h("div", { class: "hop" }, hop.first ? null : queue(hop),
    h("div", { class: "operator" }, workers(hop, operators[hop.operator]), h("div", { class: "stages" }, hop.stages))))));
}

// Where its rows come from, if that is not the stage drawn before it.
function origin(stage, before) {
  const plain = stage.after.length === 1 && before && stage.after[0][0] === before.name && stage.after[0][1] === "out";
  return plain || !stage.after.length ? "" : stage.after.map(([name, port]) => (port === "out" ? name : `${name} > ${port}`)).join(", ");
}

function queue(hop) {
  const { queue_rows: rows, queue_bytes: size = 0, queue_limit: limit = 0 } = hop.line;
  const known = rows !== undefined;
  return h("div", { class: known ? "queue" : "queue none", title: known ? `${count(rows)} rows wait, ${bytes(size)} of at most ${bytes(limit)}` : "" },
    h("span", {}, known ? count(rows) : ""),
    h("div", { class: "pipe" }, h("i", { style: { width: `${limit ? Math.min(100, (100 * size) / limit) : 0}%` } })),
    h("span", {}, known ? "wait" : "", hop.from ? h("span", { class: "break" }, ` from ${hop.from}`) : null));
}

function workers(hop, operator) {
  if (!operator) return h("header", {}, h("span", {}, hop.line.operator === undefined ? "" : "no workers"));
  const { starting, working, idle } = operator.workers;
  const total = starting + working + idle;
  const dots = total <= 24 ? [["working", working], ["starting", starting], ["", idle]]
    .flatMap(([style, n]) => Array.from({ length: n }, () => h("i", { class: style }))) : [];
  const words = `${working} of ${total} worker${total === 1 ? "" : "s"}${starting ? `, ${starting} starting` : ""}`;
  return h("header", {}, h("span", { class: "dots", "aria-hidden": true }, dots), h("span", {}, words));
}

function box(stage, line, busiest, now) {
  const live = now.state !== "ended" && line.rate !== undefined;
  const rowsIn = line.in ?? stage.in, out = line.out ?? sum(stage.out);
  const lost = [["dropped", sum(stage.dropped)], ["duplicate", stage.duplicate], ["failed", line.failed ?? stage.failed]].filter(([, n]) => n);
  const limits = live && busiest > 0.05 && line.busy === busiest;
  return h("div", { class: `stage${limits ? " limits" : ""}${line.operator === undefined && !rowsIn ? " later" : ""}` },
    h("h3", { title: stage.name }, stage.name),
    h("div", { class: "rate" }, live ? [rate(line.rate), h("small", {}, " rows/s")] : [count(out), h("small", {}, " rows out")]),
    h("div", { class: "rows" }, stage.kind === "source" ? `${count(out)} out` : stage.kind === "sink" ? `${count(out)} written` : `${count(rowsIn)} in, ${count(out)} out`),
    h("div", { class: "lost" }, lost.map(([name, n]) => h("span", { class: name }, `${count(n)} ${name}`))),
    h("div", { class: "busy" }, h("i", { style: { width: `${live && busiest ? (100 * line.busy) / busiest : 0}%` } })),
    h("div", { class: "cores" }, live ? `${line.busy.toFixed(1)} cores${limits ? ", works most" : ""}` : `${(stage.busy_s ?? 0).toFixed(1)} s of work`));
}

// -- below ------------------------------------------------------------------------------------------------------

function plot(history, at, style) {
  const points = history.map((sample) => [sample[0], sample[at]]);
  const begin = points[0][0], end = points.at(-1)[0], most = Math.max(1e-9, ...points.map((p) => p[1]));
  const place = ([x, y]) => `${(((x - begin) / Math.max(1e-9, end - begin)) * 100).toFixed(2)} ${(98 - (y / most) * 94).toFixed(2)}`;
  const path = `M${points.map(place).join("L")}`;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "plot");
  for (const [d, name] of [[`${path}L100 100L0 100Z`, "area"], [path, style]]) {
    const element = document.createElementNS(SVG, "path");
    element.setAttribute("d", d);
    element.setAttribute("class", name);
    svg.append(element);
  }
  return [svg, most, begin, end];
}

function rates(now) {
  if (now.history.length < 2) return null;
  return [["Records a second", 1, rate], ["Cores that work", 3, (n) => n.toFixed(1)]].map(([title, at, words]) => {
    const [svg, most, begin, end] = plot(now.history, at, "line");
    return h("section", { class: "sheet" }, h("h3", {}, title), h("div", { class: "axis" }, h("span", {}, `at most ${words(most)}`), h("span", {}, `now ${words(now.history.at(-1)[at])}`)),
      svg, h("div", { class: "axis" }, h("span", {}, duration(begin)), h("span", {}, duration(end))));
  });
}

function meter(name, part, whole, words) {
  return h("div", { class: "meter" }, h("span", { class: "path", title: name }, name.split("/").at(-1)), h("span", { class: "number" }, words), bar(part, whole));
}

function reading(now) {
  const units = now.live.reading ?? [];
  if (!units.length || now.state === "ended") return null;
  return h("section", { class: "sheet" }, h("h3", {}, "Being read"),
    units.map((u) => meter(u.unit, u.bytes_read, u.bytes, `${bytes(u.bytes_read)} of ${bytes(u.bytes)}, ${plural(u.records, "record")}`)));
}

function machines(now) {
  const engine = now.live.engine;
  if (!engine || now.state === "ended") return null;
  const meters = engine.nodes.flatMap((node) => [
    meter(`Node ${node.node}: cores`, node.cores_used, node.cores, `${node.cores_used.toFixed(0)} of ${count(node.cores)} leased`),
    node.gpus ? meter(`Node ${node.node}: GPUs`, node.gpus_used, node.gpus, `${node.gpus_used.toFixed(1)} of ${count(node.gpus)} held`) : null,
  ]);
  const memory = meter("Batches on their way", engine.live_bytes, engine.budget_bytes, `${bytes(engine.live_bytes)} of ${bytes(engine.budget_bytes)}`);
  return h("section", { class: "sheet" }, h("h3", {}, "Machine"), meters, memory);
}

function errors(now) {
  const failed = new Map((now.live.stages ?? []).map((line) => [line.name, line.failed]));
  for (const stage of now.flow ?? []) if (!failed.has(stage.name)) failed.set(stage.name, stage.failed);
  const firsts = new Map((now.first_errors ?? []).map((error) => [error.stage, error]));
  const names = [...new Set([...firsts.keys(), ...[...failed].filter(([, n]) => n).map(([name]) => name)])];
  if (!names.length) return null;
  const items = names.map((name) => {
    const error = firsts.get(name), n = failed.get(name) ?? 0, more = n > (failedBefore.get(name) ?? n);
    return h("li", { class: more ? "fresh" : "" }, h("b", {}, name), n ? ` ${count(n)} failed ` : " ",
      error ? h("span", { class: "first" }, error.error.trim().split("\n")[0]) : null,
      error ? h("details", { open: open.has(name), ontoggle: (event) => (event.target.open ? open.add(name) : open.delete(name)) },
        h("summary", {}, [error.record ? `record ${error.record}` : "", error.file ? `${error.file}:${error.line}` : ""].filter(Boolean).join(", ") || "traceback"),
        h("pre", {}, error.traceback || error.error)) : null);
  });
  failedBefore = failed;
  return h("section", { class: "sheet" }, h("h3", {}, "Failures"), h("ul", { class: "errors" }, items));
}

function events(now) {
  const lines = (now.live.events ?? []).slice().reverse();
  if (!lines.length) return null;
  return h("section", { class: "sheet" }, h("h3", {}, "Events"), h("ul", { class: "events" },
    lines.map((line) => h("li", {}, h("time", {}, duration(line.t)), line.text))));
}

function alarms(now) {
  if (!now.alarms?.length) return null;
  return h("section", { class: "sheet" }, h("h3", {}, "Alarms"),
    h("ul", { class: "events" }, now.alarms.map((alarm) => h("li", {}, h("b", { class: alarm.level === "error" ? "failed" : alarm.level === "warning" ? "dropped" : "muted" },
      alarm.level), " ", alarm.text))));
}

function show(now) {
  if (getSelection().type === "Range") return; // somebody copies something
  $("head").replaceChildren(...head(now).filter(Boolean));
  $("main").replaceChildren(figures(now), flow(now), h("div", { class: "two" }, rates(now), reading(now), machines(now), errors(now), events(now), alarms(now)));
}

async function turn() {
  let again = EVERY_MS;
  try {
    const now = await ask("now");
    show(now);
    if (now.state === "ended" || now.state === "dead") again = 10 * EVERY_MS;
  } catch (error) {
    again = 3 * EVERY_MS;
    if (!document.querySelector(".lost-it")) {
      $("head").append(h("p", { class: "warn lost-it" }, `These are the last numbers. ${error.message}`));
    }
  }
  setTimeout(turn, document.hidden ? 5 * again : again);
}

turn();
