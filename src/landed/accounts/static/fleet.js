// The fleet strip: who answered, and whether all replicas are set up alike. In the demo: its controls.

import { get, request } from "./api.js";
import { $, h, say, warn } from "./dom.js";

const LOOK_EVERY_MS = 2000;
const digests = new Map(); // replica -> config digest

export const fleet = { windowMs: 90000, isDemo: false };

export function servedBy(replica) {
  if (replica) say($("fleet-replica"), replica);
}

export function liveState(text) {
  say($("fleet-live"), text);
}

async function askInfo() {
  const { body } = await get("/api/info");
  digests.set(body.replica, body.configDigest);
  fleet.windowMs = body.windowSeconds * 1000;
  servedBy(body.replica);
  say($("fleet-backend"), body.backend);
  say($("fleet-window"), `${body.windowSeconds} s`);
  say($("fleet-digest"), body.configDigest);
  const isMixed = new Set(digests.values()).size > 1;
  warn($("fleet-warning"), isMixed
    ? `Replicas are set up differently: ${[...digests].map(([name, digest]) => `${name} ${digest}`).join(", ")}`
    : "");
}

async function askDemo() {
  const answer = await request("/demo/state");
  if (answer.status !== 200 || !Array.isArray(answer.body.replicas)) return false;
  $("demo").hidden = false;
  $("wings").hidden = !answer.body.others?.some((child) => child.name === "payments");
  showReplicas(answer.body.replicas);
  const rate = $("demo-rate");
  if (document.activeElement !== rate) rate.value = String(answer.body.lossRate);
  const lost = answer.body.lostAnswers;
  say($("demo-lost"), lost === 0 ? "none lost so far" : `${lost} lost so far`);
  return true;
}

function showReplicas(replicas) {
  const list = $("demo-replicas");
  const signature = JSON.stringify(replicas);
  if (list.dataset.shown === signature) return;
  list.dataset.shown = signature;
  list.replaceChildren(...replicas.map((replica) => h("li", {},
    h("span", { class: `dot ${replica.state}` }),
    h("span", {}, replica.name),
    h("span", { class: "quiet" }, replica.state === "running" ? `pid ${replica.pid}` : replica.state),
    h("button", {
      type: "button", class: "small", disabled: replica.state !== "running",
      "aria-label": `Kill ${replica.name}`, onclick: () => control("kill", { replica: replica.name }),
    }, "Kill"))));
}

async function control(action, body) {
  try {
    await request(`/demo/${action}`, { body: JSON.stringify(body) });
    await askDemo();
  } catch { /* the next look shows what became of it */ }
}

export async function startFleet() {
  $("demo-rate").addEventListener("change", (event) => control("loss", { rate: Number(event.target.value) }));
  try { fleet.isDemo = await askDemo(); } catch { fleet.isDemo = false; }
  const look = async () => {
    // Twice, so that two replicas behind a balancer both answer.
    for (const ask of fleet.isDemo ? [askInfo, askInfo, askDemo] : [askInfo, askInfo]) {
      try { await ask(); } catch { /* no answer is no news */ }
    }
    setTimeout(look, document.hidden ? LOOK_EVERY_MS * 5 : LOOK_EVERY_MS);
  };
  await look();
}
