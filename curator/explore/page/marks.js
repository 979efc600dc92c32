// What a rule looks at, marked in the text. Which pattern belongs to which column the stages of the run say.

import { count, h } from "./dom.js";

const MOST = 2000; // of one pattern

export function marked(run, row, text) {
  const rule = run.rules.find((one) => one.stage === row._stage && one.reason === row.reason);
  const columns = [...new Set([...(rule?.columns ?? []), ...run.rules.flatMap((one) => one.columns)])].filter((column) => run.marks[column] && row[column]);
  const chosen = new Set((rule?.columns ?? []).filter((column) => run.marks[column]));
  const body = h("div");
  const legend = columns.length ? [h("span", { class: "muted" }, "Mark "), ...columns.map((column) => {
    const button = h("button", { class: "chip-button", "aria-pressed": String(chosen.has(column)), onclick: () => {
      if (chosen.has(column)) chosen.delete(column); else chosen.add(column);
      button.setAttribute("aria-pressed", String(chosen.has(column)));
      draw();
    } }, column);
    return button;
  })] : [];
  const said = h("span", { class: "muted" });
  if (columns.length) legend.push(said);
  function draw() {
    const spans = [...chosen].flatMap((column) => spansOf(run.marks[column], text)).sort((a, b) => a[0] - b[0]);
    said.textContent = chosen.size ? ` ${count(spans.length)} places` : "";
    const nodes = [];
    let from = 0;
    for (const [start, stop] of spans) {
      if (start < from) continue;
      nodes.push(text.slice(from, start), h("mark", {}, text.slice(start, stop)));
      from = stop;
    }
    body.replaceChildren(...nodes, text.slice(from));
  }
  draw();
  return { nodes: [body], legend };
}

function spansOf(pattern, text) {
  if (pattern === "repeated lines") return repeatedLines(text);
  const words = /^repeated (\d+) words$/.exec(pattern);
  if (words) return repeatedWords(text, Number(words[1]));
  const found = [];
  try {
    for (const match of text.matchAll(new RegExp(pattern, "gmu"))) {
      if (match[0]) found.push([match.index, match.index + match[0].length]);
      if (found.length >= MOST) break;
    }
  } catch { /* a pattern that this browser does not know marks nothing */ }
  return found;
}

function repeatedLines(text) {
  const seen = new Set(), found = [];
  let at = 0;
  for (const line of text.split("\n")) {
    const word = line.trim();
    if (word && seen.has(word)) found.push([at, at + line.length]);
    seen.add(word);
    at += line.length + 1;
  }
  return found;
}

// Runs of so many words that came before.
function repeatedWords(text, size) {
  const words = [...text.matchAll(/[\p{L}\p{N}]+/gu)], seen = new Set(), found = [];
  for (let i = 0; i + size <= words.length; i += 1) {
    const run = words.slice(i, i + size).map((word) => word[0].toLowerCase()).join(" ");
    const last = words[i + size - 1];
    if (seen.has(run)) {
      const end = last.index + last[0].length;
      if (found.length && words[i].index <= found.at(-1)[1]) found.at(-1)[1] = end;
      else found.push([words[i].index, end]);
    }
    seen.add(run);
  }
  return found;
}
