// What a message carries: text, JSON that unfolds, or bytes. It is shown, never executed.

import { Exact } from "./dialects.js";
import { bytes, count, el, show } from "./dom.js";

const TEXT = 400, MORE_TEXT = 10_000; // characters shown at first, and by each click
const HEX = 64, MORE_HEX = 2_048; // bytes
const ITEMS = 100; // of an array or an object, at first and by each click
const DEPTH = 100; // levels that unfold
const BRIEF = 160; // characters of a folded value

/** Return the end of a slice that does not cut a character in two. */
const whole = (text, end) =>
  end < text.length && /[\ud800-\udbff]/.test(text[end - 1]) ? end - 1 : end;

/** Make a node that shows more of something by each click. */
function growing(node, total, first, step, add, unit) {
  let at = add(0, first);
  if (at >= total) return node;
  const button = el("button.small", { type: "button" });
  const label = () => button.textContent = `Show more: ${unit(total - at)} left`;
  button.onclick = () => {
    at = add(at, at + step);
    if (at >= total) button.remove();
    else label();
  };
  label();
  return el("div", node, button);
}

function textOf(text) {
  const node = el("div.msg-text");
  const add = (from, to) => {
    const end = whole(text, Math.min(to, text.length));
    node.append(show(text.slice(from, end), end));
    return end;
  };
  return growing(node, text.length, TEXT, MORE_TEXT, add, left => `${count(left)} characters`);
}

function hexOf(data) {
  const node = el("code.msg-hex");
  const add = (from, to) => {
    const part = data.subarray(from, Math.min(to, data.length));
    node.append(Array.from(part, byte => byte.toString(16).padStart(2, "0")).join(" ") + " ");
    return from + part.length;
  };
  return growing(node, data.length, HEX, MORE_HEX, add, bytes);
}

/** Return a value in about so many characters, without looking at all of it. */
function brief(value, room = BRIEF, depth = 0) {
  if (value instanceof Exact) return value.source;
  if (typeof value === "string")
    return JSON.stringify(value.length > room ? value.slice(0, whole(value, room)) + "\u2026" : value);
  if (value === null || typeof value !== "object") return String(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}", parts = [];
  let left = room;
  for (const key in value) {
    if (left <= 0 || depth > 3) {
      parts.push("\u2026");
      break;
    }
    const name = open === "{" ? `${JSON.stringify(key.slice(0, left))}: ` : "";
    const part = name + brief(value[key], left - name.length, depth + 1);
    parts.push(part);
    left -= part.length + 2;
  }
  return open + parts.join(", ") + close;
}

function valueOf(value, depth) {
  if (typeof value === "string") return el("span.msg-string", textOf(value));
  if (value === null || typeof value !== "object" || value instanceof Exact)
    return el("span.msg-scalar", brief(value));
  return fold(value, depth);
}

// Children are made when they are unfolded, so what it costs does not depend on the depth.
function fold(value, depth) {
  const keys = Object.keys(value), list = Array.isArray(value);
  const summary = el("summary", show(brief(value), BRIEF * 2));
  if (!keys.length || depth > DEPTH) return el("span.msg-scalar", show(brief(value), BRIEF * 2));
  const node = el("details", summary);
  node.addEventListener("toggle", () => {
    if (node.childElementCount > 1) return;
    const items = el("ul.msg-tree");
    const add = (from, to) => {
      for (const key of keys.slice(from, to))
        items.append(el("li", el("span.msg-key", list ? key : show(key, 200)), ": ",
          valueOf(value[key], depth + 1)));
      return Math.min(to, keys.length);
    };
    node.append(growing(items, keys.length, ITEMS, ITEMS, add, left => `${count(left)} items`));
  });
  return node;
}

/** Return a node that shows a value: text, bytes, or anything that JSON can say. */
export function payload(value) {
  if (value instanceof Uint8Array)
    return el("div", el("span.tag", "binary"), ` ${bytes(value.length)} `, hexOf(value));
  if (typeof value !== "string") return el("div.msg-json", valueOf(value, 0));
  return value === "" ? el("div.note", "(empty)") : textOf(value);
}
