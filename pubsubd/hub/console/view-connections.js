// Connections: the first ones in the order that is asked for, those closed of late, and kill.

import { age, bytes, count, el, frames, rate, show } from "./dom.js";
import { denied } from "./view-overview.js";
import { eventRow } from "./view-events.js";

const CLOSED = 20;
const SORTS = {
  rate: row => row.messages_in_rate + row.messages_out_rate,
  backlog: row => row.backlog_bytes,
  dropped: row => row.dropped,
  age: row => -row.connection,
};
// [title, what it is sorted by, class, value of a row]
const COLUMNS = [
  ["Subscriptions", null, "number wide", row => row.subscriptions ?? "\u2013"],
  ["In", "rate", "number wide", row => rate(row.messages_in_rate)],
  ["Out", "rate", "number", row => rate(row.messages_out_rate)],
  ["Bytes in", null, "number wide", row => `${bytes(row.bytes_in_rate)}/s`],
  ["Bytes out", null, "number wide", row => `${bytes(row.bytes_out_rate)}/s`],
  ["Backlog", "backlog", "number", row => bytes(row.backlog_bytes)],
  ["Dropped", "dropped", "number mid", row => count(row.dropped)],
  ["Age", "age", "number mid", row => briefly(Date.now() / 1000 - row.since)],
];

// In one unit, as hundreds of rows need not change each second.
const briefly = seconds => age(seconds).split(" ").slice(0, 2).join(" ");

export default {
  id: "connections",
  title: "Connections",

  create(root, app) {
    let sort = "rate", section = {}, closed = {}, own = null, mayKill = false;
    const filter = el("input", { type: "search", placeholder: "user, address, dialect, number \u2026" });
    const limit = el("select", ...[20, 50, 100, 200].map(one =>
      el("option", { value: String(one), selected: one === 50 }, String(one))));
    const summary = el("p.note", { "aria-live": "off" });
    const body = el("tbody"), recent = el("tbody"), recentNote = el("p.note");
    const heads = COLUMNS.map(([title, by, classes]) => {
      const head = el("th", { scope: "col", className: classes });
      if (!by) head.append(title);
      else head.append(el("button.sort", { type: "button", onclick: () => order(by) }, title));
      head.dataset.by = by ?? "";
      return head;
    });
    root.append(
      el("h2.unseen", "Connections"),
      el("form.row", { onsubmit: event => event.preventDefault() },
        el("label.field.grow", el("span", "Filter"), filter),
        el("label.field", el("span", "Rows"), limit)),
      summary,
      el("div.scroll", { tabIndex: 0, role: "region", ariaLabel: "Connections" },
        el("table.table.connections",
          el("caption.unseen", "Connections; the buttons in the heads choose the order"),
          el("thead", el("tr", el("th", { scope: "col" }, "Connection"), ...heads,
            el("th.end", { scope: "col" }, el("span.unseen", "End it")))), body)),
      el("section.panel", { "aria-labelledby": "closed" },
        el("h3", { id: "closed" }, "Closed of late"),
        el("div.scroll", { tabIndex: 0, role: "region", ariaLabel: "Closed of late" },
          el("table.table.events",
            el("thead", el("tr", ...["Time", "Event", "Who", "Reason", "Details"].map(name =>
              el("th", { scope: "col" }, name)))), recent)), recentNote));

    // Rows stay where they are while somebody points at them or has come there with the keyboard.
    const rows = new Map(); // connection -> {tr, cells}
    const held = () => body.contains(document.activeElement) ||
      (matchMedia("(hover: hover)").matches && body.matches(":hover"));

    function makeRow(number) {
      const who = el("td.who"), cells = COLUMNS.map(([, , classes]) =>
        el("td", { className: classes }));
      const last = el("td"), tr = el("tr", who, ...cells, last);
      return { tr, who, cells, last, told: "", number };
    }

    function fillRow(one, row) {
      const words = [row.user, row.transport, row.dialect.replace("none", ""), row.listener, row.node && `daemon ${row.node}`];
      const about = [...new Set(words.filter(Boolean))].join(" \u00b7 ");
      const ours = row.connection === own, told = `${row.peer} ${about} ${ours} ${mayKill}`;
      if (told !== one.told) {
        one.told = told;
        one.who.replaceChildren(show(row.peer, 80),
          el("small", ` #${row.connection}${ours ? " (this page)" : ""}`), el("small.under", show(about, 120)));
        one.last.replaceChildren();
        if (mayKill && !ours)
          one.last.append(el("button.small.danger", {
            type: "button", ariaLabel: `End connection ${row.connection}`, onclick: () => ask(row.connection),
          }, "Kill"));
      }
      COLUMNS.forEach(([, , , value], i) => {
        const text = String(value(row));
        if (one.cells[i].textContent === text) return;
        one.cells[i].textContent = text;
        one.cells[i].classList.toggle("zero", /^0\b(?!\.)/.test(text));
      });
      one.tr.classList.toggle("busy", row.backlog_bytes > 0);
    }

    const draw = frames(() => {
      const found = section.rows ?? new Map();
      for (const [number, one] of rows)
        if (!found.has(number)) {
          one.tr.remove();
          rows.delete(number);
        }
      const by = SORTS[sort], keep = held();
      const ordered = [...found.values()].sort((a, b) => by(b) - by(a) || a.connection - b.connection);
      ordered.forEach((row, i) => {
        let one = rows.get(row.connection);
        const isNew = !one;
        if (isNew) rows.set(row.connection, one = makeRow(row.connection));
        fillRow(one, row);
        if (isNew && keep) body.append(one.tr);
        else if (!keep && body.children[i] !== one.tr) body.insertBefore(one.tr, body.children[i] ?? null);
      });
      for (const head of heads)
        if (head.dataset.by) head.ariaSort = head.dataset.by === sort ? "descending" : null;
      summary.textContent = section.error ? denied("connections", section.error) : section.rows ?
        `${count(found.size)} of ${count(section.matching ?? section.count)} shown` +
        (section.matching !== section.count ? `, ${count(section.count)} in all` : "") : "";
      const ended = (closed.rows ?? []).filter(row => row.event === "closed").slice(-CLOSED).reverse();
      recent.replaceChildren(...ended.map(row => eventRow(row, false)));
      recentNote.textContent = closed.error ? denied("why connections were closed", closed.error) :
        ended.length ? "" : "The daemon has closed none.";
    });

    function hear(state) {
      ({ connections: section = {}, own = null, may_kill: mayKill = false } = state);
      closed = state.events ?? {};
      draw();
    }

    let stop = null;
    function want() {
      const match = filter.value.trim();
      stop = app.live.want("connections", {
        connections: { sort, limit: Number(limit.value), ...match && { match } }, events: true,
      }, hear);
    }
    function order(by) {
      sort = by;
      want();
      draw();
    }
    let typed = 0;
    filter.oninput = () => {
      clearTimeout(typed);
      typed = setTimeout(want, 200);
    };
    limit.onchange = want;

    // Ending one takes a second step, which names it.
    const question = el("p"), yes = el("button.danger", { value: "yes" }, "End it");
    const dialog = el("dialog", { ariaLabel: "End a connection" }, el("form", { method: "dialog" },
      question, el("div.row", yes, el("button", { value: "no", autofocus: true }, "Keep it"))));
    let asked = null;
    root.append(dialog);
    function ask(number) {
      const row = section.rows?.get(number);
      if (!row) return;
      asked = number;
      question.replaceChildren("End connection ", el("b", String(number)), 
        ...row.user ? [" of ", show(row.user, 60)] : [], " at ", show(row.peer, 60), "?");
      dialog.returnValue = "no";
      dialog.showModal();
    }
    dialog.onclose = async () => {
      if (dialog.returnValue !== "yes") return;
      try {
        await app.connection.request("kill", String(asked));
        app.say(`Connection ${asked} was ended`);
      } catch (error) {
        app.fail(error);
      }
    };

    return {
      shown() {
        if (!stop) want();
      },
      hidden() {
        stop?.();
        stop = null;
      },
    };
  },
};
