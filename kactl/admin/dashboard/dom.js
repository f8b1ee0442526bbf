// Elements made from values. Text is always text: nothing here parses HTML.

/** Returns an element. Attributes that are functions are listeners; null and false leave an attribute out. */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Returns an SVG element, as `h` does. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value != null && value !== false) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...shown(children));
  return element;
}

/** Returns the children that there are. Characters that mislead a reader are replaced: controls and marks of direction. */
function shown(children) {
  return children
    .flat(Infinity)
    .filter((child) => child != null)
    .map((child) => (typeof child === "string" ? child.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, "\ufffd") : child));
}

/** Replaces the children of an element. */
export function show(element, ...children) {
  element.replaceChildren(...shown(children));
}

/** Returns a table with a caption. Cells are text or nodes; columns with `number: true` are aligned to the right. */
export function table(caption, columns, rows) {
  const kind = (column) => (column.number ? "number" : null);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.title)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h("tr", {}, columns.map((column, index) => h("td", { class: kind(column) }, row[index]))),
        ),
      ),
    ),
  );
}

/** Returns a state as text with a mark, so that colour is not the only signal. */
export function state(level, text) {
  const marks = { good: "✓", warn: "!", bad: "✕", none: "–" };
  return h("span", { class: `state ${level}` }, h("span", { "aria-hidden": "true" }, marks[level]), ` ${text}`);
}

/** Shows an error in words, in place of the content that could not be had. */
export function failure(error) {
  return h("p", { class: "failure", role: "alert" }, error.message);
}
