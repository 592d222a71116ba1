// The messages that have come, the latest first: so many, so many bytes, and what was left out.

import { bytes, count, el, show } from "./dom.js";
import { DIALECTS, dialectOf, parse } from "./dialects.js";
import { decode } from "./line.js";
import { payload } from "./payload.js";

const ROWS = 500, ROOM = 16 * 2 ** 20; // messages that are kept, and bytes of them
const AHEAD = 500, AHEAD_ROOM = 4 * 2 ** 20; // that wait to be drawn
const BUDGET = 6; // milliseconds of drawing in a frame
const SAMPLE = 20, PAUSE = 200; // if too much comes: messages drawn at once, and milliseconds between
const LATE = 1_500; // milliseconds that the page may be behind without saying so
const SEARCHED = 4_096; // characters of a message that the filter looks at

const sizeOf = raw => typeof raw === "string" ? raw.length : raw.data.length;

/** Make the list; `said` is told now and then what has come, for screen readers. */
export function messageList(said) {
  const list = el("ol.msg-list", { ariaLabel: "Messages, the latest first" });
  const figures = el("p.note"), nothing = el("p.note", "No messages yet.");
  const hold = el("button", { type: "button", ariaPressed: "false" }, "Pause");
  const clear = el("button", { type: "button" }, "Clear");
  const filter = el("input", { type: "search", placeholder: "in name or text", maxLength: 256 });
  const node = el("section.panel", { "aria-labelledby": "msg-received" },
    el("div.row", el("h3", { id: "msg-received" }, "Received"), el("span.gap"),
      el("label.field", el("span", "Filter"), filter), hold, clear),
    figures, nothing, list);

  let waiting = [], waitingBytes = 0; // {raw, at}
  const rows = []; // {node, size, text} as they stand in the list, the oldest first
  const behind = new Map(); // connection -> since when it has not caught up
  let kept = 0, received = 0, missed = 0, removed = 0, paused = false;
  let skipped = 0, before = 0, why = "", fast = false, due = false, last = 0, unsaid = 0, saidAt = 0;

  const full = () => waiting.length >= (fast ? SAMPLE : AHEAD) || waitingBytes > AHEAD_ROOM;

  function take(raw) {
    received++;
    if (full()) {
      skipped++;
      why = paused ? `paused: the first ${count(AHEAD)} are kept` :
        document.hidden ? "this tab was not visible" : "they came faster than the page shows them";
    } else {
      waiting.push({ raw, at: Date.now() });
      waitingBytes += sizeOf(raw);
    }
    plan();
  }

  function plan() {
    if (due || paused) return;
    due = true;
    const wait = fast ? last + PAUSE - performance.now() : 0;
    if (wait > 0) setTimeout(() => requestAnimationFrame(draw), wait);
    else requestAnimationFrame(draw);
  }

  function draw() {
    due = false;
    if (paused) return;
    last = performance.now();
    // A burst is shown whole, if it can be; of what goes on like this, only some is shown.
    if (before && skipped > before)
      for (const one of waiting.splice(SAMPLE)) {
        waitingBytes -= sizeOf(one.raw);
        skipped++;
      }
    before = skipped;
    const some = [];
    while (waiting.length && performance.now() < last + BUDGET) {
      const one = waiting.shift();
      waitingBytes -= sizeOf(one.raw);
      some.push(row(one));
    }
    unsaid += some.length;
    if (!waiting.length) {
      fast = skipped > 0;
      if (fast) some.push(lossRow(skipped, why));
      missed += skipped;
      skipped = before = 0;
    }
    add(some);
    if (unsaid && last - saidAt > 5_000) {
      said(`${count(unsaid)} new ${unsaid === 1 ? "message" : "messages"}`);
      unsaid = 0;
      saidAt = last;
    }
    tell();
    if (waiting.length || fast) plan();
  }

  function add(some) {
    for (const one of some) {
      kept += one.size;
      one.node.hidden = !matches(one);
      rows.push(one);
    }
    list.prepend(...some.map(one => one.node).reverse());
    while (rows.length > ROWS || (kept > ROOM && rows.length > 1)) {
      const gone = rows.shift();
      gone.node.remove();
      kept -= gone.size;
      removed++;
    }
  }

  function matches({ text }) {
    return text === null || text.includes(filter.value.toLowerCase());
  }

  function tell() {
    const parts = [`${count(received)} received`];
    if (missed) parts.push(`${count(missed)} missed`);
    if (removed) parts.push(`${count(removed)} older rows removed: at most ${count(ROWS)} rows and ` +
      `${bytes(ROOM)} are kept`);
    for (const [title, since] of behind) {
      const late = Date.now() - since;
      if (late > LATE) parts.push(`${title} is ${count(late / 1000)} s behind`);
    }
    if (paused) parts.push(`paused, ${count(waiting.length)} wait`);
    figures.textContent = parts.join(" \u00b7 ");
    nothing.hidden = rows.length > 0;
  }

  function row({ raw, at }) {
    const json = typeof raw === "string" ? parse(raw) : null;
    const dialect = json ? dialectOf(json) : "line";
    const { name, type, from, value } = DIALECTS[dialect].read(json ?? raw);
    const size = sizeOf(raw), time = new Date(at);
    const asIs = el("div.msg-raw", { hidden: true });
    const toggle = el("button.small", { type: "button", ariaExpanded: "false" }, "as received");
    toggle.onclick = () => {
      if (!asIs.hasChildNodes())
        asIs.append(json ? payload(raw) :
          payload(`pub ${raw.name} ${raw.data.length} `), json ? "" : payload(decode(raw.data) ?? raw.data));
      asIs.hidden = !asIs.hidden;
      toggle.ariaExpanded = String(!asIs.hidden);
    };
    const text = typeof value === "string" ? value.slice(0, SEARCHED) : json ?
      raw.slice(0, SEARCHED) : new TextDecoder().decode(raw.data.subarray(0, SEARCHED));
    return {
      size: size * (json ? 2 : 1), text: `${name} ${text}`.toLowerCase(),
      node: el("li.msg",
        el("div.msg-head",
          el("time", { dateTime: time.toISOString(), title: time.toLocaleString() },
            time.toLocaleTimeString()), " ",
          el("b.msg-name", show(name, 300)), " ",
          type ? el("span.tag", show(type, 80)) : "", " ",
          el("small", DIALECTS[dialect].title, from ? " from " : "", from ? show(from, 100) : "",
            ` \u00b7 ${bytes(size)}`), " ", toggle),
        payload(value), asIs),
    };
  }

  filter.oninput = () => {
    for (const one of rows) one.node.hidden = !matches(one);
  };
  hold.onclick = () => {
    paused = !paused;
    hold.ariaPressed = String(paused);
    hold.textContent = paused ? "Go on" : "Pause";
    tell();
    plan();
  };
  clear.onclick = () => {
    rows.length = waiting.length = kept = waitingBytes = skipped = before = received = missed = removed = 0;
    list.replaceChildren();
    tell();
  };
  document.addEventListener("visibilitychange", plan);

  return {
    node, take,
    /** Whether more is thrown away than shown at present. */
    get full() {
      return full();
    },
    /** Watch how far the page is behind what a connection has for it. */
    async watch(title, caughtUp) {
      if (behind.has(title)) return;
      behind.set(title, Date.now());
      await caughtUp().catch(() => {});
      behind.delete(title);
      tell();
    },
    /** Tell in the list that messages were missed: how many, null if nobody knows, and why. */
    lose(number, reason) {
      missed += number ?? 0;
      add([lossRow(number, reason)]);
      tell();
    },
  };
}

function lossRow(number, reason) {
  const what = number === null ? "Messages missed" :
    `${count(number)} ${number === 1 ? "message" : "messages"} missed`;
  return { size: 100, text: null, node: el("li.msg.lost", `${what}: `, show(reason, 300)) };
}
