// The daemon at a glance: rates, backlog and lag, the busiest names, the latest events.

import { tile } from "./chart.js";
import { age, bytes, count, el, frames, rate, show } from "./dom.js";
import { eventRow } from "./view-events.js";
import { firstSteps } from "./first-steps.js";

const NAMES = 15, EVENTS = 8;

export default {
  id: "overview",
  title: "Overview",

  create(root, app) {
    const milliseconds = value => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
    const tiles = {
      messages_in_rate: tile("Published", rate),
      messages_out_rate: tile("Delivered", rate),
      backlog_bytes: tile("Backlog", bytes),
      loop_lag_ms: tile("Loop lag", milliseconds),
      cpu: tile("Processor", value => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`),
      dropped_rate: tile("Dropped", rate),
    };
    const facts = el("dl.facts");
    const why = el("p.note", { hidden: true });
    const names = el("tbody"), namesNote = el("p.note");
    const events = el("tbody"), eventsNote = el("p.note");
    const steps = firstSteps(app);
    root.append(
      el("h2.unseen", "Overview"), steps.node, why,
      el("div.tiles", ...Object.values(tiles).map(one => one.node)), facts,
      el("div.columns",
        el("section.panel", { "aria-labelledby": "busiest" },
          el("h3", { id: "busiest" }, "Busiest names"),
          el("table.table", el("thead", el("tr", el("th", { scope: "col" }, "Name"),
            el("th.number", { scope: "col" }, "Messages"))), names), namesNote),
        el("section.panel", { "aria-labelledby": "latest" },
          el("h3", { id: "latest" }, "Latest events"),
          el("table.table", el("thead", el("tr", el("th", { scope: "col" }, "Time"),
            el("th", { scope: "col" }, "Event"))), events), eventsNote)));

    function drawFacts(totals) {
      const pairs = [
        ["Connections", count(totals.connections)], ["Subscriptions", count(totals.subscriptions)],
        ["Messages in", count(totals.messages_in)], ["Messages out", count(totals.messages_out)],
        ["In", `${bytes(totals.bytes_in_rate)}/s`],
        ["Out", `${bytes(totals.bytes_out_rate)}/s`],
        ["Dropped in all", count(totals.dropped)], ["Memory", bytes(totals.rss_bytes)],
        ["Running for", age(Date.now() / 1000 - totals.since)],
        ...state.interval > 1 ? [["Updated", `every ${state.interval.toFixed(1)} s`]] : [],
        ...totals.node ? [["Daemon", totals.node]] : [],
      ];
      facts.replaceChildren(...pairs.map(([name, value]) =>
        el("div", el("dt", name), el("dd", show(value)))));
    }

    function drawNames(section) {
      const rows = [...section.rows?.values() ?? []]
        .sort((a, b) => b.rate - a.rate || (a.name < b.name ? -1 : 1)).slice(0, NAMES);
      const most = Math.max(...rows.map(row => row.rate), 1e-9);
      names.replaceChildren(...rows.map(row => {
        const share = el("span.share");
        share.style.width = `${5 * row.rate / most}rem`;
        const error = row.error ? ` \u00b1 ${rate(row.error)}` : "";
        return el("tr", el("td.name", show(row.name, 120)),
          el("td.number", rate(row.rate), el("small", error), share));
      }));
      namesNote.textContent = section.error ? denied("the busiest names", section.error) :
        rows.length ? "" : "No messages in the last seconds.";
    }

    function drawEvents(section) {
      const rows = section.rows?.slice(-EVENTS).reverse() ?? [];
      events.replaceChildren(...rows.map(row => eventRow(row, true)));
      eventsNote.textContent = section.error ? denied("events", section.error) :
        rows.length ? "" : "Nothing has happened yet.";
    }

    let state = {};
    const draw = frames(() => {
      const { totals = {}, names: busiest = {}, events: latest = {} } = state;
      why.hidden = !totals.error;
      if (totals.error) why.textContent = denied("the daemon's figures", totals.error);
      else if (totals.version) drawFacts(totals);
      drawNames(busiest);
      drawEvents(latest);
    });

    function hear(news, message) {
      state = news;
      const totals = news.totals ?? {};
      if (message.n && !totals.error) {
        for (const [key, one] of Object.entries(tiles))
          one.add(totals[key], key === "dropped_rate" ? `${count(totals.dropped ?? 0)} in all` : undefined);
      }
      steps.hear(totals);
      draw();
    }

    let stop = null;
    return {
      shown() {
        stop ??= app.live.want("overview", {
          totals: true, names: { limit: NAMES }, events: true,
        }, hear);
      },
      hidden() {
        stop?.();
        stop = null;
      },
    };
  },
};

/** Return why a section has nothing to show. */
export function denied(what, error) {
  const reason = error.code === "not-allowed" ? "your rights do not include it" :
    error.code === "login-required" ? "it needs a login" : `${error.code}: ${error.text}`;
  return `You cannot see ${what}: ${reason}.`;
}
