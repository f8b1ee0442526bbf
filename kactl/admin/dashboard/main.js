// The frame around the pages: navigation, login, theme, and the state of the connection.

import { credential, get, logIn } from "./api.js";
import { cluster, start, stop, subscribe } from "./cluster.js";
import { failure, h, show, state } from "./dom.js";
import { age } from "./format.js";
import { PAGES } from "./pages.js";

const main = document.getElementById("main");
const THEMES = ["auto", "light", "dark"];
let leaving = null;

/** Draws the page that the address names. */
async function route(event) {
  const { name, parts, query } = address();
  const page = PAGES[name];
  leaving?.abort();
  leaving = new AbortController();
  document.title = page ? `${page.title} – kactl` : "kactl";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!page) {
    show(main, h("h1", {}, "No such page"), h("p", {}, h("a", { href: "#/now" }, "Go to the first page")));
    return;
  }
  const content = h("div", { class: `page ${name}` });
  show(main, h("h1", {}, page.title), content);
  if (event) main.focus({ preventScroll: true }); // as after the load of a page
  try {
    await page.draw(content, { parts, query, signal: leaving.signal });
  } catch (error) {
    if (error.name !== "AbortError") show(content, failure(error));
  }
}

/** The code by which `kactl dashboard` logs this page in; null without one. */
function code() {
  return location.hash.startsWith("#login=") ? location.hash.slice("#login=".length) : null;
}

/** The address behind `#/` as { name, parts, query }. */
function address() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  return { name: name || "now", parts, query: new URLSearchParams(text) };
}

/** Asks for a token. Called when the server does not accept the present credential, or there is none. */
function login(why = "") {
  stop();
  leaving?.abort();
  if (document.getElementById("login")) return;
  const ended = credential.get() && "Your login has ended: it expired, or its token was revoked or replaced.";
  credential.forget();
  document.getElementById("logout").hidden = true;
  const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const message = h("p", { role: "alert" });
  const form = h(
    "form",
    {
      id: "login",
      submit: async (event) => {
        event.preventDefault();
        try {
          await logIn(input.value.trim());
        } catch (error) {
          show(message, failure(error));
          return;
        }
        enter();
      },
    },
    h("h1", {}, "Log in"),
    why || ended ? h("p", { role: "status" }, why || ended) : null,
    h("label", { for: "token" }, "Token"),
    input,
    h("button", {}, "Log in"),
    message,
    h(
      "p",
      { class: "hint" },
      h("code", {}, "kactl dashboard"),
      " opens this page without a token. The server's own token is in ",
      h("code", {}, "security/local.token"),
      " of its data folder; ",
      h("code", {}, "kactl token create NAME --role viewer --expires 30d"),
      " makes another one. A login lasts 8 hours, or until the tab is closed.",
    ),
  );
  show(main, form);
  input.focus();
}

/** Logs in with the code behind `#login=`, which works once: it leaves the address first. */
async function enterWith(code) {
  history.replaceState(null, "", "#/now");
  try {
    await logIn(code);
  } catch (error) {
    if (error.status !== 401) return show(main, failure(error), h("button", { click: enter }, "Retry"));
    document.getElementById("login")?.remove();
    return login("The address that opened this page works once, and for a minute: run it again, or enter a token.");
  }
  await enter();
}

async function enter() {
  document.getElementById("logout").hidden = !credential.get();
  show(main, h("p", {}, "Loading"));
  try {
    await get("v1/controller"); // a single request without a credential, if the server needs one
    await start();
  } catch (error) {
    if (error.status !== 401) show(main, failure(error), h("button", { click: enter }, "Retry"));
    return;
  }
  await route();
}

function frame() {
  show(
    document.querySelector("nav"),
    Object.entries(PAGES)
      .filter(([, page]) => page.listed !== false)
      .map(([name, page]) => h("a", { href: `#/${name}` }, page.title)),
  );
  document.getElementById("logout").addEventListener("click", () => {
    credential.forget();
    login("You have logged out.");
  });
  const button = document.getElementById("theme");
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    show(button, `Theme: ${theme}`);
  };
  apply(localStorage.getItem("kactl.theme") ?? "auto");
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
    localStorage.setItem("kactl.theme", next);
    apply(next);
  });
}

function status() {
  const { info, live, error } = cluster;
  show(
    document.getElementById("connection"),
    error ? state("bad", error.message) : live ? state("good", "live") : state("warn", "reconnecting"),
  );
  if (!info) return;
  const since = info.since_ms ? `, for ${age(info.as_of.epoch && Date.now() - info.since_ms)}` : "";
  show(
    document.getElementById("controller"),
    info.controller_id == null
      ? state("bad", "no controller")
      : `${info.cluster}: controller ${info.controller_id}, epoch ${info.epoch}${since}`,
  );
}

document.addEventListener("kactl:unauthorized", () => login());
window.addEventListener("hashchange", (event) => {
  if (code()) enterWith(code());
  else if (!document.getElementById("login")) route(event);
});
subscribe((what) => (what === "connection" || what === "snapshot") && status());
frame();
if (code()) enterWith(code());
else enter();
