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
	if (news.error) {
		state[section] = { error: news.error };
		return;
	}
	const into = state[section] = state[section]?.error ? {} : state[section] ?? {};
	for (const [key, value] of Object.entries(news)) {
		if (key === "rows" || key === "gone") continue;
		if (key in KEYS && typeof value === "object") mergeRows(into[key] ??= {}, value, KEYS[key]);
		else into[key] = value;
	}
	if (section === "events") {
		into.rows = [...into.rows ?? [], ...news.rows ?? []].slice(-EVENTS);
		if (!news.missed) delete into.missed;
	} else if (news.rows || news.gone || section in KEYS) {
		mergeRows(into, news, KEYS[section]);
	}
}

/**
 * What the views want of //pubsubd/live, asked for in one request, and what has come of it.
 *
 * A view that is hidden wants nothing; if nobody wants anything, the daemon is told to stop.
 */
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
			if (connection.state !== "ready") this.#asked = "";
			else this.#ask();
		});
		connection.addEventListener("message", ({ detail: { name, data } }) => {
			if (name === "//pubsubd/live") this.#hear(JSON.parse(decode(data)));
		});
		document.addEventListener("visibilitychange", () => this.#ask());
	}

	/** Want sections, such as {totals: true}; `handler(state, message)` is told what comes. */
	want(name, sections, handler) {
		this.#wanted.set(name, { sections, handler });
		this.#ask();
		return () => {
			this.#wanted.delete(name);
			this.#ask();
		};
	}

	/** Return a view that wants what `sections` returns, while it is shown. */
	view(name, sections, handler) {
		let stop;
		return {
			shown: () => {
				stop = this.want(name, sections(), handler);
				handler(this.state, {});
			},
			hidden: () => stop(),
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
			const idle = document.hidden || !Object.keys(sections).length;
			const request = idle ? "" : JSON.stringify({ interval: 1, ...sections });
			if (request === this.#asked) return;
			const before = this.#asked;
			this.#asked = request;
			try {
				if (request) await this.connection.command(frame("//pubsubd/live", request));
				else if (before) await this.connection.request("live/stop");
			} catch (error) {
				if (error.code === "lost") return;
				const told = { error: { code: error.code, text: error.message } };
				for (const section of Object.keys(sections)) this.state[section] = told;
				this.#tell({ n: 0 });
			}
		});
	}

	#hear(message) {
		if (message.n === 1) {
			const { events, own, may_kill } = this.state; // what is told before, and events, stay
			this.state = { own, may_kill, ...events?.rows && { events: { rows: events.rows } } };
			if (events?.rows && message.events?.rows) {
				const known = new Set(events.rows.map(row => `${row.id} ${row.at}`));
				message.events.rows = message.events.rows.filter(row => !known.has(`${row.id} ${row.at}`));
			}
		}
		for (const key of ["own", "may_kill", "interval"])
			if (key in message) this.state[key] = message[key];
		if (message.missed) this.lost(message.missed.updates, message.missed.why);
		for (const section of ["totals", "connections", "names", "events", "mesh"])
			if (message[section]) merge(this.state, section, message[section]);
			else if (section === "events") delete this.state.events?.missed;
		this.#tell(message);
	}

	#tell(message) {
		for (const { handler } of [...this.#wanted.values()]) handler(this.state, message);
	}
}
