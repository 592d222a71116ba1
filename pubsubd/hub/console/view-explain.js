// Who would receive a name, and why.

import { count, el, show } from "./dom.js";

function reasons({ as, exact, matching, patterns = [], substrings }) {
  const items = [
    ...exact ? [["exactly", as]] : [],
    ...substrings.map(text => text === "" ? ["everything", ""] : ["contains", text]),
    ...patterns.map(text => ["wildcard", text]),
  ];
  const more = matching - items.length;
  return el("ul.exp-why",
    ...items.map(([kind, text]) => el("li", `${kind} `, text === "" ? "" : el("code", show(text, 200)))),
    more > 0 ? el("li", `and ${count(more)} more`) : "");
}

function row(receiver) {
  const { as, connection, peer } = receiver;
  return el("tr",
    el("td", connection === null ? "another daemon" : `#${connection}`),
    el("td", show(peer, 120)),
    el("td", el("code", show(as, 200))),
    el("td", reasons(receiver)));
}

export default {
  id: "explain",
  title: "Explain",

  create(root, app) {
    const name = el("input", {
      name: "name", required: true, maxLength: 1024, autocomplete: "off", spellcheck: false,
      placeholder: "chat/main",
    });
    const form = el("form.row", el("label.field.grow", el("span", "Name"), name),
      el("button.main", "Explain"));
    const answer = el("p", { role: "status" }), body = el("tbody");
    const table = el("div.scroll", { tabIndex: 0, role: "region", ariaLabel: "Receivers", hidden: true },
      el("table.table", el("caption.unseen", "Receivers"), el("thead", el("tr",
        ...["Connection", "Address", "Receives it as", "Because of"].map(title =>
          el("th", { scope: "col" }, title)))), body));
    root.append(el("section.panel", { "aria-labelledby": "exp-title" },
      el("h2", { id: "exp-title" }, "Who would receive a message?"),
      el("p.note", "Nothing is published. The daemon looks up a name, and tells which connections " +
        "and daemons would receive a message with it, and which of their subscriptions match."),
      form, answer, table));

    async function ask() {
      const asked = name.value;
      answer.textContent = "\u2026";
      table.hidden = true;
      try {
        const found = await app.connection.json("explain", asked);
        const { count: number, receivers } = found;
        body.replaceChildren(...receivers.map(row));
        table.hidden = !receivers.length;
        const more = receivers.length < number ? `, of which ${count(receivers.length)} are listed` : "";
        const daemons = receivers.some(one => one.connection === null) ? " and daemons" : "";
        const noun = number === 1 ? "connection" : `connections${daemons}`;
        answer.replaceChildren(`${number ? `${count(number)} ${noun}` : "Nobody"} would receive `,
          el("code", show(asked, 300)), more, ".");
      } catch (error) {
        answer.textContent = error.code === "not-allowed" ?
          "You cannot see who receives a name: your rights do not include it." :
          `${error.code ? `${error.code}: ` : ""}${error.message}`;
      }
    }

    form.onsubmit = event => {
      event.preventDefault();
      ask();
    };
    let waiting = false;
    app.connection.addEventListener("state", () => {
      if (!waiting || app.connection.state !== "ready") return;
      waiting = false;
      ask();
    });
    return {
      shown(part) {
        if (!part) return;
        name.value = part;
        waiting = app.connection.state !== "ready";
        if (!waiting) ask();
      },
    };
  },
};
