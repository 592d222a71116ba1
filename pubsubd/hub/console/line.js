// The line protocol in a browser: frames in, frames out. See pubsubd-protocol(7).

const encoder = new TextEncoder(), decoder = new TextDecoder("utf-8", { fatal: true });
const loose = new TextDecoder();
const LF = 10, SPACE = 32, DIGIT = 48;

export const encode = text => encoder.encode(text);

/** Return the text of bytes, or null if they are not UTF-8. */
export function decode(bytes) {
	try {
		return decoder.decode(bytes);
	} catch {
		return null;
	}
}

/** Return the bytes of one command that publishes data, a text or bytes. */
export function frame(name, data = "") {
	const body = typeof data === "string" ? encode(data) : data;
	const head = encode(`pub ${name} ${body.length} `);
	const whole = new Uint8Array(head.length + body.length + 1);
	whole.set(head);
	whole.set(body, head.length);
	whole[whole.length - 1] = LF;
	return whole;
}

/** Return the messages in a buffer of whole frames. Their data share its memory. */
export function parseFrames(buffer) {
	const bytes = new Uint8Array(buffer), messages = [];
	let at = 0;
	while (at < bytes.length) {
		const gap = bytes.indexOf(SPACE, at + 4), space = bytes.indexOf(SPACE, gap + 1);
		if (gap < 0 || space < 0) break;
		let size = 0;
		for (let i = gap + 1; i < space; i++) size = size * 10 + bytes[i] - DIGIT;
		messages.push({
			name: loose.decode(bytes.subarray(at + 4, gap)),
			data: bytes.subarray(space + 1, space + 1 + size),
		});
		at = space + 1 + size + 1;
	}
	return messages;
}
