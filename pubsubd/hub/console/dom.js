// The page's elements. All text becomes text nodes: nothing that was received is ever markup.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and those that are invisible or change the direction of what follows.
const ODD = new RegExp(
  "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
  "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb" +
  "\\u{e0000}-\\u{e0fff}]", "gu");

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key in node && node.namespaceURI !== SVG && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

const bare = value => value?.constructor === Object;

/** Make an element: el("p.note", {title: "..."}, "text", child). */
export function el(what, properties, ...children) {
  if (!bare(properties)) {
    if (properties !== undefined) children.unshift(properties);
    properties = {};
  }
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  return fill(node, properties, children);
}

/** Make an element of SVG. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Return a node for text of unknown origin: what cannot be seen is made visible. */
export function show(text, most = 200) {
  const whole = String(text), cut = whole.length > most ? whole.slice(0, most) : whole;
  const node = el("bdi");
  let at = 0;
  for (const match of cut.matchAll(ODD)) {
    const code = match[0].codePointAt(0);
    if (match.index > at) node.append(cut.slice(at, match.index));
    const known = code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "\u2421" : null;
    const label = "U+" + code.toString(16).toUpperCase().padStart(4, "0");
    node.append(el("span.odd", { title: label }, known ?? label));
    at = match.index + match[0].length;
  }
  if (at < cut.length) node.append(cut.slice(at));
  if (cut.length < whole.length) node.append("\u2026");
  return node;
}

const whole = new Intl.NumberFormat("en"), UNITS = ["", "k", "M", "G", "T"];

/** Return a whole number with its thousands apart. */
export const count = number => whole.format(Math.round(number));

function scaled(number, base, units, unit) {
  let step = 0, value = number;
  while (Math.abs(value) >= base * 0.9995 && step < units.length - 1) value /= base, step++;
  const digits = step === 0 && Number.isInteger(number) || value >= 100 ? 0 : 1;
  return value.toFixed(digits).replace(/\.0$/, "") + (units[step] + unit ? " " : "") + units[step] + unit;
}

/** Return a rate a second in three digits or so: 1.2 k/s. */
export const rate = number => scaled(number, 1000, UNITS, "/s").replace(/ \/s$/, "/s");

/** Return bytes: 1.2 MiB. */
export const bytes = number =>
  scaled(number, 1024, ["", "Ki", "Mi", "Gi", "Ti"], "B").replace(/ ([KMGT]i)/, " $1");

/** Return the time of day of seconds since the epoch. */
export function clock(seconds) {
  const time = new Date(seconds * 1000);
  return el("time", { dateTime: time.toISOString(), title: time.toLocaleString() },
    time.toTimeString().slice(0, 8));
}

/** Return a duration in its largest units: 3 m 20 s. */
export function age(seconds) {
  if (!(seconds >= 0)) return "0 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60 % 60)} m`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor(seconds / 3600 % 24)} h`;
}

/** Return a function that lets `draw` run before the next frame, once however often it is called. */
export function frames(draw) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      draw();
    });
  };
}

/** Make a line to copy, with its button. */
export function copyable(text, what) {
  const button = el("button.small", { type: "button", "aria-label": `Copy ${what}` }, "Copy");
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Pages without encryption may not use the clipboard: select it, for the user to copy.
      getSelection().selectAllChildren(code);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => button.textContent = "Copy", 2000);
  };
  const code = el("code", text);
  return el("div.copy", code, button);
}
