// The connections of messages: one for each dialect, as one may have wildcards of one only. The
// other views have theirs, and go on when too much comes here.
//
// send(make) sends what `make(id)` returns, and returns what the answer says; catchUp() returns when
// all that waited for the page has come. `hear` is told messages, null for those not to be shown.

import { answerIn, signal } from "./dialects.js";

const FIRST_WAIT = 500, LONGEST_WAIT = 30_000; // milliseconds between tries to connect
const SURELY = /"hub:|"success":|"pong"/; // in every answer; in a flood nothing else is read

class Channel {
	kept = new Map(); // key -> what makes a subscription, now and after each reconnect

	async keep(key, make) {
		await this.send(make);
		this.kept.set(key, make);
	}

	async drop(key, make) {
		this.kept.delete(key);
		if (this.up) await this.send(make);
	}
}

export class LineChannel extends Channel {
	constructor(connection, { changed, full, hear }) {
		super();
		this.connection = connection;
		connection.addEventListener("message", ({ detail: { name, data } }) =>
			hear(full() ? null : { name, data: data.slice() }));
		this.ready = new Promise(done => connection.addEventListener("state", () => {
			const { reason, state } = connection;
			if (state === "waiting" && this.kept.size) changed(false, reason || "the connection was lost");
			if (state !== "ready") return;
			for (const make of this.kept.values()) connection.command(make()).catch(() => {});
			changed(true);
			done();
		}));
	}

	async send(make) {
		await this.ready;
		return this.connection.command(make());
	}

	get up() {
		return this.connection.state === "ready";
	}

	catchUp() {
		return this.connection.command("");
	}
}

export class HubChannel extends Channel {
	#socket = null;
	#ready = null; // a promise of the connection
	#asked = new Map(); // id -> {resolve, reject}
	#last = 0;
	#wait = FIRST_WAIT;
	#pong = () => {};

	constructor(app, answered, { changed, full, hear }) {
		super();
		Object.assign(this, { app, answered, changed, full, hear });
	}

	async send(make, answered = this.answered) {
		await (this.#ready ??= this.#open());
		return this.#send(make, answered);
	}

	get up() {
		return this.#socket?.readyState === WebSocket.OPEN;
	}

	catchUp() {
		return new Promise(done => {
			this.#pong = done;
			this.#socket.send('{"type":"ping"}');
		});
	}

	#send(make, answered) {
		const id = String(++this.#last);
		this.#socket.send(JSON.stringify(make(id)));
		return answered && new Promise((resolve, reject) => this.#asked.set(id, { resolve, reject }));
	}

	#open() {
		const socket = this.#socket = new WebSocket(`${location.origin.replace("http", "ws")}/ws`);
		socket.onmessage = ({ data }) => this.#take(data);
		return new Promise((resolve, reject) => {
			socket.onopen = () => this.#enter().then(resolve, error => {
				this.kept.clear(); // and not again by itself with what was refused
				socket.close();
				reject(error);
			});
			socket.onclose = ({ reason }) => {
				const error = new Error(reason || "the connection was lost");
				for (const one of this.#asked.values()) one.reject(error);
				this.#asked.clear();
				this.#pong();
				this.#ready = null;
				reject(error);
				if (!this.kept.size) return;
				this.changed(false, error.message);
				setTimeout(() => this.#again(), this.#wait * (0.75 + Math.random() / 2));
				this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
			};
		});
	}

	async #again() {
		// What the first connection logs in with may have been refused.
		if (this.app.connection.state !== "ready") return setTimeout(() => this.#again(), this.#wait);
		try {
			await (this.#ready ??= this.#open());
			for (const make of this.kept.values()) await this.#send(make, this.answered);
			this.#wait = FIRST_WAIT;
			this.changed(true);
		} catch {
			// Its close has arranged for the next try.
		}
	}

	async #enter() {
		if (!this.app.login) return;
		const { password, token, user } = this.app.login;
		const login = token ? { jwt: token } : { user, password };
		await this.#send(id => signal("hub:connect", { version: "1.0", ...login }, id), true);
	}

	#take(text) {
		if (this.full() && !SURELY.test(text)) return this.hear(null);
		if (text === '{"type":"pong"}') return this.#pong();
		const answer = answerIn(JSON.parse(text));
		if (!answer) return this.hear(text);
		const one = this.#asked.get(answer.id);
		this.#asked.delete(answer.id);
		if (answer.error) one?.reject(new Error(answer.error));
		else one?.resolve(answer.text);
	}
}
