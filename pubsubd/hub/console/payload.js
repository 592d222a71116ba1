// What a message carries: text, JSON that unfolds, or bytes. It is shown, never executed.

import { button, bytes, count, el, show } from "./dom.js";

const TEXT = 400, MORE_TEXT = 10_000; // characters shown at first, and by each click
const HEX = 64, MORE_HEX = 2_048; // bytes
const ITEMS = 100; // of an array or an object
const DEPTH = 100; // levels that unfold
const BRIEF = 160; // characters of a folded value

/** Return the end of a slice that does not cut a character in two. */
const whole = (text, end) => /[\ud800-\udbff]/.test(text[end - 1] ?? "") ? end - 1 : end;

/** Make a node that shows more by each click; `add(from, to)` returns where it has come. */
function growing(node, total, first, step, unit, add) {
	let at = add(0, Math.min(first, total));
	if (at >= total) return node;
	const label = () => `Show more: ${unit(total - at)} left`;
	const more = button(label(), () => {
		at = add(at, Math.min(at + step, total));
		if (at >= total) more.remove();
		else more.textContent = label();
	}, "small");
	return el("div", node, more);
}

function textOf(text) {
	const node = el("div.msg-text");
	return growing(node, text.length, TEXT, MORE_TEXT, left => `${count(left)} characters`, (from, to) => {
		const end = to < text.length ? whole(text, to) : to;
		node.append(show(text.slice(from, end), end));
		return end;
	});
}

function hexOf(data) {
	const node = el("code.msg-hex");
	return growing(node, data.length, HEX, MORE_HEX, bytes, (from, to) => {
		const digits = Array.from(data.subarray(from, to), byte => byte.toString(16).padStart(2, "0"));
		node.append(digits.join(" ") + " ");
		return to;
	});
}

/** Return the beginning of a value as JSON. */
function brief(value, room = BRIEF, depth = 0) {
	if (typeof value === "string")
		return JSON.stringify(value.length > room ? value.slice(0, whole(value, room)) + "…" : value);
	if (value === null || typeof value !== "object") return String(value);
	const list = Array.isArray(value), parts = [];
	let left = room;
	for (const key in value) {
		if (left <= 0 || depth > 3) {
			parts.push("…");
			break;
		}
		const name = list ? "" : `${JSON.stringify(key.slice(0, left))}: `;
		parts.push(name + brief(value[key], left - name.length, depth + 1));
		left -= parts.at(-1).length + 2;
	}
	return list ? `[${parts.join(", ")}]` : `{${parts.join(", ")}}`;
}

// Children are made when they are unfolded.
function fold(value, depth) {
	if (typeof value === "string") return el("span.msg-string", textOf(value));
	const keys = Object.keys(value ?? {}), folded = show(brief(value), BRIEF * 2);
	if (!keys.length || depth > DEPTH) return folded;
	const node = el("details", el("summary", folded));
	node.ontoggle = () => {
		if (node.childElementCount > 1) return;
		const items = el("ul.msg-tree");
		node.append(growing(items, keys.length, ITEMS, ITEMS, left => `${count(left)} items`, (from, to) => {
			for (const key of keys.slice(from, to))
				items.append(el("li", el("span.msg-key", show(key, 200)), ": ", fold(value[key], depth + 1)));
			return to;
		}));
	};
	return node;
}

/** Return a node that shows a value: text, bytes, or anything that JSON can say. */
export function payload(value) {
	if (value instanceof Uint8Array)
		return el("div", el("span.tag", "binary"), ` ${bytes(value.length)} `, hexOf(value));
	return typeof value === "string" ? textOf(value) : el("div.msg-json", fold(value, 0));
}
