// From an empty page to a first message: what to click, and what to type in a terminal.

import { button, copyable, el, panel, show } from "./dom.js";
import { decode, frame } from "./line.js";

const KEPT = "pubsubd.steps", TOPIC = "hello", MOST = 50;

// Where nc finds the line port, as seen from where this page was loaded.
function lineAddress(about) {
	const at = about.line.find(one => !one.tls) ?? about.line[0];
	const everywhere = ["0.0.0.0", "::"].includes(at?.host);
	return everywhere ? { ...at, host: location.hostname.replace(/^\[|\]$/g, "") } : at;
}

/** Make the panel; `hear` takes the totals, which tell whether it is of use. */
export function firstSteps(app) {
	const received = el("ol.received", { ariaLabel: "Messages received", ariaLive: "polite" });
	const nothing = el("p.note", "Nothing yet."), terminal = el("div");
	const subscribe = button(`Subscribe to “${TOPIC}” here`, listen, "main");
	const publish = button("Publish one from here", async () => {
		listen();
		try {
			await app.connection.command(frame("hello/world", "Hello from the browser"));
		} catch (error) {
			app.fail(error);
		}
	});
	const node = panel("Your first message",
		el("ol",
			el("li", el("p", `Receive every message whose name contains “${TOPIC}”:`), subscribe),
			el("li", el("p", "Publish one, in a terminal:"), terminal, el("p", "or "), publish),
			el("li", el("p", "It appears here:"), nothing, received)),
		el("p.note", "More dialects, any name, JSON and bytes: ", el("a", { href: "#messages" }, "Messages"), "."),
		button("Hide", () => {
			decided = node.hidden = true;
			stop?.();
			localStorage.setItem(KEPT, "hidden");
		}, "small hide"));
	node.classList.add("steps");
	node.hidden = true;
	let stop, heard = 0, decided = localStorage.getItem(KEPT);

	function hear({ data, name }) {
		if (++heard > MOST) return stop(); // Messages is the view for more
		nothing.hidden = true;
		received.prepend(el("li", el("b", show(name, 60)), " ", show(decode(data) ?? `${data.length} bytes`)));
		while (received.children.length > 5) received.lastChild.remove();
	}

	function listen() {
		stop ??= app.connection.listen(TOPIC, hear);
		subscribe.textContent = "Subscribed";
		subscribe.disabled = true;
	}

	function tellTerminal() {
		const at = lineAddress(app.about);
		if (!at) return terminal.replaceChildren(el("p.note", "This daemon has no TCP port for nc."));
		const tool = at.tls ? `openssl s_client -quiet -connect ${at.host}:${at.port}` :
			`nc -N ${at.host} ${at.port}`;
		const auth = app.login || app.connection.user ? "pub //pubsubd/auth - NAME PASSWORD\\n" : "";
		const line = `printf '${auth}pub hello/world - Hello from nc\\n' | ${tool}`;
		terminal.replaceChildren(copyable(line, "the command"));
	}
	addEventListener("about", tellTerminal);
	tellTerminal();

	return {
		node,
		// It is for a daemon that has carried no message yet.
		hear(totals) {
			if (decided || (!totals.error && totals.messages_in === undefined)) return;
			decided = true;
			node.hidden = totals.messages_in > 0;
		},
	};
}
