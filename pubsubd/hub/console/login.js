// The form to log in, and what has been accepted, for this tab alone.

import { button, el, field } from "./dom.js";

const KEPT = "pubsubd.login", TRIED = "pubsubd.tried";
const PAUSE = 5000; // milliseconds between two tries

export class Login {
	#form;
	#error = el("p.fault", { role: "alert", hidden: true });
	#button = el("button.main", { type: "submit" }, "Log in");
	#cancel;

	/** What to log in with: null, {user, password} or {token}. */
	given = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
	accepted = this.given !== null;

	constructor(root, { enter, about }) {
		this.root = root;
		this.about = about;
		this.#cancel = button("Go on without", () => {
			this.given = null;
			enter();
		});
		const input = (label, name, type, autocomplete) => field(label,
			el("input", { name, type, autocomplete, spellcheck: false, maxLength: 8192 }));
		this.#form = el("form", input("Name", "user", "text", "username"),
			input("Password", "password", "password", "current-password"),
			el("details", el("summary", "Use a token instead"), input("Token", "token", "password", "off")),
			this.#error, el("div.row", this.#button, this.#cancel));
		root.append(el("h2", { id: "login-title" }, "Log in"),
			el("p.note", "Kept in this tab only, until you log out or close it."), this.#form);
		this.#form.onsubmit = event => {
			event.preventDefault();
			const { user, password, token } = this.#form.elements;
			const words = token.value.trim();
			if (!words && !(user.value && password.value)) return this.#tell("Enter a name and a password, or a token.");
			if (/\s/.test(words || user.value)) return this.#tell("A name or a token has no spaces.");
			if (this.#left() > 0) return this.#hold();
			sessionStorage.setItem(TRIED, String(Date.now()));
			this.given = words ? { token: words } : { user: user.value, password: password.value };
			this.#hold();
			enter();
		};
	}

	#left() {
		return Number(sessionStorage.getItem(TRIED) ?? 0) + PAUSE - Date.now();
	}

	// No second try within the pause, whoever or whatever presses the button.
	#hold() {
		const left = this.#left();
		this.#button.disabled = left > 0;
		this.#button.textContent = left > 0 ? `Log in (in ${Math.ceil(left / 1000)} s)` : "Log in";
		if (left > 0) setTimeout(() => this.#hold(), 250);
	}

	#tell(text) {
		this.#error.textContent = text;
		this.#error.hidden = !text;
	}

	/** Keep what the daemon has accepted, for this tab. */
	accept() {
		if (!this.given || this.accepted) return;
		this.accepted = true;
		sessionStorage.setItem(KEPT, JSON.stringify(this.given));
		this.#form.reset();
		this.#tell("");
	}

	/** Show the form or hide it; `needed`: nothing can be done without. */
	show(outside, needed) {
		this.#cancel.hidden = needed;
		if (this.root.hidden === !outside) return;
		this.root.hidden = !outside;
		if (!outside) return;
		this.#tell(this.about().logins ? "" :
			"The daemon knows no passwords or tokens: this port asks for a certificate.");
		this.#hold();
		this.#form.elements.user.focus();
	}

	refuse(error) {
		this.forget();
		queueMicrotask(() => {
			this.#tell(`${error.message} (${error.code})`);
			this.#hold();
		});
	}

	forget() {
		this.given = null;
		this.accepted = false;
		sessionStorage.removeItem(KEPT);
	}
}
