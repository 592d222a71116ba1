// One connection to the daemon: the line protocol over a WebSocket, with login and reconnects.

import { decode, encode, frame, parseFrames } from "./line.js";

const OWN = "//pubsubd/";
const FIRST_WAIT = 500, LONGEST_WAIT = 30_000; // milliseconds between tries to connect
const STEADY = 10_000; // milliseconds after which a connection counts as a good one
const PIECE = 65_536; // bytes of one WebSocket message; their boundaries mean nothing

/** An error that the daemon has answered with. */
export class LineError extends Error {
	constructor(code, text) {
		super(text);
		this.code = code;
	}
}

const lost = (why = "not connected") => new LineError("lost", why);

/**
 * A connection that comes back by itself. Events: "state"; "message", {name, data}, for all but
 * answers; "fault" for an error that is nobody's.
 *
 * Options, functions: `login` returns what to log in with, null, {user, password} or {token};
 * `refused` is told the error if it is not accepted, and it is not sent again; `may` allows to try.
 */
export class Connection extends EventTarget {
	#socket = null;
	#queue = []; // requests that are not answered, oldest first
	#asked = 0;
	#wait = FIRST_WAIT;
	#timer = 0;
	#since = 0;
	#handlers = new Map(); // substring -> set of functions
	#options;

	state = "connecting"; // or login, ready, waiting, closed
	reason = ""; // why it is not connected
	retryAt = 0; // when the next try is due, by Date.now()
	user = null; // the name it has logged in with

	constructor(options = {}) {
		super();
		this.#options = options;
	}

	/** Connect now, whatever has been waited for. */
	open() {
		this.#drop();
		if (this.#options.may?.() === false) return this.#retry();
		this.#become("connecting");
		const url = new URL("line", location.href);
		url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
		url.hash = url.search = "";
		const socket = this.#socket = new WebSocket(url);
		socket.binaryType = "arraybuffer";
		socket.onopen = () => this.#enter(socket);
		socket.onmessage = event => parseFrames(event.data).forEach(one => this.#hear(one));
		socket.onclose = event => this.#lost(event.reason);
	}

	/** Disconnect, until `open` is called. */
	close() {
		this.#drop();
		this.#become("closed");
	}

	#drop() {
		clearTimeout(this.#timer);
		const socket = this.#socket;
		this.#socket = null;
		if (socket) {
			socket.onopen = socket.onmessage = socket.onclose = null;
			socket.close();
		}
		for (const one of this.#queue.splice(0)) one.reject(lost());
	}

	#become(state) {
		this.state = state;
		this.dispatchEvent(new Event("state"));
	}

	async #enter(socket) {
		const login = this.#options.login?.();
		this.user = null;
		try {
			if (!login) await this.request("help");
			else this.user = decode(await this.request("auth",
				login.token ?? `${login.user} ${login.password}`)).replace(/^ok ?/, "");
		} catch (error) {
			if (socket !== this.#socket) return;
			if (login || error.code === "login-required") return this.#stayOut(login && error);
			// Somebody who may not even ask for help is connected all the same.
		}
		if (socket !== this.#socket) return;
		for (const substring of this.#handlers.keys()) this.#send(encode(`sub ${substring}\n`));
		this.#since = Date.now();
		this.reason = "";
		this.#become("ready");
	}

	#stayOut(error) {
		this.#drop();
		if (error) this.#options.refused?.(error);
		this.#become("login");
	}

	#lost(reason) {
		if (this.state === "ready" && Date.now() - this.#since > STEADY) this.#wait = FIRST_WAIT;
		this.reason = reason || this.reason;
		// Nobody knows whether a login that was under way was good, so it is not sent again.
		if (this.state === "connecting" && this.#queue.length && this.#options.login?.())
			return this.#stayOut(lost(this.reason || "the connection ended during the login"));
		this.#drop();
		this.#retry();
	}

	#retry() {
		const wait = this.#wait * (0.75 + Math.random() / 2);
		this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
		this.retryAt = Date.now() + wait;
		this.#timer = setTimeout(() => this.open(), wait);
		this.#become("waiting");
	}

	#hear(message) {
		const { name, data } = message, head = this.#queue[0];
		if (name === OWN + "ping" && decode(data) === head?.id) {
			this.#queue.shift();
			if (head.error) head.reject(head.error);
			else head.resolve(head.answer);
		} else if (name === OWN + "error") {
			const [, code, text] = /^(\S+) ?([^]*)/.exec(decode(data)), error = new LineError(code, text);
			this.reason = `${code}: ${text}`;
			if (head) head.error ??= error;
			else this.dispatchEvent(new CustomEvent("fault", { detail: error }));
		} else if (head && name === head.name && head.answer === undefined) {
			head.answer = data;
		} else {
			for (const [substring, handlers] of this.#handlers)
				if (name.includes(substring) && (!name.startsWith(OWN) || substring.startsWith(OWN)))
					for (const handler of handlers) handler(message);
			this.dispatchEvent(new CustomEvent("message", { detail: message }));
		}
	}

	#send(bytes) {
		for (let at = 0; at < bytes.length; at += PIECE) this.#socket.send(bytes.subarray(at, at + PIECE));
	}

	// The answer to the ping behind it tells that a command has been carried out, and whose an error was.
	#ask(bytes, name) {
		return new Promise((resolve, reject) => {
			if (this.#socket?.readyState !== WebSocket.OPEN) return reject(lost());
			const id = String(++this.#asked);
			this.#queue.push({ id, name, resolve, reject });
			this.#send(bytes);
			this.#send(frame(OWN + "ping", id));
		});
	}

	/** Make the request //pubsubd/NAME; return the bytes of its answer. */
	request(name, data = "") {
		return this.#ask(frame(OWN + name, data), OWN + name);
	}

	/** Make a request whose answer is JSON. */
	async json(name, data) {
		return JSON.parse(decode(await this.request(name, data)));
	}

	/** Send whole commands, a text or bytes; wait until they have been carried out. */
	async command(commands) {
		await this.#ask(typeof commands === "string" ? encode(commands) : commands, null);
	}

	/** Receive messages whose names contain a substring, which is not empty; return what ends it. */
	listen(substring, handler) {
		let handlers = this.#handlers.get(substring);
		if (!handlers) {
			this.#handlers.set(substring, handlers = new Set());
			if (this.state === "ready") this.#send(encode(`sub ${substring}\n`));
		}
		handlers.add(handler);
		return () => {
			if (!handlers.delete(handler) || handlers.size) return;
			this.#handlers.delete(substring);
			if (this.state === "ready") this.#send(encode(`unsub ${substring}\n`));
		};
	}
}
