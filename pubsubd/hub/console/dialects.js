// Four ways to say the same: what is sent for a subscription or a publication, and what comes.

import { decode, frame } from "./line.js";

const HUB = "cloudflare/signal-hub", PLAIN = "pubsub:message";

export const signal = (type, payload, id) =>
	({ type, from: "browser/console", to: HUB, correlationId: id, payload });
const synap = (command, payload, id) => ({ command, request_id: id, payload });

export const some = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// Text and bytes of line clients, as the JSON dialects carry them.
function unplain(name, payload) {
	if (payload?.name !== name || Object.keys(payload).length !== 2) return payload;
	if (typeof payload.data === "string") return unfold(payload.data);
	if (typeof payload.dataBase64 !== "string") return payload;
	try {
		return Uint8Array.from(atob(payload.dataBase64), char => char.charCodeAt(0));
	} catch {
		return payload;
	}
}

/** Return the value of a JSON text; undefined if it is none. */
export function parse(text) {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

const unfold = value =>
	typeof value === "string" && /^\s*[[{]/.test(value) ? parse(value) ?? value : value;

/** What is sent in each dialect, an object for JSON, else text or bytes; how to read what comes. */
export const DIALECTS = {
	line: {
		title: "Line protocol",
		about: "Any part of a name; nothing for all.",
		topic: "chat",
		name: "chat/main",
		subscribe: topic => topic ? `sub ${topic}\n` : "sub\n",
		unsubscribe: topic => topic ? `unsub ${topic}\n` : "unsub\n",
		publish: ({ name, json, data }) => frame(name, json ? JSON.stringify(data) : data),
		read: ({ name, data }) => ({ name, value: unfold(decode(data) ?? data) }),
	},
	hub: {
		title: "Signal Hub",
		about: "Letters, digits, / _ and -. Wildcards: + for one level, # for the rest.",
		topic: "chat/#",
		name: "chat/main",
		subscribe: (topic, id) => signal("hub:subscribe", { topic }, id),
		unsubscribe: (topic, id) => signal("hub:unsubscribe", { topic }, id),
		publish: ({ name, type, json, data }, id) => signal("hub:publish", {
			topic: name, type: json ? type : PLAIN, data: json ? data : { name, data },
		}, id),
		read({ type, from, payload, metadata }) {
			const name = String(metadata?.topic ?? "");
			return type === PLAIN ? { name, from, value: unplain(name, payload) } :
				{ name, type, from, value: payload };
		},
	},
	synap: {
		title: "Synap",
		about: "Any name. Wildcards between dots: * for one level, # for the rest.",
		topic: "chat.#",
		name: "chat.main",
		subscribe: (topic, id) => synap("pubsub.subscribe", { topics: [topic] }, id),
		unsubscribe: (topic, id) => synap("pubsub.unsubscribe", { topics: [topic] }, id),
		publish: ({ name, json, data }, id) =>
			synap("pubsub.publish", { topic: name, payload: json ? data : { name, data } }, id),
		read: ({ topic, payload }) => ({ name: topic, value: unplain(topic, payload) }),
	},
	envelope: {
		title: "Envelopes",
		about: "One topic, TYPE:ID. There are no answers, and nobody receives what they publish.",
		topic: "chat:1",
		name: "chat:1",
		subscribe: topic => ({ type: "__subscribe", id: "", payload: { topic } }),
		unsubscribe: topic => ({ type: "__unsubscribe", id: "", payload: { topic } }),
		publish({ name, data }) {
			const [, type, id] = /^([^:]+):([^]*)$/.exec(name) ?? [];
			if (!type) throw new Error("The topic of an envelope is TYPE:ID, for example chat:1.");
			return { type, id, payload: data };
		},
		read: ({ type, id, payload }) => ({ name: `${type}:${id}`, value: unplain(`${type}:${id}`, payload) }),
	},
};

/** Return which dialect a JSON message that is no answer belongs to. */
export function dialectOf(message) {
	if (message.metadata && message.from) return "hub";
	return message.message_id ? "synap" : "envelope";
}

/** Return what a JSON message answers, as {id, error, text}; null if it is no answer. */
export function answerIn({ correlationId, error, from, payload, request_id: id, success, type }) {
	const count = payload?.subscriberCount ?? payload?.subscribers_matched;
	const text = count === undefined ? "" : `to ${some(count, "subscriber")}`;
	if (typeof success === "boolean") return { id, error, text };
	if (from !== HUB || !type?.startsWith("hub:")) return null;
	const failed = type === "hub:error" && `${payload.code}: ${payload.message}`;
	return { id: correlationId, error: failed, text };
}

export const written = sent => typeof sent === "string" ? sent.trimEnd() :
	sent instanceof Uint8Array ? new TextDecoder().decode(sent.subarray(0, -1)) : JSON.stringify(sent);
