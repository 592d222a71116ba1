// The page's elements. All text becomes text nodes: nothing that was received is ever markup.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and those that are invisible or change the direction of what follows.
const ODD = /[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

function fill(node, properties, children) {
	for (const [key, value] of Object.entries(properties)) {
		if (value === undefined || value === null) continue;
		if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
		else if (key in node && node.namespaceURI !== SVG && key !== "list") node[key] = value;
		else node.setAttribute(key, value);
	}
	node.append(...children.filter(child => (child ?? "") !== ""));
	return node;
}

const bare = value => value?.constructor === Object;

/** Make an element: el("p.note", {title: "..."}, "text", child). */
export function el(what, properties, ...children) {
	if (!bare(properties)) {
		if (properties !== undefined) children.unshift(properties);
		properties = {};
	}
	const [tag, ...classes] = what.split("."), node = document.createElement(tag);
	if (classes.length) node.className = classes.join(" ");
	return fill(node, properties, children);
}

export function svg(tag, properties = {}, ...children) {
	return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Return a node for text of unknown origin: what cannot be seen is made visible. */
export function show(text, most = 200) {
	const whole = String(text), cut = whole.slice(0, most);
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

const whole = new Intl.NumberFormat("en");

/** Return a whole number with its thousands apart. */
export const count = number => whole.format(Math.round(number));

function scaled(value, base, units) {
	let step = 0;
	for (; value >= base * 0.9995 && step < units.length - 1; step++) value /= base;
	return value.toFixed(value < 100 ? 1 : 0).replace(/\.0$/, "") + units[step];
}

/** Return a rate in three digits or so: 1.2 k/s. */
export const rate = number => scaled(number, 1000, ["/s", " k/s", " M/s", " G/s"]);

export const bytes = number => scaled(number, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);

/** Return the time of day of seconds since the epoch. */
export function clock(seconds) {
	const time = new Date(seconds * 1000);
	return el("time", { dateTime: time.toISOString(), title: time.toLocaleString() },
		time.toTimeString().slice(0, 8));
}

/** Return a duration in its largest units: 3 m 20 s. */
export function age(seconds) {
	const s = Math.max(0, Math.floor(seconds)), [m, h, d] = [60, 3600, 86_400].map(unit => Math.floor(s / unit));
	return d ? `${d} d ${h % 24} h` : h ? `${h} h ${m % 60} m` : m ? `${m} m ${s % 60} s` : `${s} s`;
}

/** Return what lets `draw` run once before the next frame, however often it is called. */
export function frames(draw) {
	let due = 0;
	return () => due ||= requestAnimationFrame(() => {
		due = 0;
		draw();
	});
}

export const button = (text, onclick, kind = "") =>
	el("button", { type: "button", className: kind, onclick }, text);

export const field = (label, input, kind = "") => el(`label.field${kind}`, el("span", label), input);

export const fields = (...children) =>
	el("form.row", { onsubmit: event => event.preventDefault() }, ...children);

/** Make a table around its body; columns are texts or heads. */
export function table(caption, columns, body, kind = "") {
	const heads = columns.map(one => typeof one === "string" ? el("th", { scope: "col" }, one) : one);
	return el("div.scroll", { tabIndex: 0, role: "region", ariaLabel: caption },
		el(`table.table${kind}`, el("caption.unseen", caption), el("thead", el("tr", ...heads)), body));
}

export function panel(title, ...children) {
	const id = title.replaceAll(" ", "-").toLowerCase();
	return el("section.panel", { "aria-labelledby": id }, el("h3", { id }, title), ...children);
}

/** Return why a section of //pubsubd/live has nothing to show. */
export function denied(what, error) {
	const why = { "not-allowed": "your rights do not include it", "login-required": "it needs a login" };
	return `You cannot see ${what}: ${why[error.code] ?? `${error.code}: ${error.text}`}.`;
}

/** Make a line to copy, with its button. */
export function copyable(text, what) {
	const code = el("code", text), copy = button("Copy", async () => {
		try {
			await navigator.clipboard.writeText(text);
			copy.textContent = "Copied";
		} catch { // without encryption, a page may not use the clipboard
			getSelection().selectAllChildren(code);
			copy.textContent = "Press Ctrl+C";
		}
		setTimeout(() => copy.textContent = "Copy", 2000);
	}, "small");
	copy.ariaLabel = `Copy ${what}`;
	return el("div.copy", code, copy);
}
