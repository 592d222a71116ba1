// The messages that have come, the latest first: so many, so many bytes, and what was left out.

import { button, bytes, clock, count, el, field, panel, show } from "./dom.js";
import { DIALECTS, dialectOf, parse, some } from "./dialects.js";
import { payload } from "./payload.js";

const ROWS = 500, ROOM = 16 * 2 ** 20; // messages that are kept, and bytes of them
const AHEAD = 500, AHEAD_ROOM = 4 * 2 ** 20; // that wait to be drawn
const BUDGET = 6; // milliseconds of drawing in a frame
const SAMPLE = 20, PAUSE = 200; // messages drawn at once if too much comes; milliseconds between
const LATE = 1_500, SAY = 5_000; // milliseconds: behind that the page says so; between two notices
const SEARCHED = 4_096; // characters of a message that the filter looks at

const sizeOf = raw => typeof raw === "string" ? raw.length : raw.data.length;

/** Make the list; `say` tells screen readers now and then what has come. */
export function messageList(say) {
	const list = el("ol.msg-list", { ariaLabel: "Messages, the latest first" });
	const figures = el("p.note");
	const filter = el("input", { type: "search", placeholder: "in name or text", maxLength: 256 });
	const hold = button("Pause", () => {
		paused = !paused;
		hold.ariaPressed = String(paused);
		tell();
		plan();
	});
	hold.ariaPressed = "false";
	const clear = button("Clear", () => {
		rows.length = waiting.length = kept = waitingBytes = skipped = before = received = missed = removed = 0;
		list.replaceChildren();
		tell();
	});
	const node = panel("Received", el("div.row", field("Filter", filter), hold, clear), figures, list);

	const waiting = [], rows = []; // {raw, at}; {node, size, text}, the oldest first
	const behind = new Map(); // connection -> since when it has not caught up
	let kept = 0, waitingBytes = 0, received = 0, missed = 0, removed = 0, paused = false;
	let skipped = 0, before = 0, why = "", fast = false, due = false, last = 0, unsaid = 0, saidAt = 0;

	const full = () => waiting.length >= (fast ? SAMPLE : AHEAD) || waitingBytes > AHEAD_ROOM;

	function take(raw) {
		received++;
		if (full()) {
			skipped++;
			why = paused ? `paused: the first ${AHEAD} are kept` :
				document.hidden ? "this tab was not visible" : "they came faster than the page shows them";
		} else {
			waiting.push({ raw, at: Date.now() });
			waitingBytes += sizeOf(raw);
		}
		plan();
	}

	function plan() {
		if (due || paused) return;
		due = true;
		const wait = fast ? last + PAUSE - performance.now() : 0;
		setTimeout(() => requestAnimationFrame(draw), wait);
	}

	function draw() {
		due = false;
		if (paused) return;
		last = performance.now();
		// A burst is shown whole, if it can be; of what goes on like this, only some is shown.
		if (before && skipped > before)
			for (const { raw } of waiting.splice(SAMPLE)) {
				waitingBytes -= sizeOf(raw);
				skipped++;
			}
		before = skipped;
		const news = [];
		while (waiting.length && performance.now() < last + BUDGET) {
			const one = waiting.shift();
			waitingBytes -= sizeOf(one.raw);
			news.push(row(one));
		}
		unsaid += news.length;
		if (!waiting.length) {
			fast = skipped > 0;
			if (fast) news.push(lossRow(skipped, why));
			missed += skipped;
			skipped = before = 0;
		}
		add(news);
		if (unsaid && last - saidAt > SAY) {
			say(some(unsaid, "new message"));
			unsaid = 0;
			saidAt = last;
		}
		tell();
		if (waiting.length || fast) plan();
	}

	function add(news) {
		for (const one of news) {
			kept += one.size;
			one.node.hidden = !matches(one);
		}
		rows.push(...news);
		list.prepend(...news.map(one => one.node).reverse());
		while (rows.length > ROWS || (kept > ROOM && rows.length > 1)) {
			const gone = rows.shift();
			gone.node.remove();
			kept -= gone.size;
			removed++;
		}
	}

	const matches = ({ text }) => text === null || text.includes(filter.value.toLowerCase());
	filter.oninput = () => rows.forEach(one => one.node.hidden = !matches(one));

	function tell() {
		const late = [...behind].map(([title, since]) => [title, Date.now() - since])
			.filter(([, time]) => time > LATE);
		figures.textContent = [
			`${count(received)} received`, missed && `${count(missed)} missed`,
			removed && `${count(removed)} older ones removed, as at most ${ROWS} and ${bytes(ROOM)} are kept`,
			...late.map(([title, time]) => `${title} is ${count(time / 1000)} s behind`),
			paused && `paused, ${waiting.length} wait`,
		].filter(Boolean).join(" · ");
	}
	tell();

	function row({ raw, at }) {
		const json = typeof raw === "string" ? parse(raw) : null, of = json ? dialectOf(json) : "line";
		const { name, type, from, value } = DIALECTS[of].read(json ?? raw), size = sizeOf(raw);
		const text = json ? raw : new TextDecoder().decode(raw.data.subarray(0, SEARCHED));
		return {
			size: size * (json ? 2 : 1), text: `${name} ${text.slice(0, SEARCHED)}`.toLowerCase(),
			node: el("li.msg",
				el("div.msg-head", clock(at / 1000), " ", el("b.msg-name", show(name, 300)), " ",
					type ? el("span.tag", show(type, 80)) : "",
					el("small", ` ${DIALECTS[of].title}`, ...from ? [" from ", show(from, 100)] : [],
						` · ${bytes(size)}`)),
				payload(value)),
		};
	}

	return {
		node, take,
		get full() {
			return full();
		},
		/** Watch how far the page is behind a connection. */
		async watch(title, caughtUp) {
			if (behind.has(title)) return tell();
			behind.set(title, Date.now());
			await caughtUp().catch(() => {});
			behind.delete(title);
			tell();
		},
		/** Tell how many messages were missed, null if nobody knows, and why. */
		lose(number, reason) {
			missed += number ?? 0;
			add([lossRow(number, reason)]);
			tell();
		},
	};
}

function lossRow(number, reason) {
	const what = number === null ? "Messages" : some(number, "message");
	return { size: 100, text: null, node: el("li.msg.lost", `${what} missed: `, show(reason, 300)) };
}
