// Elements, numbers and questions to the server. Text is only ever set as text.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);

// -- questions ------------------------------------------------------------------------------------------------

if (location.search) history.replaceState(null, "", location.pathname + location.hash); // the token is in a cookie now

export async function ask(name, given = {}, signal = undefined) {
  let answer;
  try {
    answer = await fetch(`/api/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given), signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("curator does not answer: it was ended, or the tunnel to it is closed");
  }
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

export function blob(row, what) {
  return "/blob?" + new URLSearchParams({ id: row.id ?? "", place: row._place, stage: row._stage, file: row._file, ...what });
}

export function toast(text) {
  $("toast").textContent = text;
  $("toast").classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => $("toast").classList.remove("on"), 3000);
}

// -- words and numbers ----------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");

export const count = (n) => whole.format(n);

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export function share(n, of) {
  if (!of) return "";
  const percent = (100 * n) / of;
  if (!n) return "0 %";
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

export function signed(n) {
  return n > 0 ? `+${count(n)}` : n < 0 ? `\u2212${count(-n)}` : "0";
}

// As short as it can be without saying another number to a person.
export function short(x) {
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e7) return count(x);
  const size = Math.abs(x);
  if (size >= 1e7 || (size && size < 1e-4)) return x.toExponential(2).replace("e+", "e");
  return String(Number(x.toPrecision(size >= 1000 ? 6 : 4)));
}

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB"];
  let at = 0;
  while (n >= 1000 && at < 3) { n /= 1000; at += 1; }
  return `${at ? n.toFixed(n < 10 ? 1 : 0) : n} ${units[at]}`;
}

export const PLACES = { data: "kept", dropped: "dropped", duplicate: "duplicate", failed: "failed" };

export function named(column) {
  return { _place: "place", _stage: "stage", _folder: "folder", _file: "file" }[column] ?? column;
}

export function shown(column, value) {
  if (value === null || value === undefined) return "no value";
  return column === "_place" ? PLACES[value] ?? value : value;
}
