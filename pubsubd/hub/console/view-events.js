// Events as they come: connections closed and why, links, logins, reloads.

import { clock, el, frames, show } from "./dom.js";
import { denied } from "./view-overview.js";

const BAD = /fail|refused|down|closed|dropped/;

function details(row) {
  const { id, at, event, reason, detail, ...more } = row;
  const who = [more.user, more.peer && `${more.peer}`, more.connection && `#${more.connection}`]
    .filter(Boolean).join(" ");
  const rest = Object.entries(more)
    .filter(([key, value]) => value !== null && !["user", "peer", "connection"].includes(key))
    .map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return { who, reason: reason ?? "", text: [detail, ...rest].filter(Boolean).join(" \u00b7 ") };
}

/** Return the row of an event; a brief one has two cells. */
export function eventRow(row, brief) {
  const stamp = clock(row.at), { who, reason, text } = details(row);
  const kind = el(`span.tag${BAD.test(row.event) ? ".bad" : ""}`, show(row.event, 40));
  if (brief)
    return el("tr", el("td.time", stamp),
      el("td", kind, " ", show(reason, 60), el("small", " ", show(who, 80))));
  return el("tr", el("td.time", stamp), el("td", kind), el("td.tight", show(who, 100)),
    el("td.tight", show(reason, 60)), el("td.long", show(text, 400)));
}

export default {
  id: "events",
  title: "Events",

  create(root, app) {
    const kind = el("select", el("option", { value: "" }, "all events"));
    const words = el("input", { type: "search", placeholder: "user, address, reason \u2026" });
    const hold = el("input", { type: "checkbox" });
    const body = el("tbody"), note = el("p.note");
    root.append(
      el("h2.unseen", "Events"),
      el("form.row", { onsubmit: event => event.preventDefault() },
        el("label.field", el("span", "Show"), kind),
        el("label.field.grow", el("span", "Filter"), words),
        el("label.check", hold, " Hold")),
      el("div.scroll", { tabIndex: 0, role: "region", ariaLabel: "Events" },
        el("table.table.events",
          el("caption.unseen", "Events, the latest first"),
          el("thead", el("tr", ...["Time", "Event", "Who", "Reason", "Details"].map(name =>
            el("th", { scope: "col" }, name)))), body)), note);

    let section = {};
    const kinds = new Set(), missed = []; // {before, events, why}
    const draw = frames(() => {
      const wanted = words.value.toLowerCase();
      const rows = (section.rows ?? []).filter(row => (!kind.value || row.event === kind.value) &&
        (!wanted || JSON.stringify(row).toLowerCase().includes(wanted)));
      const shown = [];
      let gaps = [...missed];
      for (const row of rows) {
        for (const gap of gaps.filter(one => one.before <= row.at)) shown.push(lossRow(gap));
        gaps = gaps.filter(one => one.before > row.at);
        shown.push(eventRow(row, false));
      }
      shown.push(...gaps.map(lossRow));
      body.replaceChildren(...shown.reverse());
      note.textContent = section.error ? denied("events", section.error) :
        rows.length ? "" : section.rows?.length ? "No event matches." : "Nothing has happened yet.";
    });
    kind.onchange = words.oninput = draw;
    hold.onchange = () => hold.checked || draw();

    function hear(state, message) {
      section = state.events ?? {};
      for (const { event } of message.events?.rows ?? section.rows ?? [])
        if (!kinds.has(event)) {
          kinds.add(event);
          kind.append(el("option", { value: event }, event));
        }
      if (message.events?.missed) {
        const { events, why } = message.events.missed;
        missed.push({ before: message.events.rows?.[0]?.at ?? message.at, events, why });
        if (missed.length > 50) missed.shift();
      }
      if (!hold.checked) draw();
    }

    let stop = null;
    return {
      shown() {
        stop ??= app.live.want("events", { events: true }, hear);
        hear(app.live.state, {});
      },
      hidden() {
        stop?.();
        stop = null;
      },
    };
  },
};

function lossRow({ events, why }) {
  return el("tr.lost", el("td", { colSpan: 5 }, `${events} events missed: `, show(why, 200)));
}
