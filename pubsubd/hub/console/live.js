// The daemon's state as //pubsubd/live tells it: a whole one first, then differences.

import { decode, frame } from "./line.js";

const KEYS = { connections: "connection", names: "name", daemons: "node", links: "link" };
const EVENTS = 500; // kept of those that have come

function mergeRows(into, news, key) {
	const rows = into.rows ??= new Map();
	for (const gone of news.gone ?? []) rows.delete(gone);
	for (const row of news.rows ?? []) rows.set(row[key], { ...rows.get(row[key]), ...row });
}

function merge(state, section, news) {
	if (news.error) return state[section] = { error: news.error };
	const into = state[section] = state[section]?.error ? {} : state[section] ?? {};
	for (const [key, value] of Object.entries(news)) {
		if (key === "rows" || key === "gone") continue;
		if (key in KEYS && typeof value === "object") mergeRows(into[key] ??= {}, value, KEYS[key]);
		else into[key] = value;
	}
	if (section in KEYS) mergeRows(into, news, KEYS[section]);
	else if (section === "events") {
		const rows = into.rows ?? [], last = rows.at(-1)?.id ?? 0;
		into.rows = [...rows, ...(news.rows ?? []).filter(row => row.id > last)].slice(-EVENTS);
	}
}

/** What the views want of //pubsubd/live, asked for in one request, and what has come of it. */
export class Live {
	#wanted = new Map(); // view -> {sections, handler}
	#asked = "";
	#due = false;

	/** Section -> its merged state, as in pubsubd-protocol(7), and `own`, `may_kill`, `interval`. */
	state = {};

	/** `lost` is told how many updates were left out, and why. */
	constructor(connection, lost = () => {}) {
		this.connection = connection;
		this.lost = lost;
		connection.addEventListener("state", () => {
			if (connection.state !== "ready") return;
			this.state = {};
			this.#asked = "";
			this.#ask();
		});
		connection.addEventListener("message", ({ detail: { name, data } }) => {
			if (name === "//pubsubd/live") this.#hear(JSON.parse(decode(data)));
		});
		document.addEventListener("visibilitychange", () => this.#ask());
	}

	/**
	 * Return a view that wants what `sections` returns while it is shown, such as {totals: true};
	 * `handler(state, message)` is told what comes.
	 */
	view(name, sections, handler) {
		return {
			shown: () => {
				this.#wanted.set(name, { sections: sections(), handler });
				this.#ask();
				handler(this.state, {});
			},
			hidden: () => {
				this.#wanted.delete(name);
				this.#ask();
			},
		};
	}

	// Once for all changes that are made together. A page that nobody looks at asks for nothing.
	#ask() {
		if (this.#due) return;
		this.#due = true;
		queueMicrotask(async () => {
			this.#due = false;
			if (this.connection.state !== "ready") return;
			const sections = Object.assign({}, ...[...this.#wanted.values()].map(one => one.sections));
			const idle = document.hidden || !this.#wanted.size;
			const request = idle ? "" : JSON.stringify({ interval: 1, ...sections });
			if (request === this.#asked) return;
			this.#asked = request;
			try {
				if (request) await this.connection.command(frame("//pubsubd/live", request));
				else await this.connection.request("live/stop");
			} catch ({ code, message }) {
				if (code === "lost") return;
				for (const section in sections) this.state[section] = { error: { code, text: message } };
				this.#tell({ n: 0 });
			}
		});
	}

	#hear(message) {
		const { n, at, missed, ...news } = message, { events, own, may_kill } = this.state;
		if (n === 1) this.state = { own, may_kill, ...events && { events } }; // what was there before
		if (missed) this.lost(missed.updates, missed.why);
		for (const [key, value] of Object.entries(news))
			if (typeof value === "object") merge(this.state, key, value);
			else this.state[key] = value;
		this.#tell(message);
	}

	#tell(message) {
		for (const { handler } of this.#wanted.values()) handler(this.state, message);
	}
}
