// The pages are whole without this. With it they follow what happens: the
// server says over server-sent events that something did, and makes the changed
// part of the page again. Only text that is still on its way is put in here.
"use strict";
(() => {
  const stream = document.body.dataset.stream;
  const link = document.getElementById("link");
  if (!stream || !window.EventSource || !link) return;

  let last = document.body.dataset.after || ""; // id of the last event this page knows
  let source = null;
  let pause = 500;
  let again = 0;

  const say = (state, text) => { link.className = state; link.textContent = text; };

  // The connection. A browser connects again by itself; it gives up when the
  // server refuses, and does not notice a network that went away.
  const connect = () => {
    clearTimeout(again);
    if (source) source.close();
    const address = new URL(stream, location.href);
    if (last) address.searchParams.set("after", last);
    source = new EventSource(address);
    source.onopen = () => { pause = 500; say("live", "live"); refresh(); };
    source.onerror = () => {
      say("lost", "reconnecting…");
      if (source.readyState === EventSource.CLOSED) retry();
    };
    source.onmessage = (message) => {
      if (message.lastEventId) last = message.lastEventId;
      take(JSON.parse(message.data), message.lastEventId !== "" );
    };
    source.addEventListener("gap", (message) => { last = message.lastEventId || last; refresh(); });
    source.addEventListener("problem", () => { source.close(); say("lost", "reconnecting…"); retry(); });
  };
  const retry = () => { clearTimeout(again); again = setTimeout(connect, pause); pause = Math.min(pause * 2, 10000); };
  addEventListener("offline", () => { if (source) source.close(); say("lost", "reconnecting…"); });
  addEventListener("online", connect);
  // A browser opens few connections to one server: a tab nobody looks at gives
  // its own back.
  document.addEventListener("visibilitychange", () => {
    clearTimeout(again);
    if (!document.hidden) connect();
    else again = setTimeout(() => { if (source) source.close(); say("", ""); }, 5000);
  });
  addEventListener("pageshow", (shown) => { if (shown.persisted) connect(); });

  // The page. Refreshes follow each other with a pause, and wait for a person
  // who is typing.
  let busy = false, wanted = false;
  const typing = () => { const at = document.activeElement; return at && at.tagName === "INPUT" && at.value !== ""; };
  const refresh = () => {
    wanted = true;
    if (busy || typing()) return;
    busy = true;
    wanted = false;
    const begin = performance.now();
    const address = new URL(location.href);
    address.searchParams.set("part", "main");
    fetch(address, { headers: { Accept: "text/html" } })
      .then((answer) => (answer.ok && !answer.redirected ? answer.text() : Promise.reject(answer.status)))
      .then(show, () => {}) // the next event, or the next connection, asks again
      .finally(() => {
        const took = performance.now() - begin; // a server that is busy is asked less often
        setTimeout(() => { busy = false; if (wanted) refresh(); }, Math.min(Math.max(300, 4 * took), 10000));
      });
  };
  const show = (html) => {
    if (typing()) { wanted = true; return; }
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("main");
    const old = document.getElementById("main");
    if (!fresh || !old) return;
    for (const was of old.querySelectorAll("details[id]")) {
      const now = fresh.querySelector("#" + CSS.escape(was.id));
      if (now && was.open) now.open = true;
    }
    const at = document.activeElement && document.activeElement.id;
    old.replaceWith(fresh);
    if (at && document.getElementById(at)) document.getElementById(at).focus();
    for (const block of live.values()) fresh.append(block);
    const waiting = Number(fresh.dataset.waiting), mark = document.querySelector("header .n");
    if (waiting >= 0 && mark) { mark.textContent = waiting; mark.hidden = waiting === 0; }
  };
  addEventListener("focusout", () => setTimeout(() => { if (wanted) refresh(); }, 100));

  // Text on its way: a block for each turn. It is taken back by its response,
  // by a newer attempt, and by a turn that begins again.
  const live = new Map();
  let epoch = 0;
  const drop = (which) => { for (const [key, block] of live) if (which(block.dataset)) { block.remove(); live.delete(key); } };
  const retract = (which) => {
    for (const block of live.values()) {
      if (!which(block.dataset) || block.classList.contains("retracted")) continue;
      block.classList.add("retracted");
      block.firstChild.textContent = "retracted: none of this was recorded";
    }
  };
  const spelled = (text) => text.replace(/[^\P{C}\n\t]|[\u2028\u2029]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
  const write = (event) => {
    const key = [event.run, event.turn, event.epoch, event.kind].join("/");
    let block = live.get(key);
    if (!block || block.classList.contains("retracted")) {
      block = document.createElement("div");
      block.className = "draft";
      block.dataset.run = event.run;
      block.dataset.turn = event.turn;
      block.dataset.epoch = event.epoch;
      const title = document.createElement("b");
      title.textContent = "turn " + event.turn + (event.kind === "ReasoningDelta" ? " thinks" : " writes");
      block.append(title, document.createElement("span"));
      live.set(live.has(key) ? key + "/" + live.size : key, block);
      document.getElementById("main").append(block);
    }
    block.lastChild.append(spelled(event.data.text));
  };
  const take = (event, canonical) => {
    if (event.epoch > epoch) {
      epoch = event.epoch;
      retract((block) => Number(block.epoch) < epoch);
    } else if (!canonical && event.epoch < epoch) return;
    switch (event.kind) {
      case "TextDelta":
      case "ReasoningDelta":
        write(event);
        return;
      case "TurnStarted":
        if (!canonical) { retract((block) => block.run === event.run); return; }
        break;
      case "ResponseCompleted":
        drop((block) => block.run === event.run && Number(block.turn) <= event.turn);
        break;
      case "RunCompleted":
      case "RunFailed":
      case "RunInterrupted":
        drop((block) => block.run === event.run);
        break;
    }
    if (canonical) refresh();
  };

  connect();
})();
